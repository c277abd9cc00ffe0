# SPDX-License-Identifier: BSD-3-Clause
"""Where the kernel refuses tracing programs nobody sees exec, fork and exit.
`status` says so, and a process is named when it opens a socket: by its
registration, or by the name of its main thread."""

import json
import os
import shutil
import socket
import unittest

import lab

REFUSE = os.path.abspath(os.path.join("test", "names", "no_tracing.so"))
CONFIG = {"services": ["sctpd"], "aliases": {"oai_mme": "mme"}}


class NoTracingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        cls.sink.bind(("127.0.0.1", lab.PROXY_PORT))
        cls.addClassCleanup(cls.sink.close)
        cls.directory = lab.temporary_directory(cls)
        cls.meter = lab.Meter("notracing")
        cls.addClassCleanup(cls.meter.close)
        os.environ["LD_PRELOAD"] = REFUSE
        try:
            cls.meter.load(CONFIG)
        finally:
            del os.environ["LD_PRELOAD"]

    def setUp(self):
        self.before = self.sent()

    def program(self, name, source="sender"):
        path = os.path.join(self.directory, name)
        if not os.path.exists(path):
            shutil.copy(lab.path("test/names/" + source), path)
        return path

    def act(self, path, *words):
        self.meter.run([path], env=dict(os.environ, NM_DO=" ".join(words)))

    @staticmethod
    def udp(size):
        return "udp=127.0.0.1:%d/%d" % (lab.PROXY_PORT, size)

    def sent(self):
        return {key[:2]: row["tx_payload_bytes"] for key, row in self.meter.series().items()}

    def expect(self, what, expected):
        now = self.sent()
        found = {key: now[key] - self.before.get(key, 0) for key in now}
        found = {key: value for key, value in found.items() if value}
        self.assertEqual(found, expected, what)

    def test_status_says_so(self):
        arguments = [lab.LOADER, "status", "--pin-dir", self.meter.pin_dir]
        feature = json.loads(lab.run(*arguments, "--json"))["features"]["process_tracking"]
        self.assertFalse(feature["active"])
        self.assertIn("processes are named when they open a socket", feature["reason"])
        self.assertIn(b"processes are named when they open a socket", lab.run(*arguments))

    def test_executables_are_named_by_15_bytes(self):
        self.act(self.program("plain"), self.udp(100))
        self.act(self.program("fifteen-or-more-bytes"), self.udp(200))
        self.expect("executable", {("binary", "plain"): 100, ("binary", "fifteen-or-more"): 200})

    def test_threads_are_not(self):
        self.act(self.program("threaded"), "thread=worker", self.udp(100))
        self.expect("a thread of another name", {("binary", "threaded"): 100})

    def test_configured_services_are_services(self):
        self.act(self.program("sctpd"), self.udp(300))
        self.act(self.program("oai_mme"), self.udp(400))
        self.expect("configured", {("service", "sctpd"): 300, ("service", "mme"): 400})

    def test_command_lines_are_not_read(self):
        lab.make_package(
            self.directory,
            "subscriberdb",
            "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(500), ('127.0.0.1', 8443))\n",
        )
        self.meter.run([lab.PYTHON, "-m", "magma.subscriberdb.main"], cwd=self.directory)
        (found,) = (key for key, value in self.sent().items() if value != self.before.get(key, 0))
        self.assertEqual(found[0], "binary")
        self.assertTrue(found[1].startswith("python3"), found)
        self.expect("python3 -m magma.subscriberdb.main", {found: 500})

    def test_registration_names_the_process(self):
        self.act(self.program("embedder"), "register=mobilityd", self.udp(600))
        self.expect("registered", {("service", "mobilityd"): 600})

    def test_registration_ends_at_exec(self):
        other = self.program("other")
        self.act(self.program("embedder2"), "register=s6a", self.udp(10), "exec=" + other, self.udp(700))
        self.expect("registered, then another executable", {("service", "s6a"): 10, ("binary", "other"): 700})

    def test_name_before_exec_is_not_that_after_it(self):
        other = self.program("after")
        self.act(self.program("before"), self.udp(20), "exec=" + other, self.udp(800))
        self.expect("another executable", {("binary", "before"): 20, ("binary", "after"): 800})

    def test_next_process_with_a_process_id_has_its_own_name(self):
        launcher = self.program("nm-launcher", "launcher")
        for first, words, name in (
            ("elder", "", ("binary", "elder")),
            ("registered", "register=directoryd ", ("service", "directoryd")),
        ):
            self.before = self.sent()
            elder = "exec env NM_DO='%s%s pause' %s" % (words, self.udp(30), self.program(first))
            next_one = "exec env NM_DO=%s %s" % (self.udp(900), self.program("next-" + first))
            ids = self.meter.run([launcher, elder, next_one, "7"])
            self.assertEqual(len(set(ids.split())), 1, ids)
            expected = {name: 30, ("binary", "next-" + first): 900, ("binary", "nm-launcher"): 7}
            self.expect("process id used again", expected)


if __name__ == "__main__":
    lab.main(120)
