#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# topologies.sh [--bin DIR] [TOPOLOGY...]: what `netmeter uplinks` says if the uplink is
# a VRF, bond, team, VLAN, PPPoE or WireGuard link, or IPv6 alone (464XLAT, NAT64).
#
#   bazel build //lib/netmeter_loader:netmeter-loader-static \
#     //lib/apps/netmeter:netmeter-static
#   test/accuracy/topologies.sh
#
# A virtual machine with Debian's kernel 6.12 gets 256 KiB over each link. Prints a row
# for each uplink: the bytes of its interfaces, and their parts. Exits with 1 if bytes
# that should have a name have none. TOPOLOGY is one or more of those at the end of this
# file (default: all). DIR has the programs (default bazel-bin). The first run fetches
# the kernel (110 MB). The packages below are fetched and unpacked, not installed. Needs
# no root.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() { echo "topologies.sh: $*" >&2; exit 1; }

packages=(tayga ppp pppoe wireguard-tools libteam-utils libteam5 libteamdctl0 libdaemon0
  libnl-3-200 libnl-cli-3-200 libnl-genl-3-200 libnl-nf-3-200 libnl-route-3-200)
modules=(veth vrf bonding team team_mode_activebackup 8021q wireguard pppoe ppp_async
  ppp_synctty tun af_packet)
programs=(ip ethtool sysctl wg tayga pppd pppoe-server pppoe teamd)

bin=bazel-bin topologies=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '3,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --bin) [ $# -ge 2 ] || die "--bin needs a value"; bin=$2; shift 2 ;;
    -*) die "unknown option $1 (--help tells)" ;;
    *) topologies+=("$1"); shift ;;
  esac
done
options=()
for program in lib/netmeter_loader/netmeter-loader lib/apps/netmeter/netmeter; do
  [ -x "$bin/$program-static" ] || die "no $bin/$program-static (--help tells how to build it)"
  options+=(-f "$(realpath "$bin/$program-static"):/bin/${program##*/}")
done
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/netmeter/kernels
FLAVOUR=amd64 "$here/../kernels/getkernel.sh" trixie "$cache/trixie-amd64" > /dev/null

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
mkdir "$scratch/debs"
(cd "$scratch/debs" && apt-get -qq -o APT::Sandbox::User= download "${packages[@]}")
for deb in "$scratch"/debs/*.deb; do dpkg-deb -x "$deb" "$root"; done
export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
export PATH=$PATH:/usr/sbin:/sbin:$root/usr/sbin:$root/usr/bin
for module in "${modules[@]}"; do options+=(-m "$module"); done
for program in "${programs[@]}"; do options+=(-b "$program"); done
options+=(-f "$root/usr/lib/pppd:/usr/lib/pppd")

cat > "$scratch/guest.sh" << 'GUEST'
cd /tmp
umask 077
status=0
head -c 262144 /dev/zero > file
there='ip netns exec wan'

# Single packets, as a link has them, and none of the kernel's own.
begin() {
  ip netns add wan
  for where in '' "$there"; do
    $where sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 net.ipv4.ip_forward=1
  done
  ip -n wan link set lo up
}
cable() { # NUMBER [ARGUMENTS]: wanN here, thereN there
  ip link add "wan$1" type veth peer name "there$1" netns wan
  ethtool -K "wan$1" tso off gso off gro off tx off > log 2>&1
  $there ethtool -K "there$1" tso off gso off gro off tx off > log 2>&1
  [ -n "${2:-}" ] || { ip link set "wan$1" up; ip -n wan link set "there$1" up; }
}
addresses() { # HERE THERE: the devices
  ip addr add 192.0.2.1/24 dev "$1"
  ip -n wan addr add 192.0.2.2/24 dev "$2"
}
get() { $by busybox wget -q -O got "http://$1/file" && cmp got file; }
serve() { # ADDRESS
  $there busybox httpd -f -p 80 -h /tmp &
  processes="$processes $!"
  tries=0
  until get "$1" 2> log; do
    tries=$((tries + 1))
    [ $tries -lt 15 ] || { cat log; status=1; return 1; }
    sleep 1
  done
  for where in '' "$there"; do # no neighbour is asked again
    $where sh -c 'for f in /proc/sys/net/ipv[46]/neigh/*/base_reachable_time_ms; do echo 36000000 > $f; done'
  done
}
rows() {
  netmeter uplinks --json | awk -F '[:,]' '
    function row() { if (name != "") printf "%-9s%9d%9d%9d%11d%9d %s\n", name, n["interface_bytes"], n["layer2_header_bytes"], n["local_bytes"], n["forwarded_bytes"], n["unnamed_bytes"], why }
    /"uplink"/ { row(); gsub(/[ "]/, "", $2); name = $2; delete n; why = "" }
    /_bytes"/ { gsub(/[ "]/, "", $1); n[$1] += $2 }
    /"unknown"/ && !/null/ { why = "not known" }
    END { row() }' | grep -v '^other'
}
measure() { # NAME UPLINKS ADDRESS [UNNAMED]: what the uplinks may have unnamed, a pattern
  echo "uplinks: {$2}" > uplinks.yml
  netmeter-loader load --quiet --group '' --config uplinks.yml || { status=1; return; }
  get "$3"
  now=
  until last=$now; now=$(rows); [ "$last" = "$now" ]; do sleep 1; done
  echo "$now" > now
  while read -r row; do
    verdict=
    echo "$row" | grep -Eq " ${4:-0} *\$" || { verdict=' WRONG'; status=1; }
    echo "$1 $row$verdict" | awk '{ printf "%-13s", $1; $1 = ""; print }'
  done < now
  netmeter-loader unload > log
}
end() { # LINK...
  # shellcheck disable=SC2086 # words
  kill $processes 2> log
  processes='' by=''
  ip netns del wan
  for link in "$@"; do ip link del "$link" 2> log; done # or gone with its peer
}

vrf() { # Received packets pass at the VRF's device, sent ones at its port.
  begin && cable 1
  ip link add red type vrf table 10 && ip link set red up && ip link set wan1 master red
  addresses wan1 there1
  by='ip vrf exec red'
  serve 192.0.2.2 && measure vrf 'wan: [wan1, red]' 192.0.2.2
  end wan1 red
}
bond() { # MODE
  begin && cable 1 down && cable 2 down
  ip link add bond7 type bond mode "$1" miimon 100
  ip -n wan link add bond7 type bond mode "$1" miimon 100
  for number in 1 2; do
    ip link set wan$number master bond7
    ip -n wan link set there$number master bond7
  done
  ip link set bond7 up && ip -n wan link set bond7 up
  addresses bond7 bond7
  serve 192.0.2.2 && measure "$1" 'wan: [bond7]' 192.0.2.2 "${2:-0}"
  end wan1 wan2 bond7
}
roundrobin() { bond balance-rr; }
lacp() { bond 802.3ad '[0-9]*'; } # its own messages have no name
team() {
  begin && cable 1 down
  teamd -d -c '{"device":"team7","runner":{"name":"activebackup"},"link_watch":{"name":"ethtool"},"ports":{"wan1":{}}}' 2> log
  ip link set team7 up && ip -n wan link set there1 up
  addresses team7 there1
  serve 192.0.2.2 && measure team 'wan: [team7]' 192.0.2.2
  teamd -k -t team7
  while ip link show team7 > log 2>&1; do sleep 1; done
  end wan1
}
vlan() {
  begin && cable 1
  ip link add link wan1 name wan1.7 type vlan id 7 && ip link set wan1.7 up
  ip -n wan link add link there1 name there1.7 type vlan id 7 && ip -n wan link set there1.7 up
  addresses wan1.7 there1.7
  serve 192.0.2.2 && measure vlan 'wan: [wan1.7]' 192.0.2.2
  end wan1
}
pppoe() {
  begin && cable 1
  mkdir -p /etc/ppp /run/lock
  printf 'noauth\nlcp-echo-interval 0\nnodefaultroute\nnoccp\n' > /etc/ppp/pppoe-server-options
  : > /etc/ppp/options
  $there pppoe-server -F -I there1 -L 10.9.0.1 -R 10.9.0.2 -N 1 -O /etc/ppp/pppoe-server-options > log 2>&1 &
  processes=$!
  pppd plugin rp-pppoe.so nic-wan1 noauth nodefaultroute noccp noipv6 unit 7 nodetach > ppp.log 2>&1 &
  processes="$processes $!"
  serve 10.9.0.1 && measure pppoe 'wan: [ppp7]' 10.9.0.1 || cat ppp.log
  end wan1
}
wireguard() { # The padding to 16 bytes has no name, and no outer packet has one.
  begin && cable 1
  addresses wan1 there1
  ip link add wg7 type wireguard && ip -n wan link add wg7 type wireguard
  wg genkey > a && wg genkey > b
  wg set wg7 listen-port 51820 private-key a peer "$(wg pubkey < b)" allowed-ips 10.9.0.0/24 endpoint 192.0.2.2:51820
  $there wg set wg7 listen-port 51820 private-key b peer "$(wg pubkey < a)" allowed-ips 10.9.0.0/24
  ip addr add 10.9.0.1/24 dev wg7 && ip -n wan addr add 10.9.0.2/24 dev wg7
  ip link set wg7 up && ip -n wan link set wg7 up
  serve 10.9.0.2 && measure wireguard 'wan: [wan1], vpn: [wg7]' 10.9.0.2 '[0-9]*'
  end wan1 wg7
}
xlat() { # The host translates (CLAT); the other side does, too (NAT64).
  begin && cable 1
  for where in '' "$there"; do
    $where sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0 \
      net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0
  done
  sysctl -qw net.ipv6.conf.wan1.disable_ipv6=0 net.ipv6.conf.wan1.accept_dad=0
  $there sysctl -qw net.ipv6.conf.there1.disable_ipv6=0 net.ipv6.conf.there1.accept_dad=0
  ip addr add 2001:db8:1::1/64 dev wan1
  ip -n wan addr add 2001:db8:1::2/64 dev there1
  ip -n wan addr add 203.0.113.1/32 dev lo
  mkdir -p plat clat
  printf 'tun-device nat64\nipv4-addr 198.51.100.1\nipv6-addr 2001:db8:9::1\nprefix 2001:db8:64::/96\ndynamic-pool 198.51.100.128/25\ndata-dir /tmp/plat\n' > plat.conf
  printf 'tun-device clat7\nipv4-addr 192.0.0.2\nipv6-addr 2001:db8:46::2\nprefix 2001:db8:64::/96\nmap 192.0.0.4 2001:db8:46::4\ndata-dir /tmp/clat\n' > clat.conf
  $there tayga -c plat.conf --mktun > log && ip -n wan link set nat64 up
  ip -n wan route add 2001:db8:64::/96 dev nat64 && ip -n wan route add 198.51.100.0/24 dev nat64
  ip -n wan route add 2001:db8:46::/64 via 2001:db8:1::1
  tayga -c clat.conf --mktun > log && ip link set clat7 up
  ip addr add 192.0.0.4/32 dev clat7 && ip route add default dev clat7
  ip -6 route add 2001:db8:46::/64 dev clat7 && ip -6 route add default via 2001:db8:1::2
  $there tayga -c plat.conf -d > log 2>&1 &
  processes=$!
  tayga -c clat.conf -d > log 2>&1 &
  processes="$processes $!"
  serve 203.0.113.1 && measure 464xlat 'wan: [wan1]' 203.0.113.1
  measure nat64 'wan: [wan1]' '[2001:db8:64::cb00:7101]'
  end wan1 clat7
}
processes='' by=''
echo "Linux $(uname -r)"
echo "             uplink interface headers local forwarded unnamed"
for one in ${*:-vrf roundrobin lacp vlan team pppoe wireguard xlat}; do
  $one
done
exit $status
GUEST
"$here/../kernels/vmrun.sh" -k "$cache/trixie-amd64" "${options[@]}" -f "$scratch/guest.sh" -M 1024 -t 1800 -- sh /t/guest.sh ${topologies[@]+"${topologies[@]}"}
