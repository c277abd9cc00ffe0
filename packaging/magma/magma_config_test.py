# SPDX-License-Identifier: BSD-3-Clause
"""magma_config.py on files of a gateway, and what the loader says of what it writes."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.abspath("packaging/magma"))
import magma_config  # pylint: disable=wrong-import-position

PROGRAM = os.path.abspath("packaging/magma/magma_config.py")
LOADER = os.path.abspath("lib/netmeter_loader/netmeter-loader")
SUFFIXES = magma_config.DEFAULTS["destination_suffixes"]
PROXY = """
local_port: 8444
cloud_address: controller.magma.test
cloud_port: 7443
bootstrap_address: bootstrapper-controller.magma.test
bootstrap_port: 7444
fluentd_address: fluentd.magma.test
fluentd_port: 24224
"""


class MagmaConfigTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.overrides = self.directory + "/overrides"
        os.mkdir(self.overrides)
        self.registry = self.directory + "/service_registry.yml"
        self.proxy = self.directory + "/control_proxy.yml"

    def write(self, path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def convert(self, own=None):
        config = dict(own or {})
        magma_config.merge(config, self.directory, self.overrides)
        return config

    def error(self):
        with self.assertRaises(magma_config.Wrong) as raised:
            self.convert()
        return str(raised.exception)

    def run_program(self, *arguments):
        return subprocess.run(
            [sys.executable, PROGRAM, "--directory", self.directory, "--overrides", self.overrides, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )

    def test_the_loader_takes_what_is_made_of_the_files_that_magma_ships(self):
        self.write(self.registry, "services:\n  magmad: {port: 50052}\n  envoy_controller: {port: 50081}\n")
        self.write(self.proxy, PROXY)
        own, made = self.directory + "/own.yml", self.directory + "/made.yml"
        self.write(own, "max_names: 5000\naliases: {oai_mme: core}\n")
        done = self.run_program("--config", own, "--output", made)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        config = magma_config.read(made)
        self.assertEqual(config, {
            "max_names": 5000,
            "aliases": {"oai_mme": "core", "agw_of": "mme", "gateway_health": "health"},
            "services": ["magmad", "envoy_controller", "mme", "sctpd"],
            "proxy_ports": [8444],
            "sni_ports": [443, 7443, 7444, 9443, 9444, 24224],
            "destination_suffixes": ["-controller.magma.test", ".local"],
        })
        checked = subprocess.run([LOADER, "check", made], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout)
        self.assertIn("# from %s: cloud_port: sni_ports\n" % self.proxy, open(made, encoding="utf-8").read())

    def test_the_defaults_are_those_of_the_loader(self):
        with open("lib/loader/config.h", encoding="utf-8") as file:
            header = file.read()
        for key, values in magma_config.DEFAULTS.items():
            found = re.search(r"\b%s\s*=\s*\{(.*?)\}" % key, header, re.S)[1]
            self.assertEqual([value.strip().strip('"') for value in found.split(",")], [str(value) for value in values])

    # The ports of Magma's deployment guide.
    def test_one_port_may_be_that_of_all_services(self):
        self.write(self.proxy, "local_port: 8443\n")
        self.write(self.overrides + "/control_proxy.yml", re.sub("7443|7444|24224", "443", PROXY))
        self.assertEqual(self.convert()["sni_ports"], magma_config.DEFAULTS["sni_ports"])
        self.assertNotIn("destinations", self.convert())

    def test_an_override_replaces_whole_keys(self):
        self.write(self.registry, "services: {a: {}, b: {}}\n")
        self.write(self.overrides + "/service_registry.yml", "services: {c: {}}\n")
        self.write(self.proxy, "local_port: 1\ncloud_address: x\n")
        self.write(self.overrides + "/control_proxy.yml", "cloud_address: y.\n")
        config = self.convert()
        self.assertEqual(config["services"], ["c", "mme", "sctpd"])
        self.assertEqual(config["proxy_ports"], [1])
        self.assertEqual(config["destination_suffixes"], ["-y", *SUFFIXES])

    # A load with both files counted the ports of Magma's only.
    def test_its_proxy_is_added_to_ports_of_your_own(self):
        self.write(self.proxy, "local_port: 9000\n")
        for own, both in (([3128], [3128, 9000]), ([8443], [8443, 9000]), ([9000], [9000])):
            self.assertEqual(self.convert({"proxy_ports": own})["proxy_ports"], both)

    def test_missing_and_broken_files_are_errors_of_one_line(self):
        done = self.run_program()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "magma_config.py: %s holds neither service_registry.yml nor control_proxy.yml\n" % self.directory)
        for text, wrong in (
            ("local_port: many\n", "local_port: 'many' is no port"),
            ("local_port: 65536\n", "local_port: '65536' is no port"),
            ("local_port: [1]\n", "local_port: expected one value"),
            ("- a\n", "expected a map"),
            ("", "is empty"),
            ("cloud_address: host:443\n", "cloud_address: 'host:443': expected a host, without a port"),
        ):
            self.write(self.proxy, text)
            self.assertEqual(self.error(), "%s: %s" % (self.proxy, wrong))
        for text in ("a: [\n", "a: 1\n---\na: 2\n"):
            self.write(self.proxy, text)
            self.assertIn(self.proxy + ": ", self.error())
        os.unlink(self.proxy)
        for text, wrong in (
            ("services: [a]\n", "services: expected a map"),
            ("services: {1: {}}\n", "services: expected names"),
            ("services:\n", "has no services"),
            ("# cut short\n", "has no services"),
        ):
            self.write(self.registry, text)
            self.assertEqual(self.error(), "%s: %s" % (self.registry, wrong))
        self.write(self.registry, "services: {a: {}}\n")
        self.write(self.overrides + "/service_registry.yml", "services: 1\n")
        self.assertEqual(self.error(), self.overrides + "/service_registry.yml: services: expected a map")

    # The services that a merge key or a link to nothing stood for were missing.
    def test_nothing_is_left_out_in_silence(self):
        self.write(self.proxy, "local_port: 9000\n")
        self.assertEqual(self.run_program().stdout.splitlines()[1], "# from %s: does not exist" % self.registry)
        os.symlink("nowhere.yml", self.registry)
        self.assertEqual(self.error(), self.registry + ": No such file or directory")
        os.unlink(self.registry)
        os.mkfifo(self.registry)
        self.assertEqual(self.error(), self.registry + ": is no regular file")
        os.unlink(self.registry)
        self.write(self.registry, "a: &a {state: {}}\nservices:\n  <<: *a\n  health: {}\n")
        self.assertEqual(set(self.convert()["services"]), {"state", "health", "mme", "sctpd"})

    def test_an_output_that_cannot_be_written_leaves_the_old_one(self):
        self.write(self.proxy, PROXY)
        done = self.run_program("--output", "/no/where.yml")
        self.assertEqual((done.returncode, done.stdout), (1, "magma_config.py: /no/where.yml: No such file or directory\n"))


if __name__ == "__main__":
    unittest.main()
