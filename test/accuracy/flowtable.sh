#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# flowtable.sh [--bin DIR] [KERNEL...]: the share of a router's traffic that netmeter
# counts as forwarded if nftables has a flowtable.
#
#   bazel build //lib/netmeter_loader:netmeter-loader-static \
#     //lib/apps/netmeter:netmeter-static
#   test/accuracy/flowtable.sh
#
# The router is a virtual machine with Debian's kernel (6.12 and 7.2, by matrix.sh
# --fetch) between network namespaces, with masquerading. A client of its LAN gets 16 MiB
# in one connection, and then 8 KiB in each of 50 connections. Prints, for each set of
# rules, the share of the uplink's bytes that the forwarded row has. DIR has the programs
# (default bazel-bin). Needs no root, and nft(8).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() { echo "flowtable.sh: $*" >&2; exit 1; }

bin=bazel-bin kernels=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '3,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --bin) [ $# -ge 2 ] || die "--bin needs a value"; bin=$2; shift 2 ;;
    -*) die "unknown option $1 (--help tells)" ;;
    *) kernels+=("$1"); shift ;;
  esac
done
[ ${#kernels[@]} -gt 0 ] || kernels=(6.12 7.2)
declare -A suites=([6.12]=trixie [7.2]=trixie-backports)
export PATH=$PATH:/usr/sbin:/sbin
options=(-b ip -b nft -b ethtool)
for module in veth nf_tables nft_ct nft_masq nft_chain_nat nf_flow_table_inet nft_flow_offload; do
  options+=(-m "$module")
done
for program in lib/netmeter_loader/netmeter-loader lib/apps/netmeter/netmeter; do
  [ -x "$bin/$program-static" ] || die "no $bin/$program-static (--help tells how to build it)"
  options+=(-f "$bin/$program-static:/bin/${program##*/}")
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat > "$scratch/guest.sh" << 'GUEST'
set -e
cd /tmp
for host in lan wan; do
  ip netns add $host
  ip link add ${host}1 type veth peer name ${host}0 netns $host
done
ip addr add 10.1.0.1/24 dev lan1
ip addr add 192.0.2.1/24 dev wan1
ip -n lan addr add 10.1.0.2/24 dev lan0
ip -n wan addr add 192.0.2.2/24 dev wan0
# Single packets, as a link has them: all that the router's interfaces count is real.
for host in lan wan; do
  ip link set ${host}1 up
  ip -n $host link set ${host}0 up
  ip netns exec $host ethtool -K ${host}0 tso off gso off > ethtool 2>&1
done
ip -n lan route add default via 10.1.0.1
sysctl -qw net.ipv4.ip_forward=1 net.netfilter.nf_conntrack_acct=1
head -c 16777216 /dev/zero > bulk
head -c 8192 /dev/zero > short
ip netns exec wan busybox httpd -p 80 -h /tmp
printf 'uplinks: {wan: [wan1], lan: [lan1]}\nforwarded_clients: [lan]\n' > uplinks.yml
netmeter-loader load --quiet --group '' --config uplinks.yml
get() { ip netns exec lan busybox wget -q -O /dev/null "http://192.0.2.2/$1"; }

# The bytes of both directions, without layer-2 headers, and those that were forwarded.
count() {
  netmeter uplinks --json | awk -F '[:,]' '
    /"uplink"/ { wan = /"wan"/ }
    wan && /"interface_bytes"/ { bytes += $2 }
    wan && /"interface_packets"/ { bytes -= 14 * $2 }
    wan && /"forwarded_bytes"/ { forwarded += $2 }
    END { print bytes, forwarded }'
}
share() { # WHAT TIMES
  before=$(count)
  i=0
  while [ $i -lt "$2" ]; do get "$1"; i=$((i + 1)); done
  # Until the server's kernel has said its last FIN.
  now=$(count)
  until sleep 0.2; last=$now; now=$(count); [ "$last" = "$now" ]; do :; done
  echo "$before $now" | awk '{ printf "  %5.1f %%", 100 * ($4 - $2) / ($3 - $1) }'
}
measure() { # NAME FLOWTABLE RULE
  nft -f - << RULES
flush ruleset
table inet t {
  $2
  set counted { type ipv4_addr; flags interval; elements = { 10.1.0.0/24 }; }
  chain forward { type filter hook forward priority filter; $3; }
  chain nat { type nat hook postrouting priority srcnat; oifname wan1 masquerade; }
}
RULES
  get short # neighbours find each other
  bulk=$(share bulk 1)
  short=$(share short 50)
  echo "$bulk$short  $1"
}
table='flowtable f { hook ingress priority filter; devices = { lan1, wan1 }; counter; }'
echo "Linux $(uname -r)"
echo "     bulk    short"
measure 'no flowtable' '' 'accept'
measure 'flow add @f' "$table" 'flow add @f'
for rule in 'ct bytes > 100000' 'ip saddr != @counted' 'ip saddr != @counted ip daddr != @counted'; do
  measure "$rule flow add @f" "$table" "ct state established $rule flow add @f"
done
GUEST
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/netmeter/kernels
for kernel in "${kernels[@]}"; do
  [ -n "${suites[$kernel]:-}" ] || die "unknown kernel $kernel: 6.12 or 7.2"
  "$here/../kernels/vmrun.sh" -k "$cache/${suites[$kernel]}" "${options[@]}" -f "$scratch/guest.sh" -M 1024 -t 1800 -- sh -e /t/guest.sh
done
