# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of applications share beside lab and gateway: the program netmeter, what it
prints of a gateway, and the page of an exporter."""

import json
import re
import subprocess
import urllib.request

import gateway
import lab

NETMETER = lab.path("lib/apps/netmeter/netmeter")


def scrape(*exporter):
    """The page of /metrics of an exporter that this command starts, and that ends then."""
    process = subprocess.Popen(
        [*exporter, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True, preexec_fn=lab.die_with_parent
    )
    try:
        url = re.search(r"http://\S+", process.stderr.readline())[0]
        return urllib.request.urlopen(url, timeout=20).read().decode()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


class GatewayTest(gateway.GatewayTest):
    def uplinks(self, *options, **more):
        return lab.run(NETMETER, "uplinks", "--pin-dir", self.meter.pin_dir, *options, **more)

    def balance(self):
        return {row["uplink"]: row for row in json.loads(self.uplinks("--json"))}

    def list_series(self):
        """Without forwarded traffic."""
        rows = json.loads(lab.run(NETMETER, "list", "--json", "--pin-dir", self.meter.pin_dir))
        return [row for row in rows if row["kind"] != "forwarded"]
