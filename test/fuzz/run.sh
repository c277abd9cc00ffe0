#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [OPTION...] [TARGET...]: fuzzes the parsers with libFuzzer, asan and
# ubsan. TARGET is h2, tls, http, command_line, wire_name, grpc or
# http_request; all if none is given.
#
#   --runs N      executions of each (the default takes a few seconds)
#   --seconds N   seconds for each, in place of --runs
#   --seed N      the seed of libFuzzer's random numbers (default 1, so that two runs are
#                 equal; 0: another one each time)
#   --keep DIR    compile there, and keep the findings
#   --merge       add to corpus/ the inputs that reached other code than those there
#
# build.sh compiles the fuzzers, with CXXFLAGS and LIB_FUZZING_ENGINE if they are set. The
# seeds in corpus/ are the first bytes of real clients, and what --merge has added. A
# finding is printed, and its input kept. The last line is "N passed, N failed", one per
# target; exits with 0 if none failed. Two targets run at a time.
#
# A release needs --seconds 3600: four hours. --runs 10000000, which a parser of foreign
# bytes should see, works for any target. A small machine's busy core does, in a second:
#
#   wire_name 28000                                           10 minutes for 10 million
#   http_request 12000, http 11000                            15 minutes
#   command_line 6000, h2 5700, tls 5600                      half an hour
#   grpc 3700                                                 one hour
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P) || exit 1
cd "$root" || exit 1
usage() { sed -n '3,25s/^# \{0,1\}//p' test/fuzz/run.sh; }

declare -A default_runs=([grpc]=3000) # others: 100000

runs='' seconds='' seed=1 keep='' merge='' targets=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --runs=* | --seconds=* | --seed=* | --keep=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
  esac
  case $1 in
    --runs | --seconds | --seed)
      [[ ${2:-} =~ ^[0-9]+$ ]] || { echo "run.sh: $1 needs a number" >&2; exit 2; }
      printf -v "${1#--}" %s "$2"; shift 2 ;;
    --keep)
      [ -n "${2:-}" ] || { echo "run.sh: --keep needs a folder" >&2; exit 2; }
      keep=$2; shift 2 ;;
    --merge) merge=yes; shift ;;
    *)
      [[ $1 =~ ^[a-z][a-z0-9_]*$ && -e test/fuzz/fuzz_$1.cc ]] || { echo "run.sh: no option or target: $1 (--help tells)" >&2; exit 2; }
      targets+=("$1"); shift ;;
  esac
done
if [ ${#targets[@]} = 0 ]; then
  targets=(test/fuzz/fuzz_*.cc)
  targets=("${targets[@]#*/fuzz_}") targets=("${targets[@]%.cc}")
fi

if [ -n "$keep" ]; then
  mkdir -p "$keep" && work=$(cd "$keep" && pwd -P) || exit 1
else
  work=$(mktemp -d "${TMPDIR:-/tmp}/netmeter-fuzz.XXXXXX") || exit 1
fi
passed=0 failed=0
# shellcheck disable=SC2317 # by trap
cleanup() {
  local job
  for job in $(jobs -p); do kill -- "-$job" 2> /dev/null; done
  wait
  if [ -z "$keep" ] && [ "$failed" = 0 ]; then rm -rf "$work"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

stat_of() { awk -v name="stat::$1:" '$1 == name { print $2 }' "$2"; }

# fuzz TARGET: its last line says "passed" or "FAILED".
fuzz() {
  local target=$1 log=$work/$1.log limit started done_runs
  if ! OUT=$work test/fuzz/build.sh "$target" > "$log" 2>&1; then
    cat "$log"
    echo "FAILED fuzz_$target: does not compile"
    return
  fi
  if [ -n "$seconds" ]; then
    limit=-max_total_time=$seconds
  else
    limit=-runs=${runs:-${default_runs[$target]:-100000}}
  fi
  mkdir -p "$work/$target"
  started=$SECONDS
  # The quarantine for freed memory has 8 MiB: an execution uses kilobytes, and the
  # default of 256 MiB costs half of the time.
  if ASAN_OPTIONS=strict_string_checks=1:quarantine_size_mb=8 UBSAN_OPTIONS=print_stacktrace=1 \
    "$work/fuzz_$target" "$limit" "-seed=$seed" "-max_len=$(sed -n 's/^max_len = //p' "$work/fuzz_$target.options")" -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 -reload=0 "-artifact_prefix=$work/$target-" \
    "$work/$target" "test/fuzz/corpus/$target" > "$log" 2>&1 < /dev/null; then
    done_runs=$(stat_of number_of_executed_units "$log")
    # A fuzzer that ended early, or had no seeds, proves nothing.
    if [ -z "$seconds" ] && [ "${done_runs:-0}" -lt "${limit#-runs=}" ]; then
      echo "FAILED fuzz_$target: ${done_runs:-0} executions only"
    else
      if [ -n "$merge" ]; then
        "$work/fuzz_$target" -merge=1 -use_counters=0 "test/fuzz/corpus/$target" "$work/$target" >> "$log" 2>&1 < /dev/null ||
          echo "fuzz_$target: cannot merge its corpus"
      fi
      echo "passed fuzz_$target: $done_runs executions in $((SECONDS - started)) s, $(stat_of average_exec_per_sec "$log") a second"
    fi
  else
    grep -v '^#[0-9]' "$log" | tail -n 60
    echo "FAILED fuzz_$target: the input is $(ls "$work/$target-"* 2> /dev/null || echo 'not there'), the log $log"
  fi
}

# report TARGET: prints the result of fuzz.
report() {
  cat "$work/$1.result"
  if tail -n 1 "$work/$1.result" | grep -q '^passed '; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

set -m # a process group for each, for cleanup
running=()
for target in "${targets[@]}"; do
  # Two at a time, reported in order.
  if [ ${#running[@]} = 2 ]; then
    wait "${running[0]#*:}"
    report "${running[0]%:*}"
    running=("${running[1]}")
  fi
  fuzz "$target" > "$work/$target.result" 2>&1 &
  running+=("$target:$!")
done
for pair in "${running[@]}"; do
  wait "${pair#*:}"
  report "${pair%:*}"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
