#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# accuracy.sh [OPTION]...: checks every byte of the live tests, and its name.
#
#   --kernels LIST   host (default); all: host 5.10 6.1 6.12 7.2; or some of those in
#                    matrix.sh, of which some, such as 6.1-rt, run fewer tests
#   --filter GLOB    only these tests (as --gtest_filter)
#   --json FILE      all rows with all of their names (test/accuracy/report.py has the
#                    format)
#
# As root on Debian 12: installs missing packages, builds, and runs the live tests,
# which send real traffic between network namespaces. Prints a table with a row for each
# measurement and direction. `expected` is the count of an interface on a hop where each
# packet is real, without layer-2 headers; a capture there has to agree. `ours` is the
# sum of the meter's series. A row is exact if the difference is 0, and explained if the
# difference is what the capture found of the kinds of packets that are named beside it
# (docs/counting.md). Otherwise the row is wrong. It is also wrong if its test failed,
# which checks names, packets and payload, too.
#
# A measurement that a kernel does not support is listed apart, with what was tried, and
# is no row. The last line is "N rows, N exact, N explained, N wrong". Exits with 0 if
# none is wrong, every test passed, and there were at least 60 rows for each kernel (at
# least 1 with --filter, or if fewer tests run).
set -euo pipefail
usage() { sed -n '3,23s/^# \{0,1\}//p' "$0"; }
die() { echo "accuracy.sh: $*" >&2; exit 2; }

kernels=host filter='-Stress.*:Verifier.*' json='' minimum=60
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --kernels=* | --filter=* | --json=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    --kernels | --filter | --json) [ $# -ge 2 ] || die "$1 needs a value" ;;
    *) die "unknown option $1 (--help tells)" ;;
  esac
  case $1 in
    --kernels) kernels=$2 ;;
    --filter) filter=$2 minimum=1 ;;
    --json) json=$(realpath -m -- "$2") ;;
  esac
  shift 2
done
if [ "$kernels" = all ]; then kernels=host,5.10,6.1,6.12,7.2; fi
if [ -n "$json" ] && [ ! -w "$(dirname "$json")" ]; then die "cannot write $json"; fi
[ "$(id -u)" = 0 ] || die "not root: the live tests load BPF programs"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

targets=(//test/live:live_test //lib/netmeter_loader:netmeter-loader)
packages='build'
if [ "$kernels" != host ]; then
  targets+=(//lib/netmeter_loader:netmeter-loader-static)
  packages='test'
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
test/install_packages.sh "$packages"
options=(--jobs=2 --color=no --curses=no --noshow_progress)
bazel build "${options[@]}" "${targets[@]}" > "$out/log" 2>&1 ||
  { cat "$out/log" >&2; die "the build failed"; }
bin=$(bazel info "${options[@]}" bazel-bin 2> /dev/null)

status=0
test/kernels/matrix.sh --live-test-alone --kernels "$kernels" --filter "$filter" --bin "$bin" --out "$out/lanes" > "$out/log" 2>&1 || status=$?
if [ $status != 0 ]; then cat "$out/log"; fi
python3 test/accuracy/report.py --minimum "$minimum" ${json:+--json "$json"} "$out/lanes" > "$out/table" || status=1
if [ $status != 0 ]; then
  trap - EXIT
  echo "logs: $out/lanes"
fi
cat "$out/table"
exit $status
