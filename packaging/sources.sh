# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# For the scripts here that make a root by mmdebstrap: sources_of SUITE ARCH sets
# `sources` to mmdebstrap's sources, and `image` to the package of its kernel. Ubuntu's
# need ubuntu-keyring, of Debian 13 or bookworm-backports; NETMETER_UBUNTU names a mirror
# of its archive, NETMETER_UBUNTU_KEYS a file with its keys.
# shellcheck disable=SC2034 # callers use both
sources_of() {
  local part keys=${NETMETER_UBUNTU_KEYS:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
  sources=()
  image=linux-image-$2
  [[ $1 =~ ^(jammy|noble)$ ]] || return 0
  [ -e "$keys" ] || die "no keys of Ubuntu's archive in $keys (apt-get install ubuntu-keyring, on Debian 12 from bookworm-backports)"
  # Without the updates, libnghttp2 has no limit for CONTINUATION frames.
  for part in "$1" "$1-updates" "$1-security"; do
    sources+=("deb [signed-by=$keys] ${NETMETER_UBUNTU:-http://archive.ubuntu.com/ubuntu} $part main universe")
  done
  image=linux-image-virtual
}
