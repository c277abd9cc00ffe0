# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# For the scripts here, which mmdebstrap a release: sources_of SUITE ARCH sets `sources`
# to what it takes as such, and `image` to the package of its kernel. Ubuntu's need
# ubuntu-keyring; NETMETER_UBUNTU names a mirror of its archive, NETMETER_UBUNTU_KEYS a
# file with its keys.
# shellcheck disable=SC2034 # the two are of those who call
sources_of() {
  local part keys=${NETMETER_UBUNTU_KEYS:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
  sources=()
  image=linux-image-$2
  [ "$1" = noble ] || return 0
  [ -e "$keys" ] || die "no keys of Ubuntu's archive in $keys (apt-get install ubuntu-keyring)"
  # Without its updates, libnghttp2 has no limit for CONTINUATION frames.
  for part in noble noble-updates noble-security; do
    sources+=("deb [signed-by=$keys] ${NETMETER_UBUNTU:-http://archive.ubuntu.com/ubuntu} $part main universe")
  done
  image=linux-image-virtual
}
