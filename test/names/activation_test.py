# SPDX-License-Identifier: BSD-3-Clause
"""Which service the sockets of socket activation are counted under, from the
registration through the library on: with growth of the tables, an unload and a
load in between, and with descriptors that were closed and used again."""

import unittest

import lab

# Each datagram has a size of its own power of ten: the sums tell them apart.
COMMON = """import os, socket, sys
NM_SOL, NM_SERVICE = 0x6E74, 3

def udp(fd):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    assert sock.fileno() == fd, sock
    return sock

def send(sock, size):
    sock.sendto(bytes(size), ("10.88.0.2", 9))

def claim(sock, name):
    sock.setsockopt(NM_SOL, NM_SERVICE, name.encode())

def tell(word):
    print(word, flush=True)
    assert sys.stdin.readline().strip() == "done"

# As systemd leaves it for the program that it executes, sd_listen_fds(3).
def hand_over(count):
    os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count))
    global netmeter
    import netmeter

def meter(service):
    return netmeter.Meter.open(os.environ["PIN_DIR"], service, wait_for_loader=True)

"""


class ActivationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        lab.private_network()
        cls.cloud = lab.Cloud()
        cls.meter = lab.Meter("activation")
        cls.addClassCleanup(cls.meter.close)

    def setUp(self):
        self.meter.load({})
        self.addCleanup(self.meter.unload)

    def start(self, source):
        self.process = lab.start_service(self, "daemon", COMMON + source)

    def hear(self, word):
        self.assertEqual(self.process.stdout.readline().strip(), word)

    def done(self):
        self.process.stdin.write("done\n")
        self.process.stdin.flush()

    def expect(self, expected):
        """Payload sent, by name."""
        sent = {}
        for (_, name, _, transport, _), row in self.meter.series().items():
            if transport == "udp":
                sent[name] = sent.get(name, 0) + row["tx_payload_bytes"]
        self.assertEqual(sent, expected)

    def test_they_are_claimed_once(self):
        # After growth every read claimed descriptors 3 and up again: what the
        # application had given to another service, and what had nothing to do
        # with socket activation any more. And a second Meter took them all.
        self.start("""three, four, five = udp(3), udp(4), udp(5)
hand_over(3)
first = meter("first")
netmeter.set_socket_service(three, "given")
four.close()
four = udp(4)
claim(four, "unrelated")
second = meter("second")
for sock, size in (three, 1), (four, 10), (five, 100):
    send(sock, size)
tell("grow")
first.read_service()
second.read_service()
for sock, size in (three, 2), (four, 20), (five, 200):
    send(sock, size)
first.register("renamed")
send(five, 400)
tell("end")
""")
        self.hear("grow")
        self.expect({"given": 1, "unrelated": 10, "first": 100})
        self.meter.load({"max_series": 5000})
        self.done()
        self.hear("end")
        self.expect({"given": 3, "unrelated": 30, "first": 700})
        self.done()
        self.assertEqual(self.process.wait(20), 0)

    def test_a_new_meter_gets_those_that_are_left(self):
        # What was closed, and its descriptor used again, was claimed in the
        # new meter. The others are adopted under the process's own name.
        self.start("""three, four, five = udp(3), udp(4), udp(5)
hand_over(3)
first = meter("first")
netmeter.set_socket_service(three, "given")
four.close()
four = udp(4)
# As sd_listen_fds(1); it is known by now which they are.
del os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"]
tell("reload")
first.read_service()
for sock, size in (three, 1), (four, 10), (five, 100):
    send(sock, size)
tell("end")
""")
        self.hear("reload")
        self.meter.unload()
        self.meter.load({})
        self.done()
        self.hear("end")
        self.expect({"daemon": 11, "first": 100})
        self.done()
        self.assertEqual(self.process.wait(20), 0)

    def test_a_closed_descriptor_does_not_end_the_search(self):
        # It did: nothing behind it was claimed.
        self.start("""three, four, five = udp(3), udp(4), udp(5)
three.close()
hand_over(1000000000)
first = meter("first")
send(four, 1)
send(five, 10)
tell("end")
""")
        self.hear("end")
        self.expect({"first": 11})
        self.done()
        self.assertEqual(self.process.wait(20), 0)

    def test_without_the_environment_they_keep_their_names(self):
        # sd_listen_fds(1) before the registration hides them.
        self.start("""three = udp(3)
hand_over(1)
del os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"]
first = meter("first")
send(three, 1)
tell("end")
""")
        self.hear("end")
        self.expect({"daemon": 1})
        self.done()
        self.assertEqual(self.process.wait(20), 0)


if __name__ == "__main__":
    lab.main(100)
