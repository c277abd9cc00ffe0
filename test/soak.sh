#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# soak.sh [OPTION]...: everything at once, for a chosen time.
#
#   --minutes N      rounds of a minute each (10)
#   --upgrades N     then N upgrades with growth, under four kinds of traffic (200: some
#                    seconds each, ten minutes together)
#   --short          one round of 8 seconds and 3 upgrades, as in test/run.sh
#   --json FILE      the results of each round, and after those of a test the counts of
#                    its third reader and the exporter, one JSON object per line
#   --packets FILE   the packets, with names, of the last round that was not explained:
#                    200 MB
#   --kernel LINE    in a virtual machine with 2 CPUs and this kernel (5.10 6.1 6.12 7.2),
#                    whose second CPU, absent at the load, comes and goes twice a second,
#                    and whose clock goes an hour ahead and back; without the third
#                    reader, the exporter, and files
#
# As root on Debian 12. Eight kinds of traffic run at once between the test's own
# network namespaces, with a witness whose name is never idle. Meanwhile programs are
# replaced, tables grow, idle series are evicted, processes register and end, the socket
# table is too small, and a memory cgroup sometimes has no room for the senders (with
# cgroup v1: frees what it can). Two readers in C++, one in Python, and an exporter
# watch. Prints a line for each round. In it:
#
#   - the interface and the meter may differ by packets of named kinds only
#     (docs/counting.md#unnamed-traffic);
#   - the payload of the witness and of registered processes must be under their names,
#     and payload without a name may only belong to new names;
#   - no reader may fail, or see a value or the sum decrease, except values of as many
#     series as were evicted (`evicted` in the line: since the load);
#   - the kernel may keep no more maps and programs than in the second round, and no more
#     memory for them than 64 KiB and 2 KiB for each growth since then (other loads on
#     this host count as well: run it alone); a reader in C++ may grow by 1 MiB at most.
#
# So less than three rounds compare no memory. The reader in Python and the exporter may
# each grow by 4 MiB after their first minute. Bytes are of the round; upgrades,
# growths, evicted and reads are totals. Exits with 0 if all of this holds. Leaves
# nothing behind, however it ends.
set -euo pipefail
usage() { sed -n '3,39s/^# \{0,1\}//p' "$0"; }
die() { echo "soak.sh: $*" >&2; exit 2; }

minutes=10 seconds=60 upgrades=200 json='' packets='' kernel=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --short) minutes=1 seconds=8 upgrades=3; shift; continue ;;
    --minutes=* | --upgrades=* | --json=* | --packets=* | --kernel=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    --minutes | --upgrades | --json | --packets | --kernel) [ $# -ge 2 ] || die "$1 needs a value" ;;
    *) die "unknown option $1 (--help tells)" ;;
  esac
  case $1 in
    --minutes | --upgrades)
      [[ $2 =~ ^[0-9]+$ ]] || die "$1 needs a number"
      printf -v "${1#--}" %s "$2" ;;
    --json | --packets) printf -v "${1#--}" %s "$(realpath -m -- "$2")" ;;
    --kernel) kernel=$2 ;;
  esac
  shift 2
done
case $kernel in
  '') ;;
  5.10 | 6.1 | 6.12 | 7.2) [ -z "$json$packets" ] || die "--kernel goes without --json and --packets" ;;
  *) die "no kernel '$kernel': 5.10, 6.1, 6.12 or 7.2" ;;
esac
[ "$(id -u)" = 0 ] || die "not root: the soak loads BPF programs"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

for file in "$json" "$packets"; do
  if [ -n "$file" ]; then : > "$file" || die "cannot write $file"; fi
done
targets=(//test/live:live_test //lib/netmeter_loader:netmeter-loader //lib/apps/exporter:netmeter-exporter //test/soak:observer)
if [ -n "$kernel" ]; then
  targets+=(//lib/netmeter_loader:netmeter-loader-static //lib/apps/netmeter:netmeter //lib/apps/netmeter:netmeter-static)
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# The trap of a signal runs after the foreground command, so none may take long.
child=''
# shellcheck disable=SC2317 # by trap
stop() {
  if [ -n "$child" ] && kill "$child" 2> /dev/null; then wait "$child" || true; fi
  exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM
run() { "$@" & child=$!; wait "$child"; }
build=(--jobs=2 --color=no --curses=no --noshow_progress)
run bazel build "${build[@]}" "${targets[@]}" > "$out/log" 2>&1 || { cat "$out/log" >&2; die "the build failed"; }
bin=$(bazel info "${build[@]}" bazel-bin 2> /dev/null)

# A round takes longer than its traffic: an upgrade may be running, and all must become
# quiet. Each upgrade takes some seconds.
options=("--soak-rounds=$minutes" "--soak-seconds=$seconds" "--soak-upgrades=$upgrades")
what="$minutes round$([ "$minutes" = 1 ] || echo s) of $seconds s and $upgrades upgrades"
limit=$((600 + minutes * 120 + upgrades * 15))
if [ -n "$kernel" ]; then
  # The second CPU is then possible, but not online, at first.
  status=0
  run test/kernels/matrix.sh --kernels "$kernel" --bin "$bin" --out "$out" --timeout $((limit * 2)) --cpus 2 \
    --live-test-alone --kernel-arguments maxcpus=1 --filter 'SoakTest.*' --live-options "${options[*]} --soak-cpu-hotplug --soak-clock-jumps" > "$out/matrix" 2>&1 || status=$?
  if [ -e "$out/$kernel/log" ]; then sed -n '/^@@live-begin/,/^@@live-end/{/^@@/!p}' "$out/$kernel/log"; fi
  if [ $status = 0 ]; then echo "passed: $what on $kernel"; else cat "$out/matrix"; echo "FAILED ($status)"; fi
  exit $status
fi
options+=('--gtest_filter=SoakTest.*' --gtest_brief=1 "--soak-observer=$bin/test/soak/observer $bin/lib/apps/exporter/netmeter-exporter ${json:-/dev/null}")
if [ -n "$json" ]; then options+=("--soak-json=$json"); fi
if [ -n "$packets" ]; then options+=("--soak-packets=$packets"); fi
status=0
run timeout --foreground -k 30 "$limit" "$bin/test/live/live_test" --loader="$bin/lib/netmeter_loader/netmeter-loader" \
  --actor="$bin/test/live/live_actor" "${options[@]}" || status=$?
if [ $status = 0 ]; then echo "passed: $what"; else echo "FAILED ($status)"; fi
exit $status
