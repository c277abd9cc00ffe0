# SPDX-License-Identifier: BSD-3-Clause
"""Whose bytes they are: every row of the table of command lines that Magma's
own meter was run on, as real processes under a loaded meter, and what else
processes do with their names. Each sends a number of bytes that no other one
sends."""

import glob
import os
import shutil
import socket
import unittest

import lab

BINARY, SERVICE = "binary", "service"

CONFIG = {
    "services": ["subscriberdb", "sessiond", "mme", "abort_session_service", "envoy_controller", "state"],
    "aliases": {"oai_mme": "mme", "agw_of": "mme"},
}

SEND = """import os, socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.sendto(bytes(int(os.environ["NM_BYTES"])), ("127.0.0.1", 8443))
"""



class VectorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lab.private_network()
        cls.cloud = lab.Cloud()
        # Datagrams to a closed port would be answered.
        cls.sinks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
        cls.sinks[0].bind(("127.0.0.1", lab.PROXY_PORT))
        with cls.cloud.inside():
            cls.sinks.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        cls.sinks[1].bind((lab.Cloud.THERE, 9000))
        cls.directory = lab.temporary_directory(cls)
        # Nobody reads it, too.
        os.chmod(cls.directory, 0o755)
        cls.meter = lab.Meter("vectors")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load(CONFIG)
        cls.bytes, cls.before = 1000, {}
        cls.packages = os.path.join(cls.directory, "packages")
        for service in ("subscriberdb", "state", "directoryd", "x" * 64, "x" * 65):
            lab.make_package(cls.packages, service, SEND)
        os.makedirs(os.path.join(cls.packages, "subscriberdb"))
        with open(os.path.join(cls.packages, "subscriberdb", "__init__.py"), "w"):
            pass
        with open(os.path.join(cls.packages, "subscriberdb", "main.py"), "w") as file:
            file.write(SEND)

    @classmethod
    def tearDownClass(cls):
        for sink in cls.sinks:
            sink.close()

    # --- What is run ----------------------------------------------------------

    def size(self):
        """A number of bytes that no other process sends."""
        type(self).bytes += 1
        return self.bytes

    def program(self, path, source="sender"):
        """A real executable of this name."""
        path = os.path.join(os.fsencode(self.directory), os.fsencode(path))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path):
            shutil.copy(lab.path("test/names/" + source), path)
        return path

    def script(self, path, interpreter=lab.PYTHON):
        path = os.path.join(self.directory, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write("#!" + interpreter + "\n" + SEND)
        os.chmod(path, 0o755)
        return path

    def tell(self, **variables):
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "PYTHONPATH": self.packages,
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        }

    def expect(self, shown, expected, way="proxy"):
        """That what was new since the last time is this: {(kind, name): bytes},
        everything, and nothing else."""
        now = {}
        for (kind, name, *rest, path), row in self.meter.series().items():
            self.assertEqual(rest, ["", "udp"])
            now[kind, name, path] = row["tx_payload_bytes"]
        seen = {key: now[key] - self.before.get(key, 0) for key in now if now[key] != self.before.get(key, 0)}
        type(self).before = now
        wanted = {(kind, name, way): size for (kind, name), size in expected.items()}
        self.assertEqual(seen, wanted, shown)

    def check_program(self, path, kind, name, arguments=(), do="", **options):
        size = self.size()
        program = self.program(path)
        to = options.pop("to", "127.0.0.1:8443")
        words = "%s udp=%s/%d" % (do, to, size)
        self.meter.run([program, *arguments], env=self.tell(NM_DO=words))
        shown = " ".join([os.fsencode(path).decode(errors="backslashreplace"), *arguments])
        self.expect(shown + ("  [%s]" % do if do else ""), {(kind, name): size}, **options)

    def check_python(self, arguments, kind, name):
        size = self.size()
        self.meter.run(arguments, env=self.tell(NM_BYTES=str(size)), cwd=self.directory)
        shown = " ".join(arguments).replace(self.directory, "...")
        self.expect(shown, {(kind, name): size})

    # --- What Magma's own meter was run on, row by row ---------------------------

    def test_01_python_modules(self):
        for module, kind, name in (
            ("magma.subscriberdb.main", SERVICE, "subscriberdb"),
            ("subscriberdb.main", BINARY, "subscriberdb.main"),  # not Magma's
            ("magma.%s.main" % ("x" * 64), SERVICE, "x" * 64),
            ("magma.%s.main" % ("x" * 65), BINARY, "magma." + "x" * 58),
        ):
            self.check_python(["python3", "-m", module], kind, name)

    def test_02_executables(self):
        conf = ["-c", "/var/opt/magma/tmp/mme.conf"]
        for path, kind, name, arguments in (
            ("usr/local/bin/sessiond", SERVICE, "sessiond", []),
            ("foo", BINARY, "foo", ["bar", "magma.sessiond"]),
            ("usr/sbin/sshd", BINARY, "sshd", []),
            ("usr/local/bin/mme", SERVICE, "mme", conf),
            ("usr/local/bin/oai_mme", SERVICE, "mme", conf),
            ("bazel-bin/lte/gateway/c/core/agw_of", SERVICE, "mme", conf),
            ("opt/td-agent-bit/bin/td-agent-bit", BINARY, "td-agent-bit", conf),
            # These 15 bytes are what the kernel keeps as a name.
            ("envoy_controller", SERVICE, "envoy_controller", ["--log_dir=/var/log"]),
            ("envoy_controlle", BINARY, "envoy_controlle", []),
            ("envoy_controllers", BINARY, "envoy_controllers", []),
            ("abort_session_service", SERVICE, "abort_session_service", []),
            (b"x\xff", BINARY, "x\udcff", []),
            ("c" * 63, BINARY, "c" * 63, []),
            ("long/" * 20 + "d" * 64, BINARY, "d" * 64, []),
            ("\udcff" * 64, BINARY, "\udcff" * 64, []),
            ("e" * 64 + "f", BINARY, "e" * 64, []),
        ):
            self.check_program(path, kind, name, arguments)

    def test_03_sessiond_that_is_gone_before_anybody_looks(self):
        size = self.size()
        path = self.program("short/sessiond", "datagram")
        self.meter.run([path, str(size)])
        self.expect("sessiond, gone at once", {(SERVICE, "sessiond"): size})

    def test_09_bazel_script(self):
        script = self.script("bazel/subscriberdb/main.py")
        self.check_python([lab.PYTHON, script], SERVICE, "subscriberdb")

    def test_10_interpreter_flags(self):
        for flags in (
            ["-u", "-m", "magma.state.main"],
            ["-B", "-W", "ignore", "-X", "dev", "-m", "magma.state.main", "-v"],
            ["-um", "magma.state.main"],
            ["-mmagma.state.main"],
        ):
            self.check_python(["python3", *flags], SERVICE, "state")

    def test_11_python_that_is_gone_before_anybody_looks(self):
        # No reader has run while it lived; here it is killed, too.
        size = self.size()
        lab.make_package(self.packages, "killed", SEND + "import signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
        self.meter.run(["python3", "-m", "magma.killed.main"], status=-9, env=self.tell(NM_BYTES=str(size)))
        self.expect("python3 -m magma.killed.main, SIGKILL", {(SERVICE, "killed"): size})

    def test_12_helper_threads(self):
        for thread in ("grpc_global_tim", "default-executo"):
            self.check_program("usr/local/bin/sessiond", SERVICE, "sessiond", do="thread=" + thread)
            self.check_program("sshd", BINARY, "sshd", do="thread=" + thread)

    def test_13_nghttpx(self):
        self.check_program(
            "usr/sbin/nghttpx",
            BINARY,
            "nghttpx",
            ["--conf", "/var/opt/magma/tmp/nghttpx.conf"],
            to=lab.Cloud.THERE + ":9000",
            way="direct",
        )

    def test_16_process_that_nobody_may_look_at(self):
        self.check_program("sessiond", SERVICE, "sessiond", do="hide")
        size = self.size()
        lab.make_package(
            self.packages,
            "hidden",
            "import ctypes, os\n"
            "os.setgid(65534), os.setuid(65534)\n"
            "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n" + SEND,
        )
        self.meter.run(["python3", "-m", "magma.hidden.main"], env=self.tell(NM_BYTES=str(size)))
        self.expect("python3 -m magma.hidden.main, not dumpable", {(SERVICE, "hidden"): size})

    # --- What surrounds the table ------------------------------------------------

    def test_22_env_executes_python(self):
        command = ["/usr/bin/env", "python3", "-m", "magma.subscriberdb.main"]
        self.check_python(command, SERVICE, "subscriberdb")

    def test_23_scripts(self):
        for interpreter in (lab.PYTHON, "/usr/bin/env python3", lab.PYTHON + " -u"):
            script = self.script("bin/subscriberdb/main.py", interpreter)
            self.check_python([script], SERVICE, "subscriberdb")
            # Not in the configured list. By env, which executes Python in turn, it was
            # python3; and main.py, when Python that gets the file said unknown.
            script = self.script("bin/unknown/main.py", interpreter)
            self.check_python([script], BINARY, "unknown")
            self.check_python(["python3", script], BINARY, "unknown")
            script = self.script("bin/subscriberdb.d/subscriberdb", interpreter)
            self.check_python([script], SERVICE, "subscriberdb")
            script = self.script("bin/a-long-name-of-a-script.py", interpreter)
            self.check_python([script], BINARY, "a-long-name-of-a-script")
            self.check_python(["python3", script], BINARY, "a-long-name-of-a-script")
        # Not a script, and no second process of one.
        script = self.script("bin/unknown/main.py", lab.PYTHON)
        self.check_python(["/usr/bin/env", "python3", script], BINARY, "unknown")
        self.check_python(["/usr/bin/env", script], BINARY, "unknown")
        self.check_python(["python3", "-u", "bin/subscriberdb/main.py"], SERVICE, "subscriberdb")
        self.check_python(["python3", "bin/subscriberdb/../unknown/main.py"], BINARY, "unknown")
        # It was python3, as each other script.
        self.check_python(["python3", self.script("bin/job.py", lab.PYTHON), "x"], BINARY, "job")

    def test_24_not_a_module(self):
        code = "import magma.subscriberdb.main"
        self.check_python(["python3", "-c", code, "-m", "magma.state.main"], BINARY, "python3")
        size = self.size()
        with open(os.path.join(self.packages, "magma", "subscriberdb", "main.py"), "rb") as file:
            self.meter.run(["python3", "-", "magma.state.main"], stdin=file, env=self.tell(NM_BYTES=str(size)))
        self.expect("python3 - magma.state.main", {(BINARY, "python3"): size})

    def test_25_titles_change_nothing(self):
        self.check_program("sessiond", SERVICE, "sessiond", do="title=other")
        self.check_program("sshd", BINARY, "sshd", ["-D"], do="title=sessiond")

    def test_26_children_and_threads(self):
        self.check_program("sshd", BINARY, "sshd", do="fork fork")
        self.check_program("sessiond", SERVICE, "sessiond", do="thread=a fork thread=b")
        self.check_program("sessiond", SERVICE, "sessiond", do="orphan=worker")
        other = os.fsdecode(self.program("other"))
        self.check_program("sessiond", BINARY, "other", do="exec=" + other)
        self.check_program("sessiond", BINARY, "other", do="threadexec=" + other)

    def test_27_short_processes(self):
        path = os.fsdecode(self.program("one-ms", "datagram"))  # lives some 0.4 ms
        self.meter.run(["sh", "-c", 'for _ in $(seq 50); do "$0" 101 || exit; done', path])
        self.expect("one-ms, 50 times", {(BINARY, "one-ms"): 50 * 101})

    def test_28_programs_that_were_executed_by_another_path(self):
        # The bug: Chromium and runc were "exe", and each of these was the loader.
        for path in ("/proc/self/exe", "/proc/thread-self/exe"):
            self.check_program("zygote", BINARY, "zygote", do="exec=" + path)
        self.check_program("exe", BINARY, "exe")
        (loader, *_) = glob.glob("/lib*/ld-linux-*.so.*")
        for options in ([], ["--inhibit-cache", "--argv0", "x"]):
            for name, kind in (("frpc", BINARY), ("sessiond", SERVICE)):
                size, program = self.size(), os.fsdecode(self.program(name))
                env = self.tell(NM_DO="udp=127.0.0.1:8443/%d" % size)
                self.meter.run([loader, *options, program], env=env)
                self.expect("ld.so " + program, {(kind, name): size})
        self.check_python(
            [loader, lab.PYTHON, "-m", "magma.state.main"], SERVICE, "state"
        )

    def test_29_methods_have_the_name_of_what_runs_them(self):
        # As apt-get runs them; they were "https".
        method = os.fsdecode(self.program("usr/lib/apt/methods/https"))
        for path, kind, do in (("apt-get", BINARY, ""), ("sessiond", SERVICE, ""), ("nm-reg", SERVICE, "register=r ")):
            name = "r" if do else path
            self.check_program(path, kind, name, do=do + "fork exec=" + method)
        for path in ("methods.d/https", "usr/lib/some-methods/https", "methods/x/https"):
            program = os.fsdecode(self.program(path))
            self.check_program("apt-get", BINARY, "https", do="fork exec=" + program)

    # --- Registration -----------------------------------------------------------

    def test_30_registration(self):
        self.check_program("nm-reg", SERVICE, "registered", do="register=registered")
        self.check_program("nm-reg", SERVICE, "registered", do="thread=worker register=registered")

    def test_31_registration_is_inherited_over_fork(self):
        self.check_program("nm-reg", SERVICE, "parent", do="register=parent fork fork")

    def test_32_registration_ends_at_exec(self):
        other = os.fsdecode(self.program("after-exec"))
        self.check_program("nm-reg", BINARY, "after-exec", do="register=before exec=" + other)
        self.check_program("nm-reg", BINARY, "after-exec", do="register=before fork exec=" + other)
        other = os.fsdecode(self.program("sessiond"))
        self.check_program("nm-reg", SERVICE, "sessiond", do="register=before exec=" + other)

    def test_33_nobody_renames_another_process(self):
        # A child is handed a socket of ours and registers by it: it is the
        # child that has a new name.
        for name, kind in (("sshd", BINARY), ("sessiond", SERVICE)):
            size, others = self.size(), self.size()
            words = "impostor=impostor/%d udp=127.0.0.1:8443/%d" % (others, size)
            self.meter.run([self.program(name)], env=self.tell(NM_DO=words))
            self.expect(name + "  [impostor=impostor]", {(kind, name): size, (SERVICE, "impostor"): others})

    # --- Process ids that are used again ----------------------------------------

    def reuse(self, shown, first, second, expected):
        """first and second: (command, bytes) each."""
        size = self.size()
        launcher = self.program("nm-launcher", "launcher")
        ids = self.meter.run([launcher, first, second, str(size)], env=self.tell())
        self.assertEqual(len(set(ids.split())), 1, ids)
        self.expect(shown, {**expected, (BINARY, "nm-launcher"): size})

    def test_40_reused_process_ids(self):
        sshd = os.fsdecode(self.program("sshd"))
        sessiond = os.fsdecode(self.program("sessiond"))
        do = "exec env NM_DO='%s udp=127.0.0.1:8443/%d %s' %s"
        a, b = self.size(), self.size()
        self.reuse(
            "sessiond, killed; its id: sshd; its id: a child of nm-launcher",
            do % ("", a, "pause", sessiond),
            do % ("", b, "", sshd),
            {(SERVICE, "sessiond"): a, (BINARY, "sshd"): b},
        )
        a, b = self.size(), self.size()
        self.reuse(
            "a registered service, killed; its id: sshd; ...",
            do % ("register=gone", a, "pause", sshd),
            do % ("", b, "", sshd),
            {(SERVICE, "gone"): a, (BINARY, "sshd"): b},
        )
        # As upstream: state is gone, and sshd gets its id.
        a, b = self.size(), self.size()
        module = "import time; print('ready', flush=True); time.sleep(99)"
        lab.make_package(self.packages, "waits", SEND + module)
        self.reuse(
            "python3 -m magma.waits.main, killed; its id: sshd; ...",
            "NM_BYTES=%d exec python3 -m magma.waits.main" % a,
            do % ("", b, "", sshd),
            {(SERVICE, "waits"): a, (BINARY, "sshd"): b},
        )


if __name__ == "__main__":
    lab.main(120)
