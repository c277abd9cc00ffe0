#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# test_debs.sh runs this in the virtual machine, as root, under systemd. The machine is
# a host of its own, so the packages' units may count all of its traffic.
set -uo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

say() { echo "GUEST: $*"; }
die() {
  say "FAIL: $*"
  journalctl --no-pager -n 30 -u 'netmeter*' -p info
  exit 1
}
# check WHAT COMMAND...
check() {
  local what=$1 output
  shift
  if output=$("$@" 2>&1); then say "ok: $what"; else die "$what: $output"; fi
}
# retry COMMAND...: for up to ten seconds
retry() {
  local i
  for ((i = 0; i < 50; i++)); do "$@" > /dev/null 2>&1 && return; sleep 0.2; done
  "$@"
}
# All files that a package or the loader could leave behind.
files() { find / -xdev \( -path /proc -o -path /sys -o -path /debs -o -path /earlier -o -path /run -o -path /tmp -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/backups -o -path '*/__pycache__' -o -name '.pwd.lock' -o -name '*.cache' -o -path '/var/lib/systemd/*' -o -path '/etc/*-' -o -path '/var/tmp*' \) -prune -o -print | sort; }
# The sent bytes of the C service's only series.
sent() { netmeter list --json | python3 -c 'import json, sys
print(sum(row["tx_bytes"] for row in json.load(sys.stdin) if row["name"] == "traffic"))'; }
# The meter's BPF programs, as "nm_egress 12 0123456789abcdef": name, id, and the tag,
# which is a hash of its instructions.
programs() {
  python3 - << 'PY'
import ctypes, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    return libc.syscall(number, command, buffer, 128), buffer.raw
at = 0
while True:
    failed, answer = bpf(11, struct.pack("=II", at, 0))  # BPF_PROG_GET_NEXT_ID
    if failed:
        break
    at = struct.unpack_from("=I", answer, 4)[0]
    program, _ = bpf(13, struct.pack("=I", at))  # BPF_PROG_GET_FD_BY_ID
    if program < 0:
        continue
    info = ctypes.create_string_buffer(256)
    bpf(15, struct.pack("=IIQ", program, 256, ctypes.addressof(info)))  # BPF_OBJ_GET_INFO_BY_FD
    os.close(program)
    name = info.raw[64:80].split(b"\0")[0].decode()
    if name.startswith("nm_"):
        print(name, at, info.raw[8:16].hex())
PY
}
# The optional units that are enabled, now and at boot.
switched_on() {
  local unit
  for unit in netmeter-record.timer netmeter-record-last.service netmeter-evict.timer; do
    echo "$unit: $(systemctl is-active $unit), $(systemctl is-enabled $unit 2> /dev/null)"
  done
}
metrics() { python3 -c 'import urllib.request as r
print(r.urlopen("http://127.0.0.1:9384/metrics").read().decode())'; }

modprobe dummy
ip link set lo up
ip link add uplink type dummy
ip address add 192.0.2.2/24 dev uplink
ip link set uplink up
install -d -m 700 /etc/credstore # systemd 257 has it
files > /tmp/before
group_before=$(getent group | sort)

check "install the earlier version" dpkg -i /earlier/*.deb
check "netmeter.service is active" systemctl is-active netmeter.service
check "netmeter-fds.socket is active" systemctl is-active netmeter-fds.socket
check "netmeter-exporter.service is active" systemctl is-active netmeter-exporter.service
check "the units verify" systemd-analyze verify --man=no netmeter.service netmeter-fds.socket netmeter-fds.service netmeter-exporter.service netmeter-record.timer netmeter-record.service netmeter-record-last.service netmeter-export.timer netmeter-export.service netmeter-evict.timer netmeter-evict.service
check "the meter is loaded" netmeter-loader status
say "$(systemd-analyze security --no-pager netmeter-exporter.service | tail -n 1)"

# A program named my-service sends a datagram. Without the library it does not register.
if [ -e /embed ]; then
  check "a service in C publishes" sh -c '/embed | grep -q "my-service, udp: sent 33 bytes"'
  check "a service in C++ publishes" sh -c '/embed-cc | grep -q "my-service, udp: sent 66 bytes"'
else
  mkdir /tmp/services
  cp "$(readlink -f /usr/bin/python3)" /tmp/services/my-service
  printf '#!/bin/sh\nexec /tmp/services/my-service -c "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(5), (\x27192.0.2.1\x27, 9))"\n' > /tmp/services/embed
  chmod 755 /tmp/services/embed
  check "a program is counted" /tmp/services/embed
fi
cat > /tmp/service.py <<'PY'
import socket
import netmeter
meter = netmeter.Meter.open(service="in-python")
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("192.0.2.1", 9))
assert [s.tx_bytes for s in meter.read_service()] == [33], meter.read_service()
PY
if [ -e /embed ]; then
  check "pip and importlib know the package of Python" python3 -c 'import importlib.metadata, netmeter
assert importlib.metadata.version("netmeter") == netmeter.__version__'
  check "a service in Python publishes" python3 /tmp/service.py
fi
group=$(getent group netmeter | cut -d: -f3)
check "a user in the group reads" sh -c "setpriv --reuid=1234 --regid=1234 --groups=$group netmeter list | grep -q my-service"
check "a user outside of it does not" sh -c '! setpriv --reuid=1234 --regid=1234 --clear-groups netmeter list'
check "the exporter has it" retry sh -c "$(declare -f metrics); metrics | grep -q 'my-service'"
# What packaging/netmeter-exporter.default shows.
cp -p /etc/default/netmeter-exporter /tmp/exporter.default
echo 'OPTIONS="--listen unix:/run/netmeter-exporter/metrics.sock"' >> /etc/default/netmeter-exporter
systemctl restart netmeter-exporter
cat > /tmp/read_socket.py <<'PY'
import socket
client = socket.socket(socket.AF_UNIX)
client.connect("/run/netmeter-exporter/metrics.sock")
client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
assert b"my-service" in b"".join(iter(lambda: client.recv(65536), b""))
PY
check "the group reads the exporter's Unix socket" retry setpriv --reuid=1234 --regid=1234 --groups="$group" python3 /tmp/read_socket.py
check "others do not" sh -c 'setpriv --reuid=1234 --regid=1234 --clear-groups python3 /tmp/read_socket.py 2>&1 | grep -q PermissionError'
check "the port is closed" sh -c "$(declare -f metrics); metrics 2>&1 | grep -q refused"
systemctl stop netmeter-exporter
check "the socket is gone" test ! -e /run/netmeter-exporter
cp -p /tmp/exporter.default /etc/default/netmeter-exporter
systemctl start netmeter-exporter

check "the history is recorded from the first minute" systemctl is-active netmeter-record.timer netmeter-record-last.service
check "it is recorded after the next boot, too" systemctl is-enabled netmeter-record.timer netmeter-record-last.service
check "the other timers wait to be switched on" sh -c '! systemctl is-active netmeter-evict.timer netmeter-export.timer'
echo 'uplinks: {sky: [uplink]}' >> /etc/netmeter.yml
check "a load with an uplink" systemctl reload netmeter
check "a service uses the uplink" "$(ls /embed /tmp/services/embed 2> /dev/null)"
check "a record" systemctl start netmeter-record.service
check "it has what the interface counted" sh -c 'netmeter usage --path interface --by uplink --csv | grep -q "^sky,[1-9]"'
check "the last record" sh -c 'systemctl stop netmeter-record-last && ! systemctl is-failed netmeter-record-last && systemctl start netmeter-record-last'
say "$(systemd-analyze security --no-pager netmeter-record.service | tail -n 1)"
check "a user in the group reads the history" sh -c "setpriv --reuid=1234 --regid=1234 --groups=$group netmeter usage | grep -q my-service"
check "a user outside of it does not read it" sh -c '! setpriv --reuid=1234 --regid=1234 --clear-groups netmeter usage'
# A centre on loopback: it takes rows at /open without a token, and elsewhere with one.
cat > /tmp/centre.py << 'PY'
import gzip, http.server
class Centre(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        rows = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.path == "/open" or self.headers["Authorization"] == "Bearer secret"
        if known:
            open("/tmp/rows" + self.path.replace("/", "-"), "ab").write(rows)
        self.send_response(200 if known else 401)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 8123), Centre).serve_forever()
PY
python3 /tmp/centre.py 2> /dev/null &
centre=$!
token=/run/credentials/netmeter-export.service/netmeter-export.token
export_to() { printf 'TO="http://127.0.0.1:8123/%s"\nOPTIONS="--running %s"\n' "$1" "$2" > /etc/default/netmeter-export; }
cp /etc/default/netmeter-export /tmp/default
export_to open ""
check "an export to a centre without a token" retry systemctl start netmeter-export.service
export_to closed "--token-file $token"
check "an export without its token fails" sh -c '! systemctl start netmeter-export.service'
(umask 077 && echo secret > /etc/credstore/netmeter-export.token)
check "an export with its token" systemctl start netmeter-export.service
check "the centre has the service, twice" sh -c 'grep -q my-service /tmp/rows-open && grep -q my-service /tmp/rows-closed'
kill "$centre"
cp /tmp/default /etc/default/netmeter-export
rm /etc/credstore/netmeter-export.token
check "an eviction" systemctl start netmeter-evict.service
check "the timer of evictions, until the next boot" systemctl start netmeter-evict.timer

# Datagrams of a known size, during the whole upgrade.
cat > /tmp/traffic.py <<'PY'
import os, socket, time
try:
    import netmeter
    meter = netmeter.Meter.open(service="traffic")
except ImportError:
    pass  # its executable is called so
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
count = 0
while not os.path.exists("/tmp/stop"):
    out.sendto(b"hello", ("192.0.2.1", 9))
    count += 1
    time.sleep(0.02)
print(count * 33)
PY
mkdir -p /tmp/services
cp "$(readlink -f /usr/bin/python3)" /tmp/services/traffic
/tmp/services/traffic /tmp/traffic.py > /tmp/traffic &
before=0
for ((i = 0; i < 100 && before == 0; i++)); do sleep 0.2; before=$(sent); done
switched_before=$(switched_on)
say "before the upgrade: ${switched_before//$'\n'/; }"
programs > /tmp/programs.before
build_before=$(netmeter-loader status --json | grep build_id)
# As operators do; dpkg -i alone does not move files from one package to another. apt
# would be stopped when it asks our terminal about its size.
check "upgrade" setsid --wait apt-get -o Dpkg::Use-Pty=0 install --yes /debs/*.deb
check "netmeter.service is active after it" systemctl is-active netmeter.service
check "the configuration is the same, and the package's that loads it" sh -c 'grep -q sky /etc/netmeter.yml && dpkg -S /etc/netmeter.yml | grep "^netmeter-loader:" && ! ls /etc/netmeter.yml.*'
check "what was switched on is so after it" [ "$(switched_on)" = "$switched_before" ]
check "the timer of the history runs" systemctl is-active netmeter-record.timer
check "the timer of evictions runs" systemctl is-active netmeter-evict.timer
check "load replaced the programs" sh -c 'journalctl -u netmeter.service | grep "upgraded, counters kept"'
programs > /tmp/programs.after
check "there is another kernel part" [ "$(netmeter-loader status --json | grep build_id)" != "$build_before" ]
check "the programs have the same names" [ "$(cut -d' ' -f1 /tmp/programs.before | sort)" = "$(cut -d' ' -f1 /tmp/programs.after | sort)" ]
# nm_forward4 and nm_forward6 stay with their links, and call the new programs.
check "none of the earlier programs is there" bash -c '! cut -d" " -f1,2 /tmp/programs.before | grep -v "^nm_forward[46] " | grep -xF -f <(cut -d" " -f1,2 /tmp/programs.after)'
replaced=$(grep -cvF -f <(cut -d' ' -f3 /tmp/programs.before) /tmp/programs.after)
say "$(grep -c . /tmp/programs.after) programs, $replaced of them with other instructions"
check "programs have other instructions" [ "$replaced" -ge 3 ]
sleep 1
touch /tmp/stop
wait
say "traffic: sent $(cat /tmp/traffic) bytes, counted $(sent), $before before the upgrade"
check "there was traffic before the upgrade" [ "$before" -gt 0 ]
check "no byte is lost" [ "$(sent)" = "$(cat /tmp/traffic)" ]

sed -i 's/^OPTIONS=.*/OPTIONS="--families bytes --omit-zeros"/' /etc/default/netmeter-exporter
systemctl restart netmeter-exporter
check "the exporter has the options of /etc/default" retry sh -c "$(declare -f metrics); metrics > /tmp/page && grep -q '^netmeter_wire_bytes_total' /tmp/page && ! grep -q '^netmeter_series' /tmp/page"
# The other units and prerm only use this directory.
echo 'pin_dir: /run/elsewhere' >> /etc/netmeter.yml
check "a load with another pin_dir" systemctl reload netmeter
check "is one of the same meter" sh -c '[ ! -e /run/elsewhere ] && netmeter list --json | grep -q traffic'
check "the dashboard is where Grafana is told" [ -s "$(sed -n 's/^ *path: //p' /etc/grafana/provisioning/dashboards/netmeter.yml)/netmeter.json" ]
# dpkg --root on another system: its scripts once unloaded and purged this one.
mkdir -p /tmp/other/etc /tmp/other/var/lib/netmeter
cp /etc/group /etc/passwd /etc/shadow /etc/gshadow /tmp/other/etc/
touch /tmp/other/var/lib/netmeter/group-is-of-the-package
for package in netmeter netmeter-loader; do
  check "prerm of $package in another root" env DPKG_ROOT=/tmp/other sh "/var/lib/dpkg/info/$package.prerm" remove
  check "postrm of $package in another root" env DPKG_ROOT=/tmp/other sh "/var/lib/dpkg/info/$package.postrm" purge
done
check "they purge that one" sh -c '[ ! -e /tmp/other/var/lib/netmeter ] && ! grep -q ^netmeter: /tmp/other/etc/group'
check "and nothing here" sh -c 'getent group netmeter && [ -e /var/lib/netmeter/history.db ] && netmeter list --json | grep -q traffic'
touch /tmp/removal
check "remove the tools" dpkg --remove netmeter-ipfix netmeter
check "the history has a last record" sh -c 'find /var/lib/netmeter -name "history.db*" -newer /tmp/removal | grep .'
check "the meter counts on" sh -c 'netmeter-loader status && systemctl is-active netmeter.service'
check "the exporter publishes it, without the tools" sh -c "$(declare -f metrics); metrics | grep traffic"
mapfile -t packages < <(cd /debs && printf '%s\n' * | cut -d_ -f1)
check "purge" dpkg --purge "${packages[@]}"
files > /tmp/after
check "no file is left" diff /tmp/before /tmp/after
check "no group is left" [ "$(getent group | sort)" = "$group_before" ]
check "no meter is left" sh -c '! mountpoint /run/netmeter && ! ls -d /run/netmeter*'
# Once the group was removed even if it was older than the package.
groupadd --system netmeter
check "an install where there is a group netmeter" dpkg --install /debs/netmeter-loader_*.deb
check "purge again" dpkg --purge netmeter-loader
check "that group is left" getent group netmeter
say PASS
