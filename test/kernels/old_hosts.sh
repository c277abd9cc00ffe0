#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# old_hosts.sh [--bin DIR] [--library DIR] [KERNEL...]: runs the static programs on hosts
# that are older than the machine that built them.
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
#
# --library: DIR has the output of packaging/make_library.sh. Debian 11's compilers build
# embed.c, with both libraries, and embed.cc of examples/, which then read the loaded
# meter. Needs root.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() { echo "old_hosts.sh: $*" >&2; exit 1; }

bin=bazel-bin library='' kernels=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '3,21s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --bin) [ $# -ge 2 ] || die "--bin needs a value"; bin=$2; shift 2 ;;
    --library) [ -d "${2:-}" ] || die "--library needs a folder"; library=$(realpath "$2"); shift 2 ;;
    -*) die "unknown option $1 (--help tells)" ;;
    *) kernels+=("$1"); shift ;;
  esac
done
[ ${#kernels[@]} -gt 0 ] || kernels=(5.10 6.1)
declare -A suites=([5.10]=bullseye [6.1]=bookworm)
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/netmeter
mkdir -p "$cache"

root=$cache/bullseye-glibc-c++.tar
if [ ! -e "$root" ]; then
  mmdebstrap --quiet --format=tar --variant=extract --include=libc6,libc-bin,bash,coreutils,libstdc++6 \
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
mkdir "$scratch/library"
if [ -n "$library" ]; then
  # shellcheck source=packaging/glibc_2_31.sh
  . "$here/../../packaging/glibc_2_31.sh"
  for_glibc_2_31
  cp "$library"/netmeter-*-glibc2.31-x86_64.tar.gz "$scratch/library/library.tar.gz"
  cp "$here"/../../examples/embed.{c,cc} "$scratch/library/"
  # In an overlay, which goes with its mount namespace.
  mkdir "$scratch/overlay"
  # shellcheck disable=SC2016 # for the inner shell
  unshare --mount bash -euc '
    mount -t tmpfs overlay "$2"
    mkdir "$2/upper" "$2/work" "$2/root"
    mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$2/root"
    mount --bind "$3" "$2/root/mnt"
    chroot "$2/root" sh -eu' _ "$sysroot" "$scratch/overlay" "$scratch/library" << 'BUILD'
tar -xzC / -f /mnt/library.tar.gz
ldconfig
cd /mnt
cc embed.c -o embed-c $(pkg-config --cflags --libs netmeter)
cc embed.c -o embed-static -l:libnetmeter.a -lstdc++ -lm -pthread
c++ -std=c++17 -I/opt/include embed.cc -o embed-c++ $(pkg-config --cflags --libs netmeter) -L/opt/lib -labsl_statusor -pthread
BUILD
fi
tar -cC "$scratch" -f "$scratch/library.tar" library
cat > "$scratch/guest.sh" << 'GUEST'
set -eu
ip link add cloud type dummy
ip address add 10.9.0.1/24 dev cloud
ip link set cloud up
ip route add 192.0.2.0/24 dev cloud
mkdir /empty /old
tar -x -C /old -f /t/root.tar
tar -x -C /old -f /t/library.tar
if [ -e /old/library/library.tar.gz ]; then
  tar -xz -C /old -f /old/library/library.tar.gz
  chroot /old /sbin/ldconfig
fi
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
  sent=0
  for program in embed-c embed-static embed-c++; do
    if [ $root = /empty ] || [ ! -e /old/library/library.tar.gz ]; then continue; fi
    sent=$((sent + 33))
    printed=$(chroot /old /library/$program) || { echo "$program: $printed"; exit 1; }
    [ "$printed" = "my-service, udp: sent $sent bytes, received 0" ] || { echo "$program: $printed"; exit 1; }
    echo "good: $program"
  done
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
  "$here/vmrun.sh" -k "$folder" -m dummy -M 1024 -t 300 "${files[@]}" -f "$root:/t/root.tar" -f "$scratch/library.tar:/t/library.tar" \
    -f "$scratch/guest.sh" -- dash /t/guest.sh || die "it fails with Linux $kernel"
done
