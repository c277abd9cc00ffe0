#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# matrix.sh [OPTION]...: the live tests on every supported kernel.
#
#   --kernels LIST   all (default), or some of: host 5.10 6.1 6.12 7.2 6.1-rt
#                    7.2+full 7.2+lazy 6.1+nobtf; not in all: 6.12-rt
#                    5.10+nobtf 6.12+nobtf 7.2+nobtf; with --guest
#                    5.10-arm64 6.1-arm64 7.2-arm64
#   --guest ROOT     a root of Debian for arm64, whose programs these lanes run; --bin
#                    has tests for arm64 (test/arm64.sh makes both)
#   --filter GLOB    only these tests (as --gtest_filter); with a - in front: all of a
#                    lane except these
#   --bin DIR        bazel-bin of "bazel build //..." (default: bazel-bin)
#   --out DIR        the place for logs and results (default: a temporary folder)
#   --timeout SECS   per kernel (1500)
#   --vms N          virtual machines at a time (2)
#   --cpus N         CPUs of each virtual machine (2)
#   --kernel-arguments WORDS   added to the kernel's command line there
#   --live-options WORDS   added to live_test's arguments in virtual machines
#   --core           without the live tests of applications
#   --live-test-alone   only live_test
#   --long           in virtual machines also tests that rarely differ between kernels
#   --beside FILE    while FILE exists, other tests run as well: one virtual machine
#                    at a time, and this kernel's lane waits
#   --fetch          gets the kernels of these lanes and runs nothing
#
# The kernels are Debian's newest of each line, unpacked once a day into
# ~/.cache/netmeter/kernels, and run in QEMU; -rt: with PREEMPT_RT. The live tests of
# applications (test/apps/live) follow those of the library (test/live), and in virtual
# machines the stress test of the adds, all of it with preempt=full and preempt=lazy,
# verifier_test (test/program) and evict_root_test (lib/evict). Prints a table of
# verdicts, of every case, and of the active features, which must be as in the file
# expectations. A suite that Debian no longer carries is a loud verdict, but no failure;
# a kernel missing for any other reason is one. Exits with 0 if nothing failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() { sed -n '3,35s/^# \{0,1\}//p' "$0"; }
die() { echo "matrix.sh: $*" >&2; exit 2; }

# The line of kernels and the Debian suite that carries it.
declare -A suites=([5.10]=bullseye [6.1]=bookworm [6.12]=trixie [7.2]=trixie-backports)
# Longest first, so that two at a time finish together.
all=(host 7.2 6.12 6.1 5.10 6.1-rt 7.2+full 7.2+lazy 6.1+nobtf)
more=(6.12-rt 5.10+nobtf 6.12+nobtf 7.2+nobtf 5.10-arm64 6.1-arm64 7.2-arm64)
# A soak needs all at once: an emulated guest is too slow for it, and so is this kernel
# beside a guest. test/run.sh runs test/soak.sh for a short time afterwards.
plain_filter='*-SoakTest.*'
# With an eviction, which a host may refuse.
host_filter=$plain_filter':SinkTest.IdleNames*:EvictedFlowsTest.*'
# Only on this kernel, unless --long. A virtual machine runs at least one case for each
# hook and each feature. It skips other cases of the same code: limits of tables,
# upgrades, rules of destinations, and IPv6 except when bytes are counted over a link.
seldom='SinkTest.*User*:SinkTest.SocketsLeave*:SinkTest.TwoMeters*'
seldom+=':*FlowsTest.SumUp*'
seldom+=':ForwardedTest.*:Over/ForwardedFlowsTest.*_Routed*:Over/ForwardedFlowsTest.*_NoGro'
seldom+=':*DestinationsTest.Rules*:*DestinationsTest.ConnectionsThatWait*'
seldom+=':*DestinationsTest.OnlyTheKinds*'
seldom+=':*TroubledConnectionsTest.Syns*'
seldom+=':*TablesTest.Collisions*:LatePacketsTest.*'
seldom+=':Stress.WithoutTheGuard*'
for suite in Connections Destinations Duplicates Edge Flows Impairment Mptcp Names Nat \
  Protocols Remainder Tables TroubledConnections Tunnel Uplinks; do
  seldom+=":Over/${suite}Test.*/IPv6*"
done
# From Linux 7.0 on evict refuses, which EvictRefusalTest sees.
evictions='EvictRootTest.*:EvictedFlowsTest.*:SinkTest.IdleNames*:*ProtocolsTest.AnEvicted*'
# With PREEMPT_RT softirqs are tasks, which preempt each other. So: each path of a
# packet, both transports, many at once.
realtime_filter='LoadTest.*:*LinkTest.*IPv4_OffloadOn_GroOn_Mtu1500:*BalanceTest.Many*:*ConnectionsTest.AreOpened*:Stress.*'
# The kernel has no types, so the loader gets a file. It builds the programs from the
# file as it would from the kernel's, so each path of a packet once is enough.
nobtf_filter='LoadTest.*:*LinkTest.*OffloadOn_GroOn_Mtu1500:*BalanceTest.Many*:*ConnectionsTest.*:*RemainderTest.*'
# Loaded if the kernel has them as modules.
modules=(veth dummy bridge ifb sch_netem sch_tbf sch_fq sch_ingress sctp tun
  l2tp_ip l2tp_ip6
  cls_u32 cls_matchall act_mirred act_gact af_packet udp_tunnel
  sha512_generic ctr xfrm_user esp4 esp6 authenc echainiv drbg jitterentropy_rng
  vxlan tls gcm ghash_generic aes_generic
  nf_tables nft_counter nft_compat nft_chain_nat xt_nat xt_MASQUERADE xt_REDIRECT xt_TEE xt_tcpudp
  inet_diag tcp_diag udp_diag raw_diag mptcp_diag sctp_diag)
programs=(ip tc ss ethtool bpftool sysctl iptables ip6tables)

kernels=all filter='*' bin=bazel-bin out='' seconds=1500 vms=2 beside='' fetch=
cpus=2 kernel_arguments='' live_options='' core='' alone='' long='' guest=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --fetch) fetch=yes; shift; continue ;;
    --core) core=yes; shift; continue ;;
    --live-test-alone) alone=yes; shift; continue ;;
    --long) long=yes; shift; continue ;;
    --kernels | --filter | --bin | --out | --timeout | --vms | --beside | --cpus | --kernel-arguments | --live-options | --guest) [ $# -ge 2 ] || die "$1 needs a value" ;;
    *) die "unknown option $1 (--help tells)" ;;
  esac
  case $1 in
    --kernels) kernels=$2 ;;
    --filter) filter=$2 ;;
    --bin) bin=$2 ;;
    --out) out=$2 ;;
    --timeout) seconds=$2 ;;
    --vms) vms=$2 ;;
    --cpus) cpus=$2 ;;
    --kernel-arguments) kernel_arguments=$2 ;;
    --live-options) live_options=$2 ;;
    --beside) beside=$2 ;;
    --guest) guest=$2 ;;
  esac
  shift 2
done
if [ "$kernels" = all ]; then lanes=("${all[@]}"); else IFS=, read -ra lanes <<< "$kernels"; fi
for lane in "${lanes[@]}"; do
  [[ " ${all[*]} ${more[*]} " == *" $lane "* ]] || die "unknown kernel '$lane': all, or of ${all[*]} ${more[*]}"
  if [[ $lane = *-arm64 ]]; then [ -e "$guest/bin/dash" ] || die "$lane needs --guest: run test/arm64.sh"; fi
done
[ "$(id -u)" = 0 ] || die "not root"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/netmeter/kernels
mkdir -p "$cache"

# folder_of LINE: the folder of its kernel. LINE-rt and LINE-arm64 are other flavours of
# the suite.
folder_of() {
  case $1 in
    *-*) echo "$cache/${suites[${1%-*}]}-${1##*-}" ;;
    *) echo "$cache/${suites[$1]}" ;;
  esac
}

# refresh_kernel LINE: looks for a newer one once a day; prints its packages.
refresh_kernel() {
  local dir flavour=cloud-amd64 refresh=1
  dir=$(folder_of "$1")
  case $1 in *-rt) flavour=rt-amd64 ;; *-arm64) flavour=cloud-arm64 ;; esac
  if [ -n "$(find "$dir/package" -mmin -1440 2> /dev/null)" ]; then refresh=; fi
  REFRESH=$refresh FLAVOUR=$flavour "$here/getkernel.sh" "${suites[${1%-*}]}" "$dir"
}

if [ -n "$fetch" ]; then
  status=0
  for suite in "${!suites[@]}"; do
    for line in "$suite" "$suite-rt" "$suite-arm64"; do
      [[ " ${lanes[*]} " == *" $line"[\ +]* ]] || continue
      refresh_kernel "$line" || status=1
    done
  done
  exit $status
fi

bin=$(cd "$bin" && pwd -P)

live_test=$bin/test/live/live_test
runfiles=$live_test.runfiles
program() { find "$bin/lib" -name '*.runfiles' -prune -o -type f -perm -u+x -name "$1" -print -quit; }
loader=$(program netmeter-loader) static_loader=$(program netmeter-loader-static)
# These follow: the first on each kernel, the others in virtual machines only. A host may
# refuse what an eviction needs, so its tests run there.
others=(test/apps/live/apps_live_test)
if [ -n "$core$alone" ]; then others=(); fi
host_others=("${others[@]/#/$bin/}") copied=()
if [ "$kernels" != host ] && [ -z "$alone" ]; then
  others+=(test/program/stress_test test/program/verifier_test lib/evict/evict_root_test)
fi
for test in "${others[@]}"; do
  [ -x "$bin/$test" ] || die "$test is not in $bin: bazel build //..."
  copied+=(-f "$bin/$test")
done
if [ ! -x "$live_test" ] || [ ! -d "$runfiles/libnetmeter" ]; then
  die "live_test is not in $bin: bazel build //..."
fi
if [[ " ${lanes[*]} " == *" host "* ]] && [ -z "$loader" ]; then
  die "netmeter-loader is not in $bin: bazel build //..."
fi
if [ "$kernels" != host ] && [ -z "$static_loader" ]; then
  die "netmeter-loader-static is not in $bin: bazel build //..."
fi

if [ -z "$out" ]; then
  out=$(mktemp -d)
  remove=$out
else
  remove=
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
# shellcheck disable=SC2317 # by trap
cleanup() {
  local job
  for job in $(jobs -p); do kill -- "-$job" 2> /dev/null || true; done
  wait
  if [ -n "$remove" ]; then rm -rf "$remove"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# get_kernel LINE LANE: without the network, or if the suite has gone, it uses an
# existing kernel.
get_kernel() {
  local status=0
  refresh_kernel "$1" > "$out/$2/package" 2> "$out/$2/getkernel" || status=$?
  [ $status = 0 ] || cat "$out/$2/getkernel" > "$out/$2/note"
  if [ $status = 100 ]; then : > "$out/$2/gone"; fi
  [ -s "$(folder_of "$1")/package" ] || return 1
}

# tests_of OWN: applies --filter to a lane's own tests.
tests_of() {
  case $filter in
    '*') echo "$1" ;;
    -*) case $1 in *-*) echo "$1:${filter#-}" ;; *) echo "$1$filter" ;; esac ;;
    *) echo "$filter" ;;
  esac
}

# vm_lane LANE
vm_lane() {
  local lane=$1 line=${1%%+*} kernel options=() beginning=() own=$plain_filter module program extension
  kernel=$(folder_of "$line")
  get_kernel "$line" "$lane" || return 0
  case $(cat "$kernel/release") in
    "${line%-*}".* | "${line%-*}"-*) ;;
    *) echo "${suites[${line%-*}]} carries $(cat "$kernel/release") now" >> "$out/$lane/note" ;;
  esac
  case $lane in
    *+full | *+lazy)
      options+=(-a "preempt=${lane#*+}")
      own='Stress.*'
      ;;
    *+nobtf)
      beginning=(NETMETER_HIDE_BTF=1)
      own=$nobtf_filter
      ;;
    *-rt) own=$realtime_filter ;;
    *-arm64) options+=(-r "$guest") ;;
  esac
  if [[ $line = 7.* && $own = *-* ]]; then own+=:$evictions; fi
  if [ -z "$long" ] && [[ $own = *-* ]]; then own+=:$seldom; fi
  if [ -n "${NETMETER_OTHER_CLANG:-}" ]; then beginning+=(NETMETER_OTHER_CLANG=1); fi
  if [ -n "$kernel_arguments" ]; then options+=(-a "$kernel_arguments"); fi
  for module in "${modules[@]}"; do
    if [ -n "$(find "$kernel/modules" \( -name "$module.ko*" -o -name "${module//_/-}.ko*" \) -print -quit)" ]; then
      options+=(-m "$module")
    fi
  done
  for program in "${programs[@]}"; do
    if [ -n "$guest" ] || command -v "$program" > /dev/null; then options+=(-b "$program"); fi
  done
  # iptables loads these for targets such as DROP, and for ports.
  for extension in "$guest"/usr/lib/*/xtables/libxt_{standard,tcp,udp,DNAT,SNAT,MASQUERADE,REDIRECT,TEE}.so; do
    if [ -e "$extension" ]; then options+=(-f "$extension:${extension#"$guest"}"); fi
  done
  # The dynamic linker takes most of an emulated guest's time.
  "$here/vmrun.sh" -k "$kernel" "${options[@]}" \
    -f "$static_loader:/bin/netmeter-loader" -f "$here/lane.sh" -f "$runfiles:/t/runfiles" "${copied[@]}" -M 1024 -s "$cpus" -t $((seconds + 60)) -o "$out/$lane" -- \
    env "NETMETER_LIVE_OPTIONS=$live_options" ${beginning[@]+"${beginning[@]}"} ./lane.sh ./test/live/live_test /t/runfiles "$(tests_of "$own")" "$seconds" "${others[@]/#*\//\/t\/}" > "$out/$lane/log" 2>&1
}

host_lane() {
  mkdir "$out/host/bin"
  ln -s "$loader" "$out/host/bin/"
  # --foreground: stays in the process group, which cleanup ends.
  PATH=$out/host/bin:$PATH NETMETER_LIVE_SHARDS=3 timeout --foreground -k 5 $((seconds + 60)) sh "$here/lane.sh" \
    ./test/live/live_test "$runfiles" "$(tests_of "$host_filter")" "$seconds" "${host_others[@]}" > "$out/host/log" 2>&1 < /dev/null
}

run_lane() {
  local start=$SECONDS status=0
  if [ "$1" = host ]; then host_lane || status=$?; else vm_lane "$1" || status=$?; fi
  echo "$status" > "$out/$1/status"
  echo $((SECONDS - start)) > "$out/$1/seconds"
  if [ -s "$out/$1/log" ]; then echo "  $1: done after $((SECONDS - start)) s"; else echo "  $1: not run"; fi
}

is_alone() { [ -z "$beside" ] || [ ! -e "$beside" ]; }
# has_room: whether a virtual machine may start.
has_room() {
  local running
  running=$(jobs -rp | grep -cvx "$host" || true)
  [ "$running" = 0 ] || { [ "$running" -lt "$vms" ] && is_alone; }
}
# The lane of this kernel mostly waits, and takes no room. It waits for the other tests
# of this kernel.
start_host() {
  if [ "$host" = waits ] && is_alone; then
    run_lane host &
    host=$!
  fi
}

for lane in "${lanes[@]}"; do
  rm -rf "${out:?}/$lane"
  mkdir "$out/$lane"
done
set -m # a process group for each lane, for cleanup
host=none
if [[ " ${lanes[*]} " == *" host "* ]]; then host=waits; fi
for lane in "${lanes[@]}"; do
  if [ "$lane" = host ]; then continue; fi
  until start_host; has_room; do sleep 0.2; done
  run_lane "$lane" &
done
until start_host; [ "$host" != waits ]; do sleep 0.2; done
wait

status=0
python3 "$here/report.py" --expectations "$here/expectations" --out "$out" "${lanes[@]}" || status=$?
if [ $status != 0 ]; then remove=; echo "logs: $out"; fi
exit $status
