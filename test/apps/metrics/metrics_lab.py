# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the metrics path share: a client that reads Service303 as magmad
does, and the programs that publish and scrape. Needs Debian's python3-grpcio."""

import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

import lab

os.environ.pop("http_proxy", None)
os.environ.pop("https_proxy", None)

EXPORTER = os.path.abspath("lib/apps/exporter/netmeter-exporter")
SERVICE303 = os.path.abspath("examples/service303_service")
CPP14 = os.path.abspath("examples/magma_cpp14/service")
PATCHED = os.path.abspath("examples/magma_service/patched_service")
VISITOR = os.path.abspath("examples/magma_visitor/service")
GATEWAY = os.path.abspath("examples/gateway_service")
CLOUD = os.path.abspath("test/apps/metrics/cloud.py")
POLLER = os.path.abspath("test/apps/metrics/service303_poller.py")
CLOUD_STUB = os.path.abspath("examples/cloud_stub.py")
PROTOS = os.path.abspath("examples/magma_protos")


def generated():
    """service303_pb2: Python's reader of the true schema, thus of proto2."""
    if "service303_pb2" not in sys.modules:
        with tempfile.TemporaryDirectory() as directory:
            protos = [os.path.join(PROTOS, name) for name in ("metrics.proto", "service303.proto")]
            lab.run("protoc", "--proto_path=" + PROTOS, "--python_out=" + directory, *protos)
            sys.path.insert(0, directory)
            import service303_pb2  # pylint: disable=import-error

            sys.path.remove(directory)
            del service303_pb2
    return sys.modules["service303_pb2"]


class Service303Client:
    """As magmad: an insecure channel with gRPC's default sizes, 30 seconds. It has a
    process of its own: with Python 3.13, gRPC 1.51 waits for ever before a fork, which
    starting a program is."""

    class Error(Exception):
        """Its text is the name of gRPC's code."""

    def __init__(self, address):
        self._pb2 = generated()
        self._process = subprocess.Popen(
            [lab.PYTHON, POLLER, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _call(self, method):
        self._process.stdin.write(method + "\n")
        self._process.stdin.flush()
        kind, _, result = self._process.stdout.readline().strip().partition(" ")
        if kind != "reply":
            raise self.Error(result)
        return bytes.fromhex(result)

    def metrics(self):
        return self._pb2.MetricsContainer.FromString(self._call("GetMetrics"))

    def info(self):
        return self._pb2.ServiceInfo.FromString(self._call("GetServiceInfo"))

    def stop(self):
        self._call("StopService")

    def close(self):
        self._process.communicate(timeout=30)


def values(container):
    """{(name, (label, value)...): number} of a MetricsContainer."""
    found = {}
    for family in container.family:
        for metric in family.metric:
            key = (family.name,) + tuple((pair.name, pair.value) for pair in metric.label)
            assert key not in found, key
            if metric.HasField("histogram"):
                found[key] = metric.histogram.sample_count
            else:
                found[key] = (metric.gauge if metric.HasField("gauge") else metric.counter).value
    return found


_LINE = re.compile(r"([a-z_0-9]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def text_values(text):
    """The same of Prometheus' text format."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = _LINE.match(line).groups()
            key = (name,) + tuple(_LABEL.findall(labels or ""))
            assert key not in found, key
            found[key] = float(value)
    return found


def get(address, path="/metrics", headers=None):
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers or {})
        reply = connection.getresponse()
        text = reply.read().decode()
        assert reply.status == 200, (reply.status, text)
        return text



def promtool(text):
    lab.run("promtool", "check", "metrics", input=text.encode())


def await_line(process, word, stream=None):
    """Until the program says so, on stdout if not told; the line."""
    for line in stream or process.stdout:
        if line.decode().startswith(word):
            return line.decode()
    raise AssertionError("%s ended without %r" % (process.args, word))


def end(process):
    """SIGTERM; the exit status."""
    process.terminate()
    try:
        return process.wait(timeout=20)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


def start_exporter(pin_dir, *arguments, **options):
    """On its default port, and where kernsnoopd was; the process."""
    if "--service303" not in arguments:
        arguments += ("--service303", GRPC)
    process = subprocess.Popen(
        [EXPORTER, "--pin-dir", pin_dir, *arguments], stderr=subprocess.PIPE, **options
    )
    await_line(process, "netmeter-exporter: serving ", process.stderr)
    return process


HTTP = "127.0.0.1:9384"
GRPC = "127.0.0.1:50084"
PROMETHEUS = "127.0.0.1:9490"


def start_prometheus(test, targets):
    """A real Prometheus that scrapes {job: address} each second, until the test
    class ends."""
    jobs = [{"job_name": job, "static_configs": [{"targets": [address]}]} for job, address in targets.items()]
    directory = tempfile.mkdtemp(prefix="netmeter-prometheus.")
    test.addClassCleanup(shutil.rmtree, directory, ignore_errors=True)
    config = os.path.join(directory, "prometheus.yml")
    with open(config, "w", encoding="utf-8") as file:
        # JSON is YAML.
        json.dump({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}, file)
    prometheus = subprocess.Popen(
        ["prometheus", "--config.file=" + config, "--storage.tsdb.path=" + directory + "/data"]
        + ["--web.listen-address=" + PROMETHEUS, "--log.level=error"]
    )
    test.addClassCleanup(end, prometheus)

    def ready():
        try:
            return get(PROMETHEUS, "/-/ready")
        except (OSError, AssertionError):
            return None  # 503, while it reads its storage

    lab.wait_for(ready, seconds=60)


def query(promql, server=PROMETHEUS):
    """{labels: value} of an instant query."""
    reply = json.loads(get(server, "/api/v1/query?" + urllib.parse.urlencode({"query": promql})))
    assert reply["status"] == "success", reply
    return {tuple(sorted(row["metric"].items())): float(row["value"][1]) for row in reply["data"]["result"]}


def copy_for_all(program):
    """A copy that any user can run."""
    handle, path = tempfile.mkstemp(prefix="netmeter-metrics.")
    with os.fdopen(handle, "wb") as copy, open(program, "rb") as original:
        copy.write(original.read())
    os.chmod(path, 0o755)
    return path
