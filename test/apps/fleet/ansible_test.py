#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The role of examples/fleet/ansible with Debian's Ansible, on this machine as the gateway,
with an /etc, /run and /var/lib/netmeter of its own. The packages are not installed."""

import json
import os
import shutil
import subprocess
import unittest

import lab
import tools

ROLE = lab.path("examples/fleet/ansible")
FILE = "/etc/netmeter.yml"


class AnsibleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.directory = lab.temporary_directory(cls)
        cls.meter = lab.Meter("ansible")
        cls.addClassCleanup(cls.meter.close)
        lab.unshare(lab.CLONE_NEWNS)
        lab.run("mount", "--make-rprivate", "/")
        os.mkdir(os.path.join(cls.directory, "bin"))
        lab.run("cp", "-a", "/etc", cls.directory)
        lab.run("mount", "--bind", os.path.join(cls.directory, "etc"), "/etc")
        for name in ("/run", "/var/lib"):
            lab.run("mount", "-t", "tmpfs", "tmpfs", name)
        os.mkdir("/var/lib/netmeter", 0o700)
        # The loader notes each of its calls.
        cls.calls = os.path.join(cls.directory, "calls")
        loader = os.path.join(cls.directory, "bin/netmeter-loader")
        with open(loader, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "$@" >> %s\nexec %s "$@"\n' % (cls.calls, lab.LOADER))
        os.chmod(loader, 0o755)
        os.symlink(tools.NETMETER, os.path.join(cls.directory, "bin/netmeter"))
        for name in (FILE, "/etc/netmeter-budgets.yml"):
            if os.path.exists(name):
                os.unlink(name)
        cls.write(FILE, {"cgroup": cls.meter.cgroup, "group": ""})
        cls.addClassCleanup(lab.run, lab.LOADER, "unload", "--quiet")
        # Something that sends, as Ansible's own connection does.
        lab.run("ip", "link", "add", "wan0", "type", "veth", "peer", "name", "wan1")
        lab.run("ip", "address", "add", "192.0.2.1/24", "dev", "wan0")
        for name in ("wan0", "wan1"):
            lab.run("ip", "link", "set", name, "up")
        lab.run("ip", "neighbour", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "wan0")
        ping = cls.meter.start(["ping", "-q", "-i", "0.2", "192.0.2.2"], stdout=subprocess.DEVNULL)
        cls.addClassCleanup(ping.wait)
        cls.addClassCleanup(ping.kill)

    @classmethod
    def write(cls, name, content):
        with open(name, "w", encoding="utf-8") as file:
            json.dump(content, file)

    def play(self, config, budgets=None):
        """The status of ansible-playbook, and its output."""
        open(self.calls, "w").close()
        variables = {"netmeter_packages": [], "netmeter_config": "", "netmeter_budgets": ""}
        for key, content in (("config", config), ("budgets", budgets)):
            if content is not None:
                variables["netmeter_" + key] = os.path.join(self.directory, key)
                self.write(variables["netmeter_" + key], content)
        inventory = os.path.join(self.directory, "gateways.ini")
        with open(inventory, "w", encoding="utf-8") as file:
            file.write("[gateways]\ngateway ansible_connection=local ansible_python_interpreter=%s\n" % lab.PYTHON)
        environment = {
            "PATH": os.path.join(self.directory, "bin") + ":/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": self.directory,
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_BECOME": "false",
        }
        command = ["ansible-playbook", "-i", inventory, "-e", json.dumps(variables), os.path.join(ROLE, "site.yml")]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
        return done.returncode, done.stdout.decode()

    def config(self, **keys):
        return dict(keys, cgroup=self.meter.cgroup, group="")

    def loaded(self):
        return json.loads(lab.run(lab.LOADER, "status", "--json").decode())["config_hash"]

    def hash_of(self, content):
        name = os.path.join(self.directory, "hashed")
        self.write(name, content)
        return lab.run(lab.LOADER, "check", name).decode().split("; hash ")[1][:16]

    def test_a_file_is_rolled_out_or_the_one_before_is_loaded(self):
        good = self.config(services=["mme"], uplinks={"satellite": ["wan0"]})
        budgets = {"budgets": [{"name": "all", "limit": "100 GB", "uplink": "satellite"}]}
        status, output = self.play(good, budgets)
        self.assertEqual(status, 0, output)
        self.assertEqual(self.loaded(), self.hash_of(good))
        with open("/etc/netmeter-budgets.yml", encoding="utf-8") as file:
            self.assertEqual(json.load(file), budgets)
        # Once more: nothing changes.
        status, output = self.play(good, budgets)
        self.assertRegex(output, r"changed=0 .* failed=0 ")

        # The loader does not see a wrong file.
        status, output = self.play(self.config(service=["mme"]))
        self.assertNotEqual(status, 0, output)
        self.assertIn("unknown key 'service' (did you mean services?)", output)
        self.assertIn("the previous /etc/netmeter.yml is loaded", output)
        with open(self.calls, encoding="utf-8") as file:
            self.assertNotIn("load", file.read())
        # Right, and refused by the load: tables do not grow to more than eight times.
        # Right, loaded, and not what runs: tables do not shrink.
        # Right and loaded, with budgets that are not.
        cases = (
            (dict(max_series=60000), None, "max_series: tables made for 4096 grow to 32768 at most"),
            (dict(max_series=2000), None, "note: max_series stays 4096"),
            (dict(services=["pipelined"]), {"budgets": [{"name": "all", "limit": "100"}]}, "limit: '100' has no unit"),
        )
        for keys, wrong_budgets, why in cases:
            status, output = self.play(self.config(**keys), wrong_budgets)
            self.assertNotEqual(status, 0, output)
            self.assertIn(why, output)
            self.assertIn("the previous /etc/netmeter.yml is loaded", output)
            with open(FILE, encoding="utf-8") as file:
                self.assertEqual(json.load(file), good)
            self.assertEqual(self.loaded(), self.hash_of(good))
        with open("/etc/netmeter-budgets.yml", encoding="utf-8") as file:
            self.assertEqual(json.load(file), budgets)


if __name__ == "__main__":
    lab.main(600)
