# SPDX-License-Identifier: BSD-3-Clause
"""magma_config.py on a gateway's own files: what its services call in the cloud, through
the control proxy, a real nghttpx, and directly, has the name of the cloud service that
was called. With the ports as Magma ships them, and with all of them 443, as its
deployment guide has it: then only the call itself tells one service from another."""

import json
import os
import re
import tempfile
import unittest

import lab

CONVERT = lab.path("packaging/magma/magma_config.py")
DOMAIN = "controller.yourdomain.com"
# Service of the gateway: what it calls, as Magma's at commit a368d209 do.
CALLS = {
    "magmad": {
        "bootstrapper": "/magma.orc8r.Bootstrapper/GetChallenge",
        "metricsd": "/magma.orc8r.MetricsController/Collect",
        "state": "/magma.orc8r.StateService/ReportStates",
    },
    "subscriberdb": {"streamer": "/magma.orc8r.Streamer/GetUpdates"},
    "eventd": {"logger": "/magma.orc8r.LoggingService/Log"},
}
# The bootstrapper is what gets the certificate that the proxy needs: always direct.
DIRECT_ONLY = {"bootstrapper"}

# Of lte/gateway/configs, what counts here.
SERVICE_REGISTRY = """
services:
  magmad:
    ip_address: 127.0.0.1
    port: 50052
  control_proxy:
    ip_address: 127.0.0.1
    port: 50053
  subscriberdb:
    ip_address: 127.0.0.1
    port: 50051
  eventd:
    ip_address: 127.0.0.1
    port: 50075
  td-agent-bit:
    ip_address: 127.0.0.1
    port: 24225
"""
CONTROL_PROXY = """
nghttpx_config_location: /var/tmp/nghttpx.conf
rootca_cert: /var/opt/magma/certs/rootCA.pem
local_port: 8443
cloud_address: controller.magma.test
cloud_port: 7443
bootstrap_address: bootstrapper-controller.magma.test
bootstrap_port: 7444
fluentd_address: fluentd.magma.test
fluentd_port: 24224
proxy_cloud_connections: True
"""
# What the operator writes into /var/opt/magma/configs.
OVERRIDE = """
cloud_address: {3}
cloud_port: {0}
bootstrap_address: bootstrapper-{3}
bootstrap_port: {1}
fluentd_address: fluentd.yourdomain.com
fluentd_port: {2}
"""
SHIPPED, GUIDE = (7443, 7444, 24224), (443, 443, 443)
# The names of the last ones are cut if the kernel part has no more room.
LONG_DOMAIN = "controller.gateways.north.an-operator-in-the-country.a-company.test"
CASES = {
    "as shipped": (SHIPPED, DOMAIN),
    "as in the deployment guide": (GUIDE, DOMAIN),
    "as in the deployment guide, with a long domain": (GUIDE, LONG_DOMAIN),
}

ALTERNATIVES = [DOMAIN, "*.yourdomain.com", LONG_DOMAIN, "*." + LONG_DOMAIN.partition(".")[2]]

# Magma's nghttpx.conf.template, filled in, but that it logs to a file of ours.
NGHTTPX = """
frontend=127.0.0.1,8443;no-tls
backend=127.0.0.1,50051;subscriberdb.local;proto=h2;no-tls
backend=%s,%d;;proto=h2;tls;dns
cacert=%s
dns-cache-timeout=60
frontend-http2-settings-timeout=1000
"""

# create_grpc_channel() of Magma's service_registry.py, and one call.
CLIENT = """import json, os, sys
import grpc

os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384"
target, rootca, calls = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for authority, method in calls:
    options = [("grpc.default_authority", authority), ("grpc.keepalive_time_ms", 60000)]
    if rootca:
        credentials = grpc.ssl_channel_credentials(open(rootca, "rb").read())
        channel = grpc.secure_channel(target, credentials, options=options)
    else:
        channel = grpc.insecure_channel(target, options=options)
    with channel:
        assert channel.unary_unary(method)(bytes(1000), timeout=20) == bytes(1000)
"""

# The cloud: one server for all of its services. Prints the methods.
CLOUD = """import concurrent.futures, sys
import grpc

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        print(details.method, flush=True)
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)

server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[Echo()])
key, certificate = (open(path, "rb").read() for path in sys.argv[1:3])
for address in sys.argv[3:]:
    assert server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
server.start()
print("ready", flush=True)
server.wait_for_termination()
"""

# As on a host whose name server knows the cloud.
WITH_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'


class MagmaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        lab.private_network()
        cls.cloud = lab.Cloud()
        cls.make_certificates()
        there = cls.cloud.THERE
        names = ["bootstrapper", "streamer", "metricsd", "state", "logger"]
        known = ["%s %s %s\n" % (there, domain, " ".join("%s-%s" % (n, domain) for n in names)) for domain in (DOMAIN, LONG_DOMAIN)]
        cls.write("hosts", "127.0.0.1 localhost\n" + "".join(known))
        for service in CALLS:
            lab.make_package(cls.directory, service, CLIENT)
        cls.start_cloud("%s:443" % there, "%s:7443" % there, "%s:7444" % there)
        cls.write("etc/service_registry.yml", SERVICE_REGISTRY)
        cls.write("etc/control_proxy.yml", CONTROL_PROXY)
        cls.meter = lab.Meter("magma")
        cls.addClassCleanup(cls.meter.close)

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.directory, *parts)

    @classmethod
    def write(cls, name, text):
        os.makedirs(os.path.dirname(cls.path(name)), exist_ok=True)
        with open(cls.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def make_certificates(cls):
        """A root, and what it signed for the cloud."""
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        run = lambda *arguments: lab.run("openssl", *arguments, cwd=cls.directory)
        run("req", "-x509", *curve, "-subj", "/CN=rootca", "-keyout", "ca.key", "-out", "rootCA.pem")
        run("req", *curve, "-subj", "/CN=cloud", "-keyout", "key", "-out", "request")
        cls.write("names", "subjectAltName=" + ",".join("DNS:" + name for name in ALTERNATIVES))
        sign = ("-CA", "rootCA.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        run("x509", "-req", "-in", "request", "-out", "certificate", *sign)

    @classmethod
    def start_cloud(cls, *addresses):
        cls.server = cls.cloud.serve(cls, CLOUD, cls.path("key"), cls.path("certificate"), *addresses)

    def command(self, *arguments):
        return ["unshare", "--mount", "sh", "-c", WITH_HOSTS, self.path("hosts"), *arguments]

    def environment(self):
        clean = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        return dict(clean, PYTHONPATH=self.directory, PYTHONDONTWRITEBYTECODE="1")

    def load(self, ports):
        self.write("overrides/control_proxy.yml", OVERRIDE.format(*ports, self.domain))
        made = self.path("netmeter.yml")
        lab.run(lab.PYTHON, CONVERT, "--directory", self.path("etc"), "--overrides", self.path("overrides"), "--output", made)
        self.meter._load("load", "--quiet", "--group", "", "--cgroup", self.meter.cgroup, "--config", made)

    def start_proxy(self, cloud_port):
        self.write("nghttpx.conf", NGHTTPX % (self.domain, cloud_port, self.path("rootCA.pem")))
        log = tempfile.TemporaryFile()
        self.addCleanup(log.close)
        proxy = self.meter.start(
            self.command("nghttpx", "--conf", self.path("nghttpx.conf"), "--workers=1", "--no-ocsp"),
            stdout=log,
            stderr=log,
            env=self.environment(),
        )

        def stop():
            proxy.terminate()
            proxy.wait()

        self.addCleanup(stop)
        lab.wait_for(lambda: lab.run("ss", "-Hltn", "sport", "=", ":8443"), "the proxy")
        return stop

    def call(self, service, target, rootca):
        """What this service calls, by one channel for each cloud service."""
        names = [name for name in CALLS[service] if rootca or name not in DIRECT_ONLY]
        for name in names:
            port = self.ports[1] if name == "bootstrapper" else self.ports[0]
            authority = "%s-%s" % (name, self.domain)
            # As Magma: to bootstrap_address for the bootstrapper, else to cloud_address.
            host = target or "%s:%d" % (authority if name == "bootstrapper" else self.domain, port)
            calls = json.dumps([(authority, CALLS[service][name])])
            self.meter.run(
                self.command(lab.PYTHON, "-m", "magma.%s.main" % service, host, rootca, calls),
                cwd=self.directory,
                env=self.environment(),
            )
            self.assertEqual(self.server.stdout.readline().decode().strip(), CALLS[service][name])
        return names

    def test_each_call_has_the_name_of_the_cloud_service(self):
        for title, (ports, domain) in CASES.items():
            with self.subTest(title):
                self.ports, self.domain = ports, domain
                self.load(ports)
                stop_proxy = self.start_proxy(ports[0])
                expected = set()
                for service in CALLS:
                    for path, target, rootca in (("proxy", "127.0.0.1:8443", ""), ("direct", "", self.path("rootCA.pem"))):
                        for name in self.call(service, target, rootca):
                            expected.add(("service", service, name, "tcp", path))
                stop_proxy()
                self.check(title, expected)
                self.meter.unload()

    def check(self, title, expected):
        def settled():
            found = self.meter.series()
            return None if any(key[0] == "pending" for key in found) else found

        found = lab.wait_for(settled, "the end of all connections")
        rows = [(*key, row["tx_payload_bytes"], row["rx_payload_bytes"]) for key, row in sorted(found.items())]
        lab.print_table("ports " + title, ("kind", "name", "destination", "transport", "path", "payload sent", "received"), rows)
        self.assertEqual({key for key in found if key[0] == "service"}, expected)
        for key in expected:
            # A message of 1000 bytes there and back, in HTTP/2.
            self.assertGreater(found[key]["tx_payload_bytes"], 1000, key)
            self.assertGreater(found[key]["rx_payload_bytes"], 1000, key)
        # The proxy's own connection is for all of them: it has the cloud's name.
        mine = {key[2] for key in found if key[1] == "nghttpx" and key[4] == "direct"}
        self.assertEqual(mine, {self.domain[:64]})
        self.assertFalse([key for key in found if re.search("fluentd", key[2])])


if __name__ == "__main__":
    unittest.main(verbosity=2)
