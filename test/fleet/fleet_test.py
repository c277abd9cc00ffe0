# SPDX-License-Identifier: BSD-3-Clause
"""What a fleet costs: on the link of each gateway, as the meter itself counts it, and on the
one Prometheus that has them all. The exporter is real, and what it says; the gateways of
the fleet have its page with other numbers (many_gateways.py). Prints the tables of
docs/fleet.md."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

import lab
import metrics_lab as m
import yaml

GATEWAYS = int(os.environ.get("NETMETER_FLEET_GATEWAYS", "100"))
SECONDS = int(os.environ.get("NETMETER_FLEET_SECONDS", "20"))
MANY_GATEWAYS = os.path.abspath("test/fleet/many_gateways.py")
MANY = "127.0.0.1:9500"
# {profile: options of the exporter}; --estimate has the intervals.
PROFILES = {
    "satellite": ["--families", "netmeter_wire_bytes_total", "--omit-zeros"],
    "metered": ["--families", "bytes", "--omit-zeros"],
    "full": ["--families", "all"],
}
# On the link a scrape comes each two seconds here, to have many of them soon.
INTERVAL = 2
# Go's programs have TCP probe a connection that is idle, so often.
PROBE_SECONDS, PROBES = 15, 3
# The exporter closes a connection after so long without a request
# (HttpPeer::Timeouts). The next scrape opens another one: bytes_of_a_connection().
IDLE_SECONDS = 75
EVERY = {"scrape_interval": "%ds" % INTERVAL, "scrape_timeout": "%ds" % INTERVAL}
AGENT = os.path.abspath("packaging/prometheus/agent.yml")

# A gateway: twelve services with two destinations each, and two programs' own series.
GATEWAY = """
import socket, sys, time, netmeter
services = "magmad control_proxy subscriberdb mobilityd directoryd eventd policydb state sessiond mme enodebd pipelined"
def send(service, destination, kind):
    with socket.socket(socket.AF_INET, kind) as out:
        if service:
            netmeter.set_socket_service(out, service)
        netmeter.tag_socket(out, destination)
        if kind == socket.SOCK_STREAM:
            out.connect((sys.argv[1], 9000))
            out.sendall(bytes(2000))
            while len(out.recv(65536)) == 65536:
                pass
        else:
            out.sendto(bytes(500), (sys.argv[1], 9))
for service in services.split():
    for destination in ("streamer", service + "_cloud"):
        send(service, destination, socket.SOCK_STREAM)
for service in ["", *services.split()[:11]]:
    send(service, "dns", socket.SOCK_DGRAM)
"""

ANSWERER = """
import socket
server = socket.create_server(("0.0.0.0", 9000))
print("ready", flush=True)
while True:
    connection = server.accept()[0]
    connection.recv(65536)
    connection.sendall(bytes(3000))
    connection.close()
"""


def rows_of(estimate):
    """{profile: (seconds, samples, bytes by gzip)} of what --estimate prints."""
    found = {}
    for line in estimate[estimate.index("\nprofile ") :].splitlines()[2:]:
        name, _, seconds, _, samples, _, _, size = line.split()[:8]
        found[name] = (int(seconds), int(samples), int(size))
    return found


def numbers_of(page):
    """{metric with its labels: value} of a page that need not be ours."""
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def memory_mib(pid, field):
    with open("/proc/%d/status" % pid, encoding="ascii") as status:
        return int(re.search(field + r":\s+(\d+)", status.read()).group(1)) / 1024


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
        user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)


class FleetTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cloud = lab.Cloud()
        cls.directory = lab.temporary_directory(cls)
        cls.meter = lab.Meter("fleet")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load({})
        answerer = m.start_in_cloud(cls.cloud, "-c", ANSWERER)
        cls.addClassCleanup(m.end, answerer)
        m.await_line(answerer, "ready")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        cls.meter.run([lab.PYTHON, "-c", GATEWAY, cls.cloud.THERE], env=env)
        print(cls.ask_estimate())
        cls.estimate = rows_of(cls.ask_estimate())

    @classmethod
    def ask_estimate(cls):
        return lab.run(m.EXPORTER, "--estimate", "--pin-dir", cls.meter.pin_dir).decode()

    def copy(self, program, name):
        """By its file the meter knows it."""
        path = os.path.join(self.directory, name)
        try:
            os.link(program, path)
        except OSError:
            shutil.copy(program, path)
        return path

    def start(self, arguments, **options):
        process = self.meter.start(arguments, **options)
        self.addCleanup(m.end, process)
        return process

    def prometheus(self, name, config, start, *options):
        """JSON is YAML."""
        path = os.path.join(self.directory, name + ".yml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        process = start(["--config.file=" + path, "--log.level=error", *options])
        self.addCleanup(m.end, process)
        return process

    def wire_bytes(self):
        """{program: bytes on the link}"""
        found = {}
        for key, row in self.meter.series().items():
            if key[4] == "direct":
                found[key[1]] = found.get(key[1], 0) + row["tx_bytes"] + row["rx_bytes"]
        return found

    def wire_bytes_a_second(self, seconds):
        before, begin = self.wire_bytes(), time.monotonic()
        time.sleep(seconds)
        after, took = self.wire_bytes(), time.monotonic() - begin
        return {name: (count - before.get(name, 0)) / took for name, count in after.items()}

    def bytes_of_a_connection(self):
        """Without a request, from the cloud."""
        before = self.wire_bytes()["scrape-full"]
        connections = 50  # beside a probe that may come meanwhile
        for _ in range(connections):
            with self.cloud.inside():
                client = socket.create_connection((self.cloud.HERE, 9384 + list(PROFILES).index("full")))
            client.shutdown(socket.SHUT_WR)
            self.assertEqual(client.recv(1), b"")
            client.close()
        return (self.wire_bytes()["scrape-full"] - before) / connections

    def start_exporters(self):
        """Of each profile one for the server, and one for the agent."""
        for i, (profile, options) in enumerate(PROFILES.items()):
            for name, address in (("scrape-", "%s:%d" % (self.cloud.HERE, 9384 + i)), ("local-", "127.0.0.1:%d" % (9394 + i))):
                listen = ["--listen", address, "--allow-public"]
                exporter = self.start(
                    [self.copy(m.EXPORTER, name + profile), "--pin-dir", self.meter.pin_dir, *options, *listen],
                    stderr=subprocess.PIPE,
                )
                m.await_line(exporter, "netmeter-exporter: serving ", exporter.stderr)

    def start_server(self):
        """Prometheus in the cloud, which scrapes, and takes what agents write."""

        def in_cloud(arguments):
            network = "/proc/%d/fd/%d" % (os.getpid(), self.cloud.network)
            return subprocess.Popen(["nsenter", "--net=" + network, "prometheus", *arguments])

        jobs = [
            {"job_name": profile, "static_configs": [{"targets": ["%s:%d" % (self.cloud.HERE, 9384 + i)]}]}
            for i, profile in enumerate(PROFILES)
        ]
        options = [
            "--web.listen-address=%s:9490" % self.cloud.THERE,
            "--storage.tsdb.path=%s/server-data" % self.directory,
            "--web.enable-remote-write-receiver",
        ]
        return self.prometheus("server", {"global": EVERY, "scrape_configs": jobs}, in_cloud, *options)

    def start_agent(self, i, profile):
        """Prometheus on the gateway, by the configuration that is shipped."""
        with open(AGENT, encoding="utf-8") as file:
            config = yaml.safe_load(file)
        self.assertEqual(config["global"].pop("scrape_interval"), "%dm" % (self.estimate["satellite"][0] // 60))
        config["global"].update(EVERY)
        (job,), (write,) = config["scrape_configs"], config["remote_write"]
        job["static_configs"] = [{"targets": ["127.0.0.1:%d" % (9394 + i)]}]
        job["job_name"] = profile
        write["url"] = write["url"].replace("server.example:9090", self.cloud.THERE + ":9490")
        program = self.copy(shutil.which("prometheus"), "agent-" + profile)
        return self.prometheus(
            "agent-" + profile,
            config,
            lambda arguments: self.meter.start([program, *arguments]),
            "--enable-feature=agent",
            "--storage.agent.path=%s/agent-%s-data" % (self.directory, profile),
            "--web.listen-address=127.0.0.1:%d" % (9590 + i),
        )

    def test_0_what_magmad_polls(self):
        """The reply to GetMetrics, over loopback: with gzip, and without."""
        exporter = m.start_exporter(self.meter.pin_dir, "--listen", "off")
        self.addCleanup(m.end, exporter)
        call = ["curl", "-sS", "--http2-prior-knowledge", "--data-binary", "@-", "-o", "/dev/null", "-w", "%{size_download}"]
        call += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        call += ["http://%s/magma.orc8r.Service303/GetMetrics" % m.GRPC]
        sizes = [
            int(lab.run(*call, "-H", "grpc-accept-encoding: " + encodings, input=bytes(5)))
            for encodings in ("identity", "identity, deflate, gzip")
        ]
        print("GetMetrics: %d bytes, %d by gzip" % tuple(sizes))
        self.assertLess(sizes[1], sizes[0] / 2)

    def test_1_what_a_gateway_sends(self):
        """By a scrape from afar, and by an agent that writes to the server."""
        self.start_exporters()
        talkers = [self.start_server(), *(self.start_agent(i, profile) for i, profile in enumerate(PROFILES))]
        time.sleep(5 * INTERVAL)  # the first scrape and the first write have more
        a_second = self.wire_bytes_a_second(15 * INTERVAL)
        # The six programs here have series of their own by now, which a gateway has not.
        estimate = rows_of(self.ask_estimate())
        # Connections stay open, and the kernel probes them while nothing else is on them.
        for process in talkers:
            process.send_signal(signal.SIGSTOP)
        time.sleep(INTERVAL)
        idle = self.wire_bytes_a_second(PROBES * PROBE_SECONDS)
        connection = self.bytes_of_a_connection()
        print("a connection that opens and closes: %d bytes" % connection)
        for process in talkers:
            process.send_signal(signal.SIGCONT)
        rows = []
        for profile, (seconds, samples, size) in estimate.items():
            for way in ("scrape-", "agent-"):
                name = way + profile
                probed = min(seconds, IDLE_SECONDS) if way == "scrape-" else seconds
                probes = idle[name] * probed if seconds > PROBE_SECONDS else 0
                each = a_second[name] * INTERVAL + probes
                if way == "scrape-" and seconds > IDLE_SECONDS:
                    each += connection
                day = each * 86400 / seconds
                figures = (round(each), round(probes), "%.2f" % (day / 1e6), "%.3f" % (day * 30 / 1e9))
                rows.append((profile, way[:-1], "%d s" % seconds, samples, size, *figures))
                if way == "scrape-":
                    self.assertGreater(each, size)
                    self.assertLess(each, 1.1 * size + 4000)
                self.assertLess(idle[name] * PROBE_SECONDS, 300, name)
        header = ("profile", "way", "every", "samples", "page", "bytes each", "of that probes", "MB a day", "GB a month")
        lab.print_table("On the link, in wire bytes", header, rows)

        # Both ways brought the same, the agents' under the name of the gateway.
        def totals():
            query = "count by (job, instance) (netmeter_wire_bytes_total)"
            with self.cloud.inside():
                found = m.query(query, "%s:9490" % self.cloud.THERE)
            return {(dict(key)["job"], dict(key)["instance"].split(":")[0]) for key in found}

        both = {(profile, instance) for profile in PROFILES for instance in (self.cloud.HERE, "gateway-0001")}
        lab.wait_for(lambda: totals() == both, "what the server has")

    def test_2_one_prometheus_has_them_all(self):
        rows = []
        for profile, options in PROFILES.items():
            rows.append(self.fleet(profile, options))
        lab.print_table(
            "%d gateways, one Prometheus, %d seconds each" % (GATEWAYS, SECONDS),
            ("profile", "every", "series", "samples/s", "CPU", "MiB", "WAL bytes/sample"),
            rows,
        )

    def fleet(self, profile, options):
        """What one Prometheus needs for all of them; a row of the table."""
        exporter = m.start_exporter(self.meter.pin_dir, *options)
        page = os.path.join(self.directory, profile + ".txt")
        with open(page, "w", encoding="utf-8") as file:
            file.write(m.get(m.HTTP))
        m.end(exporter)
        many = subprocess.Popen([lab.PYTHON, MANY_GATEWAYS, page, MANY], stdout=subprocess.PIPE)
        m.await_line(many, "ready")
        # Of the profile, but that all have come twice.
        every = min(self.estimate[profile][0], max(5, SECONDS // 2))
        names = ["gateway%04d" % i for i in range(GATEWAYS)]
        config = {
            "global": {"scrape_interval": "%ds" % every, "scrape_timeout": "5s"},
            "scrape_configs": [
                {
                    "job_name": "netmeter",
                    "static_configs": [{"targets": names}],
                    "relabel_configs": [
                        {"source_labels": ["__address__"], "target_label": "instance"},
                        {"source_labels": ["__address__"], "target_label": "__metrics_path__", "replacement": "/$1/metrics"},
                        {"target_label": "__address__", "replacement": MANY},
                    ],
                }
            ],
        }
        data = os.path.join(self.directory, profile + "-fleet")
        prometheus = self.prometheus(
            profile + "-fleet",
            config,
            lambda arguments: subprocess.Popen(["prometheus", *arguments]),
            "--web.listen-address=" + m.PROMETHEUS,
            "--storage.tsdb.path=" + data,
        )
        try:
            lab.wait_for(self.is_ready, "Prometheus", 60)
            time.sleep(SECONDS)
            numbers = numbers_of(m.get(m.PROMETHEUS))
            self.assertEqual(m.query("sum(netmeter_up)"), {(): GATEWAYS})
            self.assertEqual(m.query("count(up == 0) or vector(0)"), {(): 0})
            samples = sum(
                value for name, value in numbers.items() if name.startswith("prometheus_tsdb_head_samples_appended_total")
            )
            series = numbers["prometheus_tsdb_head_series"]
            # What scrape_* and up add is five for each target.
            per_gateway = series / GATEWAYS
            with open(page, encoding="utf-8") as file:
                own = m.text_values(file.read())
            self.assertEqual(per_gateway, len(own) + 5)
            for instance in (names[0], names[-1]):
                self.assertGreater(m.query('sum(netmeter_wire_bytes_total{instance="%s"})' % instance)[()], 0)
            cpu = cpu_seconds(prometheus.pid)
            row = (
                profile,
                "%d s" % every,
                int(series),
                round(series / every),
                "%.1f %%" % (100 * cpu / SECONDS),
                round(memory_mib(prometheus.pid, "VmHWM")),
                "%.1f" % (folder_bytes(data + "/wal") / samples),
            )
        finally:
            m.end(prometheus)
            m.end(many)
        shutil.rmtree(data, ignore_errors=True)
        return row

    @staticmethod
    def is_ready():
        try:
            return m.get(m.PROMETHEUS, "/-/ready")
        except (OSError, AssertionError):
            return None


if __name__ == "__main__":
    lab.private_network()
    lab.main(200 + 4 * SECONDS)
