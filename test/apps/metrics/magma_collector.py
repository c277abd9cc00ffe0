#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Magma's own metrics_collector.py, unmodified, against netmeter-exporter: by Service303 and
as a scrape target, with default options. Prints what each upload has, and what it costs in
a month, beside kernsnoopd's families for the same 38 rows.

  bazel build //lib/netmeter_loader:all //lib/apps/netmeter //lib/apps/exporter:all
  test/apps/metrics/magma_collector.py MAGMA

MAGMA is a tree of Magma, of which orc8r/gateway/python/magma, orc8r/protos and
lte/gateway/configs are used. If it has the branch of packaging/magma/apply.sh, the static
exporter also runs as its unit starts it. Not a part of test/run.sh, as Magma is not among
Debian's packages. As root; exits with 0 if all families arrive. Three modules of other
people are replaced: sentry, requests, snowflake."""

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import types
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
ROWS, MINUTES_OF_MONTH = 38, 43200
SCRAPED = "http://127.0.0.1:9384/metrics"
# Of abi.h.
NM_SOL, NM_SERVICE = 0x6E74, 3

CONFIGS = "/lte/gateway/configs"
UNIT = "/lte/gateway/deploy/roles/magma/files/systemd/magma_kernsnoopd.service"


def generate(magma, folder):
    """Magma's messages in Python."""
    protos = os.path.join(magma, "orc8r/protos")
    subprocess.run(
        ["protoc", "-I" + protos + "/prometheus", "-I" + magma, "--python_out=" + folder, "--grpc_python_out=" + folder]
        + ["--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin", protos + "/prometheus/metrics.proto"]
        + [os.path.join(protos, name + ".proto") for name in ("common", "mconfig/mconfigs", "metricsd", "service303")],
        check=True,
    )


def replace_modules():
    """What metrics_collector.py imports, and uses for one line each."""
    modules = {name: types.ModuleType(name) for name in ("requests", "snowflake", "magma.common.sentry")}
    modules["requests"].get = lambda url: types.SimpleNamespace(text=urllib.request.urlopen(url).read().decode())
    modules["snowflake"].snowflake = lambda: "d3b07384-d113-4ec6-a5c8-35d1d8c0b0f4"
    modules["magma.common.sentry"].EXCLUDE_FROM_ERROR_MONITORING = {}
    sys.modules.update(modules)


def make_rows(there):
    """A row for each of so many services, as kernsnoopd has them: without a destination."""
    for number in range(ROWS):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(NM_SOL, NM_SERVICE, b"program%d" % number)
            sock.sendto(bytes(1000), (there, 9))


class Cloud:
    """metricsd of the orc8r: keeps what is uploaded."""

    def __init__(self, grpc, container):
        self.uploads = []
        handler = grpc.unary_unary_rpc_method_handler(lambda request, _: self.uploads.append(request) or b"")
        self._container = container
        generic = grpc.method_handlers_generic_handler("magma.orc8r.MetricsController", {"Collect": handler})
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[generic])
        self.server.add_insecure_port("127.0.0.1:8443")
        self.server.start()

    def take(self):
        """The first upload, which is that of a minute."""
        bytes_, self.uploads = self.uploads[0], []
        return len(bytes_), self._container.FromString(bytes_)


def as_kernsnoopd(container):
    """What Magma's metrics_export.py makes of the same rows: with a time each."""
    theirs = type(container)(gatewayId=container.gatewayId)
    for family in container.family:
        if family.name != "netmeter_up":
            theirs.family.add().CopyFrom(family)
    for family in theirs.family:
        for metric in family.metric:
            metric.timestamp_ms = int(time.time() * 1000)
    return theirs


def upload(collector_module, cloud, services, targets):
    """What magmad's collector sends of one collection."""
    loop = asyncio.new_event_loop()
    collector_module.MetricsCollector(services, 60, 2, 5, 4, loop, None, targets).run()
    loop.run_until_complete(asyncio.sleep(3))
    loop.close()
    return cloud.take()


def report(what, size, container):
    metrics = sum(len(family.metric) for family in container.family)
    month = size * MINUTES_OF_MONTH / 1e6
    print("%-44s %3d families %4d metrics %6d bytes %6.0f MB a month" % (what, len(container.family), metrics, size, month))


def check_labels(container, name):
    for family in container.family:
        for metric in family.metric:
            assert name in [pair.name for pair in metric.label], family.name


@contextlib.contextmanager
def run_exporter(lab, program, *options):
    exporter = subprocess.Popen([lab.path("lib/apps/exporter/" + program), *options])
    try:
        lab.wait_for(lambda: lab.run("ss", "-Hltn", "sport", "=", ":50084"), "the exporter")
        yield
    finally:
        exporter.terminate()
        exporter.wait()


def options_of_the_unit(path):
    with open(path, encoding="utf-8") as file:
        return re.search(r"^ExecStart=/usr/bin/netmeter-exporter (.*)", file.read(), re.M)[1].split()


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    magma = os.path.abspath(sys.argv[1])
    os.chdir(os.path.join(ROOT, "bazel-bin"))
    sys.path[:0] = [os.path.join(ROOT, "lib/testing"), os.path.join(ROOT, "packaging/magma")]
    import clients
    import lab
    import magma_config

    venv = os.path.dirname(os.path.dirname(clients.make_venv("prometheus_client", "==0.3.1", clients.FROM_SOURCE)))
    lab.private_network()
    there = lab.Cloud().THERE
    errors = []
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger().addHandler(type("Keep", (logging.Handler,), {"emit": lambda _, record: errors.append(record)})())
    with tempfile.TemporaryDirectory() as folder:
        generate(magma, folder)
        sys.path[:0] = [folder, magma + "/orc8r/gateway/python"]
        sys.path.insert(0, os.path.join(venv, "lib", "python%d.%d" % sys.version_info[:2], "site-packages"))
        replace_modules()
        import grpc
        from magma.configuration import service_configs
        from magma.magmad import metrics_collector
        from orc8r.protos.metricsd_pb2 import MetricsContainer

        errors.clear()  # of the import: Magma is not installed here
        service_configs.CONFIG_DIR, service_configs.CONFIG_OVERRIDE_DIR = magma + CONFIGS, folder
        config = {}
        magma_config.merge(config, magma + CONFIGS, folder)
        cloud = Cloud(grpc, MetricsContainer)
        meter = lab.Meter("collector")
        try:
            meter.load(config)
            meter.inside(make_rows, there)
            with run_exporter(lab, "netmeter-exporter", "--pin-dir", meter.pin_dir, "--service303", "127.0.0.1:50084", "--families", "default"):
                size, container = upload(metrics_collector, cloud, ["kernsnoopd"], [])
                report("Service303, default options", size, container)
                check_labels(container, "service")
                arrived = {family.name: len(family.metric) for family in container.family}
                assert arrived["magma_bytes_sent_total"] == ROWS and "netmeter_up" in arrived, arrived
                theirs = as_kernsnoopd(container)
                report("the same rows, as kernsnoopd publishes them", theirs.ByteSize(), theirs)
                target = metrics_collector.ScrapeTarget(url=SCRAPED, name="netmeter", interval=1)
                size, container = upload(metrics_collector, cloud, [], [target])
                report("/metrics as a scrape target", size, container)
                check_labels(container, "scrape_target")
                page = urllib.request.urlopen(SCRAPED).read().decode()
                published = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
                assert {family.name for family in container.family} == published
            if os.path.exists(magma + UNIT):
                magmad = service_configs.load_service_config("magmad")
                assert "kernsnoopd" in magmad["magma_services"]
                polled = [name for name in magmad["metricsd"]["services"] if name == "kernsnoopd"]
                with run_exporter(lab, "netmeter-exporter-static", "--pin-dir", meter.pin_dir, *options_of_the_unit(magma + UNIT)):
                    size, container = upload(metrics_collector, cloud, polled, [])
                report("the branch: its unit, polled by its magmad.yml", size, container)
                check_labels(container, "service")
                arrived = {family.name: len(family.metric) for family in container.family}
                assert arrived["magma_bytes_sent"] == ROWS, arrived
        finally:
            meter.close()
            cloud.server.stop(None)
    if errors:
        sys.exit("Magma's collector logged %d messages" % len(errors))
    print("all families arrive")


if __name__ == "__main__":
    main()
