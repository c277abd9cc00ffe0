# SPDX-License-Identifier: BSD-3-Clause
"""One Prometheus over others: that of a region scrapes gateways and has the rules, and one
over it federates by packaging/prometheus/federate.yml. With an argument it also lets the
region write to that program, a VictoriaMetrics, as agents do:

    test/apps/fleet/federation_test.py /usr/bin/victoria-metrics
"""

import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

import yaml

FEDERATE, RULES, AGENT = (
    os.path.abspath("packaging/prometheus/" + name) for name in ("federate.yml", "netmeter.rules.yml", "agent.yml")
)
COLLECTOR = os.path.abspath("examples/stores/otel-metrics.yaml")
VICTORIA_METRICS = sys.argv.pop() if sys.argv[1:] and os.path.isabs(sys.argv[-1]) else None
EVERY = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}


class Gateway(http.server.BaseHTTPRequestHandler):
    """Sends 1,000 bytes a second, and publishes it."""

    protocol_version = "HTTP/1.1"
    begin = time.monotonic()

    def do_GET(self):  # pylint: disable=invalid-name
        labels = '{kind="service",name="mme",destination="streamer",transport="tcp",direction="tx"}'
        count = int(1000 * (time.monotonic() - self.begin))
        page = "netmeter_up 1\nnetmeter_wire_bytes_total%s %d\n" % (labels, count)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_):
        pass


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return "127.0.0.1:%d" % server.getsockname()[1]


def query(server, promql):
    """{labels: value}; nothing while the server starts."""
    path = "http://%s/api/v1/query?%s" % (server, urllib.parse.urlencode({"query": promql}))
    try:
        with urllib.request.urlopen(path, timeout=20) as reply:
            rows = json.load(reply)["data"]["result"]
    except OSError:
        return {}
    return {tuple(sorted(row["metric"].items())): float(row["value"][1]) for row in rows}


def check(path):
    return subprocess.run(
        ["promtool", "check", "config", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, text=True
    )


class Servers(unittest.TestCase):
    """What the tests below start."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        # By the loopback address, whatever proxy the environment names.
        os.environ["no_proxy"] = "127.0.0.1"

    def start(self, *arguments):
        process = subprocess.Popen(arguments)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def prometheus(self, name, config):
        address, path = free_address(), os.path.join(self.directory, name + ".yml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)  # JSON is YAML
        self.assertEqual(check(path).returncode, 0)
        options = ["--storage.tsdb.path=%s/%s" % (self.directory, name), "--web.listen-address=" + address]
        self.start("prometheus", "--config.file=" + path, "--log.level=error", *options)
        return address

    def gateway(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return "127.0.0.1:%d" % server.server_address[1]

    def region(self, **more):
        gateways = [
            {"targets": [self.gateway()], "labels": {"instance": "gateway-%d" % number}} for number in (1, 2)
        ]
        job = {"job_name": "netmeter", "static_configs": gateways}
        return self.prometheus("region", {"global": EVERY, "rule_files": [RULES], "scrape_configs": [job], **more})

    def await_rows(self, server, promql, rows, seconds=90):
        end = time.monotonic() + seconds
        while len(found := query(server, promql)) != rows:
            self.assertLess(time.monotonic(), end, (promql, found))
            time.sleep(0.2)
        return found


class FederationTest(Servers):
    def test_the_sums_of_each_gateway_arrive_and_no_destination(self):
        region = self.region()
        with open(FEDERATE, encoding="utf-8") as file:
            config = yaml.safe_load(file)
        self.assertEqual(check(FEDERATE).returncode, 0)
        config["global"] = EVERY
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [region]
        world = self.prometheus("world", config)
        rates = self.await_rows(world, "instance:netmeter_wire_bytes:rate5m > 0", 2)
        for number, (labels, rate) in enumerate(sorted(rates.items()), 1):
            # The gateway's own name, and whose region it is in.
            self.assertEqual(dict(labels)["instance"], "gateway-%d" % number)
            self.assertEqual(dict(labels)["region"], "region-1")
            # Of 5 minutes, of which there were some seconds.
            self.assertLess(rate, 1500)
        self.await_rows(world, 'up{job="netmeter"} * on (instance) netmeter_up == 1', 2)
        self.assertEqual(query(world, '{destination!=""}'), {})
        # What is not federated is asked in the region.
        self.assertEqual(len(query(region, "name_destination:netmeter_wire_bytes:rate5m")), 2)

    def test_promtool_takes_what_the_collector_is_told_to_scrape(self):
        with open(COLLECTOR, encoding="utf-8") as file:
            collector = yaml.safe_load(file)
        path = os.path.join(self.directory, "collector.yml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(collector["receivers"]["prometheus"]["config"], file)
        done = check(path)
        self.assertEqual(done.returncode, 0, done.stdout)
        # Each part that a pipeline names is there, and no other.
        (pipeline,) = collector["service"]["pipelines"].values()
        for kind in ("receivers", "processors", "exporters"):
            self.assertEqual(pipeline[kind], list(collector[kind]))


if VICTORIA_METRICS:

    class VictoriaMetricsTest(Servers):
        def test_it_takes_what_agents_write(self):
            address, data = free_address(), self.directory + "/victoria"
            self.start(VICTORIA_METRICS, "-httpListenAddr=" + address, "-storageDataPath=" + data, "-loggerLevel=ERROR")
            with open(AGENT, encoding="utf-8") as file:
                (write,) = yaml.safe_load(file)["remote_write"]
            write["url"] = write["url"].replace("server.example:9090", address)
            self.region(remote_write=[write])
            found = self.await_rows(address, "rate(netmeter_wire_bytes_total[30s]) > 0", 2)
            self.assertEqual({dict(labels)["instance"] for labels in found}, {"gateway-1", "gateway-2"})


if __name__ == "__main__":
    unittest.main()
