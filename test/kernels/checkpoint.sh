#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# checkpoint.sh [--bin DIR] [KERNEL]: a service that CRIU checkpoints and restores.
#
#   apt-get install criu
#   bazel build //lib/netmeter_loader:netmeter-loader-static \
#     //lib/apps/netmeter:netmeter-static //test/live:live_actor
#   test/kernels/checkpoint.sh
#
# Every byte is counted, before and after; no total decreases. criu forks the restored
# process, so it counts as criu, with its old socket and with new ones, until it
# registers again, or executes, or its unit names it (docs/names.md). Runs in a virtual
# machine with KERNEL (6.1), because CRIU has to support the kernel. DIR has the
# programs (default bazel-bin). Needs the kernels of matrix.sh --fetch; no root.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() { echo "checkpoint.sh: $*" >&2; exit 1; }

bin=bazel-bin kernel=6.1
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '3,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --bin) [ $# -ge 2 ] || die "--bin needs a value"; bin=$2; shift 2 ;;
    -*) die "unknown option $1 (--help tells)" ;;
    *) kernel=$1; shift ;;
  esac
done
declare -A suites=([5.10]=bullseye [6.1]=bookworm [6.12]=trixie [7.2]=trixie-backports)
[ -n "${suites[$kernel]:-}" ] || die "unknown kernel $kernel: 5.10, 6.1, 6.12 or 7.2"
PATH=$PATH:/usr/sbin:/sbin
[ -n "$(command -v criu)" ] || die "no criu on this machine (apt-get install criu)"
files=()
for program in lib/netmeter_loader/netmeter-loader-static:netmeter-loader lib/apps/netmeter/netmeter-static:netmeter test/live/live_actor:gateway; do
  [ -x "$bin/${program%:*}" ] || die "no $bin/${program%:*} (--help tells how to build it)"
  files+=(-f "$bin/${program%:*}:/bin/${program#*:}")
done
folder=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/netmeter/kernels/${suites[$kernel]}
[ -s "$folder/release" ] || die "no kernel $kernel (run: test/kernels/matrix.sh --fetch --kernels $kernel)"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat > "$scratch/guest.sh" << 'GUEST'
set -eu
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 # it would send packets
ip link add cloud type dummy
ip address add 10.9.0.1/24 dev cloud
ip link set cloud up
cgroup=/sys/fs/cgroup/service
mkdir $cgroup
netmeter-loader load --quiet --group '' --cgroup $cgroup
echo $$ > $cgroup/cgroup.procs

# await FILE: waits until the service waits at it. go FILE: lets it go on.
await() {
  n=0
  until [ -e "$1" ]; do
    n=$((n + 1))
    [ $n -lt 300 ] || { echo "the service did not come to $1"; exit 1; }
    sleep 0.1
  done
}
# counted NAME PACKETS BYTES: a datagram takes 28 bytes of IP and UDP.
counted() {
  netmeter list --json | tr -d ' \n' | tr '}' '\n' | grep "\"name\":\"$1\"" > /tmp/row || true
  grep -q "\"tx_bytes\":$3,.*\"tx_packets\":$2," /tmp/row || {
    echo "not counted for $1: $2 packets of $3 bytes in all"
    netmeter list
    exit 1
  }
  echo "good: $4"
}

# Without a descriptor of the guest's console, and in its own session.
setsid gateway register=modem hold=10.9.0.2/9/3/100 wait=/tmp/1 more=2/100 wait=/tmp/2 \
  udp=10.9.0.2/9/5/100 wait=/tmp/3 register=modem udp=10.9.0.2/9/7/100 wait=/tmp/4 \
  exec=/bin/gateway udp=10.9.0.2/9/11/100 wait=/tmp/5 \
  < /dev/null > /dev/null 2>&1 9>&- &
service=$!
await /tmp/1
counted modem 3 384 "before the checkpoint, as the service"
mkdir /tmp/image
criu dump -t $service -D /tmp/image -o log > /dev/null 2>&1 || { tail -n 20 /tmp/image/log; exit 1; }
if kill -0 $service 2> /dev/null; then wait $service || true; fi
criu restore -d -D /tmp/image -o log > /dev/null 2>&1 9>&- || { tail -n 20 /tmp/image/log; exit 1; }
rm /tmp/1
await /tmp/2
counted criu 2 256 "a socket that was restored, as criu"
counted modem 3 384 "what was counted before stays"
rm /tmp/2
await /tmp/3
counted criu 7 896 "a socket that a restored process opens, as criu"
rm /tmp/3
await /tmp/4
counted modem 10 1280 "after it has registered again, as the service"
rm /tmp/4
await /tmp/5
counted gateway 11 1408 "after an exec, as the executable"
rm /tmp/5
set -- $(cat /sys/class/net/cloud/statistics/tx_packets /sys/class/net/cloud/statistics/tx_bytes)
echo "the interface: $1 packets, $2 bytes with 14 of Ethernet each"
[ "$1" = 28 ] && [ "$2" = $((28 * 142)) ]
netmeter-loader unload --quiet
GUEST
modules=()
for module in dummy tun veth nf_tables inet_diag tcp_diag udp_diag unix_diag netlink_diag af_packet_diag; do modules+=(-m "$module"); done
echo "Linux $(cat "$folder/release"), $(criu --version | head -n 1):"
"$here/vmrun.sh" -k "$folder" "${modules[@]}" -b criu -b ip -b iptables -M 1024 -t 300 "${files[@]}" \
  -f "$scratch/guest.sh" -- dash /t/guest.sh || die "it fails with Linux $kernel"
