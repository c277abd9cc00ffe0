#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# from_bare.sh [DIR]: measures the way from a bare Debian 12 to `netmeter list`:
# seconds, and megabytes of fetched packages; with the packages of make_debs.sh and from
# sources.
#
#   packaging/make_debs.sh && packaging/from_bare.sh
#
# DIR has the packages (packaging/build). Each way begins in a new root with
# debootstrap's smallest variant. The time includes fetching the lists of packages, but
# the megabytes do not. The meters are on a cgroup of their own. Run it as root; it
# takes some minutes. Needs test/install_packages.sh package.
set -euo pipefail

die() { echo "from_bare.sh: $*" >&2; exit 1; }

case ${1:-} in -h | --help) sed -n '3,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
[ "$(id -u)" = 0 ] || die "not root"
# The mounts end with this process.
[ "${NETMETER_UNSHARED:-}" = 1 ] ||
  exec env NETMETER_UNSHARED=1 unshare --mount --pid --fork --kill-child "$0" "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
debs=$(cd "${1:-packaging/build}" 2> /dev/null && pwd) || die "no folder ${1:-packaging/build} (run: packaging/make_debs.sh)"
ls "$debs"/netmeter_*.deb > /dev/null 2>&1 || die "no packages in $debs (run: packaging/make_debs.sh)"
command -v mmdebstrap > /dev/null || die "no mmdebstrap (run: test/install_packages.sh package)"
cgroups=$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
[ -n "$cgroups" ] || die "no cgroup v2 is mounted"

scratch=$(mktemp -d /var/tmp/netmeter-bare.XXXXXX)
cgroup=$cgroups/netmeter-bare-$$
clean() {
  rmdir "$cgroup" 2> /dev/null || true
  for way in packages sources; do
    umount -R "$scratch/$way/proc" "$scratch/$way/sys" "$scratch/$way/run" 2> /dev/null || true
  done
  rm -rf --one-file-system "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM
mmdebstrap --quiet --format=tar --variant=minbase --include=ca-certificates bookworm "$scratch/bare.tar"

# Runs its standard input in a new root. Prints seconds, and the megabytes of packages
# there: apt-get keeps the packages that it has fetched.
measure() {
  local way=$1 root=$scratch/$1 start
  mkdir "$root"
  tar -C "$root" -xf "$scratch/bare.tar"
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
  printf '%-10s %8d %8.0f\n' "$way" $((SECONDS - start)) \
    "$(find "$root/var/cache/apt/archives" "$root/root" -name '*.deb' -printf '%s\n' | awk '{ sum += $1 } END { print sum / 1000000 }')"
  env -i PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" netmeter-loader unload > /dev/null
  rmdir "$cgroup"
}
copy_packages() { cp "$debs"/netmeter_*.deb "$1/root/"; }
copy_sources() {
  mkdir "$1/root/src"
  git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -xC "$1/root/src"
}

# shellcheck disable=SC2016 # for the inner shell
show='netmeter-loader load --cgroup "$CGROUP"
netmeter list'

printf '%-10s %8s %8s\n' "" seconds MB
measure packages << END
cd /root
apt-get update
apt-get install -y --no-install-recommends ./*.deb
$show
END
measure sources << END
cd /root/src
test/install_packages.sh build
bazel build -c opt //lib/loader:netmeter-loader //lib/tools:netmeter
install bazel-bin/lib/loader/netmeter-loader bazel-bin/lib/tools/netmeter /usr/local/sbin/
$show
END
