#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A budget that is almost used up becomes a message: by the rules, a real Prometheus, a real
Alertmanager with examples/fleet/alertmanager.yml, and a webhook. The gateways are pages."""

import http.server
import json
import os
import queue
import socket
import subprocess
import tempfile
import threading
import unittest

CONFIG, RULES = (os.path.abspath(name) for name in ("examples/fleet/alertmanager.yml", "packaging/prometheus/netmeter.rules.yml"))


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # pylint: disable=invalid-name
        page = 'netmeter_budget_limit_bytes{budget="satellite"} 100\nnetmeter_budget_used_bytes{budget="satellite"} %d\n'
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write((page % self.server.used).encode())

    def do_POST(self):  # pylint: disable=invalid-name
        self.server.paths.append(self.path)
        self.server.messages.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class AlertmanagerTest(unittest.TestCase):
    def serve(self, used=0):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        server.used, server.messages, server.paths = used, queue.Queue(), []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server, "127.0.0.1:%d" % server.server_port

    def start(self, *command):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def test_a_budget_almost_used_is_a_message(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
            alertmanager, prometheus = ("127.0.0.1:%d" % server.getsockname()[1] for server in (one, other))
        hook, hook_address = self.serve()
        calm, full = self.serve(used=79)[1], self.serve(used=80)[1]
        with open(CONFIG, encoding="utf-8") as example, open(folder.name + "/alertmanager.yml", "w", encoding="utf-8") as file:
            file.write(example.read().replace("https://ntfy.example", "http://" + hook_address).replace("30s", "1s"))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [RULES],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
            "scrape_configs": [{"job_name": "netmeter", "static_configs": [{"targets": [calm, full]}]}],
        }
        with open(folder.name + "/prometheus.yml", "w", encoding="utf-8") as file:
            json.dump(config, file)  # JSON is YAML
        options = ("--config.file=%s/alertmanager.yml" % folder.name, "--storage.path=%s/a" % folder.name)
        self.start("prometheus-alertmanager", *options, "--web.listen-address=" + alertmanager, "--cluster.listen-address=")
        options = ("--config.file=%s/prometheus.yml" % folder.name, "--storage.tsdb.path=%s/p" % folder.name)
        self.start("prometheus", *options, "--web.listen-address=" + prometheus)
        message = hook.messages.get(timeout=240)
        self.assertEqual(hook.paths[0], "/gateways?template=alertmanager")
        alerts = [(alert["labels"]["alertname"], alert["labels"]["instance"]) for alert in message["alerts"]]
        self.assertEqual(alerts, [("NetmeterBudgetAlmostUsed", full)])
        self.assertEqual(message["alerts"][0]["annotations"]["summary"], full + " has used 80% of the budget satellite")


if __name__ == "__main__":
    unittest.main()
