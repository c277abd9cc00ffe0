# SPDX-License-Identifier: BSD-3-Clause
"""Whose bytes they are when the process that opened a socket is not the one that
uses it, or is gone: the table of such sockets in docs/names.md, row by row, with real
processes under a loaded meter. A sniffer on the cable counts every packet: the
names share all of them, so nothing is lost between two processes."""

import collections
import itertools
import os
import socket
import time
import unittest

import lab
import peers

# What the processes have in common. LISTEN_FDS and LISTEN_PID are the protocol
# of systemd's socket activation, sd_listen_fds(3).
COMMON = """import array, ctypes, os, signal, socket, sys, time
NM_SOL, NM_REGISTER, NM_SERVICE = 0x6E74, 1, 3

def say(word):
    print(word, flush=True)

def heard(word):
    line = sys.stdin.readline().strip()
    assert line == word, line

def register(name):
    with socket.socket() as sock:
        sock.setsockopt(NM_SOL, NM_REGISTER, name.encode())

def claim(sock, name):
    sock.setsockopt(NM_SOL, NM_SERVICE, name.encode())

def listen(port):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("10.88.0.1", port))
    sock.listen(8)
    return sock

def udp(port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("10.88.0.1", port))
    return sock

def connect(port):
    return socket.create_connection(("10.88.0.2", port), 20)

# Reads until the peer's end, answers with this number of bytes, and ends after the peer:
# no TIME_WAIT on this side.
def serve(sock, answer):
    while sock.recv(65536):
        pass
    sock.sendall(bytes(answer))
    sock.close()

def activated():
    assert os.environ["LISTEN_PID"] == str(os.getpid())
    assert os.environ["LISTEN_FDS"] == "1"
    return socket.socket(fileno=3)

# As systemd: opens, then hands over to a process that it forks and that executes
# the service.
def activate(sock, name, *arguments):
    child = os.fork()
    if child == 0:
        if sock.fileno() != 3:
            os.dup2(sock.fileno(), 3)
        os.set_inheritable(3, True)
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
        os.execv(sys.executable, [sys.executable, "-m", "magma.%s.main" % name, *arguments])
    sock.close()
    assert os.waitpid(child, 0)[1] == 0

# fork() with this process id; -1 if a process has it.
def fork_as(id):
    ids = array.array("i", [id])
    # struct clone_args: exit_signal, set_tid and set_tid_size are not 0.
    arguments = array.array("Q", [0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ids.buffer_info()[0], 1])
    clone3 = 435
    return ctypes.CDLL(None).syscall(clone3, ctypes.c_void_p(arguments.buffer_info()[0]), 8 * len(arguments))

def give(channel, *socks):
    fds = array.array("i", [sock.fileno() for sock in socks])
    channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])

def take(channel):
    _, ancillary, _, _ = channel.recvmsg(1, 4096)
    fds = array.array("i")
    fds.frombytes(ancillary[0][2])
    return socket.socket(fileno=fds[0])

"""


# The cloud's port of a process that connects, and the gateway's of one that is
# connected to.
PORT = 9000


# What has sockets before the load: the elder listens and is connected, and its
# child, the heir, has a datagram socket of it. The stranger comes later.
ELDER = """listener = listen(int(sys.argv[1]))
say('listening')
sock = listener.accept()[0]
shared = udp(int(sys.argv[1]))
if next(child for id in range(2, os.getpid()) if (child := fork_as(id)) != -1) == 0:
    os.set_inheritable(shared.fileno(), True)
    os.execv(sys.executable, [sys.executable, '-m', 'magma.heir.main', str(shared.fileno())])
heard('loaded')
sock.sendall(bytes(1))
assert len(sock.recv(5000, socket.MSG_WAITALL)) == 5000
sock.sendall(bytes(3000))
say('first')
second = listener.accept()[0]
assert len(second.recv(50, socket.MSG_WAITALL)) == 50
second.sendall(bytes(30))
say('second')
time.sleep(60)
"""
HEIR = """shared = socket.socket(fileno=int(sys.argv[1]))
say('heir')
data, peer = shared.recvfrom(2000)
shared.sendto(bytes(200), peer)
shared.close()
say('sent')
time.sleep(60)
"""
REUSER = """child = fork_as(int(sys.argv[2]))
if child == 0:
    os.execv(sys.executable, [sys.executable, '-m', 'magma.stranger.main', sys.argv[1]])
assert os.waitpid(child, 0) == (int(sys.argv[2]), 0)
"""
STRANGER = """sock = connect(int(sys.argv[1]))
sock.sendall(bytes(700))
sock.shutdown(socket.SHUT_WR)
assert not sock.recv(1)
"""


class SocketsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        lab.private_network()
        cls.cloud = lab.Cloud()
        cls.sniffer = peers.Sniffer("gate", (socket.IPPROTO_TCP, socket.IPPROTO_UDP))
        cls.addClassCleanup(cls.sniffer.close)
        cls.meter = lab.Meter("sockets")
        cls.addClassCleanup(cls.meter.close)
        cls.meter.load({})
        cls.ports = itertools.count(PORT)

    def setUp(self):
        self.before = self.meter.series()
        self.first_packet = len(self.sniffer.packets)
        self.port = next(self.ports)

    # --- Processes and the cloud --------------------------------------------------

    def start(self, name, source, *arguments, **options):
        return lab.start_service(self, name, COMMON + source, str(self.port), *arguments, **options)

    def package(self, name, source):
        lab.make_package(self.directory, name, COMMON + source)

    def hear(self, process, word):
        self.assertEqual(process.stdout.readline().strip(), word)

    def tell(self, process, word):
        process.stdin.write(word + "\n")
        process.stdin.flush()

    def end(self, process):
        self.assertEqual(process.wait(20), 0)

    def in_cloud(self, kind=socket.SOCK_STREAM):
        with self.cloud.inside():
            sock = socket.socket(socket.AF_INET, kind)
        self.addCleanup(sock.close)
        sock.settimeout(20)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return sock

    def server(self):
        sock = self.in_cloud()
        sock.bind((lab.Cloud.THERE, self.port))
        sock.listen(8)
        return sock

    def accept(self, server):
        sock = server.accept()[0]
        self.addCleanup(sock.close)
        sock.settimeout(20)
        return sock

    @staticmethod
    def receive(sock, size):
        data = 0
        while data < size:
            got = len(sock.recv(65536))
            if not got:
                break
            data += got
        return data

    def call(self, size, answer):
        """A client in the cloud: sends so many bytes, wants so many back."""
        sock = self.in_cloud()
        sock.connect((lab.Cloud.HERE, self.port))
        self.talk(sock, size, answer)

    def talk(self, sock, size, answer):
        sock.sendall(bytes(size))
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(self.receive(sock, answer + 1), answer)
        sock.close()

    # --- What the meter saw ---------------------------------------------------------

    def difference(self):
        found = {}
        for key, row in self.meter.series().items():
            before = self.before.get(key, collections.Counter())
            change = {counter: row[counter] - before[counter] for counter in lab.COUNTERS}
            if any(change.values()):
                found[key] = change
        return found

    def settled(self):
        last = None
        for _ in range(100):
            now = self.difference(), len(self.sniffer.packets)
            if now == last:
                return now[0]
            last = now
            time.sleep(0.1)
        self.fail("the traffic does not end: %s" % (last,))

    def expect(self, what, expected, transport="tcp", time_wait=0):
        """{name: (payload sent, received)}: these names, all of the packets on
        the cable, and no others. time_wait: how many connections end there."""
        found = {}
        for (kind, name, _, seen, path), change in self.settled().items():
            self.assertEqual((seen, path), (transport, "direct"), (kind, name))
            found[name] = collections.Counter(found.get(name, {})) + collections.Counter(change)
        payload = {name: (seen["tx_payload_bytes"], seen["rx_payload_bytes"]) for name, seen in found.items()}
        self.assertEqual(payload, expected, what)
        # All of the cable's bytes, headers too, are under one of the names.
        wire = collections.Counter()
        for packet in self.sniffer.packets[self.first_packet :]:
            way = "tx" if packet.sender == lab.Cloud.HERE else "rx"
            wire[way + "_bytes"] += packet.bytes
            wire[way + "_packets"] += 1
        total = sum(found.values(), collections.Counter())
        seen = {counter: total[counter] for counter in wire}
        # The end of a connection that is in TIME_WAIT already: the peer's FIN,
        # and, before 7.2, the acknowledgement of it.
        missed = {counter: wire[counter] - seen[counter] for counter in wire}
        late = {"rx_packets": time_wait, "rx_bytes": time_wait * 52}
        # Nothing, if one packet acknowledges our FIN and has the peer's: the socket
        # receives that, and then goes to TIME_WAIT.
        if not any(missed.values()):
            return
        for packets in {0, time_wait}:
            if missed == dict(late, tx_packets=packets, tx_bytes=packets * 52):
                return
        self.fail("not seen: %s" % missed)

    # --- Socket activation ----------------------------------------------------------

    def test_activated_listener_is_its_creators(self):
        self.package("activated", "serve(activated().accept()[0], 3000)\n")
        process = self.start("activator", "activate(listen(int(sys.argv[1])), 'activated')\n", close_fds=True)
        self.connect_when_listening(5000, 3000)
        self.end(process)
        self.expect("activated listener", {"activator": (3000, 5000)})

    def test_activated_listener_is_the_services_that_says_so(self):
        source = "sock = activated()\nclaim(sock, 'claimer')\nsay('ready')\nserve(sock.accept()[0], 3000)\n"
        self.package("claimer", source)
        process = self.start("activator2", "activate(listen(int(sys.argv[1])), 'claimer')\n")
        self.hear(process, "ready")
        self.call(5000, 3000)
        self.end(process)
        self.expect("the same, NM_SERVICE", {"claimer": (3000, 5000)})

    def test_activated_datagram_socket(self):
        source = """sock = activated()
data, peer = sock.recvfrom(2000)
sock.sendto(bytes(100), peer)
claim(sock, 'claimer3')
sock.sendto(bytes(200), peer)
sock.recvfrom(2000)
"""
        self.package("claimer3", source)
        text = "sock = udp(int(sys.argv[1]))\nsay('ready')\nactivate(sock, 'claimer3')\n"
        process = self.start("activator3", text)
        self.hear(process, "ready")
        sock = self.in_cloud(socket.SOCK_DGRAM)
        sock.sendto(bytes(1000), (lab.Cloud.HERE, self.port))
        self.assertEqual([len(sock.recv(2000)), len(sock.recv(2000))], [100, 200])
        sock.sendto(bytes(500), (lab.Cloud.HERE, self.port))
        self.end(process)
        expected = {"activator3": (100, 1000), "claimer3": (200, 500)}
        self.expect("activated UDP, NM_SERVICE in between", expected, "udp")

    def connect_when_listening(self, size, answer):
        def connected():
            sock = self.in_cloud()
            return sock.connect_ex((lab.Cloud.HERE, self.port)) == 0 and sock

        # Listens already, as /proc tells without a packet to the port.
        def listening():
            with open("/proc/net/tcp", encoding="utf-8") as file:
                return any(":%04X 00000000:0000 0A" % self.port in line for line in file)

        lab.wait_for(listening, "the listener")
        self.talk(connected(), size, answer)

    # --- SCM_RIGHTS -------------------------------------------------------------------

    TAKER = """channel = socket.socket(fileno=int(sys.argv[2]))
sock = take(channel)
heard('send')
sock.sendall(bytes(2000))
say('sent')
heard('claim')
claim(sock, %r)
sock.sendall(bytes(700))
sock.shutdown(socket.SHUT_WR)
assert not sock.recv(1)
"""
    GIVER = """channel = socket.socket(fileno=int(sys.argv[2]))
sock = connect(int(sys.argv[1]))
sock.settimeout(None)
sock.sendall(bytes(1000))
give(channel, sock)
"""

    def test_passed_socket_stays_its_creators_until_the_taker_says_otherwise(self):
        server = self.server()
        ends = socket.socketpair()
        pair = {}
        for name, source, end in (("giver", self.GIVER, 0), ("taker", self.TAKER % "taker", 1)):
            fd = ends[end].fileno()
            pair[name] = self.start(name, source, str(fd), pass_fds=[fd])
        for end in ends:
            end.close()
        self.end(pair["giver"])
        sock = self.accept(server)
        self.assertEqual(self.receive(sock, 1000), 1000)
        # Its process is gone.
        self.tell(pair["taker"], "send")
        self.hear(pair["taker"], "sent")
        self.assertEqual(self.receive(sock, 2000), 2000)
        self.assertEqual({key[1]: row["tx_payload_bytes"] for key, row in self.settled().items()}, {"giver": 3000})
        self.tell(pair["taker"], "claim")
        self.assertEqual(self.receive(sock, 701), 700)
        sock.close()
        self.end(pair["taker"])
        self.expect("passed by SCM_RIGHTS, NM_SERVICE later", {"giver": (3000, 0), "taker": (700, 0)})

    CONNECTOR = """sock.connect(("10.88.0.2", int(sys.argv[1])))
sock.sendall(bytes(2000))
sock.shutdown(socket.SHUT_WR)
assert not sock.recv(1)
"""

    def answer_end(self, server):
        sock = self.accept(server)
        self.assertEqual(self.receive(sock, 2001), 2000)
        sock.close()

    def test_passed_socket_that_the_taker_connects_is_its_creators(self):
        server = self.server()
        ends = socket.socketpair()
        channel = "channel = socket.socket(fileno=int(sys.argv[2]))\n"
        sources = {"maker": "give(channel, socket.socket())\n", "connector": "sock = take(channel)\n" + self.CONNECTOR}
        pair = {}
        for end, name in zip(ends, sources):
            fd = end.fileno()
            pair[name] = self.start(name, channel + sources[name], str(fd), pass_fds=[fd])
            end.close()
        self.end(pair["maker"])
        self.answer_end(server)
        self.end(pair["connector"])
        self.expect("passed by SCM_RIGHTS, then connected", {"maker": (2000, 0)})

    def test_inherited_socket_that_the_child_connects_is_its_creators(self):
        server = self.server()
        source = """sock = socket.socket()
child = os.fork()
if child == 0:
    register('child')
    %s    os._exit(0)
sock.close()
assert os.waitpid(child, 0)[1] == 0
""" % self.CONNECTOR.replace("\n", "\n    ").rstrip(" ")
        process = self.start("parent", source)
        self.answer_end(server)
        self.end(process)
        self.expect("inherited, then connected by the child", {"parent": (2000, 0)})

    # --- Accepted sockets -----------------------------------------------------------

    def test_socket_that_a_worker_accepts_is_the_listeners(self):
        source = """sock = listen(int(sys.argv[1]))
child = os.fork()
if child == 0:
    register('worker')
    say('ready')
    serve(sock.accept()[0], 3000)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
        process = self.start("master", source)
        self.hear(process, "ready")
        self.call(5000, 3000)
        self.end(process)
        self.expect("accepted by a forked worker", {"master": (3000, 5000)})

    def test_registration_leaves_an_open_listener_and_what_it_accepts(self):
        source = """sock = listen(int(sys.argv[1]))
register('newname')
say('ready')
serve(sock.accept()[0], 3000)
claim(sock, 'newname')
say('claimed')
serve(sock.accept()[0], 30)
"""
        process = self.start("oldname", source)
        self.hear(process, "ready")
        self.call(5000, 3000)
        self.hear(process, "claimed")
        self.call(50, 30)
        self.end(process)
        expected = {"oldname": (3000, 5000), "newname": (30, 50)}
        self.expect("accepted before and after NM_SERVICE", expected)

    def test_accepted_socket_may_be_anothers(self):
        source = """listener = listen(int(sys.argv[1]))
say('ready')
sock = listener.accept()[0]
claim(sock, 'guest')
say('claimed')
serve(sock, 3000)
"""
        process = self.start("host", source)
        self.hear(process, "ready")
        sock = self.in_cloud()
        sock.connect((lab.Cloud.HERE, self.port))
        self.hear(process, "claimed")
        self.talk(sock, 5000, 3000)
        self.end(process)
        # The host's listener answered the handshake.
        self.expect("NM_SERVICE on an accepted one", {"host": (0, 0), "guest": (3000, 5000)})

    # --- Sockets that outlive their process -------------------------------------------

    QUEUE = 1000000

    def outlive(self, name, source, end):
        """A process that leaves its bytes in the queue of a socket; end() ends
        it. Then a server takes them."""
        server = self.server()
        # The peer's window is small: most cannot have left before it reads.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        process = self.start(name, source)
        sock = self.accept(server)
        self.hear(process, "queued")
        end(process)
        process.wait(20)
        (early,) = self.difference().values()
        self.assertLess(early["tx_payload_bytes"], self.QUEUE // 2)
        # No process has its identifier now.
        self.assertFalse(os.path.exists("/proc/%d" % process.pid))
        self.assertEqual(self.receive(sock, self.QUEUE + 1), self.QUEUE)
        sock.close()

    QUEUING = """sock = socket.socket()
sock.setsockopt(socket.SOL_SOCKET, 32, 4 << 20)  # SO_SNDBUFFORCE
sock.connect(("10.88.0.2", int(sys.argv[1])))
sock.sendall(bytes(%d))
say('queued')
heard('end')
""" % QUEUE

    def test_bytes_in_the_queue_of_a_process_that_ended_are_its_own(self):
        self.outlive("hasty", self.QUEUING, lambda process: self.tell(process, "end"))
        self.expect("closed with bytes in its queue", {"hasty": (self.QUEUE, 0)}, time_wait=1)

    def test_half_closed_socket_of_a_process_that_ended(self):
        # It is in FIN_WAIT2 first, and then, without an owner, in TIME_WAIT, for which
        # the kernel keeps no socket. What the peer sends then is answered by a reset, and
        # neither has an owner.
        server = self.server()
        process = self.start("leaver", "sock = connect(int(sys.argv[1]))\nsock.sendall(bytes(1000))\n")
        sock = self.accept(server)
        self.assertEqual(self.receive(sock, 1001), 1000)
        self.end(process)
        found = self.settled()
        ((key, row),) = found.items()
        self.assertEqual((key[1], row["tx_payload_bytes"]), ("leaver", 1000))
        packets = len(self.sniffer.packets)
        sock.sendall(bytes(500))
        lab.wait_for(lambda: len(self.sniffer.packets) >= packets + 2, "the reset")
        self.assertEqual(self.settled(), found)
        late = self.sniffer.packets[packets:]
        self.assertEqual([packet.rst for packet in late], [False, True])

    def test_reset_of_a_process_that_did_not_read_is_its_own(self):
        server = self.server()
        process = self.start("rude", "sock = connect(int(sys.argv[1]))\nheard('end')\n")
        sock = self.accept(server)
        sock.sendall(bytes(500))
        lab.wait_for(lambda: any(row["rx_bytes"] > 500 for row in self.difference().values()), "500 bytes")
        self.tell(process, "end")
        self.end(process)
        with self.assertRaises(ConnectionResetError):
            sock.recv(1)
        self.expect("closed with bytes unread: RST", {"rude": (0, 500)})

    # --- Sockets that were open before the load ---------------------------------------

    def test_adopted_sockets_and_the_next_process_with_their_process_id(self):
        type(self).meter, usual = lab.Meter("adoption"), self.meter
        try:
            self.package("heir", HEIR)
            process = self.start("elder", ELDER)
            self.hear(process, "listening")
            first = self.in_cloud()
            first.connect((lab.Cloud.HERE, self.port))
            self.hear(process, "heir")
            # A shared socket is the younger process's. Its id is lower here: ids are used
            # again, and once the elder got the bytes.
            self.meter.load({})
            self.before = {}
            # Received payload counts from the first acknowledgement on.
            self.tell(process, "loaded")
            self.assertEqual(self.receive(first, 1), 1)
            first.sendall(bytes(5000))
            self.assertEqual(self.receive(first, 3000), 3000)
            self.hear(process, "first")
            second = self.in_cloud()
            second.connect((lab.Cloud.HERE, self.port))
            second.sendall(bytes(50))
            self.assertEqual(self.receive(second, 30), 30)
            self.hear(process, "second")
            datagram = self.in_cloud(socket.SOCK_DGRAM)
            datagram.sendto(bytes(1000), (lab.Cloud.HERE, self.port))
            self.assertEqual(len(datagram.recv(2000)), 200)
            self.hear(process, "sent")
            process.kill()
            process.wait()
            first.close()
            second.close()
            server = self.server()
            server.settimeout(20)
            self.package("stranger", STRANGER)
            reuser = self.start("reuser", REUSER, str(process.pid))
            sock = self.accept(server)
            self.assertEqual(self.receive(sock, 701), 700)
            sock.close()
            self.end(reuser)
            found = {}
            for key, row in self.settled().items():
                sent, received = found.get(key[1], (0, 0))
                found[key[1]] = sent + row["tx_payload_bytes"], received + row["rx_payload_bytes"]
            expected = {"elder": (3031, 5050), "heir": (200, 1000), "stranger": (700, 0)}
            self.assertEqual(found, expected)
        finally:
            adopted = self.meter
            type(self).meter = usual
            adopted.close()


if __name__ == "__main__":
    lab.main(240)
