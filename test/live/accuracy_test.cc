// SPDX-License-Identifier: BSD-3-Clause
// Unusual ways to send, and unusual ways to come by a socket: to the byte, and
// for whom. These are scenarios of test/accuracy.sh that no other test has. One
// that this kernel cannot do says so in its table.

#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/tcp.h>
#include <linux/tls.h>
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
  if (errno != 0) Die("NM_TAG");
}

std::string Answer(const std::string& what, int error) {
  return what + ": " + std::strerror(error);
}

class AccuracyTest : public FamilyTest {
 protected:
  void SetUp() override {
    FamilyTest::SetUp();
    lab().Configure(LinkSetup());
  }

  static Lab& lab() { return World::CleanLab(); }
  static Address Server() { return Lab::Server(GetParam()); }
  static int Af() { return Server().family(); }

  // The service of this test.
  static std::string Service() {
    const std::string name =
        testing::UnitTest::GetInstance()->current_test_info()->name();
    return "accuracy-" + name.substr(0, name.find('/'));
  }

  static TcpPlan Plan() {
    const std::string service = Service();
    TcpPlan plan;
    plan.server = Server();
    plan.upload = kUpload;
    plan.download = kDownload;
    plan.begin_client = [=] { Register(service); };
    plan.open_client = [] {
      const int fd = OpenSocket(Af(), SOCK_STREAM);
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
    measurement.Finish();
    measurement.ExpectBalance();
    measurement.ExpectPayload(plan.upload, plan.download);
    measurement.ExpectOwner({Kind::kService, service, kPeer});
    EXPECT_EQ(result.server.received, plan.upload);
    EXPECT_EQ(result.client.received, plan.download);
  }
};
NM_FOR_BOTH_FAMILIES(AccuracyTest);

TEST_P(AccuracyTest, ZeroCopySendIsExact) {
  TcpPlan plan = Plan();
  plan.send = SendZeroCopy;
  RunAndExpect(plan);
}

TEST_P(AccuracyTest, SendfileIsExact) {
  TcpPlan plan = Plan();
  plan.send = SendByFile;
  RunAndExpect(plan);
}

TEST_P(AccuracyTest, SpliceIsExact) {
  TcpPlan plan = Plan();
  plan.send = SendBySplice;
  RunAndExpect(plan);
}

TEST_P(AccuracyTest, IoUringSendIsExact) {
  if (const int error = Ring().error()) {
    Measurement::NotOnThisKernel(Answer("io_uring_setup", error));
    return;
  }
  TcpPlan plan = Plan();
  plan.send = [](int fd, uint64_t bytes) {
    Ring ring;
    ring.Send(IORING_OP_SEND, 0, fd, bytes / 2);
    // By a thread of the kernel's own.
    ring.Send(IORING_OP_SEND, IOSQE_ASYNC, fd, bytes - bytes / 2);
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

TEST_P(AccuracyTest, IoUringZeroCopySendIsExact) {
  const int error = ErrorOf(IORING_OP_SEND_ZC);
  if (error != EBADF) {
    Measurement::NotOnThisKernel(Answer("IORING_OP_SEND_ZC", error));
    return;
  }
  TcpPlan plan = Plan();
  plan.send = [](int fd, uint64_t bytes) {
    Ring().Send(IORING_OP_SEND_ZC, 0, fd, bytes);
  };
  RunAndExpect(plan);
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
    request.fd = Af();
    request.off = SOCK_STREAM;
    const int fd = ring.Do(request);
    errno = -fd;
    Tag(Check(fd, "socket by io_uring"));
    return fd;
  };
  RunAndExpect(plan);
}

// Turns on what is sent by TLS 1.2 of the kernel. Returns 0, or an errno.
int StartTls(int fd) {
  tls12_crypto_info_aes_gcm_128 keys = {};
  keys.info.version = TLS_1_2_VERSION;
  keys.info.cipher_type = TLS_CIPHER_AES_GCM_128;
  const std::string tls = "tls";
  if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, tls.data(), tls.size()) != 0 ||
      setsockopt(fd, SOL_TLS, TLS_TX, &keys, sizeof(keys)) != 0)
    return errno;
  return 0;
}

// ENOTCONN, where the kernel has it: this socket is not connected.
int TlsError() {
  const UniqueFd fd(OpenSocket(AF_INET, SOCK_STREAM));
  return StartTls(fd.get());
}

TEST_P(AccuracyTest, KernelTlsCountsItsRecords) {
  const int error = TlsError();
  if (error != ENOTCONN) {
    Measurement::NotOnThisKernel(Answer("TCP_ULP tls", error));
    EXPECT_NE(access("/mod/tls.ko", F_OK), 0) << "loaded, but no kTLS";
    return;
  }
  // A record has a header, a nonce and a tag (RFC 5288).
  constexpr uint64_t kRecords = 30, kText = 10000, kAround = 5 + 8 + 16;
  TcpPlan plan = Plan();
  plan.upload = kRecords * (kText + kAround);
  plan.send = [=](int fd, uint64_t) {
    if ((errno = StartTls(fd)) != 0) Die("TLS");
    const std::string text(kText, 'x');
    for (uint64_t i = 0; i < kRecords; ++i)
      if (send(fd, text.data(), text.size(), 0) != int{kText}) Die("send");
  };
  RunAndExpect(plan);
}

// An MD5 signature is an option of each segment (RFC 2385).
TEST_P(AccuracyTest, TcpMd5SignaturesAreHeaders) {
  const int family = Af();
  const auto sign = [&](int fd, const Address& peer) {
    tcp_md5sig signature = {};
    const sockaddr_storage address = peer.WithPort(0);
    std::memcpy(&signature.tcpm_addr, &address, Address::Length(address));
    signature.tcpm_keylen = 6;
    std::memcpy(signature.tcpm_key, "secret", 6);
    return setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &signature,
                      sizeof(signature)) == 0
               ? 0
               : errno;
  };
  const UniqueFd fd(OpenSocket(family, SOCK_STREAM));
  if (const int error = sign(fd.get(), Server())) {
    Measurement::NotOnThisKernel(Answer("TCP_MD5SIG", error));
    return;
  }
  TcpPlan plan = Plan();
  plan.prepare = [=](int socket) {
    for (const Address& peer : {Lab::Client(GetParam()), Server()})
      if ((errno = sign(socket, peer)) != 0) Die("TCP_MD5SIG");
  };
  RunAndExpect(plan);
}

// A socket that came from another process is that one's (docs/names.md).
TEST_P(AccuracyTest, PassedSocketIsItsCreators) {
  const std::string opener = "accuracy-opener";
  TcpPlan plan = Plan();
  plan.open_client = [&] {
    int ends[2];
    Check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends),
          "socketpair");
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {&byte, 1};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (Check(fork(), "fork") == 0) {
      Register(opener);
      const int fd = OpenSocket(Af(), SOCK_STREAM);
      Tag(fd);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
      Check(sendmsg(ends[1], &message, 0), "sendmsg");
      _exit(0);
    }
    WaitReadable(ends[0]);
    Check(recvmsg(ends[0], &message, MSG_CMSG_CLOEXEC), "recvmsg");
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
  };
  RunAndExpect(plan, opener);
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
          Register(service);
          const int listener = OpenSocket(Af(), SOCK_STREAM);
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
  Child client(nullptr, lab().client, [&](Child::Parent&) {
    for (int i = 0; i < kConnections; ++i) {
      const int fd = OpenSocket(Af(), SOCK_STREAM);
      Connect(fd, Server(), 7100);
      usleep(2000);  // as TcpClient(): or the first data is counted twice
      SendAll(fd, kBytes);
      Check(shutdown(fd, SHUT_WR), "shutdown");
      ReceiveUntilEnd(fd);
      close(fd);
    }
  });
  client.Join();
  measurement.Finish(SynAckSent);
  measurement.ExpectBalance();
  measurement.ExpectPayload(0, kConnections * kBytes);
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

// The process ends; its socket goes on sending what was queued, and closes.
TEST_P(AccuracyTest, KilledInMidTransferIsExact) {
  MeteredCgroup& meter = World::ClientMeter();
  Child server(nullptr, lab().server, [&](Child::Parent& parent) {
    RunOnOneCpu();
    const int listener = OpenSocket(Af(), SOCK_STREAM);
    SetOption(listener, SOL_SOCKET, SO_RCVBUF, 64 << 10);
    parent.Send(Bind(listener, Server()));
    Check(listen(listener, 1), "listen");
    const int fd = Accept(listener);
    uint64_t received = ReceiveExactly(fd, 100000);
    parent.Send(0);
    parent.Receive<int>();  // the client is dead
    received += ReceiveUntilEnd(fd);
    usleep(200000);  // its socket is in FIN_WAIT2
    close(fd);
    parent.Send(received);
  });
  const int port = server.Receive<int>();
  Measurement measurement(meter, lab().ClientReference());
  const std::string service = Service();
  auto client = std::make_unique<Child>(
      meter.cgroup(), lab().client, [&](Child::Parent&) {
        RunOnOneCpu();
        Register(service);
        const int fd = OpenSocket(Af(), SOCK_STREAM);
        Tag(fd);
        Connect(fd, Server(), port);
        usleep(20000);
        SendAll(fd, uint64_t{1} << 40);
      });
  server.Receive<int>();
  client.reset();  // SIGKILL
  server.Send(0);
  const auto received = static_cast<int64_t>(server.Receive<uint64_t>());
  server.Join();
  bool peer_closed = false;
  measurement.Finish([&](const Packet& packet) -> Remainder {
    if (!packet.outgoing && packet.fin()) peer_closed = true;
    return peer_closed ? Whole("time-wait", packet) : Remainder();
  });
  measurement.ExpectBalance();
  measurement.ExpectPayload(received, 0);
  measurement.ExpectOwner({Kind::kService, service, kPeer});
  EXPECT_EQ(measurement.RemainderPackets("time-wait"), 2);  // FIN and ACK
}

TEST_P(AccuracyTest, UdpLiteIsExact) {
  constexpr int kCount = 200, kBytes = 500;
  const int af = Af();
  const UniqueFd probe(socket(af, SOCK_DGRAM, IPPROTO_UDPLITE));
  if (probe.get() < 0) {
    Measurement::NotOnThisKernel(Answer("socket IPPROTO_UDPLITE", errno));
    return;
  }
  MeteredCgroup& meter = World::ClientMeter();
  Child server(nullptr, lab().server, [&](Child::Parent& parent) {
    const int fd = OpenSocket(af, SOCK_DGRAM, IPPROTO_UDPLITE);
    parent.Send(Bind(fd, Server()));
    for (int i = 0; i < kCount; ++i) {
      char data[kBytes];
      sockaddr_storage from;
      socklen_t size = sizeof(from);
      WaitReadable(fd);
      const ssize_t got =
          Check(recvfrom(fd, data, sizeof(data), 0,
                         reinterpret_cast<sockaddr*>(&from), &size),
                "recvfrom");
      Check(sendto(fd, data, got, 0, reinterpret_cast<sockaddr*>(&from), size),
            "sendto");
    }
  });
  const int port = server.Receive<int>();
  Measurement measurement(meter, lab().ClientReference());
  const std::string service = Service();
  Child client(meter.cgroup(), lab().client, [&](Child::Parent&) {
    Register(service);
    const int fd = OpenSocket(af, SOCK_DGRAM, IPPROTO_UDPLITE);
    Tag(fd);
    constexpr int kSendCoverage = 10;                  // UDPLITE_SEND_CSCOV
    SetOption(fd, IPPROTO_UDPLITE, kSendCoverage, 8);  // headers alone
    Connect(fd, Server(), port);
    for (int i = 0; i < kCount; ++i) {
      SendAll(fd, kBytes);
      ReceiveExactly(fd, kBytes);
    }
  });
  client.Join();
  server.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  // `other`: what follows the IP header (docs/counting.md).
  measurement.ExpectPayload(kCount * (8 + kBytes), kCount * (8 + kBytes));
  measurement.ExpectOwner({Kind::kService, service, kPeer});
}

// The same for one that has not read everything: the kernel resets the
// connection.
TEST_P(AccuracyTest, KilledWithUnreadDataIsExact) {
  MeteredCgroup& meter = World::ClientMeter();
  Child server(nullptr, lab().server, [&](Child::Parent& parent) {
    RunOnOneCpu();
    const int listener = OpenSocket(Af(), SOCK_STREAM);
    parent.Send(Bind(listener, Server()));
    Check(listen(listener, 1), "listen");
    const int fd = Accept(listener);
    const std::string data(10000, 'x');
    while (send(fd, data.data(), data.size(), MSG_NOSIGNAL) > 0) {
    }
    parent.Send(errno);
  });
  const int port = server.Receive<int>();
  Measurement measurement(meter, lab().ClientReference());
  const std::string service = Service();
  auto client = std::make_unique<Child>(
      meter.cgroup(), lab().client, [&](Child::Parent& parent) {
        RunOnOneCpu();
        Register(service);
        const int fd = OpenSocket(Af(), SOCK_STREAM);
        SetOption(fd, SOL_SOCKET, SO_RCVBUF, 64 << 10);
        Tag(fd);
        Connect(fd, Server(), port);
        ReceiveExactly(fd, kDownload);
        usleep(100000);  // until its buffer is full
        parent.Send(0);
        pause();
      });
  client->Receive<int>();
  client.reset();  // SIGKILL
  EXPECT_EQ(server.Receive<int>(), ECONNRESET);
  server.Join();
  measurement.Finish();
  measurement.ExpectBalance();
  measurement.ExpectOwner({Kind::kService, service, kPeer});
}

// GSO packets of more than 64 KiB (BIG TCP).
TEST_P(AccuracyTest, BigTcpIsExact) {
  constexpr uint32_t kMaxSize = 180000;
  if (!lab().client.SetGsoMaxSize("c0", kMaxSize)) {
    Measurement::NotOnThisKernel("IFLA_GSO_MAX_SIZE of " +
                                 std::to_string(kMaxSize) +
                                 " for veth: refused");
    return;
  }
  TcpPlan plan = Plan();
  plan.upload = 2 << 20;
  plan.one_cpu = false;
  plan.prepare = [](int fd) {
    SetOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20);
    SetOption(fd, SOL_SOCKET, SO_SNDBUFFORCE, 4 << 20);
  };
  Sniffer own_link(lab().client, "c0");
  RunTcp(lab().Between(World::ClientMeter().cgroup(), nullptr), plan);
  usleep(50000);
  const auto& packets = own_link.Stop();
  if (std::any_of(packets.begin(), packets.end(),
                  [](const Packet& p) { return p.bytes > 66000; })) {
    // Measured where the sender cuts them: a router drops some over IPv6, of
    // which it takes the jumbo payload option for a header of each segment.
    LinkSetup setup;
    setup.offload = false;
    setup.gso_packets = true;
    lab().Configure(setup);
    RunAndExpect(plan);
  } else {
    Measurement::NotOnThisKernel(
        "IFLA_GSO_MAX_SIZE of " + std::to_string(kMaxSize) +
        ": set, but this family has no larger GSO packet");
  }
  World::ForgetLabs();  // with this size
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
