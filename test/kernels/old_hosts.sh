#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# old_hosts.sh [--bin DIR] [KERNEL...]: runs the static programs on hosts that are older
# than the machine that built them.
#
#   bazel build -c opt //lib/netmeter_loader:netmeter-loader-static \
#     //lib/apps/netmeter:netmeter-static //lib/apps/exporter:netmeter-exporter-static
#   test/kernels/old_hosts.sh
#
# In a folder with nothing else, and in Debian 11, whose glibc (2.31) is that of Ubuntu
# 20.04, they load, show and publish the traffic of a program of Debian 11, and unload.
# The kernels are 5.10 and 6.1, on either side of 5.15, which Ubuntu 20.04 has as HWE.
# DIR has the programs (default bazel-bin). Prints their sizes and a line for each. The
# first run fetches about 20 MB of Debian 11. Needs test/install_packages.sh guests and
# the kernels of matrix.sh --fetch; no root.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() { echo "old_hosts.sh: $*" >&2; exit 1; }

bin=bazel-bin kernels=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '3,17s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --bin) [ $# -ge 2 ] || die "--bin needs a value"; bin=$2; shift 2 ;;
    -*) die "unknown option $1 (--help tells)" ;;
    *) kernels+=("$1"); shift ;;
  esac
done
[ ${#kernels[@]} -gt 0 ] || kernels=(5.10 6.1)
declare -A suites=([5.10]=bullseye [6.1]=bookworm)
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/netmeter
mkdir -p "$cache"

root=$cache/bullseye-glibc.tar
if [ ! -e "$root" ]; then
  mmdebstrap --quiet --format=tar --variant=extract --include=libc6,libc-bin,bash,coreutils \
    --dpkgopt='path-exclude=/usr/share/*' bullseye "$root.new.tar"
  mv "$root.new.tar" "$root"
fi
programs=() files=()
for program in lib/netmeter_loader/netmeter-loader lib/apps/netmeter/netmeter lib/apps/exporter/netmeter-exporter; do
  [ -x "$bin/$program-static" ] || die "no $bin/$program-static (--help tells how to build it)"
  programs+=("$bin/$program-static")
  files+=(-f "$bin/$program-static:/t/bin/${program##*/}")
done
for program in "${programs[@]}"; do echo "${program##*/}: $(stat -Lc %s "$program") bytes"; done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat > "$scratch/guest.sh" << 'GUEST'
set -eu
ip link add cloud type dummy
ip address add 10.9.0.1/24 dev cloud
ip link set cloud up
mkdir /empty /old
tar -x -C /old -f /t/root.tar
expected='linux_bytes_sent_total{binary_name="bash"} 5'
for root in /empty /old; do
  mkdir -p $root/proc $root/sys $root/run $root/dev
  cp /t/bin/* $root/
  mount -t proc proc $root/proc
  mount -t sysfs sys $root/sys
  mount -t cgroup2 cgroup $root/sys/fs/cgroup
  mount -t tmpfs run $root/run
  mount -t devtmpfs dev $root/dev
  chroot $root /netmeter-loader load --quiet --group ''
  # A program with the old glibc. It sends 5 bytes; IP and UDP add 28.
  chroot /old /bin/bash -c 'printf hello > /dev/udp/10.9.0.2/9'
  chroot $root /netmeter list --json | tr -d ' \n' | tr '}' '\n' > /tmp/rows
  grep '"name":"bash"' /tmp/rows | grep -q '"tx_bytes":33\b' || { cat /tmp/rows; exit 1; }
  chroot $root /netmeter-exporter --listen 127.0.0.1:9384 --families kernsnoopd > /tmp/exporter 2>&1 &
  exporter=$!
  n=0
  until wget -qO /tmp/page http://127.0.0.1:9384/metrics 2> /dev/null; do
    n=$((n + 1))
    [ $n -lt 100 ] || { cat /tmp/exporter; exit 1; }
    sleep 0.1
  done
  kill $exporter
  wait $exporter || true
  grep -qF "$expected" /tmp/page || { cat /tmp/page; exit 1; }
  chroot $root /netmeter-loader unload --quiet
  case $root in
    /empty) what='an empty folder' ;;
    *) what="Debian 11 ($(chroot /old /usr/bin/ldd --version | head -n 1))" ;;
  esac
  echo "good: load, list, export and unload in $what"
done
GUEST
for kernel in "${kernels[@]}"; do
  [ -n "${suites[$kernel]:-}" ] || die "unknown kernel $kernel: 5.10 or 6.1"
  folder=$cache/kernels/${suites[$kernel]}
  [ -s "$folder/release" ] || die "no kernel $kernel (run: test/kernels/matrix.sh --fetch --kernels $kernel)"
  echo "Linux $(cat "$folder/release"):"
  "$here/vmrun.sh" -k "$folder" -m dummy -M 1024 -t 300 "${files[@]}" -f "$root:/t/root.tar" \
    -f "$scratch/guest.sh" -- dash /t/guest.sh || die "it fails with Linux $kernel"
done
