#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# from_bare.sh: measures README's install, from two bare machines of Debian 12 to
# `netmeter list`: the builder makes the packages, and the gateway installs them.
# Prints seconds, megabytes of fetched packages, and megabytes of disk.
#
# Each begins in a new root with debootstrap's smallest variant. The time includes
# fetching the lists of packages, but the megabytes do not. The meter is on a cgroup of
# its own. Run it as root. Needs test/install_packages.sh package.
#
#   from_bare.sh --readme [SUITE]...   instead: README's two commands on a bare machine
#                                of Debian SUITE (default: trixie and bookworm), with git
#                                and the last commit of this checkout. Prints minutes and
#                                the last line of each command. Its whole output is in
#                                packaging/build. OPTIONS in the environment go to
#                                test/run.sh. Takes an hour for each
set -euo pipefail

die() { echo "from_bare.sh: $*" >&2; exit 1; }

case ${1:-} in
  "" | --readme) ;;
  -h | --help) sed -n '3,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) die "unknown option $1 (--help tells)" ;;
esac
[ "$(id -u)" = 0 ] || die "not root"
# The mounts end with this process, and so do Bazel's servers; but the tests need all of
# the machine's processes.
pids=(--pid --fork --kill-child)
[ $# = 0 ] || pids=()
[ "${NETMETER_UNSHARED:-}" = 1 ] ||
  exec env NETMETER_UNSHARED=1 unshare --mount "${pids[@]}" "$0" "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v mmdebstrap > /dev/null || die "no mmdebstrap (run: test/install_packages.sh package)"
cgroups=$(awk '$0 ~ / - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
[ -n "$cgroups" ] || die "no cgroup v2 is mounted"

scratch=$(mktemp -d /var/tmp/netmeter-bare.XXXXXX)
cgroup=$cgroups/netmeter-bare-$$
clean() {
  rmdir "$cgroup" 2> /dev/null || true
  for mounted in "$scratch"/*/{proc,sys,run,dev}; do umount -R "$mounted" 2> /dev/null || true; done
  rm -rf --one-file-system "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM

# boot ROOT: as on a machine.
boot() {
  mount -t proc proc "$1/proc"
  mount --rbind /sys "$1/sys"
  mount --make-rslave "$1/sys"
  mount -t tmpfs tmpfs "$1/run"
  cp /etc/resolv.conf "$1/etc/" 2> /dev/null || true
}
# in_root ROOT WORD...: a command there, with these settings. No chroot(1), in which the
# kernel makes no user namespace.
in_root() {
  local root=$1
  shift
  # shellcheck disable=SC2016 # for the inner shell
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
    "${settings[@]}" unshare --mount \
    sh -c 'mount --rbind "$0" "$0" && cd "$0" && pivot_root . . && umount -l . && exec "$@"' "$root" "$@"
}
settings=("CGROUP=$cgroup")

# readme SUITE
readme() {
  local suite=$1 root=$scratch/$1 command log start status worst=0
  mmdebstrap --quiet --variant=minbase --include=ca-certificates,git "$suite" "$root" > "$scratch/log" 2>&1 ||
    { tail -n 20 "$scratch/log" >&2; die "mmdebstrap could not make a root of $suite"; }
  boot "$root"
  mount --rbind /dev "$root/dev"
  mount --make-rslave "$root/dev"
  # The certificates and mirrors of this machine.
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  git clone -q --no-local . "$root/src"
  for command in examples/demo.sh "test/run.sh${OPTIONS:+ $OPTIONS}"; do
    log=packaging/build/readme-$suite-$(basename "${command%% *}" .sh).log
    start=$SECONDS status=0
    in_root "$root" timeout 5h bash -c "cd /src && exec $command" > "$log" 2>&1 < /dev/null || status=$?
    printf '%-10s %-18s %4d min  %s\n' "$suite" "${command%% *}" $(((SECONDS - start + 30) / 60)) "$(tail -n 1 "$log")"
    if [ $status != 0 ]; then echo "from_bare.sh: exit status $status, see $log" >&2; worst=1; fi
  done
  umount -R "$root/proc" "$root/sys" "$root/run" "$root/dev" && rm -rf --one-file-system "$root"
  return $worst
}
if [ "${1:-}" = --readme ]; then
  shift
  [ $# -gt 0 ] || set -- trixie bookworm
  mapfile -t settings < <(env | grep -E '^(PIP_|GOPROXY=)')
  mkdir -p packaging/build
  failed=0
  for suite in "$@"; do readme "$suite" || failed=1; done
  exit $failed
fi

mmdebstrap --quiet --format=tar --variant=minbase --include=ca-certificates bookworm "$scratch/bare.tar"

# Runs its standard input in a new root. apt-get keeps the packages that it has fetched.
measure() {
  local way=$1 root=$scratch/$1 start bare
  mkdir "$root"
  tar -C "$root" -xf "$scratch/bare.tar"
  bare=$(du -xsm "$root" | cut -f1)
  boot "$root"
  "copy_$way" "$root"
  mkdir -p "$cgroup"
  cat > "$root/steps"
  start=$SECONDS
  in_root "$root" bash -e /steps > "$scratch/$way.log" 2>&1 || { tail -n 20 "$scratch/$way.log" >&2; die "$way: failed"; }
  printf '%-10s %8d %8.0f %8d\n' "$way" $((SECONDS - start)) \
    "$(find "$root/var/cache/apt/archives" -name '*.deb' -printf '%s\n' | awk '{ sum += $1 } END { print sum / 1000000 }')" \
    $(($(du -xsm "$root" | cut -f1) - bare))
  rmdir "$cgroup"
}
copy_builder() {
  mkdir "$1/src"
  git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -xC "$1/src"
}
copy_gateway() { cp "$scratch"/builder/src/packaging/build/*.deb "$1/root/"; }

printf '%-10s %8s %8s %8s\n' "" seconds fetched disk
measure builder << 'END'
cd /src
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
