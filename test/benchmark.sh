#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# benchmark.sh BENCHMARK[,BENCHMARK...] [--json FILE] [--smoke]: the cost of
#   counting.
# benchmark.sh report FILE... [--out DIR]: makes docs/performance.md and the claim of
#   README.md from results
#
# As root on Debian 12: installs missing packages, builds with optimization, measures,
# and prints tables and the targets with their verdicts. Candidates run in turn; figures
# are medians with quartiles.
#
#   datapath     ns per packet of the BPF programs beyond an empty program, beside a
#                hash that all CPUs share; about three minutes
#   structures   the same job with each data structure that meters use, and with
#                the tables of kernsnoopd, Skydive and netobserv
#   throughput   loss of TCP requests and small UDP over loopback and veth:
#                empty programs, netmeter, others, tcpdump, nethogs
#   download     like throughput, for one TCP stream to the client, with TSO and GRO
#                and without
#   churn        like throughput, for short connections; with --profile instead: the
#                time of a connection by function, with netmeter (needs linux-perf)
#   ablate       the CPU time of a short connection, beside empty programs at some of
#                netmeter's hooks, and the runs of each program
#   forwarding   the cost of forwarded packets: without uplinks no run of netmeter's
#                programs; with uplinks and by client, beside traffic control (tc) and
#                netobserv
#   names        the largest cost of reading a name from a connection's first bytes
#   read         a read by the library: 16 series, and 4,096
#   scrape       /metrics and GetMetrics of 4,096 series
#   flows        1,000,000 open flows that a router forwards, and a follower of them
#   sockets      up to 1,000,000 open and active sockets
#   sockdiag     netmeter sockets beside ss, with 100,000 sockets
#   load         netmeter-loader, and its size on disk
#   all          all of them; 20 to 40 minutes. Several names with commas are measured
#                into one file
#
#   --json FILE  all samples and the verdicts (test/benchmark/summary.py has the format)
#   --object NAME=FILE, --loader NAME=FILE
#                throughput, churn, ablate: another build of netmeter as well, by its
#                netmeter.bpf.o if no map and no program was added or taken away since,
#                or by its netmeter-loader
#   --netobserv FILE
#                forwarding: netobserv's own programs, too. FILE is the compiled object
#                of its repository, pkg/ebpf/bpf_x86_bpfel.o
#   --smoke      everything once and briefly: only shows that it works
#
# Uses its own cgroup, network namespaces and mounts, and leaves nothing behind. For
# figures worth quoting, the machine should be idle otherwise.
set -euo pipefail
usage() { sed -n '3,48s/^# \{0,1\}//p' "$0"; }
die() { echo "benchmark.sh: $*" >&2; exit 1; }

case ${1:-} in
  -h | --help) usage; exit 0 ;;
  *,*) mode=$1; shift ;;
  datapath | structures | throughput | download | churn | ablate | forwarding | names | read | scrape | flows | sockets | sockdiag | load | all | report) mode=$1; shift ;;
  '') usage >&2; exit 2 ;;
  *) echo "benchmark.sh: unknown benchmark $1 (--help tells)" >&2; exit 2 ;;
esac
# Paths from the caller are relative to the caller's directory.
arguments=()
path_next=
for argument in "$@"; do
  if [ "$path_next" = build ]; then
    [[ $argument = *=/* ]] || argument=${argument%%=*}=$PWD/${argument#*=}
  elif { [ -n "$path_next" ] || { [ "$mode" = report ] && [[ $argument != -* ]]; }; } && [[ $argument != /* ]]; then
    argument=$PWD/$argument
  fi
  path_next=
  case $argument in
    --json | --out | --netobserv) path_next=1 ;;
    --object | --loader) path_next=build ;;
    --json=[!/]* | --out=[!/]* | --netobserv=[!/]*) argument=${argument%%=*}=$PWD/${argument#*=} ;;
  esac
  arguments+=("$argument")
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
if [ "$mode" = report ]; then exec python3 test/benchmark/report.py ${arguments[@]+"${arguments[@]}"}; fi
[ "$(id -u)" = 0 ] || die "not root: the benchmarks load BPF programs"
case $mode in
  *throughput* | *download* | *churn* | *ablate* | *forwarding* | all) test/install_packages.sh benchmark ;;
  *) test/install_packages.sh build ;;
esac

# The links to the output still point to the usual build.
options=(-c opt --jobs=2 --color=no --curses=no --noshow_progress --experimental_convenience_symlinks=ignore)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
bazel build "${options[@]}" //test/benchmark:programs //lib/netmeter_loader:netmeter-loader //lib/apps/exporter:netmeter-exporter //lib/apps/netmeter:netmeter > "$log" 2>&1 ||
  { cat "$log" >&2; die "the build failed"; }
bin=$(bazel info -c opt bazel-bin 2> /dev/null)
rm -f "$log"
if [ "$mode ${arguments[*]-}" = "churn --profile" ]; then cd "$bin" && exec test/benchmark/throughput profile; fi
exec python3 test/benchmark/benchmark.py "$mode" --bin "$bin" ${arguments[@]+"${arguments[@]}"}
