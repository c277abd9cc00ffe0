#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [--core] [--quick] [--kernels all|host|LIST] [--long] [--noisy] [--filter GLOB]:
# runs the tests of libnetmeter.
#
# As root on Debian 12 or 13: installs missing packages, builds everything, and runs
#
#   the unit tests, under asan and ubsan if they can; under tsan those that start threads
#   the tests that need root: BPF programs, loader, tools
#   examples/demo.sh
#   the live tests on this kernel and, in virtual machines, on the oldest and the
#   newest of Debian's
#
#   --core           only the library, its loader and its bindings: the tests that need no
#                    application (lib/apps), and so no SQLite, ncurses, nghttp2 or zlib.
#                    Without the demo, which uses the tools
#   --quick          the tests between two edits, in less than two minutes once
#                    everything is built: the unit tests without the tag "slow", the
#                    packet tables of test/program, and one load, one live balance and
#                    one unload on this kernel. No network, no virtual machine
#   --kernels LIST   host: no virtual machine; all; or some of those in
#                    test/kernels/matrix.sh (default: host,7.2,5.10)
#   --long           also the tests tagged "long", which take more than a minute each
#                    or cover what few edits touch (benchmarks, stores, consumers,
#                    container manifests, the dashboard); all unit tests without
#                    sanitizers, larger samples, the fuzzers, the demo again, a short
#                    soak, and in virtual machines the live tests that rarely differ
#                    between kernels
#   --noisy          beside processes that take all CPUs, and come and go: finds tests
#                    that depend on luck
#   --filter GLOB    only the cases whose name matches (as --gtest_filter)
#
# One test is one gtest case (or one target, if it is no gtest), once per sanitizer and
# once per kernel. A case that is skipped, crashed, timed out or never ran has failed.
# Tables at the end show where the time went. The last line is "N passed, N failed".
# Exits with 0 if none failed and at least 60 passed (with --filter: at least 1). A
# whole run with --kernels all --long on a tree without changes notes that it passed,
# for packaging/make_release.sh.
set -uo pipefail
MINIMUM=60
usage() { sed -n '3,41s/^# \{0,1\}//p' "$0"; }

start=$SECONDS
passed=0 failed=0
rows=()
logs='' tree=''
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1

# Only say and finish write the lines for the reader.
say() { printf '[%2d:%02d] %s\n' $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)) "$*"; }
finish() {
  if [ ${#rows[@]} -gt 0 ]; then
    rows+=("all|$passed|$failed|$((SECONDS - start))")
    echo
    { echo "stage|passed|failed|seconds"; printf '%s\n' "${rows[@]}"; } |
      awk -F'|' '{ printf "  %-40s %8s %8s %8s\n", $1, $2, $3, $4 }'
    echo
    if compgen -G "$logs/*.events" > /dev/null; then slowest; fi
  fi
  if [ "$failed" = 0 ] && [ "$passed" -lt "$MINIMUM" ]; then echo "fewer than $MINIMUM tests passed: something did not run"; fi
  # The failures come last, so that the end of the output shows them.
  if [ -n "$logs" ] && [ -s "$logs/failures" ]; then
    head -n 40 "$logs/failures"
    echo
  fi
  if [ "$failed" != 0 ] && [ -n "$logs" ]; then echo "logs: $logs"; fi
  if [ "$failed" = 0 ] && [ -n "$tree" ] && [ "$tree" = "$(clean_tree)" ]; then
    echo "$tree" > "$(git rev-parse --git-path netmeter-tested)"
  fi
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ] && [ "$passed" -ge "$MINIMUM" ]
  exit
}
# clean_tree: the hash of the commit's tree, if the work tree has no change.
clean_tree() {
  if [ -z "$(git status --porcelain 2>&1)" ]; then git rev-parse 'HEAD^{tree}'; fi
}
give_up() {
  echo "run.sh: $*"
  failed=$((failed + 1))
  finish
}

kernels=host,7.2,5.10 filter='*' quick='' long='' noisy='' core=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --core | --quick | --long | --noisy) printf -v "${1#--}" yes; shift; continue ;;
    --kernels=* | --filter=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    --kernels | --filter) [ $# -ge 2 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; } ;;
    *) echo "run.sh: unknown option $1 (--help tells)" >&2; exit 2 ;;
  esac
  if [ "$1" = --kernels ]; then kernels=$2; else filter=$2 MINIMUM=1; fi
  shift 2
done
if [ -n "$quick" ] && [ "$kernels$filter$long" != 'host,7.2,5.10*' ]; then
  echo "run.sh: --quick goes with no other option but --core and --noisy" >&2
  exit 2
fi
if [ "$core$long" = yesyes ]; then
  echo "run.sh: --core and --long do not go together" >&2
  exit 2
fi
cd "$root" || exit 1
if [ "$kernels$filter$long" = 'all*yes' ]; then tree=$(clean_tree); fi

# --- this machine -----------------------------------------------------------
# Bazel needs these, and a CI machine may set none.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 LANG=C.UTF-8
unset LANGUAGE BASH_ENV ENV CDPATH PYTHONPATH PYTHONHOME
USER=$(id -un 2> /dev/null || echo root)
export USER LOGNAME=$USER
if [ -z "${HOME:-}" ]; then HOME=$(getent passwd "$(id -u)" | cut -d: -f6); fi
if [ ! -d "$HOME" ] || [ ! -w "$HOME" ]; then HOME=/var/tmp/netmeter-$USER; fi
mkdir -p "$HOME" || give_up "cannot write to HOME ($HOME)"
export HOME

[ "$(id -u)" = 0 ] || give_up "not root: the tests load BPF programs and make network namespaces"
grep -qw bpf /proc/filesystems || give_up "this kernel has no BPF filesystem (CONFIG_BPF_SYSCALL)"
[ -r /sys/kernel/btf/vmlinux ] || give_up "this kernel has no BTF: /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)"
grep -q '^[^ ]* [^ ]* cgroup2 ' /proc/mounts ||
  give_up "cgroup v2 is not mounted (mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified)"

logs=$(mktemp -d "${TMPDIR:-/tmp}/netmeter-test.XXXXXX") || give_up "cannot make a temporary folder"
child='' fetch='' lanes='' noise=''
# shellcheck disable=SC2317 # by trap
cleanup() {
  if [ -n "$fetch" ]; then kill "$fetch" 2> /dev/null; fi
  if [ -n "$noise" ]; then kill -- "-$noise" 2> /dev/null; fi
  if [ -n "$lanes" ]; then
    kill "$lanes" 2> /dev/null
    wait "$lanes"
  fi
  if [ -n "$child" ]; then
    kill -- "-$child" 2> /dev/null
    wait "$child"
  fi
  # --quick leaves Bazel's server running for the next run.
  if [ -z "$quick" ] && command -v bazel > /dev/null; then bazel shutdown > /dev/null 2>&1; fi
  if [ "$failed" = 0 ] && [ -z "$child" ]; then rm -rf "$logs"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# run LOG COMMAND...: in its own process group, which a signal may end.
run() {
  local log=$1 status=0
  shift
  set -m
  "$@" > "$log" 2>&1 < /dev/null &
  child=$!
  set +m
  wait "$child" || status=$?
  child=
  return $status
}

# make_noise: repeats: processes that take all CPUs for one to three seconds, a hundred
# short-lived ones, and a second of quiet.
make_noise() {
  local i cpus
  cpus=$(nproc)
  while :; do
    for ((i = 0; i < 2 * cpus; i++)); do timeout --foreground $((RANDOM % 3 + 1)) sh -c 'while :; do :; done' & done
    for ((i = 0; i < 100; i++)); do sleep 0.$((RANDOM % 10)) & done
    wait
    sleep 1
  done
}

# --- packages and build -----------------------------------------------------
say "packages"
stage=$SECONDS
run "$logs/packages.log" test/install_packages.sh "$([ -n "$core" ] && echo core || echo test)" ||
  { cat "$logs/packages.log"; give_up "packages are missing"; }
rows+=("packages|||$((SECONDS - stage))")
if [ -n "$noisy" ]; then
  set -m
  make_noise > /dev/null 2>&1 < /dev/null &
  noise=$!
  set +m
fi

# For the limits of verifier_test.
clang --version | grep -q 'version 14\.' || export NETMETER_OTHER_CLANG=1

# Tests run two at a time or one by one, so that a small machine suffices.
# The first option is not valid for a query.
options=(--jobs=2 --color=no --curses=no --noshow_progress --noshow_loading_progress)
test_options=("${options[@]}" --keep_going --build_tests_only --cache_test_results=no
  --flaky_test_attempts=1 --test_summary=short)
if [ "$filter" != '*' ]; then test_options+=("--test_filter=$filter"); fi

# Meanwhile the kernels are fetched. A lane that finds none tries again.
if [ -z "$quick" ]; then
  test/kernels/matrix.sh --fetch --kernels "$kernels" > "$logs/fetch.log" 2>&1 < /dev/null &
  fetch=$!
fi
say "build"
stage=$SECONDS
# //... would follow links to the output of another HOME's Bazel.
base=$(bazel info "${options[@]}" output_base 2> "$logs/bazel.log") || { cat "$logs/bazel.log"; give_up "bazel does not start"; }
for link in bazel-*; do
  if [ -L "$link" ] && [[ $(readlink "$link") != "$base"/* ]]; then rm "$link"; fi
done
# query EXPRESSION: its targets, in the array `found`.
query() {
  mapfile -t found < <(bazel query "${options[@]:1}" "$1" 2> "$logs/query.log")
  [ ${#found[@]} -gt 0 ] || { cat "$logs/query.log"; give_up "bazel query failed"; }
}
targets=(//...)
if [ -n "$core" ]; then
  query 'tests(//lib/... + //bpf/... + //bindings/... + //test/... - //lib/apps/... - //test/apps/...
    - //test/benchmark/... - //test/docs/...) except attr(tags, manual, //...)'
  targets=("${found[@]}" //lib/netmeter_loader:netmeter-loader-static)
  crossed=$(bazel query "${options[@]:1}" "set(${targets[*]}) intersect rdeps(//..., //lib/apps/...)" 2> /dev/null)
  [ -z "$crossed" ] || give_up "the core depends on an application (lib/apps): ${crossed//$'\n'/ }"
fi
# Unit tests are compiled once, with sanitizers; those that cannot be, without.
sanitized=()
if [ -z "$quick$long" ]; then
  query "kind(cc_test, set(${targets[*]})) except
    attr(tags, 'requires-root|no-sanitizer|no-asan|manual', //...)"
  sanitized=("${found[@]/#/-}")
fi
plain=(-- "${targets[@]}" ${sanitized[@]+"${sanitized[@]}"})
run "$logs/build.log" bazel build "${options[@]}" --keep_going "${plain[@]}" ||
  { tail -n 60 "$logs/build.log"; give_up "the build failed"; }
bin=$(bazel info "${options[@]}" bazel-bin 2> /dev/null) || give_up "bazel info failed"
rows+=("build|||$((SECONDS - stage))")

# count EVENTS: prints "passed failed" for a build event file of "bazel test". Failures
# go to stderr, each with the first lines of its output.
count() {
  python3 - "$1" << 'EOF'
import json
import re
import sys
import urllib.parse
import xml.etree.ElementTree as ET

results, broken = {}, []
try:
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            if "testResult" in event["id"]:
                key = event["id"]["testResult"]
                results[key["label"], key.get("run"), key.get("shard")] = event.get("testResult", {})
            elif "testSummary" in event["id"] and "aborted" in event:
                broken.append(event["id"]["testSummary"]["label"])
except (OSError, ValueError) as error:
    broken.append(f"events of bazel: {error}")

passed, failures = 0, [f"{label}: was not run" for label in broken]
for (label, _, _), result in sorted(results.items(), key=str):
    before = len(failures)
    uris = [o.get("uri", "") for o in result.get("testActionOutput", []) if o["name"] == "test.xml"]
    try:
        tree = ET.parse(urllib.parse.unquote(urllib.parse.urlparse(uris[0]).path))
    except (IndexError, OSError, ET.ParseError):
        failures.append(f"{label}: {result.get('status')}, no test.xml")
        continue
    # For a test that is no gtest, Bazel writes one case with all of its output.
    output = "".join(element.text or "" for element in tree.iter("system-out"))
    skipped = re.search(r"\bSKIPPED\b|\(skipped=", output)
    for case in tree.iter("testcase"):
        name = f"{label}: {case.get('classname', '')}.{case.get('name')}".replace(": .", ": ")
        trouble = [one for one in (case.find("failure"), case.find("error")) if one is not None]
        if trouble:
            said = trouble[0].get("message") or ""
            if output:
                said = "\n".join(re.findall(r"^(?:\w*(?:Error|Exception)\b.*|FAIL.*|.*\bfailed\b.*)$", output, re.MULTILINE))
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            failures.append("\n    ".join([name, *(line[:200] for line in lines[:4])]))
        elif skipped or case.find("skipped") is not None or case.get("status") == "notrun" or case.get("result") in ("skipped", "suppressed"):
            failures.append(name + " (skipped)")
        else:
            passed += 1
    if result.get("status") != "PASSED" and len(failures) == before:
        failures.append(f"{label}: {result.get('status')}")
for failure in failures:
    print("FAILED " + failure, file=sys.stderr)
print(passed, len(failures))
EOF
}

# slowest: the ten slowest targets of Bazel.
slowest() {
  python3 - "$logs"/*.events << 'EOF'
import json
import os
import sys

took = []
for path in sys.argv[1:]:
    try:
        with open(path, encoding="utf-8") as file:
            for event in map(json.loads, file):
                if "testResult" not in event["id"]:
                    continue
                key, result = event["id"]["testResult"], event.get("testResult", {})
                stage = os.path.basename(path)[: -len(".events")].replace("--", ", ").replace("-", " ")
                took.append((int(result.get("testAttemptDurationMillis", 0)) / 1000, key["label"], stage))
    except (OSError, ValueError):
        pass
if took:
    print("  the slowest targets")
    for seconds, label, stage in sorted(took, reverse=True)[:10]:
        print(f"  {seconds:8.1f} s  {label}, {stage}")
    print()
EOF
}

# account TITLE PASSED FAILED SECONDS
account() {
  rows+=("$1|$2|$3|$4")
  passed=$((passed + $2)) failed=$((failed + $3))
}

# bazel_test TITLE ARGUMENT...
bazel_test() {
  local title=$1 name=${1//[^a-z]/-} stage=$SECONDS status=0 good bad
  shift
  say "$title"
  run "$logs/$name.log" bazel test "${test_options[@]}" --build_event_json_file="$logs/$name.events" "$@" || status=$?
  read -r good bad < <(count "$logs/$name.events" 2> "$logs/$name.failures")
  good=${good:-0} bad=${bad:-0}
  # 4: no test was found. Never says "none failed" if Bazel reports a failure.
  if [ "$bad" = 0 ] && { [ $status != 0 ] || { [ "$good" = 0 ] && [ "$filter" = '*' ]; }; }; then
    bad=1
    echo "FAILED $title: bazel test, status $status" >> "$logs/$name.failures"
  fi
  account "$title" "$good" "$bad" $((SECONDS - stage))
  if [ "$bad" != 0 ]; then
    tail -n 60 "$logs/$name.log"
    sed 's/^/  /' "$logs/$name.failures" | tee -a "$logs/failures"
  fi
}

# stage TITLE COMMAND...: a stage without Bazel tests. Its last line is its own "N
# passed, N failed"; otherwise it counts as one test by its exit status.
stage() {
  local title=$1 name=${1//[^a-z]/-} begin=$SECONDS status=0 good=1 bad=0 last
  shift
  say "$title"
  run "$logs/$name.log" "$@" || status=$?
  last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$logs/$name.log" | tail -n 1)
  if [ -n "$last" ]; then read -r good _ bad _ <<< "$last"; fi
  if [ $status != 0 ] && [ "$bad" = 0 ]; then good=0 bad=1; fi
  account "$title" "$good" "$bad" $((SECONDS - begin))
  if [ "$bad" != 0 ]; then
    tail -n 60 "$logs/$name.log"
    echo "  FAILED $title" >> "$logs/failures"
  fi
}
# --- tests ------------------------------------------------------------------
# The live tests, after a load, a status and an unload of the loader. start_live KERNELS
# FILTER starts the lanes, one at a time while $logs/beside exists.
start_live() {
  test/kernels/matrix.sh --kernels "$1" --filter "$2" --bin "$bin" --out "$logs/kernels" \
    --beside "$logs/beside" ${core:+--core} ${long:+--long} > "$logs/kernels.log" 2>&1 < /dev/null &
  lanes=$!
}

# finish_live TITLE: waits for the lanes.
finish_live() {
  local title=$1 begin=$SECONDS good=0 bad=1 log
  say "$title"
  rm -f "$logs/beside"
  wait "$lanes" || true
  lanes=
  cat "$logs/kernels.log"
  # Each lane's own time, which mostly overlaps with the stages before.
  for log in "$logs"/kernels/*/seconds; do
    if [ -e "$log" ]; then rows+=("  the lane $(basename "${log%/*}")|||$(cat "$log")"); fi
  done
  if [ -s "$logs/kernels/summary" ]; then read -r good bad < "$logs/kernels/summary"; fi
  account "$title" "$good" "$bad" $((SECONDS - begin))
  if [ "$bad" != 0 ]; then
    if [ ! -s "$logs/kernels/failures" ]; then echo "FAILED $title: matrix.sh" > "$logs/kernels/failures"; fi
    cat "$logs/kernels/failures"
    grep -A 4 '^FAILED' "$logs/kernels/failures" | cut -c1-200 | sed 's/^/  /' >> "$logs/failures"
  fi
}

if [ -n "$quick" ]; then
  bazel_test "unit tests, the quick ones" --config=quick -- "${targets[@]}"
  bazel_test "packet tables" --config=root //test/program:program_test
  start_live host '*LinkTest.*:*BalanceTest.ManyConnections*'
  finish_live "load, live balance, unload"
  finish
fi

# The virtual machines run beside all other stages, one at a time, because most root
# tests wait for the network or for time to pass.
: > "$logs/beside"
start_live "$kernels" "$filter"
bazel_test "unit tests" "${plain[@]}"
extra=()
# With more random bits in addresses, the runtimes of GCC 12 find no room.
if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2> /dev/null || echo 0)" -gt 28 ]; then
  extra=(--run_under="/usr/bin/setarch --addr-no-randomize")
fi
bazel_test "unit tests, asan and ubsan" --config=asan-ubsan ${extra[@]+"${extra[@]}"} -- "${targets[@]}"
bazel_test "unit tests with threads, tsan" --config=tsan ${extra[@]+"${extra[@]}"} -- "${targets[@]}"
bazel_test "root tests on this kernel" --config=root --jobs=3 ${long:+--test_env=NETMETER_SAMPLE=12} -- \
  "${targets[@]}" -//test/live:live_test -//test/apps/live:apps_live_test -//lib/evict:evict_root_test
if [ -z "$core" ] && [ "$filter" = '*' ]; then stage "demo" examples/demo.sh; fi
if [ -n "$long" ] && [ "$filter" = '*' ]; then
  query 'attr(tags, long, tests(//...))'
  bazel_test "unit tests, long" "${found[@]}"
  bazel_test "root tests, long" --config=root "${found[@]}"
  stage "demo, again" examples/demo.sh
  stage "fuzzing, in short" test/fuzz/run.sh
fi
bazel shutdown > /dev/null 2>&1 # frees its memory for the virtual machines
finish_live "live tests on kernels ($kernels)"
if [ -n "$long" ] && [ "$filter" = '*' ]; then stage "soak, in short" test/soak.sh --short; fi
finish
