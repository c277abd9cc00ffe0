# SPDX-License-Identifier: BSD-3-Clause
"""What a gateway of a fleet sends over its link, as the meter itself counts it. Prints the
table of docs/fleet.md."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

import lab
import metrics_lab as m
import tools
import yaml

# {profile: options of the exporter}; --estimate has the intervals.
PROFILES = {
    "satellite": ["--families", "bill", "--omit-zeros"],
    "metered": ["--families", "bill,bytes", "--omit-zeros"],
    "default": [],
    "full": ["--families", "all"],
}
# On the link a scrape comes each two seconds here, to have many of them soon.
INTERVAL = 2
# Go's programs have TCP probe an idle connection at this interval.
PROBE_SECONDS, PROBES = 15, 3
# The exporter closes a connection after this time without a request (HttpPeer::Timeouts).
# The next scrape opens another one: bytes_of_a_connection().
IDLE_SECONDS = 75
EVERY = {"scrape_interval": "%ds" % INTERVAL, "scrape_timeout": "%ds" % INTERVAL}
AGENT = os.path.abspath("packaging/prometheus/agent.yml")

# A gateway with an uplink and a budget: twelve services with two destinations each, and
# two programs' own series.
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
    for line in estimate[estimate.index("\nPROFILE ") :].splitlines()[2:]:
        name, _, seconds, _, samples, _, _, size = line.split()[:8]
        found[name] = (int(seconds), int(samples), int(size))
    return found


class FleetTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cloud = lab.Cloud()
        cls.directory = lab.temporary_directory(cls)
        cls.meter = lab.Meter("fleet")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load({"uplinks": {"satellite": ["gate"]}})
        cls.cloud.serve(cls, ANSWERER)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        cls.meter.run([lab.PYTHON, "-c", GATEWAY, cls.cloud.THERE], env=env)
        budgets, database = os.path.join(cls.directory, "budgets.yml"), os.path.join(cls.directory, "history.db")
        with open(budgets, "w", encoding="utf-8") as file:
            json.dump({"budgets": [{"name": "satellite", "limit": "10 GB", "uplink": "satellite"}]}, file)
        lab.run(tools.NETMETER, "record", "--pin-dir", cls.meter.pin_dir, "--database", database)
        cls.files = ["--pin-dir", cls.meter.pin_dir, "--budgets", budgets, "--database", database]
        print(cls.ask_estimate())
        cls.estimate = rows_of(cls.ask_estimate())

    @classmethod
    def ask_estimate(cls):
        return lab.run(m.EXPORTER, "--estimate", *cls.files).decode()

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

    def wait_for_quiet(self):
        """Until nothing has passed for a second."""
        before = None
        while (now := self.wire_bytes()) != before:
            before = now
            time.sleep(1)
        return now

    def samples(self):
        """{"scrape-" or "agent-" and the profile: scrapes that the server has}"""
        with self.cloud.inside():
            found = m.query("sum by (job, instance) (count_over_time(up[1h]))", "%s:9490" % self.cloud.THERE)
        return {
            ("agent-" if dict(key)["instance"].startswith("gateway-0001") else "scrape-") + dict(key)["job"]: count
            for key, count in found.items()
        }

    def wait_for_samples(self, more, before=None):
        """Until the server has so many more of each profile and way."""
        names = [way + profile for profile in PROFILES for way in ("scrape-", "agent-")]

        def has():
            try:
                now = self.samples()
            except (OSError, AssertionError):  # it starts
                return None
            return now if all(now.get(name, 0) >= (before or {}).get(name, 0) + more for name in names) else None

        return lab.wait_for(has, "%d scrapes" % more, 120)

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
                    [self.copy(m.EXPORTER, name + profile), *self.files, *options, *listen],
                    stderr=subprocess.PIPE,
                )
                m.await_line(exporter, "netmeter-exporter: serving ", exporter.stderr)

    def start_server(self):
        """Prometheus in the cloud, which scrapes, and takes what agents write."""

        def in_cloud(arguments):
            return subprocess.Popen(["nsenter", "--net=" + self.cloud.path, "prometheus", *arguments])

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
        before = self.wait_for_samples(3)  # the first scrape and the first write have more
        bytes_before = self.wire_bytes()
        after = self.wait_for_samples(15, before)
        each_of = {
            name: (count - bytes_before[name]) / (after[name] - before[name])
            for name, count in self.wire_bytes().items()
            if name in after
        }
        # The six programs here have series of their own by now, which a gateway has not.
        estimate = rows_of(self.ask_estimate())
        # Connections stay open, and the kernel probes them while nothing else is on them.
        for process in talkers:
            process.send_signal(signal.SIGSTOP)
        quiet = self.wait_for_quiet()
        time.sleep(PROBES * PROBE_SECONDS)  # which is what is measured
        idle = {name: (count - quiet.get(name, 0)) / (PROBES * PROBE_SECONDS) for name, count in self.wire_bytes().items()}
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
                each = each_of[name] + probes
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



if __name__ == "__main__":
    lab.private_network()
    lab.main(300)
