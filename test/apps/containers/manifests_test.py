# SPDX-License-Identifier: BSD-3-Clause
"""The manifests of packaging/containers: Kubernetes' own schema takes the DaemonSet, and what
both manifests say runs, with the privileges that they give, in containers of a real runtime
(crun). The exporter, without any privilege and without bpf(2), publishes what is counted."""

import glob
import json
import os
import re
import shutil
import subprocess
import unittest

import clients
import lab
import metrics_lab as m
import yaml

FOLDER = "packaging/containers"
GROUP = 9384
# Docker's, without what it drops unless told so.
USUAL = ["CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "KILL"]
SCHEMA = """
import sys, yaml, kubernetes_validate
manifest = yaml.safe_load(open(sys.argv[1]))
kubernetes_validate.validate(manifest, sys.argv[2], strict=True)
try:
    manifest["spec"]["template"]["spec"]["hostPid"] = True
    kubernetes_validate.validate(manifest, sys.argv[2], strict=True)
except kubernetes_validate.ValidationError:
    print("valid")
"""


def read(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def of_compose():
    """{name: (arguments, user, group, capabilities or None for all, mounts)}"""
    found = {}
    for name, service in yaml.safe_load(read("compose.yml"))["services"].items():
        user, group = (service.get("user", "0:0")).split(":")
        capabilities = sorted({*(USUAL if "cap_drop" not in service else []), *service.get("cap_add", [])})
        mounts = [
            (volume["source"], volume["target"], volume.get("read_only", False), volume.get("bind", {}).get("propagation", "rprivate"))
            for volume in service["volumes"]
        ]
        found[name] = (service["command"], int(user), int(group), None if service.get("privileged") else capabilities, mounts)
    return found


def of_daemonset():
    """The same."""
    pod = yaml.safe_load(read("daemonset.yml"))["spec"]["template"]["spec"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    ways = {"Bidirectional": "rshared", "HostToContainer": "rslave", None: "rprivate"}
    found = {}
    for container in pod["initContainers"] + pod["containers"]:
        context = container["securityContext"]
        mounts = [
            (paths[one["name"]], one["mountPath"], one.get("readOnly", False), ways[one.get("mountPropagation")])
            for one in container["volumeMounts"]
        ]
        capabilities = None if context.get("privileged") else sorted(context["capabilities"].get("add", []))
        user, group = context.get("runAsUser", 0), context.get("runAsGroup", 0)
        found[container["name"]] = (container["command"], user, group, capabilities, mounts)
    return found


class ManifestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        # As a host of our own: /run is empty and shared, and cgroup v2 alone is mounted.
        for command in (
            "mount --make-rprivate /",
            "mount -t tmpfs none /run",
            "mount --make-shared /run",
            "umount --lazy --recursive /sys/fs/cgroup",
            "mount -t cgroup2 none /sys/fs/cgroup",
        ):
            lab.run(*command.split())
        cls.cloud = lab.Cloud()
        cls.meter = lab.Meter("manifests")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.pin_dir = "/run/netmeter"  # of our /run
        rootfs = os.path.join(cls.directory, "rootfs")
        for folder in ("proc", "run", "sys/fs/cgroup", "sys/fs/bpf", "dev"):
            os.makedirs(os.path.join(rootfs, folder))
        dockerfile = read("Dockerfile")
        # The command in the comment once missed programs that had moved.
        patterns = re.findall(r"bazel-bin/(\S*\*\S*)", dockerfile)
        packed = [path for pattern in patterns for path in glob.glob(pattern)]
        copies = re.findall(r"^COPY bazel-bin/(\S+) /(\S+)$", dockerfile, re.M)
        assert len(copies) == dockerfile.count("\nCOPY ") > 0, copies
        for source, target in copies:
            assert source in packed, f"{source} is not in docker's context"
            shutil.copy(source, os.path.join(rootfs, target))
        cls.rootfs = rootfs
        lab.run("crun", "spec", cwd=cls.directory)
        with open(os.path.join(cls.directory, "config.json"), encoding="utf-8") as file:
            cls.spec = json.load(file)
        del cls.spec["hostname"]

    def bundle(self, name, container):
        """A folder that crun takes."""
        arguments, user, group, capabilities, mounts = container
        if arguments[1:2] == ["load"]:
            arguments = [*arguments, "--cgroup", self.meter.cgroup]  # not all of this host
        spec = json.loads(json.dumps(self.spec))
        everything = ["CAP_" + one for one in capabilities] if capabilities is not None else self.all_capabilities()
        spec["root"] = {"path": self.rootfs, "readonly": True}
        spec["process"].update(terminal=False, args=arguments, user={"uid": user, "gid": group}, noNewPrivileges=capabilities is not None)
        kinds = ("bounding", "effective", "permitted") if user == 0 else ("bounding",)
        spec["process"]["capabilities"] = {kind: everything for kind in kinds}
        spec["mounts"] = [one for one in spec["mounts"] if one["destination"] in ("/proc", "/dev", "/sys")]
        for source, target, read_only, propagation in mounts:
            options = ["rbind", propagation] + (["ro"] if read_only else [])
            spec["mounts"].append({"destination": target, "source": source, "type": "bind", "options": options})
        if "rshared" in json.dumps(spec["mounts"]):
            spec["linux"]["rootfsPropagation"] = "shared"
        spec["linux"]["namespaces"] = [{"type": "mount"}]  # the network and the processes of the host
        for key in ("resources", "maskedPaths", "readonlyPaths"):
            spec["linux"].pop(key, None)
        if capabilities is not None and "BPF" not in capabilities:
            # What Docker's and Kubernetes' default profiles do to it.
            refused = {"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}
            spec["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]}
        folder = os.path.join(self.directory, name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(spec, file)
        return folder

    @staticmethod
    def all_capabilities():
        with open("/proc/self/status", encoding="ascii") as status:
            have = int(re.search(r"CapEff:\s+(\w+)", status.read()).group(1), 16)
        text = lab.run("capsh", "--decode=%x" % have).decode()
        return [one.upper() for one in text.strip().split("=", 1)[1].split(",")]

    def crun(self, name, container, **options):
        command = ["crun", "--root", os.path.join(self.directory, "state"), "--cgroup-manager", "disabled"]
        return subprocess.Popen(command + ["run", "--bundle", self.bundle(name, container), name], stderr=subprocess.STDOUT, **options)

    def run_all(self, containers):
        self.addCleanup(self.meter.unload)
        self.assertEqual(set(containers), {"load", "fds", "exporter"})
        # The containers that stay have only these; those that read have none.
        self.assertEqual([name for name, one in containers.items() if one[3] is None], ["load"])
        self.assertEqual(containers["exporter"][1:4], (65534, GROUP, []))
        load = self.crun("load", containers["load"], stdout=subprocess.PIPE)
        output = load.communicate(timeout=60)[0].decode()
        self.assertEqual(load.returncode, 0, output)
        self.assertTrue(os.path.ismount("/run/netmeter"), "the host sees the pins")
        running = [self.crun("fds", containers["fds"])]
        lab.wait_for(lambda: os.path.exists("/run/netmeter.sock"), "the socket")
        running.append(self.crun("exporter", containers["exporter"]))
        try:
            send = "import socket; socket.socket(2, 2).sendto(bytes(972), ('%s', 9))" % self.cloud.THERE
            self.meter.run([lab.PYTHON, "-c", send])

            def counted():
                try:
                    page = m.get(m.HTTP)
                except OSError:
                    return None
                return "netmeter_up 1\n" in page and [line for line in page.splitlines() if re.search(r"^netmeter_wire_bytes.*udp.*tx", line)]

            lines = lab.wait_for(counted, "what the exporter publishes")
            self.assertEqual([line.rsplit(" ", 1)[1] for line in lines], ["1000"])
            # An upgrade of the image: counters go on.
            again = self.crun("again", containers["load"], stdout=subprocess.PIPE)
            self.assertIn("already loaded", again.communicate(timeout=60)[0].decode())
            self.meter.run([lab.PYTHON, "-c", send])
            lab.wait_for(lambda: counted() and counted()[0].endswith(" 2000"), "the second datagram")
        finally:
            for process in running:
                process.terminate()
                process.wait(20)

    def test_compose_runs(self):
        self.run_all(of_compose())

    def test_the_daemonset_runs(self):
        self.run_all(of_daemonset())

    def test_the_daemonset_is_as_kubernetes_has_it(self):
        for version in ("1.28", "1.33"):
            path = os.path.join(FOLDER, "daemonset.yml")
            answer = lab.run(VALIDATOR, "-c", SCHEMA, path, version).decode()
            self.assertIn("valid", answer.splitlines(), version)


if __name__ == "__main__":
    VALIDATOR = clients.make_venv("kubernetes-validate", "")
    lab.private_network()
    lab.unshare(lab.CLONE_NEWNS)
    lab.main(150)
