#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# demo.sh: libnetmeter on real traffic, in one command.
#
# As root on Debian 12: installs the packages that are missing, builds, makes a
# gateway and a cloud (two network namespaces, joined by a cable), loads
# libnetmeter for the gateway, lets three programs of the gateway talk to the
# cloud, and prints who sent and received how much, in the table of `netmeter`,
# in a service's /metrics and in the kernel's map. Last comes the proof: what
# the interface counted, what libnetmeter counted, and the difference.
#
#   examples/demo.sh
#
# Touches nothing of the host: everything is on a cgroup and a pin directory of
# its own and is taken away at the end, whatever happens. Takes some seconds,
# the first time minutes more for packages and build. Exits with 0 if all three
# programs were found by name and the difference is 0 bytes.
set -uo pipefail
usage() { sed -n '3,18s/^# \{0,1\}//p' "$0"; }

case ${1:-} in
  '') ;;
  -h | --help) usage; exit 0 ;;
  *) echo "demo.sh: unknown option $1 (--help tells)" >&2; exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# --- this machine -----------------------------------------------------------
# A CI machine may set none of these; Bazel wants them.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 LANG=C.UTF-8
unset LANGUAGE BASH_ENV ENV CDPATH PYTHONPATH PYTHONHOME
USER=$(id -un 2> /dev/null || echo root)
export USER LOGNAME=$USER
if [ -z "${HOME:-}" ]; then HOME=$(getent passwd "$(id -u)" | cut -d: -f6); fi
if [ -z "$HOME" ] || ! mkdir -p "$HOME" 2> /dev/null || [ ! -w "$HOME" ]; then HOME=/var/tmp/netmeter-$USER; fi
mkdir -p "$HOME"
export HOME

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then bold=$'\e[1m' plain=$'\e[0m'; fi
title() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
fail() {
  echo "demo.sh: $*" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || fail "not root: the demo loads BPF programs and makes network namespaces"

work=$(mktemp -d "${TMPDIR:-/tmp}/netmeter-demo.XXXXXX") || exit 1
pins=/run/netmeter-demo.$$
cgroup='' loaded='' mounted=''
groups=() # process groups that are running

# shellcheck disable=SC2317 # by trap
cleanup() {
  local status=$? group
  trap '' INT TERM HUP
  disown -a # else bash tells of each that it was killed
  for group in "${groups[@]}"; do kill -- "-$group"; done 2> /dev/null
  for group in "${groups[@]}"; do
    for _ in {1..50}; do
      kill -0 -- "-$group" 2> /dev/null || continue 2
      sleep 0.1
    done
    kill -KILL -- "-$group" 2> /dev/null
  done
  if [ -n "$loaded" ] && ! timeout 30 "$loader" unload --pin-dir "$pins" > "$work/unload" 2>&1; then
    cat "$work/unload" >&2
    if [ $status = 0 ]; then status=1; fi
  fi
  if [ -n "$cgroup" ]; then
    for _ in {1..50}; do # sockets that are still closing keep it for a moment
      if rmdir "$cgroup" 2> /dev/null; then break; fi
      sleep 0.1
    done
    if [ -d "$cgroup" ]; then echo "demo.sh: cannot remove $cgroup" >&2; fi
  fi
  if [ -n "$mounted" ]; then umount "$mounted"; fi
  rm -rf --one-file-system "$work"
  exit $status
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# start LOG COMMAND...: in the background, in a process group of its own.
start() {
  local log=$1
  shift
  set -m
  "$@" > "$log" 2>&1 < /dev/null &
  set +m
  groups+=($!)
}
# run SECONDS LOG COMMAND...: waits, so that a signal is heard meanwhile; shows
# the end of LOG if it failed.
run() {
  local limit=$1 log=$2 status=0
  shift 2
  start "$log" timeout "$limit" "$@"
  wait $! || status=$?
  unset 'groups[-1]'
  [ $status = 0 ] && return
  tail -n 40 "$log" >&2
  if [ $status = 124 ]; then fail "gave up after $limit seconds: $*"; fi
  fail "failed: $*"
}
# await WORD LOG PROCESS: until a line of LOG begins with WORD; for 20 seconds.
await() {
  for _ in {1..200}; do
    if grep -qs "^$1" "$2"; then return; fi
    kill -0 "$3" 2> /dev/null || break
    sleep 0.1
  done
  cat "$2" >&2
  fail "'$1' was not said within 20 seconds by ${2##*/}"
}

# --- packages and build -----------------------------------------------------
echo "Packages and build: some minutes the first time ..."
run 3600 "$work/packages" test/install_packages.sh build
targets=(//lib/loader:netmeter-loader //lib/tools:netmeter //examples:gateway_service)
bazel_options=(--jobs=2 --color=no --curses=no --noshow_progress --noshow_loading_progress)
run 3600 "$work/build" bazel build "${bazel_options[@]}" "${targets[@]}"
run 600 "$work/bin" bazel info "${bazel_options[@]}" bazel-bin
bin=$(grep '^/' "$work/bin" | tail -n 1)
loader=$bin/lib/loader/netmeter-loader
netmeter=$bin/lib/tools/netmeter
service=$bin/examples/gateway_service

# --- a gateway and a cloud --------------------------------------------------
title "1. A gateway and a cloud"
cat << 'END'
Two network namespaces, joined by a virtual cable. The gateway runs a service
that embeds libnetmeter, and two ordinary programs.

   gateway_service ("subscriberdb") \
   curl                              > 10.0.0.1 ======= 10.0.0.2  cloud_stub.py
   python3                          /   uplink
END

# A cgroup for the gateway, where cgroup v2 is mounted: this is what we meter.
parent=$(awk '$4 == "/" { for (i = 7; i < NF; i++) if ($i == "-" && $(i + 1) == "cgroup2") { print $5; exit } }' /proc/self/mountinfo)
if [ -z "$parent" ]; then
  parent=$work/cgroup2
  mkdir "$parent"
  mount -t cgroup2 none "$parent" || fail "cannot mount cgroup v2"
  mounted=$parent
fi
mkdir "$parent/netmeter-demo.$$" || fail "cannot make a cgroup in $parent"
cgroup=$parent/netmeter-demo.$$

# Namespaces without a name: each ends with the process that holds it.
start "$work/cloud" unshare --net python3 examples/cloud_stub.py
cloud=$!
start "$work/gateway" unshare --net sh -c 'echo ready; exec sleep 600'
gateway=$!
await ready "$work/cloud" $cloud
await ready "$work/gateway" $gateway

# Only the programs' packets: no IPv6 by itself, and neighbours that need no
# ARP. TSO would let bundles of packets over the cable, and the interface count
# each as one. Without it, they are divided before the interface, but after
# libnetmeter, which has to know what comes out. Small windows: a veth drops
# where 1000 packets wait (net.core.netdev_max_backlog), and what is dropped
# after libnetmeter is in its count only.
# shellcheck disable=SC2016 # for the inner shell
end_of_cable() { # PID OWN-NUMBER OTHER-NUMBER
  nsenter --net="/proc/$1/ns/net" sh -ec '
    for f in all default uplink; do
      f=/proc/sys/net/ipv6/conf/$f/disable_ipv6
      if [ -e $f ]; then echo 1 > $f; fi
    done
    echo "4096 65536 262144" > /proc/sys/net/ipv4/tcp_wmem
    ethtool -K uplink tso off
    ip address add 10.0.0.$1/24 dev uplink
    ip link set lo up
    ip link set uplink up
    ip neighbour replace 10.0.0.$2 lladdr 02:00:00:00:00:0$2 dev uplink nud permanent
  ' sh "$2" "$3"
}
{
  ip link add uplink netns "$gateway" address 02:00:00:00:00:01 type veth \
    peer name uplink netns "$cloud" address 02:00:00:00:00:02 &&
    end_of_cable "$gateway" 1 2 && end_of_cable "$cloud" 2 1
} > "$work/setup" 2>&1 || {
  cat "$work/setup" >&2
  fail "cannot join the two namespaces by a veth pair"
}

# --- load and make traffic --------------------------------------------------
title "2. Load, once, as root"
echo "The kernel now counts what the gateway's processes send and receive."
loaded=yes
echo "\$ netmeter-loader load --cgroup $cgroup --pin-dir $pins"
run 60 "$work/load" "$loader" load --cgroup "$cgroup" --pin-dir "$pins" --group '' --max-series 64
grep -v ' note: group_access ' "$work/load"

# What the uplink counted: bytes and packets received, bytes, packets and drops
# sent.
# shellcheck disable=SC2016 # for awk
interface() {
  nsenter --net="/proc/$gateway/ns/net" awk '{ sub(":", " ") } $1 == "uplink" { print $2, $3, $10, $11, $13 }' /proc/net/dev
}
# shellcheck disable=SC2016 # for the inner shell
gateway_program=(sh -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$cgroup" nsenter --net="/proc/$gateway/ns/net")
before=$(interface)

start "$work/service" "${gateway_program[@]}" "$service" --name subscriberdb \
  --pin-dir "$pins" --cloud 10.0.0.2:9000 --upload 20000000 --download 8000000 --datagrams 500
subscriberdb=$!
run 30 "$work/curl" "${gateway_program[@]}" curl -sS --max-time 20 --noproxy '*' -o /dev/null -w '%{size_download}' http://10.0.0.2:9000/5000000
[ "$(cat "$work/curl")" = 5000000 ] || fail "curl got $(cat "$work/curl") bytes of 5000000"
run 30 "$work/python3" "${gateway_program[@]}" python3 -c '
import socket
with socket.create_connection(("10.0.0.2", 9000), 10) as s:
    s.sendall(b"UP 3000000\n" + bytes(3000000))
    assert s.recv(1) == b"", "the cloud has to close first"'
await 'transfers done' "$work/service" $subscriberdb

# The last acknowledgements: until the interface has been quiet for a second.
quiet=0 last=''
for _ in {1..100}; do
  now=$(interface)
  if [ "$now" = "$last" ]; then quiet=$((quiet + 1)); else quiet=0 last=$now; fi
  [ $quiet -lt 10 ] || break
  sleep 0.1
done
[ $quiet -ge 10 ] || fail "the traffic does not end"

# --- what libnetmeter shows -------------------------------------------------
title "3. Who used the link"
echo "subscriberdb uploaded 20 MB and downloaded 8 MB by TCP, and exchanged 500 UDP
datagrams of 1000 bytes; curl downloaded 5 MB; python3 uploaded 3 MB.
\$ netmeter list --pin-dir $pins"
run 30 "$work/table" "$netmeter" list --pin-dir "$pins"
cat "$work/table"
run 30 "$work/list" "$netmeter" list --pin-dir "$pins" --json

title "4. The service's own /metrics"
echo "subscriberdb publishes its own share, in payload bytes, for Prometheus (excerpt).
\$ curl http://127.0.0.1:9091/metrics"
run 30 "$work/metrics" nsenter --net="/proc/$gateway/ns/net" curl -sS --max-time 20 --noproxy '*' http://127.0.0.1:9091/metrics
grep -E '^(netmeter_up|magma_bytes_)' "$work/metrics" || fail "/metrics shows nothing of ours"

title "5. The shared map in the kernel"
echo "All of this was read from one map, a cell per series and CPU, which the kernel
alone can write (excerpt: the cells in use, with the names from series).
\$ bpftool map dump pinned $pins/series
\$ bpftool map dump pinned $pins/counters"
for map in series counters; do
  run 30 "$work/$map" bpftool -j map dump pinned "$pins/$map"
done
python3 - "$work/series" "$work/counters" << 'END' || fail "cannot read the dump of the map"
import json, sys

series, cells = ([e["formatted"] for e in json.load(open(name))] for name in sys.argv[1:])
transports = ("other", "tcp", "udp", "sctp", "icmp")
ids = ("service", "destination", "transport", "path")
names = {tuple(e["key"][i] for i in ids): e["value"] for e in series}
lines = []
for cell in cells:
    key, value = cell["key"], cell["value"]
    if value["tx_bytes"] or value["rx_bytes"]:
        name = names[tuple(value[i] for i in ids)]
        who = f'{name["service_name"]} {name["destination_name"]}'.strip()
        lines.append(f'counters[{key}]'.ljust(14) + who.ljust(23) + f'{transports[value["transport"]]}  ' + "  ".join(
            f"{field} {value[field]:<9}" for field in ("tx_bytes", "rx_bytes", "tx_packets")))
print("\n".join(lines[:10] + [f"... and {len(lines) - 10} more"] * (len(lines) > 10)))
END

# --- the proof --------------------------------------------------------------
title "6. The proof"
cat << 'END'
Every byte of the uplink is in one of the series above: what the interface
counted, less its 14-byte Ethernet header a packet, is what libnetmeter counted.
END
# shellcheck disable=SC2086 # five words each
python3 - "$work/list" $before $now << 'END' || fail "the proof failed"
import json, sys

series = json.load(open(sys.argv[1]))
before, after = [int(n) for n in sys.argv[2:7]], [int(n) for n in sys.argv[7:]]
rx_bytes, rx_packets, tx_bytes, tx_packets, dropped = (a - b for a, b in zip(after, before))

def total(field):
    return sum(s[field] for s in series if s["path"] == "direct")

rows = [
    ("interface, packets", tx_packets, rx_packets),
    ("libnetmeter, packets", total("tx_packets"), total("rx_packets")),
    ("interface, bytes", tx_bytes, rx_bytes),
    ("less 14 bytes a packet", tx_bytes - 14 * tx_packets, rx_bytes - 14 * rx_packets),
    ("libnetmeter, bytes", total("tx_bytes"), total("rx_bytes")),
    ("difference, bytes", total("tx_bytes") - tx_bytes + 14 * tx_packets,
     total("rx_bytes") - rx_bytes + 14 * rx_packets),
]
print(f'{"":24}{"sent":>14}{"received":>14}')
for name, sent, received in rows:
    print(f"{name:24}{sent:>14,}{received:>14,}")

errors = []
names = {(s["kind"], s["name"]) for s in series}
for expected in ("service", "subscriberdb"), ("binary", "curl"), ("binary", "python3"):
    if expected not in names:
        errors.append("%s %s is missing in the table" % expected)
if rows[0][1:] != rows[1][1:] or rows[-1][1:] != (0, 0):
    errors.append("interface and libnetmeter differ")
if dropped:
    errors.append(f"the interface dropped {dropped} packets, which libnetmeter has counted; is this machine overloaded?")
if min(tx_bytes, rx_bytes) < 10_000_000:
    errors.append("there was too little traffic")
for error in errors:
    print("demo.sh:", error, file=sys.stderr)
sys.exit(bool(errors))
END

echo
echo "The difference is 0 bytes. Unloading and cleaning up."
