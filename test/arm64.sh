#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# arm64.sh [--root DIR] [--kernel SUITE]: builds for arm64, and runs the result.
#
# 1. A cross compiler of Debian 12 builds the programs, the libraries, the kernel part
#    and tests, in a root of its own (DIR, made once by mmdebstrap; 2.5 GB; default
#    ~/.cache/netmeter/cross-arm64).
# 2. Unit tests that need only files of a kernel run by qemu-user.
# 3. Debian's arm64 kernel of SUITE (default bookworm) boots in QEMU and runs all live
#    tests (real traffic, the balance to the byte) and those of the BPF programs.
#
# Prints a line for each test and "N passed, N failed"; exits with 0 if none failed.
# Needs root, and test/install_packages.sh guests. Not in test/run.sh.
set -euo pipefail
usage() { sed -n '3,14s/^# \{0,1\}//p' "$0"; }
die() { echo "arm64.sh: $*" >&2; exit 1; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/netmeter
directory=$cache/cross-arm64 suite=bookworm
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --root | --kernel) [ $# -ge 2 ] || die "$1 needs a value" ;;
    *) die "unknown option $1 (--help tells)" ;;
  esac
  case $1 in
    --root) directory=$2 ;;
    --kernel) suite=$2 ;;
  esac
  shift 2
done
[ "$(id -u)" = 0 ] || die "run as root"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for program in mmdebstrap qemu-system-aarch64 readelf; do
  command -v "$program" > /dev/null || die "no $program (test/install_packages.sh guests)"
done

# The building machine runs its own programs, and links with arm64's libraries.
tools=bazel-bootstrap,g++,g++-aarch64-linux-gnu,clang,llvm,bpftool,ca-certificates,protobuf-compiler,protobuf-compiler-grpc,python3,python3-dev,pybind11-dev,qemu-user-static,procps
headers=libcli11-dev,nlohmann-json3-dev,libprotozero-dev
libraries=libbpf-dev,libelf-dev,zlib1g-dev,libabsl-dev,libyaml-cpp-dev,libnghttp2-dev,libsqlite3-dev,libncurses-dev,libfixbuf-dev,prometheus-cpp-dev,libgrpc++-dev,libprotobuf-dev,libpython3-dev,libgtest-dev,libgmock-dev,linux-libc-dev
guest=busybox-static,dash,coreutils,util-linux,iproute2,ethtool,procps,bpftool,findutils,libbpf1,libyaml-cpp0.7,libnghttp2-14,libsqlite3-0,libabsl20220623,libncursesw6,libelf1,libstdc++6

if [ ! -e "$directory/usr/bin/aarch64-linux-gnu-g++" ]; then
  mkdir -p "$(dirname "$directory")"
  rm -rf --one-file-system "$directory.new"
  mmdebstrap --quiet --variant=minbase --architectures=amd64,arm64 \
    --include="$tools,$headers,${libraries//,/:arm64,}:arm64" bookworm "$directory.new"
  # Unpacked and not installed, because nothing of it runs here.
  mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$guest" \
    bookworm "$directory.new/guest"
  mv "$directory.new" "$directory"
fi

clean_up() { umount -R "$directory/dev" "$directory/proc" 2> /dev/null || :; }
trap clean_up EXIT
trap 'exit 1' INT TERM
mount -t proc proc "$directory/proc"
mount --rbind /dev "$directory/dev"
mount --make-rslave "$directory/dev"

rm -rf "$directory/src"
mkdir -p "$directory/src/out" "$directory/opt/arm64"
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -xC "$directory/src"
# Bazel looks for the linker beside the compiler. There is none here, so the compiler
# takes its own, and not gold, whose static programs for arm64 crash at their start.
printf '#!/bin/sh\nexec /usr/bin/aarch64-linux-gnu-gcc "$@"\n' > "$directory/opt/arm64/gcc"
chmod 755 "$directory/opt/arm64/gcc"
cat > "$directory/root/.bazelrc" << 'END'
build --repo_env=CC=/opt/arm64/gcc --action_env=NETMETER_CXX=aarch64-linux-gnu-g++
build --linkopt=-fuse-ld=bfd --features=-supports_start_end_lib --dynamic_mode=off
build --jobs=2 --color=no --curses=no --noshow_progress
END
inside() {
  # shellcheck disable=SC2016 # for the inner shell
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$directory" sh -c 'cd /src && exec "$@"' sh "$@"
}

echo "== build"
programs=(loader/netmeter-loader-static tools/netmeter-static tools/netmeter-exporter-static)
units=(core:abi_test core:flags_test core:series_reader_test core:series_reader_info_test
  core:text_test core:wire_name_test core:words_test history:budget_test history:calendar_test
  history:difference_test history:record_test history:since_test loader:config_test
  loader:meter_object_test metrics:families_test
  metrics:exposition_test magma:magma_test prometheus:families_test sockets:diag_message_test
  tools:report_test tools:usage_text_test uplinks:balance_test)
tests=(live/live_test apps/live/apps_live_test program/stress_test program/verifier_test)
targets=(//packaging)
for target in "${programs[@]}"; do targets+=("//lib/${target/\//:}"); done
for target in "${units[@]}"; do targets+=("//lib/$target"); done
for target in "${tests[@]}"; do targets+=("//test/${target/\//:}"); done
inside bazel build "${targets[@]}"
inside bazel shutdown
# Bazel's links point into the root, so the files themselves are copied out of it.
inside cp -RL bazel-bin/test/live/live_test.runfiles out/
inside cp -L "${programs[@]/#/bazel-bin/lib/}" "${tests[@]/#/bazel-bin/test/}" out/
out=$directory/src/out
ls -l "$out"

echo "== unit tests, by qemu-user"
passed=0 failed=0
for unit in "${units[@]}"; do
  if inside sh -c "TEST_TMPDIR=/tmp qemu-aarch64-static bazel-bin/lib/${unit/:/\/}" > "$directory/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED $unit"
    tail -n 20 "$directory/log"
  fi
done
echo "unit tests: $passed passed, $failed failed"

echo "== live tests on $suite's kernel"
kernel=$cache/kernels/$suite-arm64
FLAVOUR=cloud-arm64 test/kernels/getkernel.sh "$suite" "$kernel"
options=()
for module in veth dummy bridge ifb sch_netem sch_tbf sch_fq sch_ingress tun cls_u32 cls_matchall \
  act_mirred act_gact af_packet udp_tunnel vxlan inet_diag tcp_diag udp_diag raw_diag mptcp_diag; do
  if [ -n "$(find "$kernel/modules" \( -name "$module.ko*" -o -name "${module//_/-}.ko*" \) -print -quit)" ]; then
    options+=(-m "$module")
  fi
done
status=0
# The guest has no iptables.
test/kernels/vmrun.sh -r "$directory/guest" -k "$kernel" "${options[@]}" -b ip -b tc -b ss -b ethtool -b bpftool -b sysctl \
  -f "$out/netmeter-loader-static:/bin/netmeter-loader" -f "$out/netmeter-static:/bin/netmeter" \
  -f test/kernels/lane.sh -f "$out/live_test.runfiles:/t/runfiles" -f "$out/apps_live_test" -f "$out/stress_test" -f "$out/verifier_test" \
  -M 1024 -t 2400 -- env NETMETER_LIVE_OPTIONS= \
  ./lane.sh ./test/live/live_test /t/runfiles '*-SoakTest.*:*RemainderTest.WhatARule*' 1800 /t/apps_live_test /t/stress_test /t/verifier_test \
  > "$directory/live.log" 2>&1 || status=$?
grep -E '^@@(release|load)|\[ *(FAILED|PASSED) *\]' "$directory/live.log" || tail -n 40 "$directory/live.log"
live=$(grep -c '^\[ *OK' "$directory/live.log" || :)
broken=$(grep -c '^\[ *FAILED *\] .*(.* ms)' "$directory/live.log" || :)
if [ "$status" != 0 ] && [ "$broken" = 0 ]; then broken=1; fi
echo "log: $directory/live.log"
echo "$((passed + live)) passed, $((failed + broken)) failed"
[ "$((failed + broken))" = 0 ]
