#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# demo.sh: libnetmeter on real traffic, in one command: what is on the bill
# for the uplink, and who caused it.
#
# As root on Debian 12 or 13: installs the packages that are missing, builds, makes a
# gateway and a cloud (two network namespaces, joined by a cable), loads
# libnetmeter for the gateway, and lets the gateway's programs talk to the
# cloud: gRPC services in C++ and Python through a proxy (nghttpx), one directly
# over TLS, curl and a script. Prints the bill beside the sum of libnetmeter,
# and who caused it; then the same in the table of `netmeter` and in a service's
# /metrics. At last it compares each row with what the program's own connection
# counted.
#
#   examples/demo.sh [--cells]
#
#   --cells   also print the kernel's map, from which all of this was read
#
# Touches nothing of the host: everything is on a cgroup and a pin directory of
# its own and is taken away at the end, whatever happens. Takes some seconds,
# the first time minutes more for packages and build. Exits with 0 if all names
# are right and every difference is 0 bytes.
set -uo pipefail
usage() { sed -n '3,23s/^# \{0,1\}//p' "$0"; }

cells=''
case ${1:-} in
  '') ;;
  --cells) cells=yes ;;
  -h | --help) usage; exit 0 ;;
  *) echo "demo.sh: unknown option $1 (--help tells)" >&2; exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# A CI machine may set none of these; Bazel wants them.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 LANG=C.UTF-8
unset LANGUAGE BASH_ENV ENV CDPATH PYTHONPATH PYTHONHOME
unset http_proxy https_proxy grpc_proxy # gRPC and curl look there for a proxy
USER=$(id -un 2> /dev/null || echo root)
export USER LOGNAME=$USER
if [ -z "${HOME:-}" ]; then HOME=$(getent passwd "$(id -u)" | cut -d: -f6); fi
if [ -z "$HOME" ] || ! mkdir -p "$HOME" 2> /dev/null || [ ! -w "$HOME" ]; then HOME=/var/tmp/netmeter-$USER; fi
mkdir -p "$HOME"
export HOME

# --- helpers ----------------------------------------------------------------
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
wrong=''  # whether a proof has failed

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

# start LOG COMMAND...: starts it in the background, in its own process group.
start() {
  local log=$1
  shift
  set -m
  "$@" > "$log" 2>&1 < /dev/null &
  set +m
  groups+=($!)
}
# run SECONDS LOG COMMAND...: runs it, and shows the end of LOG if it failed. It uses
# `wait`, so that a signal takes effect meanwhile.
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
# await WORD LOG PROCESS: waits up to 20 seconds until a line of LOG begins with WORD.
await() {
  for _ in {1..200}; do
    if grep -qs "^$1" "$2"; then return; fi
    kill -0 "$3" 2> /dev/null || break
    sleep 0.1
  done
  cat "$2" >&2
  fail "'$1' was not said within 20 seconds by ${2##*/}"
}

# proof COMMAND ARGUMENTS...: runs a part of demo_proof.py. It prints differences at
# once, and the demo fails at its end if there are any.
proof() { python3 examples/demo_proof.py "$@" || wrong=yes; }
# --- packages and build -----------------------------------------------------
build() {
  local targets=(//lib/netmeter_loader:netmeter-loader //lib/apps/netmeter:netmeter //examples:gateway_service) bin
  local options=(--jobs=2 --color=no --curses=no --noshow_progress --noshow_loading_progress)
  echo "Packages and build: some minutes the first time ..."
  run 3600 "$work/packages" test/install_packages.sh build
  run 3600 "$work/build" bazel build "${options[@]}" "${targets[@]}"
  run 600 "$work/bin" bazel info "${options[@]}" bazel-bin
  bin=$(grep '^/' "$work/bin" | tail -n 1)
  loader=$bin/lib/netmeter_loader/netmeter-loader
  netmeter=$bin/lib/apps/netmeter/netmeter
  service=$bin/examples/gateway_service
}

# --- a gateway and a cloud --------------------------------------------------
describe_gateway() {
  title "1. A gateway and a cloud"
  cat << 'END'
Two network namespaces, joined by a virtual cable: the uplink, which somebody
has to pay for by the byte. The gateway's services call the cloud's services by
gRPC. Two of them do so through the gateway's proxy, in plain text on port 8443;
the proxy encrypts, and shares one connection among them. One calls the cloud
itself, over TLS.

   subscriberdb, C++    \
   mobilityd, Python     > :8443 nghttpx \
   magmad, Python ---------- TLS ---------> 10.0.0.1 ====== 10.0.0.2  cloud_stub.py
   curl, python3 ------------------------/  uplink

subscriberdb registers with libnetmeter. The others know nothing of it.
END
}

# Makes the metered cgroup for the gateway, where cgroup v2 is mounted.
make_cgroup() {
  local parent
  parent=$(awk '$4 == "/" { for (i = 7; i < NF; i++) if ($i == "-" && $(i + 1) == "cgroup2") { print $5; exit } }' /proc/self/mountinfo)
  parent=$(printf '%b' "$parent")  # mountinfo has \040 for a space
  if [ -z "$parent" ]; then
    parent=$work/cgroup2
    mkdir "$parent"
    mount -t cgroup2 none "$parent" || fail "cannot mount cgroup v2"
    mounted=$parent
  fi
  mkdir "$parent/netmeter-demo.$$" || fail "cannot make a cgroup in $parent"
  cgroup=$parent/netmeter-demo.$$
  # shellcheck disable=SC2016 # for the inner shell
  gateway_program=(sh -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$cgroup")
}

# Makes a certificate for all names of the cloud, and two services of Magma, started
# as in Magma: python3 -m magma.NAME.main
make_files() {
  local name
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj '/CN=*.magma.test' \
    -addext 'subjectAltName=DNS:*.magma.test' -keyout "$work/key" -out "$work/certificate" 2> "$work/openssl" ||
    { cat "$work/openssl" >&2; fail "cannot make a certificate"; }
  for name in mobilityd magmad; do
    mkdir -p "$work/magma/$name"
    cp examples/magma_service.py "$work/magma/$name/main.py" || exit 1
  done
  cat > "$work/netmeter.yml" << 'END'
proxy_ports: [8443]  # where services name the cloud service by :authority
sni_ports: [443]     # where they, and the proxy, do by the server name of TLS
destination_suffixes: [-controller.magma.test]
END
}

# Lets only the programs' packets over the cable: no IPv6 autoconfiguration, and
# neighbours that need no ARP. With TSO, GSO packets would cross the cable, and the
# interface would count each as one packet. Without TSO the kernel segments them before
# the interface, but after libnetmeter, which must predict the segments. Windows are
# small because a veth drops packets if 1000 of them wait
# (net.core.netdev_max_backlog), and only libnetmeter would count the dropped ones.
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
# The namespaces have no name, so each ends with the process that holds it. After this
# call at_gateway is the prefix of a command that observes the gateway, and
# gateway_program the prefix of a command that is also metered.
join_namespaces() {
  start "$work/cloud" unshare --net python3 examples/cloud_stub.py 9000 "$work/certificate" "$work/key"
  cloud=$!
  start "$work/gateway" unshare --net sh -c 'echo ready; exec sleep 600'
  gateway=$!
  await ready "$work/cloud" $cloud
  await ready "$work/gateway" $gateway
  at_gateway=(nsenter --net="/proc/$gateway/ns/net")
  gateway_program+=("${at_gateway[@]}")
  {
    ip link add uplink netns "$gateway" address 02:00:00:00:00:01 type veth \
      peer name uplink netns "$cloud" address 02:00:00:00:00:02 &&
      end_of_cable "$gateway" 1 2 && end_of_cable "$cloud" 2 1
  } > "$work/setup" 2>&1 || {
    cat "$work/setup" >&2
    fail "cannot join the two namespaces by a veth pair"
  }
}

# --- load and make traffic --------------------------------------------------
load() {
  title "2. Load, once, as root"
  loaded=yes
  echo "\$ cat netmeter.yml"
  cat "$work/netmeter.yml"
  echo "\$ netmeter-loader load --config netmeter.yml --cgroup $cgroup --pin-dir $pins"
  run 60 "$work/load" "$loader" load --config "$work/netmeter.yml" --cgroup "$cgroup" --pin-dir "$pins" --group '' --max-series 64
  grep -v ' note: group_access ' "$work/load"
  echo "The kernel now counts what the gateway's processes send and receive."
}

# Prints the uplink's counters: bytes and packets received; bytes, packets and drops
# sent.
# shellcheck disable=SC2016 # for awk
uplink() { "${at_gateway[@]}" awk '{ sub(":", " ") } $1 == "uplink" { print $2, $3, $10, $11, $13 }' /proc/net/dev; }

# Starts the proxy, like Magma's control_proxy. It logs the client and the requested
# host of each request. Its connections must stay open until they have been read: the
# side that closes first enters TIME_WAIT, and packets in TIME_WAIT have no socket to
# be attributed to.
start_proxy() {
  local nghttpx
  # shellcheck disable=SC2016 # for nghttpx
  start "$work/nghttpx" "${gateway_program[@]}" nghttpx --conf=/dev/null --workers=1 \
    --frontend='127.0.0.1,8443;no-tls' --backend='10.0.0.2,443;;proto=h2;tls;sni=cloud-controller.magma.test' \
    --cacert="$work/certificate" --backend-keep-alive-timeout=1h --backend-read-timeout=1h --frontend-http2-read-timeout=1h \
    --accesslog-file="$work/requests" --accesslog-format='$remote_port $http_host'
  nghttpx=$!
  for _ in {1..100}; do
    if "${at_gateway[@]}" ss -Hltn 'sport = 8443' | grep -q .; then return; fi
    kill -0 $nghttpx 2> /dev/null || break
    sleep 0.1
  done
  cat "$work/nghttpx" >&2
  fail "nghttpx does not start"
}

make_traffic() {
  local mib=$((1 << 20))
  start "$work/subscriberdb" "${gateway_program[@]}" "$service" --name subscriberdb --pin-dir "$pins" \
    --proxy 127.0.0.1:8443 --upload $((20 * mib)) --download $((8 * mib)) --cloud 10.0.0.2:9000 --datagrams 500
  subscriberdb=$!
  start "$work/mobilityd" "${gateway_program[@]}" env PYTHONPATH="$work" \
    python3 -m magma.mobilityd.main 127.0.0.1:8443 state=$((3 * mib)) streamer=0
  mobilityd=$!
  start "$work/magmad" "${gateway_program[@]}" env PYTHONPATH="$work" \
    python3 -m magma.magmad.main 10.0.0.2:443 bootstrapper=0 "$work/certificate"
  magmad=$!
  run 30 "$work/curl" "${gateway_program[@]}" curl -sS --max-time 20 --noproxy '*' -o /dev/null \
    -w '%{size_request} %{size_header} %{size_download}' http://10.0.0.2:9000/$((5 * mib))
  run 30 "$work/python3" "${gateway_program[@]}" python3 -c '
import socket
with socket.create_connection(("10.0.0.2", 9000), 10) as s:
    s.sendall(b"UP %d\n" % (3 << 20) + bytes(3 << 20))
    assert s.recv(1) == b"", "the cloud has to close first"'
  await 'transfers done' "$work/subscriberdb" $subscriberdb
  await 'done' "$work/mobilityd" $mobilityd
  await 'done' "$work/magmad" $magmad
}

# Waits for the last acknowledgements: until no interface counts a packet for a second.
await_quiet() {
  local quiet=0 last='' now
  for _ in {1..100}; do
    now=$("${at_gateway[@]}" cat /proc/net/dev)
    if [ "$now" = "$last" ]; then quiet=$((quiet + 1)); else quiet=0 last=$now; fi
    if [ $quiet -ge 10 ]; then return; fi
    sleep 0.1
  done
  fail "the traffic does not end"
}

# Reads libnetmeter's counts, and TCP's own counts of each open connection.
read_all() {
  run 30 "$work/table" "$netmeter" list --bytes --pin-dir "$pins"
  run 30 "$work/list" "$netmeter" list --pin-dir "$pins" --json
  run 30 "$work/ss" "${at_gateway[@]}" ss -tinpOH
}

# --- what libnetmeter shows -------------------------------------------------
show_bill() {
  title "3. The bill"
  cat << 'END'
The provider bills what crosses the uplink. Its interface counts that, with an
Ethernet header of 14 bytes a packet. libnetmeter counts the same packets at the
sockets: the sum of its series with path direct is the bill, to the byte.

END
  # shellcheck disable=SC2086 # five words each
  proof bill "$work/list" $before $after
}

show_causes() {
  title "4. Who caused it"
  cat << 'END'
subscriberdb uploaded 20 MiB to the cloud's metricsd, downloaded 8 MiB from its
streamer, and checked in by 500 UDP datagrams of 1000 bytes. mobilityd uploaded
3 MiB to state, and downloaded 1 MiB from state and 1 MiB from streamer; magmad
downloaded 1 MiB from the bootstrapper. curl downloaded 5 MiB, python3 uploaded
3 MiB. All numbers are bytes.

END
  proof causes "$work/list"
  cat << 'END'

The columns "on the uplink" (path direct) add up to the bill. The columns "to
the proxy" (path proxy) are on no bill: they tell for whom nghttpx used the
uplink, before it encrypted.
END
}

show_table() {
  title "5. The same, as netmeter prints it"
  echo "Every series, with packets and payload. Bytes again; without --bytes it prints MiB."
  echo "\$ netmeter list --bytes --pin-dir $pins"
  cat "$work/table"
}

show_metrics() {
  title "6. The service's own /metrics"
  echo "subscriberdb publishes its own series for Prometheus: payload, in bytes (excerpt).
\$ curl http://127.0.0.1:9091/metrics"
  run 30 "$work/metrics" "${at_gateway[@]}" curl -sS --max-time 20 --noproxy '*' http://127.0.0.1:9091/metrics
  grep -E '^(netmeter_up|magma_bytes_)' "$work/metrics" || fail "/metrics shows nothing of ours"
}

show_rows() {
  title "7. The proof, row by row"
  cat << 'END'
netmeter, beside what others counted: TCP itself for each connection that is
still open (ss -ti), curl for its own (curl -w), and python3's upload and the
datagrams as they were written. Payload to the byte; and packets, handshakes
included.

END
  proof rows "$work/list" "$work/ss" "$work/requests" "$work/curl" $subscriberdb $mobilityd $magmad
}

show_cells() {
  local map
  title "8. The map in the kernel"
  echo "All of this was read from one map, a cell per series and CPU, which the kernel
alone can write (excerpt: cells in use, with the names from series as they are
there; the destination as the service said it).
\$ bpftool map dump pinned $pins/series
\$ bpftool map dump pinned $pins/counters"
  for map in series counters; do
    run 30 "$work/$map" bpftool -j map dump pinned "$pins/$map"
  done
  proof cells "$work/series" "$work/counters"
}

build
describe_gateway
make_cgroup
make_files
join_namespaces
load
before=$(uplink)
start_proxy
make_traffic
await_quiet
after=$(uplink)
read_all
show_bill
show_causes
show_table
show_metrics
show_rows
if [ -n "$cells" ]; then show_cells; fi

[ -z "$wrong" ] || fail "a proof failed"
echo
echo "libnetmeter and the bill differ by 0 bytes. Unloading and cleaning up."
