#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# arm64.sh [OPTION]...: cross-builds for arm64, and runs the result on Debian's arm64
# kernels, each in a whole virtual machine: the live tests, as test/kernels/matrix.sh
# runs them on x86-64.
#
# OPTION is one of matrix.sh (--kernels, default 5.10-arm64,6.1-arm64,7.2-arm64;
# --filter, --out, ...). CPU=cortex-a72 emulates a processor without LSE atomics, for
# which the kernel compiles other adds. packaging/in_root.sh builds, once for each clone;
# the guest's programs are in ~/.cache/netmeter/guest-arm64. Exits with 0 if nothing
# failed. Needs root, and test/install_packages.sh guests. Not in test/run.sh.
set -euo pipefail
die() { echo "arm64.sh: $*" >&2; exit 1; }
case ${1:-} in -h | --help) sed -n '3,12s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
[ "$(id -u)" = 0 ] || die "not root"
for program in mmdebstrap qemu-system-aarch64 readelf; do
  command -v "$program" > /dev/null || die "no $program (run: test/install_packages.sh guests)"
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/netmeter guest=$cache/guest-arm64

# Extracted and not installed, because nothing of it runs here.
if [ ! -e "$guest/bin/dash" ]; then
  rm -rf --one-file-system "$guest.new"
  mmdebstrap --quiet --variant=extract --architectures=arm64 bookworm "$guest.new" \
    --include=busybox-static,dash,coreutils,util-linux,iproute2,ethtool,procps,bpftool,findutils,iptables,libbpf1,libyaml-cpp0.7,libabsl20220623,libncursesw6,libelf1,libstdc++6
  for name in iptables ip6tables; do ln -sf xtables-nft-multi "$guest.new/usr/sbin/$name"; done
  mv "$guest.new" "$guest"
fi

# Bazel's links point into the root, so the files themselves are copied out of it.
bin=$cache/arm64-bin
rm -rf "$bin"
mkdir "$bin"
packaging/in_root.sh --out "$bin" bookworm arm64 sh -euc '
  bazel build -c opt //lib/netmeter_loader:netmeter-loader-static //test/live:live_test //test/apps/live:apps_live_test \
    //test/program:stress_test //test/program:verifier_test //lib/evict:evict_root_test
  bazel shutdown
  cd bazel-bin
  cp -RL --parents lib/netmeter_loader/netmeter-loader-static test/live/live_test test/live/live_test.runfiles \
    test/apps/live/apps_live_test test/program/stress_test test/program/verifier_test lib/evict/evict_root_test /out'
test/kernels/matrix.sh --kernels 5.10-arm64,6.1-arm64,7.2-arm64 --timeout 5400 "$@" --guest "$guest" --bin "$bin"
