# SPDX-License-Identifier: BSD-3-Clause
"""The package without a meter: options, errors, types, signals and fork."""

import copy
import dataclasses
import io
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import netmeter
from netmeter import _netmeter

NOWHERE = "/nonexistent/netmeter"


class SilentServer:
    """A `netmeter-fds` that accepts and then hangs: the longest
    that a call can block."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        self.pin_dir = os.path.join(self.directory.name, "m")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.pin_dir + ".sock")
        self.socket.listen(16)

    def __enter__(self):
        return self.pin_dir

    def __exit__(self, *_):
        self.socket.close()
        self.directory.cleanup()


class OptionsTest(unittest.TestCase):
    def test_defaults_are_those_of_the_library(self):
        self.assertEqual(netmeter.DEFAULT_PIN_DIR, "/run/netmeter")
        self.assertRegex(netmeter.__version__, r"^\d+\.\d+\.\d+$")

    def test_pin_dir_without_a_meter_is_not_found(self):
        with self.assertRaisesRegex(netmeter.NotFoundError, NOWHERE) as caught:
            netmeter.Meter.open(pin_dir=NOWHERE)
        self.assertEqual(caught.exception.code, "NOT_FOUND")
        self.assertIn("netmeter-loader load", str(caught.exception))

    def test_pin_dir_takes_every_kind_of_path(self):
        for pin_dir in (NOWHERE, NOWHERE.encode(), pathlib.Path(NOWHERE)):
            with self.assertRaises(netmeter.NotFoundError):
                netmeter.Meter.open(pin_dir)

    def test_pin_dir_that_cannot_be_is_refused(self):
        # Once, a lone surrogate raised UnicodeEncodeError, and a path of a megabyte
        # opened a meter that waited, with a message of a megabyte.
        for pin_dir in ("", b"", "/run\0/netmeter", "/\ud800", "x" * 10**6):
            with self.assertRaises(netmeter.InvalidArgumentError):
                netmeter.Meter.open(pin_dir, wait_for_loader=True)
        for pin_dir in (3, None, ["/run"]):
            with self.assertRaises(TypeError):
                netmeter.Meter.open(pin_dir)

    def test_wait_for_loader_is_a_bool(self):
        for wait in ("no", 0, 1, None, []):
            with self.assertRaisesRegex(TypeError, "wait_for_loader is bool, not "):
                netmeter.Meter.open(NOWHERE, wait_for_loader=wait)

    def test_wait_for_loader_opens_without_a_meter(self):
        meter = netmeter.Meter.open(NOWHERE, wait_for_loader=True)
        for read in (meter.read_host, meter.read_health, lambda: meter.read_service("mme")):
            with self.assertRaisesRegex(netmeter.UnavailableError, "waiting") as caught:
                read()
            self.assertEqual(caught.exception.code, "UNAVAILABLE")

    def test_a_closed_meter_says_so(self):
        with netmeter.Meter.open(NOWHERE, wait_for_loader=True) as meter:
            self.assertEqual(repr(meter), "<netmeter.Meter %s>" % NOWHERE)
        meter.close()
        self.assertEqual(repr(meter), "<netmeter.Meter %s (closed)>" % NOWHERE)
        for call in (
            meter.read_host,
            meter.read_health,
            meter.read_service,
            lambda: meter.register("mme"),
            meter.__enter__,
        ):
            with self.assertRaisesRegex(netmeter.FailedPreconditionError, "closed"):
                call()

    def test_a_meter_is_neither_copied_nor_pickled(self):
        with netmeter.Meter.open(NOWHERE, wait_for_loader=True) as meter:
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, "open another one"):
                    make(meter)

    def test_open_is_the_only_constructor(self):
        with self.assertRaisesRegex(TypeError, "open"):
            netmeter.Meter()
        # Once, these crashed the interpreter: they had raw memory instead of a meter.
        for bare in (_netmeter.Meter, lambda: _netmeter.Meter.__new__(_netmeter.Meter)):
            with self.assertRaisesRegex(TypeError, "open"):
                bare()
        bare = netmeter.Meter.__new__(netmeter.Meter)
        with self.assertRaisesRegex(netmeter.FailedPreconditionError, "closed"):
            bare.read_host()
        self.assertIn("closed", repr(bare))
        self.assertIsInstance(type("Mine", (netmeter.Meter,), {}).open(NOWHERE, "", True), netmeter.Meter)


class ExtensionTest(unittest.TestCase):
    # Once, None in place of the object became a null pointer, and crashed.
    def test_methods_of_none_are_type_errors(self):
        for method, arguments in (
            (_netmeter.Meter.register, (b"mme",)),
            (_netmeter.Meter.read_own_service, ()),
            (_netmeter.Meter.read_service, (b"mme",)),
            (_netmeter.Meter.read_host, ()),
            (_netmeter.Meter.read_health, ()),
            (_netmeter.Meter.families, ("host",)),
        ):
            for no_meter in (None, 3, object()):
                with self.assertRaises(TypeError):
                    method(no_meter, *arguments)


class SocketTest(unittest.TestCase):
    """tag_socket() and set_socket_service()."""

    CALLS = (netmeter.tag_socket, netmeter.set_socket_service)

    def test_take_a_socket_or_a_descriptor(self):
        # There is no meter here, or there is one that does not know this service.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for call in self.CALLS:
                for what in (sock, sock.fileno()):
                    try:
                        call(what, "streamer")
                    except (netmeter.NotFoundError, netmeter.PermissionDeniedError):
                        pass

    def test_refuse_what_is_no_socket(self):
        closed = socket.socket()
        closed.close()
        closed_file = tempfile.TemporaryFile()
        closed_file.close()
        for call in self.CALLS:
            with tempfile.TemporaryFile() as file:
                # Once, a closed file's ValueError and a StringIO's OSError reached the
                # caller unchanged.
                for what in (closed, file, file.fileno(), closed_file, io.StringIO()) + (-1, 2**31, 2**70, -(2**70)):
                    with self.assertRaises(netmeter.InvalidArgumentError):
                        call(what, "streamer")
            for what in (None, "3", 3.0, [], object(), Fileno("3"), Fileno(None)):
                with self.assertRaises(TypeError):
                    call(what, "streamer")

    def test_let_through_what_a_fileno_of_ones_own_raises(self):
        class Broken:
            def fileno(self):
                raise LookupError("mine")

        for call in self.CALLS:
            with self.assertRaisesRegex(LookupError, "mine"):
                call(Broken(), "streamer")

    def test_refuse_what_is_no_name(self):
        with netmeter.Meter.open(NOWHERE, wait_for_loader=True) as meter, socket.socket() as sock:
            for call, *first in (
                (meter.register,),
                (netmeter.register_process,),
                *((call, sock) for call in self.CALLS),
            ):
                for name in ("", "x" * 65, "a\0b", "\ud800", "\u00e9" * 33):
                    with self.assertRaises(netmeter.InvalidArgumentError):
                        call(*first, name)
                for name in (b"streamer", None, 3, ["a"]):
                    with self.assertRaises(TypeError):
                        call(*first, name)


class Fileno:
    def __init__(self, result):
        self.fileno = lambda: result


class TypesTest(unittest.TestCase):
    def test_words_of_the_enums_are_those_of_the_library(self):
        self.assertEqual(tuple(k.value for k in netmeter.Kind), _netmeter.KINDS)
        self.assertEqual(tuple(t.value for t in netmeter.Transport), _netmeter.TRANSPORTS)
        self.assertEqual(tuple(p.value for p in netmeter.Path), _netmeter.PATHS)

    def test_samples_are_immutable_values(self):
        sample = netmeter.Sample(kind=netmeter.Kind.SERVICE, name="mme", tx_bytes=2**63)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            sample.tx_bytes = 1
        self.assertEqual(sample, dataclasses.replace(sample))
        self.assertEqual(len({sample, copy.deepcopy(sample)}), 1)
        self.assertEqual(pickle.loads(pickle.dumps(sample)), sample)
        self.assertIn("tx_bytes=9223372036854775808", repr(sample))

    def test_every_error_code_has_its_class(self):
        for code, name in (
            ("NOT_FOUND", "NotFoundError"),
            ("PERMISSION_DENIED", "PermissionDeniedError"),
            ("FAILED_PRECONDITION", "FailedPreconditionError"),
            ("INVALID_ARGUMENT", "InvalidArgumentError"),
            ("UNAVAILABLE", "UnavailableError"),
            ("RESOURCE_EXHAUSTED", "Error"),
            ("INTERNAL", "Error"),
        ):
            error = netmeter._error(code, "why (what to do)")
            self.assertIs(type(error), getattr(netmeter, name))
            self.assertEqual((error.code, str(error)), (code, "why (what to do)"))
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((again.code, str(again)), (error.code, str(error)))
        self.assertTrue(issubclass(netmeter.InvalidArgumentError, ValueError))

    def test_everything_public_is_documented(self):
        for name in netmeter.__all__:
            self.assertTrue(hasattr(netmeter, name), name)
        for thing in (netmeter, netmeter.Meter, netmeter.register_process, *SocketTest.CALLS):
            self.assertTrue(thing.__doc__)
        for name, method in vars(netmeter.Meter).items():
            if not name.startswith("_"):
                self.assertTrue(getattr(netmeter.Meter, name).__doc__, name)


class BlockingTest(unittest.TestCase):
    """Calls that block for two seconds."""

    def test_other_threads_run_meanwhile(self):
        with SilentServer() as pin_dir:
            done = threading.Event()

            def block():
                with self.assertRaises(netmeter.UnavailableError):
                    netmeter.Meter.open(pin_dir)
                done.set()

            thread = threading.Thread(target=block)
            started = time.monotonic()
            thread.start()
            rounds = 0
            while not done.is_set():
                rounds += 1
                time.sleep(0.01)
            thread.join()
            self.assertGreater(time.monotonic() - started, 1)
            self.assertGreater(rounds, 5)  # one or two, if the others had to wait

    def test_control_c_is_not_lost(self):
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with SilentServer() as pin_dir:
                started = time.monotonic()
                timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                with self.assertRaises(KeyboardInterrupt):
                    netmeter.Meter.open(pin_dir, wait_for_loader=True)
                    time.sleep(60)
                self.assertLess(time.monotonic() - started, 10)
                timer.join()
        finally:
            signal.signal(signal.SIGINT, previous)

    def test_fork_waits_for_a_call_that_is_under_way(self):
        # Otherwise the child would find the meter locked forever.
        with SilentServer() as pin_dir:
            meter = netmeter.Meter.open(pin_dir, wait_for_loader=True)
            time.sleep(1.1)  # until reads look again
            threads = [threading.Thread(target=self.read, args=(meter,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(0.2)
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(self.read(meter))
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            for thread in threads:
                thread.join()
            # And the gate is open again.
            self.assertEqual(self.read(meter), 0)

    @staticmethod
    def read(meter):
        try:
            meter.read_host()
        except netmeter.UnavailableError:
            return 0
        return 1


class ExitTest(unittest.TestCase):
    SCRIPT = """
import sys, threading, time
sys.path[:] = %r
import netmeter
meter = netmeter.Meter.open(%r, wait_for_loader=True)
def read():
    while True:
        meter._families("host")
for _ in range(8):
    threading.Thread(target=read, daemon=True).start()
time.sleep(0.03)
"""

    def test_the_interpreter_ends_while_daemon_threads_read(self):
        # prometheus_client has such threads. Once, one of them asked for the GIL when the
        # interpreter had ended, and the process aborted.
        script = self.SCRIPT % (sys.path, NOWHERE)
        for _ in range(20):
            done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, b""))


class SubinterpreterTest(unittest.TestCase):
    def test_import_is_refused(self):
        # Once, it waited forever for the GIL that it held itself.
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:  # 3.13
            import _interpreters as interpreters
        with tempfile.NamedTemporaryFile("r") as answer:
            interpreter = interpreters.create()
            interpreters.run_string(
                interpreter,
                "import sys; sys.path[:] = %r\n"
                "try:\n import netmeter\n"
                "except ImportError as error:\n"
                " with open(%r, 'w') as file: file.write(str(error))\n" % (sys.path, answer.name),
            )
            interpreters.destroy(interpreter)
            self.assertIn("not support loading in subinterpreters", answer.read())
        # The main interpreter still works.
        with netmeter.Meter.open(NOWHERE, wait_for_loader=True) as meter:
            self.assertEqual(BlockingTest.read(meter), 0)


class ForkTest(unittest.TestCase):
    def test_children_read_while_threads_of_the_parent_do(self):
        meter = netmeter.Meter.open(NOWHERE, wait_for_loader=True)
        stop = threading.Event()

        def hammer():
            while not stop.is_set():
                BlockingTest.read(meter)

        threads = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(50):
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                    os._exit(BlockingTest.read(meter))
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    HOOKS = """
import os, signal, sys, threading
sys.path[:] = %r
def read():
    import netmeter
    try:
        netmeter.Meter.open(%r, wait_for_loader=True).read_host()
    except netmeter.Error:
        pass
    os.write(1, b"read")
def read_in_a_thread():
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
signal.alarm(20)
os.register_at_fork(%s)
import netmeter
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

    def test_hooks_of_others_may_read(self):
        # Hooks that were registered before ours run while the gate is closed. Once, they
        # waited for their own thread.
        for hook in ("before=read", "after_in_parent=read", "after_in_child=read", "after_in_child=read_in_a_thread"):
            done = subprocess.run(
                [sys.executable, "-c", self.HOOKS % (sys.path, NOWHERE, hook)], stdout=subprocess.PIPE, timeout=60
            )
            self.assertEqual((done.returncode, done.stdout), (0, b"read"), hook)

    def test_close_during_reads_of_other_threads(self):
        for _ in range(50):
            meter = netmeter.Meter.open(NOWHERE, wait_for_loader=True)
            errors = []

            def read():
                for _ in range(20):
                    try:
                        meter.read_host()
                    except (netmeter.UnavailableError, netmeter.FailedPreconditionError):
                        pass
                    except BaseException as error:  # pylint: disable=broad-except
                        errors.append(error)

            threads = [threading.Thread(target=read) for _ in range(3)]
            for thread in threads:
                thread.start()
            meter.close()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [])


if __name__ == "__main__":
    unittest.main()
