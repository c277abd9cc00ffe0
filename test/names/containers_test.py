# SPDX-License-Identifier: BSD-3-Clause
"""Containers of a real runtime, and units of a real systemd: who they are by where
they run. Two containers of one image with the network of the host stay apart, and so
do two instances of a template. A sniffer counts their packets, too."""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import unittest

import lab
import peers

PORT = 9000
IMAGE = "/bin/busybox"
CONFIG = {
    "names_from": ["registration", "command_line", "service_list", "container", "unit", "executable"],
    "units": {"magma@*.service": "$1"},
}

# As on a host that systemd has booted, with cgroup v2 and nothing else.
BOOTED = """mount -t tmpfs none /run && mkdir -p /run/systemd/system &&
  mount -t cgroup2 none /sys/fs/cgroup && exec "$@"
"""


def sending(megabytes):
    """What a shell runs, in a container or a unit."""
    size, server = megabytes * 1000000, lab.Cloud.THERE
    return "{0} head -c {1} /dev/zero | {0} nc {2} {3}".format(IMAGE, size, server, PORT)


def read_to_the_end(client):
    with client:
        while client.recv(1 << 16):
            pass


def booted(*command):
    return ["unshare", "--mount", "sh", "-c", BOOTED, "sh", *command]


class ContainersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        lab.private_network()
        cloud = lab.Cloud()
        with cloud.inside():
            listener = peers.listen(lab.Cloud.THERE, PORT)
            sink = peers.Server(listener, read_to_the_end)
        cls.addClassCleanup(sink.close)
        cls.meter = lab.Meter("containers")
        cls.addClassCleanup(cls.meter.close)
        cls.addClassCleanup(cls.remove_cgroups)
        cls.meter.load(CONFIG)
        cls.addClassCleanup(cls.meter.unload)
        # The path of the cgroup in the file system of BOOTED.
        cls.below = "/" + os.path.relpath(cls.meter.cgroup, lab.cgroup_root())

    @classmethod
    def remove_cgroups(cls):
        """What the runtime and the manager have left."""
        for directory, inner, _ in os.walk(cls.meter.cgroup, topdown=False):
            for name in inner:
                os.rmdir(os.path.join(directory, name))

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def setUp(self):
        self.before = self.meter.series()
        self.sniffer = peers.Sniffer("gate")
        self.addCleanup(self.sniffer.close)

    def finish(self, *keys):
        """{key: payload sent} of what is new, and that its wire bytes are those of
        as many connections."""
        new = counted = wire = None

        def settled():
            nonlocal new, counted, wire
            sums = {}
            for packet in list(self.sniffer.packets):
                sent = packet.sender == "10.88.0.1"
                port = packet.source if sent else packet.target
                sums.setdefault(port, [0, 0])[not sent] += packet.bytes
            wire = sorted(map(tuple, sums.values()))
            found = self.meter.series()
            new = {key: found[key] for key in found if found[key] != self.before.get(key)}
            counted = sorted((row["tx_bytes"], row["rx_bytes"]) for row in new.values())
            ended = sum(packet.fin for packet in self.sniffer.packets) >= 2 * len(keys)
            return ended and len(wire) == len(keys) and counted == wire

        with contextlib.suppress(TimeoutError):
            lab.wait_for(settled)
        self.assertEqual({key[:2] for key in new}, set(keys))
        self.assertEqual(counted, wire)
        self.assertFalse(set(new) & set(self.before))
        return {key[:2]: row["tx_payload_bytes"] for key, row in new.items()}

    # --- Containers ------------------------------------------------------------

    def make_image(self):
        """A bundle, as a runtime gets it, without a network of its own."""
        image = self.path("image")
        os.makedirs(image + "/rootfs/bin")
        self.addCleanup(shutil.rmtree, image)
        shutil.copy(IMAGE, image + "/rootfs/bin")
        lab.run("crun", "spec", cwd=image)
        with open(image + "/config.json") as file:
            spec = json.load(file)
        # Two that begin at once would both make them.
        for mount in spec["mounts"]:
            os.makedirs(image + "/rootfs" + mount["destination"], exist_ok=True)
        return spec

    def crun(self, *arguments):
        return booted("crun", "--root", self.path("state"), *arguments)

    def run_container(self, spec, name, command):
        """Of the image, in the background; `name`: of its cgroup."""
        bundle = self.path(name)
        os.makedirs(bundle)
        spec = json.loads(json.dumps(spec))
        spec["root"]["path"] = self.path("image/rootfs")
        spec["process"]["terminal"] = False
        spec["process"]["args"] = [IMAGE, "sh", "-c", command]
        linux = spec["linux"]
        linux.pop("resources")  # a machine may forbid them
        linux["cgroupsPath"] = os.path.join(self.below, name)
        linux["namespaces"] = [space for space in linux["namespaces"] if space["type"] not in ("network", "cgroup")]
        spec["mounts"] = [m for m in spec["mounts"] if m["type"] != "cgroup"]
        with open(bundle + "/config.json", "w") as file:
            json.dump(spec, file)
        return subprocess.Popen(self.crun("run", "--bundle", bundle, name), stdin=subprocess.DEVNULL)

    def test_two_containers_of_one_image_stay_apart(self):
        spec = self.make_image()
        ids = [secrets.token_hex(32) for _ in range(2)]
        running = [
            self.run_container(spec, "libpod-" + name, sending(megabytes)) for name, megabytes in zip(ids, (1, 9))
        ]
        for process in running:
            self.assertEqual(process.wait(60), 0)
        one, other = (("container", name[:12]) for name in ids)
        self.assertEqual(self.finish(one, other), {one: 1000000, other: 9000000})

    def test_an_exec_in_a_container_is_the_containers(self):
        spec = self.make_image()
        name = secrets.token_hex(32)
        name_of_it = "docker-%s.scope" % name
        running = self.run_container(spec, name_of_it, "sleep 60")

        def started():
            state = self.crun("state", name_of_it)
            return b'"running"' in subprocess.run(state, capture_output=True).stdout

        lab.wait_for(started, "the container")
        lab.run(*self.crun("exec", name_of_it, IMAGE, "sh", "-c", sending(3)))
        lab.run(*self.crun("kill", name_of_it, "KILL"))
        running.wait(60)
        key = ("container", name[:12])
        self.assertEqual(self.finish(key), {key: 3000000})

    def test_a_container_registers_and_tags(self):
        """It needs no file of the host's for it, and no capability."""
        spec = self.make_image()
        shutil.copy(lab.path("test/live/live_actor"), self.path("image/rootfs/bin"))
        spec["process"]["capabilities"] = {}
        words = "register=inside tag=cloud udp=%s/%d/100/1000" % (lab.Cloud.THERE, PORT)
        running = self.run_container(spec, "libpod-" + secrets.token_hex(32), "exec /bin/live_actor " + words)
        self.assertEqual(running.wait(60), 0)
        found = self.meter.series()
        new = {key[:3]: found[key] for key in found if found[key] != self.before.get(key)}
        self.assertEqual(list(new), [("service", "inside", "cloud")])
        self.assertEqual([row["tx_payload_bytes"] for row in new.values()], [100000])

    # --- Units -----------------------------------------------------------------

    def test_instances_of_a_template_have_names(self):
        """By a user's manager: the same program as the first process of a host, and
        with no more than this cgroup. Its units come from here alone."""
        units, runtime = self.path("units"), self.path("runtime")
        os.makedirs(units)
        os.makedirs(runtime, 0o700)
        # Without its default dependencies: there is no basic.target.
        unit = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/sh -c '%s'\n"
        for name, megabytes in (("magma@", 1), ("web@", 2)):
            with open(os.path.join(units, name + ".service"), "w") as file:
                file.write(unit % sending(megabytes))
        instances = ["magma@mobilityd.service", "web@a.service", "web@b.service"]
        with open(os.path.join(units, "default.target"), "w") as file:
            file.write("[Unit]\nWants=%s\n" % " ".join(instances))
        # If a runtime has turned on controllers, no process may be at the top.
        below = os.path.join(self.meter.cgroup, "manager")
        os.mkdir(below)

        def enter():
            with open(below + "/cgroup.procs", "w") as procs:
                procs.write("0")

        manager = subprocess.Popen(
            booted("/lib/systemd/systemd", "--user"),
            preexec_fn=enter,
            env={"PATH": os.environ["PATH"], "HOME": runtime, "XDG_RUNTIME_DIR": runtime, "SYSTEMD_UNIT_PATH": units},
        )
        keys = [("service", "mobilityd"), ("unit", "web@a.service"), ("unit", "web@b.service")]
        try:
            sent = self.finish(*keys)
        finally:
            manager.kill()  # its units have ended
            manager.wait()
        self.assertEqual(sent, dict(zip(keys, (1000000, 2000000, 2000000))))


if __name__ == "__main__":
    lab.main(120)
