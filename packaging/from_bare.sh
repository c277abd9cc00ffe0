#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# from_bare.sh: measures README's install, from two bare machines of Debian 12 to
# `netmeter list`: the builder makes the packages, and the gateway installs them.
# Prints seconds, megabytes of fetched packages, and megabytes of disk.
#
# Each begins in a new root with debootstrap's smallest variant. The time includes
# fetching the lists of packages, but the megabytes do not. The meter is on a cgroup of
# its own. Run it as root. Needs test/install_packages.sh package.
set -euo pipefail

die() { echo "from_bare.sh: $*" >&2; exit 1; }

case ${1:-} in -h | --help) sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
[ "$(id -u)" = 0 ] || die "not root"
# The mounts end with this process.
[ "${NETMETER_UNSHARED:-}" = 1 ] ||
  exec env NETMETER_UNSHARED=1 unshare --mount --pid --fork --kill-child "$0" "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v mmdebstrap > /dev/null || die "no mmdebstrap (run: test/install_packages.sh package)"
cgroups=$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
[ -n "$cgroups" ] || die "no cgroup v2 is mounted"

scratch=$(mktemp -d /var/tmp/netmeter-bare.XXXXXX)
cgroup=$cgroups/netmeter-bare-$$
clean() {
  rmdir "$cgroup" 2> /dev/null || true
  for way in builder gateway; do
    umount -R "$scratch/$way/proc" "$scratch/$way/sys" "$scratch/$way/run" 2> /dev/null || true
  done
  rm -rf --one-file-system "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM
mmdebstrap --quiet --format=tar --variant=minbase --include=ca-certificates bookworm "$scratch/bare.tar"

# Runs its standard input in a new root. apt-get keeps the packages that it has fetched.
measure() {
  local way=$1 root=$scratch/$1 start bare
  mkdir "$root"
  tar -C "$root" -xf "$scratch/bare.tar"
  bare=$(du -xsm "$root" | cut -f1)
  # As on a machine.
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --make-rslave "$root/sys"
  mount -t tmpfs tmpfs "$root/run"
  cp /etc/resolv.conf "$root/etc/" 2> /dev/null || true
  "copy_$way" "$root"
  mkdir -p "$cgroup"
  cat > "$root/steps"
  start=$SECONDS
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
    CGROUP="$cgroup" chroot "$root" bash -e /steps > "$scratch/$way.log" 2>&1 || { tail -n 20 "$scratch/$way.log" >&2; die "$way: failed"; }
  printf '%-10s %8d %8.0f %8d\n' "$way" $((SECONDS - start)) \
    "$(find "$root/var/cache/apt/archives" -name '*.deb' -printf '%s\n' | awk '{ sum += $1 } END { print sum / 1000000 }')" \
    $(($(du -xsm "$root" | cut -f1) - bare))
  rmdir "$cgroup"
}
copy_builder() {
  mkdir "$1/root/src"
  git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -xC "$1/root/src"
}
copy_gateway() { cp "$scratch"/builder/root/src/packaging/build/*.deb "$1/root/"; }

printf '%-10s %8s %8s %8s\n' "" seconds fetched disk
measure builder << 'END'
cd /root/src
test/install_packages.sh package
packaging/make_debs.sh
END
measure gateway << 'END'
cd /root
apt-get update
apt-get install -y ./netmeter{-loader,,-exporter}_*.deb
netmeter-loader load --cgroup "$CGROUP"
netmeter list
netmeter-loader unload
END
