// SPDX-License-Identifier: BSD-3-Clause
// Unusual ways to send, and unusual ways to come by a socket: to the byte, and
// for whom. These are scenarios of test/accuracy.sh that no other test has. One
// that this kernel cannot do says so in its table.

#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <linux/tls.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "netmeter/abi.h"
#include "test/live/ring.h"
#include "test/live/sends.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint64_t kUpload = 300007;
constexpr uint64_t kDownload = 200003;
constexpr char kPeer[] = "accuracy-peer";

void Tag(int fd) {
  errno = Control(fd, NM_TAG, kPeer);
  if (errno != 0) DieWithErrno("NM_TAG");
}

std::string Answer(const std::string& what, int error) {
  return what + ": " + std::strerror(error);
}

class AccuracyTest : public FamilyTest {
 protected:
  // The service of this test.
  static std::string Service() {
    const std::string name =
        testing::UnitTest::GetInstance()->current_test_info()->name();
    return "accuracy-" + name.substr(0, name.find('/'));
  }

  static TcpPlan Plan() {
    const std::string service = Service();
    TcpPlan plan(Server(), kUpload, kDownload);
    plan.begin_client = [=] { Register(service); };
    plan.open_client = [] {
      const int fd = OpenSocket(af(), SOCK_STREAM);
      Tag(fd);
      return fd;
    };
    return plan;
  }

  static void RunAndExpect(const TcpPlan& plan,
                           const std::string& service = Service(),
                           const NetNamespace& client = lab().client) {
    MeteredCgroup& meter = World::ClientMeter();
    Measurement measurement(meter, lab().ClientReference());
    Ends ends = lab().Between(meter.cgroup(), nullptr);
    ends.client = &client;
    const TcpResult result = RunTcp(ends, plan);
    measurement.ExpectExact(plan.upload, plan.download);
    measurement.ExpectOwner({Kind::kService, service, kPeer});
    EXPECT_EQ(result.server.received, plan.upload);
    EXPECT_EQ(result.client.received, plan.download);
  }
};
NM_FOR_BOTH_FAMILIES(AccuracyTest);

// A fifth each, by the ways that this kernel has.
TEST_P(AccuracyTest, HoweverBytesAreSentTheyAreExact) {
  TcpPlan plan = Plan();
  plan.send = [](int fd, uint64_t bytes) {
    const uint64_t part = bytes / 5;
    SendByFile(fd, part);
    SendBySplice(fd, part);
    uint64_t left = bytes - 2 * part;
    Ring ring;
    if (ring.error() == 0) {
      ring.Send(IORING_OP_SEND, 0, fd, part);
      ring.Send(IORING_OP_SEND, IOSQE_ASYNC, fd, part);  // by a kernel thread
      left -= 2 * part;
    }
    SendZeroCopy(fd, left);
  };
  RunAndExpect(plan);
}

// What the kernel answers to a request of this kind that cannot succeed: EINVAL
// if it does not know the kind.
int ErrorOf(uint8_t opcode) {
  Ring ring;
  if (ring.error() != 0) return ring.error();
  io_uring_sqe request = {};
  request.opcode = opcode;
  request.fd = opcode == IORING_OP_SOCKET ? -1 : 1 << 20;
  return -ring.Do(request);
}

// The kernel's thread makes the socket; it is the process's all the same.
TEST_P(AccuracyTest, IoUringOpensTheSocketOfItsProcess) {
  const int error = ErrorOf(IORING_OP_SOCKET);
  if (error != EAFNOSUPPORT) {
    Measurement::NotOnThisKernel(Answer("IORING_OP_SOCKET", error));
    return;
  }
  TcpPlan plan = Plan();
  plan.open_client = [] {
    Ring ring;
    io_uring_sqe request = {};
    request.opcode = IORING_OP_SOCKET;
    request.flags = IOSQE_ASYNC;
    request.fd = af();
    request.off = SOCK_STREAM;
    const int fd = ring.Do(request);
    errno = -fd;
    Tag(Check(fd, "socket by io_uring"));
    return fd;
  };
  RunAndExpect(plan);
}

// A process that changes its network namespace, and then opens a socket.
TEST_P(AccuracyTest, SetnsBeforeTheSocketIsExact) {
  const NetNamespace elsewhere;
  TcpPlan plan = Plan();
  const auto begin = plan.begin_client;
  plan.begin_client = [=] {
    begin();
    lab().client.Enter();
  };
  RunAndExpect(plan, Service(), elsewhere);
}

// Two services listen on one port. Each has what it accepted.
TEST_P(AccuracyTest, ReusePortGroupOfTwoServicesStaysApart) {
  constexpr int kConnections = 24, kBytes = 1000;
  MeteredCgroup& meter = World::ServerMeter();
  std::vector<std::unique_ptr<Child>> servers;
  for (int i = 0; i < 2; ++i) {
    const std::string service = "accuracy-group-" + std::to_string(i);
    servers.push_back(std::make_unique<Child>(
        meter.cgroup(), lab().server, [&](Child::Parent& parent) {
          RunOnOneCpu();
          Register(service);
          const int listener = OpenSocket(af(), SOCK_STREAM);
          SetOption(listener, SOL_SOCKET, SO_REUSEPORT, 1);
          Bind(listener, Server(), 7100);
          Check(listen(listener, kConnections), "listen");
          parent.Send(0);
          uint64_t received = 0;
          pollfd ready[] = {{listener, POLLIN, 0}, {parent.fd(), POLLIN, 0}};
          while (poll(ready, 2, kTimeoutMs) > 0 && ready[1].revents == 0) {
            const int fd = Accept(listener);
            received += ReceiveUntilEnd(fd);
            close(fd);
          }
          parent.Receive<int>();
          parent.Send(received);
        }));
    servers.back()->Receive<int>();
  }
  Measurement measurement(meter, lab().ServerReference());
  RunChild(nullptr, lab().client, [&] {
    RunOnOneCpu();  // or the first data may be counted twice (ExplainSecondPass())
    for (int i = 0; i < kConnections; ++i) {
      const int fd = OpenSocket(af(), SOCK_STREAM);
      Connect(fd, Server(), 7100);
      SendAll(fd, kBytes);
      Check(shutdown(fd, SHUT_WR), "shutdown");
      ReceiveUntilEnd(fd);
      close(fd);
    }
  });
  measurement.ExpectExact(0, kConnections * kBytes, SynAckSent);
  int64_t received = 0;
  for (int i = 0; i < 2; ++i) {
    servers[i]->Send(0);
    const auto bytes = static_cast<int64_t>(servers[i]->Receive<uint64_t>());
    servers[i]->Join();
    const Totals its = measurement.Of(
        {Kind::kService, "accuracy-group-" + std::to_string(i), ""});
    EXPECT_EQ(its.rx_payload, bytes);
    EXPECT_GT(bytes, 0) << "all went to the other: this test proves nothing";
    received += its.rx_bytes;
  }
  EXPECT_EQ(received, measurement.seen().rx_bytes);
}

// GSO packets of more than 64 KiB (BIG TCP). One forms however slowly acknowledgements
// come: both windows have room for it from the beginning, and one send(2) fills it.
TEST_P(AccuracyTest, BigTcpIsExact) {
  constexpr uint32_t kMaxSize = 180000;
  if (!(v4() ? KernelAtLeast(6, 3) : KernelAtLeast(5, 19))) {
    Measurement::NotOnThisKernel("BIG TCP of this family");
    return;
  }
  ASSERT_TRUE(lab().client.SetGsoMaxSize("c0", kMaxSize));
  for (const std::string net : {"1", "3"}) {
    Ip(net == "1" ? lab().client : lab().server,
       {v4() ? "-4" : "-6", "route", "change", "default", "via",
        v4() ? "10.77." + net + ".1" : "fd77:" + net + "::1", "initcwnd", "200",
        "initrwnd", "200"});
  }
  lab().client.Sysctl("ipv4/tcp_min_tso_segs", "100");  // however slow the pace
  TcpPlan plan = Plan();
  plan.upload = 2 << 20;
  plan.one_cpu = false;
  plan.send = [](int fd, uint64_t bytes) {
    SendAll(fd, 1);  // its acknowledgement tells the whole window
    int left = 1;
    while (Check(ioctl(fd, SIOCOUTQ, &left), "SIOCOUTQ"), left > 0)
      usleep(1000);
    const std::string data(bytes - 1, 'x');
    SendText(fd, data);
  };
  plan.prepare = [](int fd) {
    SetOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20);
    SetOption(fd, SOL_SOCKET, SO_SNDBUFFORCE, 4 << 20);
  };
  Sniffer own_link(lab().client, "c0");
  RunTcp(lab().Between(World::ClientMeter().cgroup(), nullptr), plan);
  const auto& packets = own_link.Stop();
  EXPECT_TRUE(std::any_of(packets.begin(), packets.end(),
                          [](const Packet& p) { return p.bytes > 66000; }));
  // Measured at the link on which the sender cuts them: over IPv6 a router drops some,
  // because it takes their jumbo payload option for a header of each segment.
  LinkSetup setup;
  setup.offload = false;
  setup.gso_packets = true;
  lab().Configure(setup);
  RunAndExpect(plan);
  World::ForgetLabs();  // with these settings
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
