# SPDX-License-Identifier: BSD-3-Clause
"""A host without configuration on which apt-get, pip and curl run: to where?
Every row of `netmeter list` has a destination. The servers are the test's own,
behind a cable, with a name server that knows them all."""

import functools
import hashlib
import http.server
import os
import shutil
import socket
import ssl
import struct
import threading
import unittest
import zipfile

import lab

THERE = lab.Cloud.THERE
WHEEL = "tiny-1.0-py3-none-any.whl"
# What a program of the host sees in place of its own, in a mount namespace.
FILES = {"/etc/resolv.conf": "nameserver %s\n" % THERE, "/etc/nsswitch.conf": "hosts: files dns\n"}


class NameServer:
    """Every name has the address of the cloud, and no other."""

    def __init__(self):
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind((THERE, 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._sock.close()

    def _serve(self):
        while True:
            try:
                query, peer = self._sock.recvfrom(512)
            except OSError:
                return
            end = query.index(b"\0", 12) + 5
            is_a = query[end - 4 : end - 2] == b"\0\1"
            header = query[:2] + struct.pack("!5H", 0x8180, 1, is_a, 0, 0)
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(THERE)
            self._sock.sendto(header + query[12:end] + answer * is_a, peer)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class HostTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        lab.private_network()
        cloud = lab.Cloud()
        cls.make_files()
        handler = functools.partial(Quiet, directory=cls.path("www"))
        with cloud.inside():
            name_server = NameServer()
            plain = http.server.ThreadingHTTPServer((THERE, 80), handler)
            secure = http.server.ThreadingHTTPServer((THERE, 443), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        names = "subjectAltName=DNS:*.example.org"
        context.load_cert_chain(*lab.make_certificate(cls.directory, "example.org", "-addext", names))
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        cls.addClassCleanup(name_server.close)
        for server in (plain, secure):
            threading.Thread(target=server.serve_forever, daemon=True).start()
            cls.addClassCleanup(server.server_close)
            cls.addClassCleanup(server.shutdown)
        cls.meter = lab.Meter("host")
        cls.addClassCleanup(cls.meter.close)

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.directory, *parts)

    @classmethod
    def write(cls, name, text):
        os.makedirs(os.path.dirname(cls.path(name)), exist_ok=True)
        with open(cls.path(name), "w") as file:
            file.write(text)

    @classmethod
    def make_files(cls):
        """What apt and pip ask for."""
        packages = "Package: tiny\nVersion: 1\nArchitecture: all\nFilename: ./t.deb\n"
        digest = hashlib.sha256(packages.encode()).hexdigest()
        release = "Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %s %d Packages\n"
        cls.write("www/debian/Packages", packages)
        cls.write("www/debian/Release", release % (digest, len(packages)))
        link = '<a href="https://files.example.org/%s">%s</a>' % (WHEEL, WHEEL)
        cls.write("www/simple/tiny/index.html", link)
        with zipfile.ZipFile(cls.path("www", WHEEL), "w") as wheel:
            about = "tiny-1.0.dist-info/"
            wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
            wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(about + "RECORD", "")
        for name, text in FILES.items():
            cls.write("root" + name, text)
        cls.write("sources.list", "deb [trusted=yes] http://deb.example.org/debian ./\n")
        for state in ("lists/partial", "archives/partial"):
            os.makedirs(cls.path("apt", state))

    def run_programs(self):
        """Each as on a host of its own, whose name server is ours."""
        script = "".join('mount --bind "%s" %s && ' % (self.path("root" + name), name) for name in FILES)
        options = {
            "Dir::Etc::SourceList": self.path("sources.list"),
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State": self.path("apt"),
            "Dir::Cache": self.path("apt"),
            "Dir::State::status": "/dev/null",
            "APT::Sandbox::User": "root",
            "APT::Update::Post-Invoke": "",
            "APT::Update::Post-Invoke-Success": "",
            "Acquire::Languages": "none",
        }
        apt = ["apt-get", "update", "-q"]
        for name, value in options.items():
            apt += ["-o", "%s=%s" % (name, value)]
        pip = [lab.PYTHON, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
        pip += ["--disable-pip-version-check", "--cert", self.path("cert")]
        pip += ["--index-url", "https://pypi.example.org/simple", "tiny"]
        curl = ["curl", "-sSf", "-o", "/dev/null", "--max-time", "20"]
        curl += ["--cacert", self.path("cert")]
        # No variable may name a proxy, or other certificates.
        environment = {"PATH": os.environ["PATH"], "HOME": self.directory, "PIP_CONFIG_FILE": "/dev/null"}
        shutil.rmtree(self.path("apt/lists"))
        os.makedirs(self.path("apt/lists/partial"))
        for command in (
            apt,
            [*pip, "-d", self.path("wheels")],
            [*curl, "https://www.example.org/simple/tiny/"],
            [*curl, "http://www.example.org:80/debian/Packages"],
            [*curl, "http://mirror.example.org/debian/Packages"],
        ):
            self.meter.run(["unshare", "--mount", "sh", "-c", script + 'exec "$@"', "sh", *command], env=environment)

    def rows(self, config):
        self.meter.load(config)
        self.addCleanup(self.meter.unload)
        self.run_programs()

        def settled():
            found = self.meter.series()
            return not any(key[0] == "pending" for key in found) and found

        found = lab.wait_for(settled, "the end of all connections")
        lab.print_table(
            "netmeter list, configuration: %s" % (config or "none"),
            ("kind", "name", "destination", "transport", "path"),
            sorted(found),
        )
        print("%d series" % len(found))
        return set(found)

    def test_every_row_says_to_where(self):
        self.assertEqual(
            self.rows(None),
            {
                ("binary", name, destination, transport, "direct")
                for name, destination, transport in (
                    ("apt-get", "deb.example.org", "tcp"),
                    ("apt-get", "dns", "udp"),
                    ("pip", "pypi.example.org", "tcp"),
                    ("pip", "files.example.org", "tcp"),
                    ("pip", "dns", "udp"),
                    ("curl", "www.example.org", "tcp"),
                    ("curl", "mirror.example.org", "tcp"),
                    ("curl", "dns", "udp"),
                )
            },
        )

    def test_without_destinations_no_row_does(self):
        found = self.rows({"destinations_of": []})
        self.assertEqual({key[2] for key in found}, {""})
        self.assertEqual({key[1] for key in found}, {"apt-get", "pip", "curl"})


if __name__ == "__main__":
    lab.main(240)
