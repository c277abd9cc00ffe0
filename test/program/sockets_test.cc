// SPDX-License-Identifier: BSD-3-Clause
// Full tables, with real sockets: the programs are attached to a cgroup of the
// test's own, and its packets go over loopback to proxy ports, so that they
// are counted. Whatever is full, every byte is counted once.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/testing/await.h"
#include "lib/testing/net_namespace.h"
#include "test/program/fixture.h"
#include "test/program/sandbox.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint16_t kPorts[] = {8771, 8772, 8773};
constexpr size_t kUdpHeaders = 20 + 8;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class Sockets : public testing::Test {
 protected:
  void Start(ProgramOptions options) {
    options.socket_hooks = true;
    options.proxy_ports.assign(std::begin(kPorts), std::end(kPorts));
    programs_ = LoadOrFail(options);
    ASSERT_NE(programs_, nullptr);
    std::string error;
    cgroup_ = OwnCgroup::Make("nm-program-test", &error);
    ASSERT_NE(cgroup_, nullptr) << error;
    // Outside of the cgroup: it sees everything, and is not counted.
    sink_ = Udp();
    const sockaddr_in address = Loopback(kPorts[0]);
    ASSERT_EQ(bind(sink_.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    ASSERT_TRUE(programs_->AttachSocketHooks(cgroup_->fd(), &error)) << error;
    ASSERT_TRUE(programs_->AttachPacketHooks(cgroup_->fd(), &error)) << error;
    ASSERT_TRUE(cgroup_->Enter(&error)) << error;
  }

  void TearDown() override {
    if (cgroup_ != nullptr) cgroup_->Leave();
  }

  static uint64_t CookieOf(const UniqueFd& fd) {
    uint64_t cookie = 0;
    socklen_t size = sizeof(cookie);
    getsockopt(fd.get(), SOL_SOCKET, SO_COOKIE, &cookie, &size);
    return cookie;
  }

  static UniqueFd Udp() {
    return UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  }

  // A TCP socket that listens; without a descriptor, and with errno, if it cannot.
  static UniqueFd Listen(uint16_t port, int backlog, int flags = 0) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
    const sockaddr_in address = Loopback(port);
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool listens =
        bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
             sizeof(address)) == 0 &&
        listen(fd.get(), backlog) == 0;
    return listens ? std::move(fd) : UniqueFd();
  }

  // Sends and adds to what has to be counted.
  void SendTo(const UniqueFd& from, size_t size) {
    const sockaddr_in address = Loopback(kPorts[0]);
    const std::string data(size, 'u');
    ASSERT_EQ(
        sendto(from.get(), data.data(), size, 0,
               reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        static_cast<ssize_t>(size));
    bytes_ += size + kUdpHeaders;
    packets_ += 1;
    payload_ += size;
  }

  static bool Register(const std::string& name) {
    const UniqueFd fd = Udp();
    return setsockopt(fd.get(), NM_SOL, NM_REGISTER, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
  }

  nm_cell Sum() const {
    nm_cell sum = {};
    for (const auto& entry : programs_->ReadCounters()) {
      const nm_cell& cell = entry.second;
      sum.tx_bytes += cell.tx_bytes;
      sum.tx_packets += cell.tx_packets;
      sum.tx_payload_bytes += cell.tx_payload_bytes;
      sum.rx_payload_bytes += cell.rx_payload_bytes;
      sum.tx_retransmit_bytes += cell.tx_retransmit_bytes;
    }
    return sum;
  }

  void ExpectAllUdpCounted() const {
    const nm_cell sum = Sum();
    EXPECT_EQ(sum.tx_bytes, bytes_);
    EXPECT_EQ(sum.tx_packets, packets_);
    EXPECT_EQ(sum.tx_payload_bytes, payload_);
  }

  uint64_t BytesOfKind(nm_kind kind) const {
    uint64_t bytes = 0;
    for (const auto& entry : programs_->ReadCounters()) {
      if (entry.second.kind == kind) bytes += entry.second.tx_bytes;
    }
    return bytes;
  }

  // The sum of all series.
  nm_tcp Connections() const {
    nm_tcp sum = {};
    for (const auto& entry : programs_->ReadCounters()) {
      nm_tcp tcp = {};
      EXPECT_EQ(
          bpf_map_lookup_elem(bpf_map__fd(programs_->skeleton()->maps.nm_tcp),
                              &entry.first, &tcp),
          0);
      sum.opened += tcp.opened;
      sum.accepted += tcp.accepted;
      sum.closed += tcp.closed;
      sum.resets_sent += tcp.resets_sent;
    }
    return sum;
  }

  // Listens 20,000 times while SYNs come from another CPU, and until more than 1,000 were
  // answered, does something with the listener and closes it: none of the answers'
  // numbers are its own.
  void ListenUnderSyns(const std::function<void(int)>& with_listener) {
    const std::vector<int> cpus = AllowedCpus();
    const sockaddr_in address = Loopback(kPorts[2]);
    const auto* const name = reinterpret_cast<const sockaddr*>(&address);
    std::atomic<bool> stop{false};
    std::thread client([&] {
      PinToCpu(cpus.back());
      const linger at_once = {1, 0};
      while (!stop) {
        const UniqueFd fd(
            socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        connect(fd.get(), name, sizeof(address));
      }
    });
    PinToCpu(cpus.front());
    int listened = 0;
    while (listened < 20000 ||
           (listened < 1000000 && Sum().tx_packets <= 1000)) {
      const UniqueFd fd = Listen(kPorts[2], 100, SOCK_NONBLOCK);
      if (!fd.ok()) break;
      ++listened;
      with_listener(fd.get());
    }
    stop = true;
    client.join();
    ASSERT_GE(listened, 20000) << strerror(errno);
    const nm_cell sum = Sum();
    EXPECT_GT(sum.tx_packets, 1000u);
    EXPECT_EQ(sum.rx_payload_bytes, 0u);
    EXPECT_EQ(sum.tx_payload_bytes, 0u);
  }

  // Uploads over a TCP connection inside of the cgroup, to its end; the two ends are on
  // two CPUs if there are two.
  void Upload(uint16_t port, size_t size) {
    const UniqueFd listener = Listen(port, 1);
    ASSERT_TRUE(listener.ok()) << strerror(errno);
    const sockaddr_in address = Loopback(port);
    const std::vector<int> cpus = AllowedCpus();
    std::thread reader([&] {
      PinToCpu(cpus.back());
      const UniqueFd fd(
          accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::vector<char> buffer(65536);
      size_t got = 0;
      ssize_t more;
      while ((more = read(fd.get(), buffer.data(), buffer.size())) > 0) {
        got += static_cast<size_t>(more);
      }
      EXPECT_EQ(got, size);
    });
    std::thread writer([&] {
      PinToCpu(cpus.front());
      const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                        sizeof(address)),
                0);
      const std::string data(size, 't');
      size_t sent = 0;
      while (sent < size) {
        const ssize_t more =
            send(fd.get(), data.data() + sent, size - sent, MSG_NOSIGNAL);
        if (more <= 0) break;
        sent += static_cast<size_t>(more);
      }
      EXPECT_EQ(sent, size);
    });
    writer.join();
    reader.join();
  }

  std::unique_ptr<Programs> programs_;
  std::unique_ptr<OwnCgroup> cgroup_;
  UniqueFd sink_;
  uint64_t bytes_ = 0, packets_ = 0, payload_ = 0;
};

TEST_F(Sockets, AllCollideInATableOfOne) {
  ProgramOptions options;
  options.max_sockets = 1;
  Start(options);
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 8; ++i) sockets.push_back(Udp());
  for (int round = 0; round < 3; ++round) {
    for (const UniqueFd& fd : sockets) SendTo(fd, 100);
  }
  ExpectAllUdpCounted();
  nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.sockets_claimed, 1u);
  EXPECT_EQ(stats.socket_collisions, 7u);
  EXPECT_EQ(stats.unowned_sockets, 0u);
  // All of one process: one series.
  EXPECT_EQ(programs_->ReadCounters().size(), 1u);

  // The entry of the first becomes free for a new one; those that have begun
  // in storage stay there.
  sockets.erase(sockets.begin());
  EXPECT_EQ(programs_->ReadStats().sockets_freed, 1u);
  for (const UniqueFd& fd : sockets) SendTo(fd, 50);
  EXPECT_EQ(programs_->ReadStats().sockets_claimed, 1u);
  const UniqueFd next = Udp();
  SendTo(next, 70);
  ExpectAllUdpCounted();
  stats = programs_->ReadStats();
  EXPECT_EQ(stats.sockets_claimed, 2u);
  EXPECT_EQ(stats.socket_collisions, 7u);
}

// Half a table away from its first entry, a socket has a second one.
TEST_F(Sockets, TwoWithTheSameFirstEntryAreBothInTheTable) {
  ProgramOptions options;
  options.max_sockets = 8;
  Start(options);
  std::vector<UniqueFd> all, same;
  while (same.size() < 3) {
    all.push_back(Udp());
    if (CookieOf(all.back()) % 8 == 5) same.push_back(std::move(all.back()));
  }
  for (int round = 0; round < 2; ++round) {
    for (const UniqueFd& fd : same) SendTo(fd, 100);
  }
  ExpectAllUdpCounted();
  EXPECT_EQ(programs_->ReadStats().socket_collisions, 1u);
  EXPECT_EQ(programs_->ReadSocket(5).word >> 16, CookieOf(same[0]));
  EXPECT_EQ(programs_->ReadSocket(1).word >> 16, CookieOf(same[1]));
  // The second one is found there again, and given back.
  same.erase(same.begin());
  SendTo(same[0], 100);
  same.clear();
  ExpectAllUdpCounted();
  const nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.sockets_claimed, 2u);
  EXPECT_EQ(stats.sockets_freed, 2u);
  EXPECT_EQ(programs_->ReadSocket(1).word, 0u);
}

// Two CPUs may claim both entries for one UDP socket. A tag reached the first one only,
// and the packets went on to count in the series of the other.
TEST_F(Sockets, ATagReachesBothEntries) {
  ProgramOptions options;
  options.max_sockets = 4;
  Start(options);
  const UniqueFd fd = Udp();
  const uint64_t cookie = CookieOf(fd);
  SendTo(fd, 100);
  const nm_socket first = programs_->ReadSocket(cookie % 4);
  ASSERT_EQ(first.word >> 16, cookie);
  ASSERT_NE(first.word & 0xffff, 0u);
  ASSERT_TRUE(programs_->WriteSocket((cookie + 2) % 4, first));
  ASSERT_EQ(setsockopt(fd.get(), NM_SOL, NM_TAG, "tag", 3), 0);
  for (const uint64_t index : {cookie, cookie + 2}) {
    EXPECT_EQ(programs_->ReadSocket(index % 4).word, cookie << 16);
  }
}

TEST_F(Sockets, EntriesAreGivenBackAndUsedAgain) {
  ProgramOptions options;
  options.max_sockets = 2;
  Start(options);
  for (int i = 0; i < 200; ++i) {
    const UniqueFd fd = Udp();
    SendTo(fd, 10);
    SendTo(fd, 20);
  }
  ExpectAllUdpCounted();
  const nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.sockets_claimed, 200u);
  EXPECT_EQ(stats.sockets_freed, 200u);
  EXPECT_EQ(stats.socket_collisions, 0u);
  EXPECT_EQ(programs_->ReadSocket(0).word, 0u);
  EXPECT_EQ(programs_->ReadSocket(1).word, 0u);
}

// A connection in the table and one in socket storage count alike.
TEST_F(Sockets, ConnectionCountsThePayloadExactlyInTableAndStorage) {
  ProgramOptions options;
  options.max_sockets = 1;
  Start(options);
  constexpr size_t kSize = 3000000;
  for (const bool taken : {false, true}) {
    SCOPED_TRACE(taken ? "storage" : "table");
    const UniqueFd hog = Udp();
    if (taken) SendTo(hog, 1);
    const nm_cell before = Sum();
    const nm_stats stats = programs_->ReadStats();
    Upload(kPorts[taken ? 1 : 2], kSize);
    const nm_cell after = Sum();
    EXPECT_EQ(after.tx_payload_bytes - before.tx_payload_bytes, kSize);
    EXPECT_EQ(after.rx_payload_bytes - before.rx_payload_bytes, kSize);
    EXPECT_EQ(programs_->ReadStats().sockets_claimed != stats.sockets_claimed,
              !taken);
  }
}

// A service's connection to a proxy is pending until it has named its
// destination. One that never does is settled all the same, in table and in
// storage.
//
// A bug was found here. The head of a cell is written by the CPU that uses it
// first. A packet received on a CPU that had not seen the pending series found
// the service's own instead, and led the rest of the connection there, which
// was pending, and so in the end moved there a second time: the service had too
// much, and pending was below zero.
TEST_F(Sockets, ConnectionWithoutANameLeavesNothingPending) {
  ProgramOptions options;
  options.max_sockets = 1;
  Start(options);
  ASSERT_TRUE(Register("nameless"));
  uint64_t sent = 0;
  for (const bool taken : {false, true}) {
    SCOPED_TRACE(taken ? "storage" : "table");
    const UniqueFd hog = Udp();
    if (taken) SendTo(hog, 1);
    // Nothing, and bytes that are not HTTP/2.
    for (const size_t size : {size_t{0}, size_t{7}, size_t{1000000}}) {
      Upload(kPorts[1], size);
      sent += size;
    }
  }
  // A client's socket may end by a softirq, after its threads.
  nm_stats stats = {};
  uint64_t pending = 0;
  Await([&] {
    stats = programs_->ReadStats();
    pending = BytesOfKind(NM_KIND_PENDING);
    return stats.connections_unnamed == 6 && pending == 0;
  });
  EXPECT_EQ(stats.connections_unnamed, 6u);
  EXPECT_EQ(stats.connections_named, 0u);
  EXPECT_EQ(pending, 0u);
  const nm_cell sum = Sum();
  EXPECT_EQ(sum.tx_payload_bytes, sent + payload_);
  EXPECT_EQ(sum.rx_payload_bytes, sent);
  EXPECT_EQ(BytesOfKind(NM_KIND_SERVICE), sum.tx_bytes);
}

TEST_F(Sockets, FullTableOfSeriesIsOverflow) {
  ProgramOptions options;
  options.max_series = NM_SLOT_FIRST + 1;  // room for one
  Start(options);
  ASSERT_TRUE(Register("first"));
  const UniqueFd first = Udp();
  SendTo(first, 100);
  EXPECT_EQ(programs_->ReadStats().series_full, 0u);
  ASSERT_TRUE(Register("second"));
  const UniqueFd second = Udp();
  for (int i = 0; i < 5; ++i) SendTo(second, 200);
  SendTo(first, 100);
  ExpectAllUdpCounted();
  EXPECT_EQ(BytesOfKind(NM_KIND_SERVICE), 2 * (100 + kUdpHeaders));
  EXPECT_EQ(BytesOfKind(NM_KIND_OVERFLOW), 5 * (200 + kUdpHeaders));
  const nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.slots_allocated, 1u);
  EXPECT_EQ(stats.series_used, 1u);
  EXPECT_GE(stats.series_full, 1u);
  const Counters counters = programs_->ReadCounters();
  const auto overflow = counters.find(
      NM_SLOT_RESERVED(NM_NAME_OVERFLOW, NM_TRANSPORT_UDP, NM_PATH_PROXY));
  ASSERT_NE(overflow, counters.end());
  EXPECT_EQ(overflow->second.service, NM_NAME_OVERFLOW);
  EXPECT_EQ(overflow->second.destination, NM_NAME_EMPTY);
  EXPECT_EQ(overflow->second.flags, 0);
}

TEST_F(Sockets, FullTableOfNamesRefusesARegistration) {
  ProgramOptions options;
  // One for this executable, whose socket asks, and one to be registered.
  options.max_names = NM_NAME_FIRST + 2;
  Start(options);
  ASSERT_TRUE(Register("first"));
  errno = 0;
  EXPECT_FALSE(Register("second"));
  EXPECT_EQ(errno, EPERM);
  ASSERT_TRUE(Register("first")) << "that name has its id";
  const nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.registrations, 2u);
  EXPECT_EQ(stats.refused_controls, 1u);
  EXPECT_GE(stats.names_full, 1u);
}

TEST_F(Sockets, ProcessWithoutRoomForItsNameIsOverflow) {
  ProgramOptions options;
  options.max_names = NM_NAME_FIRST;
  Start(options);
  const UniqueFd fd = Udp();
  for (int i = 0; i < 3; ++i) SendTo(fd, 100);
  ExpectAllUdpCounted();
  EXPECT_EQ(BytesOfKind(NM_KIND_OVERFLOW), bytes_);
  EXPECT_GE(programs_->ReadStats().names_full, 1u);
}

// The process had the name of its main thread, which a process chooses itself: a local
// user who filled the table had any name.
TEST_F(Sockets, FullTableOfProcessesStillNamesThem) {
  ProgramOptions options;
  options.max_processes = 1;
  Start(options);
  const uint32_t other = 1;
  nm_process value = {};
  value.kind = NM_KIND_BINARY;
  ASSERT_EQ(
      bpf_map__update_elem(programs_->skeleton()->maps.nm_processes, &other,
                           sizeof(other), &value, sizeof(value), BPF_ANY),
      0);
  char thread[16] = "";
  prctl(PR_GET_NAME, thread);
  prctl(PR_SET_NAME, "chosen");
  const UniqueFd fd = Udp();
  SendTo(fd, 100);
  prctl(PR_SET_NAME, thread);
  ExpectAllUdpCounted();
  EXPECT_EQ(BytesOfKind(NM_KIND_BINARY), bytes_);
  EXPECT_GE(programs_->ReadStats().processes_full, 1u);
  // The first name that there is.
  nm_name name = {};
  const uint32_t id = NM_NAME_FIRST;
  ASSERT_EQ(bpf_map__lookup_elem(programs_->skeleton()->maps.nm_names, &id,
                                 sizeof(id), &name, sizeof(name), 0),
            0);
  const std::string named(reinterpret_cast<const char*>(name.bytes),
                          name.length);
  char path[4096] = "";
  ASSERT_GT(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
  const std::string exe = path;
  EXPECT_EQ(named, exe.substr(exe.rfind('/') + 1));
}

// The bug: a packet that had found a socket open took an entry of the table for it, after
// the socket had closed on another CPU. Nobody freed that, and a user could fill the
// table so for good.
TEST_F(Sockets, WhatClosesWhileItReceivesLeavesNoEntry) {
  Start({});
  const std::vector<int> cpus = AllowedCpus();
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    PinToCpu(cpus.back());
    const sockaddr_in address = Loopback(kPorts[1]);
    while (!stop) {
      sendto(sink_.get(), "x", 1, 0,
             reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    }
  });
  PinToCpu(cpus.front());
  const sockaddr_in address = Loopback(kPorts[1]);
  for (int i = 0; i < 100000; ++i) {
    const UniqueFd fd = Udp();
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
  }
  stop = true;
  sender.join();
  const nm_stats stats = programs_->ReadStats();
  EXPECT_GT(stats.sockets_claimed, 0u);
  EXPECT_EQ(stats.sockets_claimed, stats.sockets_freed);
}

// The bug: one that closed and connected again at once took such numbers for those of
// its connection.
TEST_F(Sockets, AListenerThatConnectsUnderSynsHasNoNumbersOfRequests) {
  Start({});
  const sockaddr_in full = Loopback(kPorts[1]);
  const auto* const busy = reinterpret_cast<const sockaddr*>(&full);
  // It accepts nothing: a client that connects to it waits.
  const UniqueFd backlog = Listen(kPorts[1], 0);
  ASSERT_TRUE(backlog.ok()) << strerror(errno);
  const UniqueFd first(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(first.get(), busy, sizeof(full)), 0);
  ListenUnderSyns([&](int listener) {
    shutdown(listener, SHUT_RDWR);
    connect(listener, busy, sizeof(full));
  });
}

// The bug: if the server's first packet after the handshake was a RST, the peer's FIN
// that it acknowledged counted as a byte of payload.
TEST_F(Sockets, AFinIsNoPayloadThoughAResetAcknowledgesIt) {
  Start({});
  const UniqueFd listener = Listen(kPorts[2], 1);
  ASSERT_TRUE(listener.ok()) << strerror(errno);
  const sockaddr_in address = Loopback(kPorts[2]);
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  for (int i = 0; i < 20; ++i) {
    const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(client.get(), name, sizeof(address)), 0);
    UniqueFd server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(server.ok());
    // In one segment, whose acknowledgement the server delays.
    const std::string data(100, 'x');
    ASSERT_EQ(send(client.get(), data.data(), data.size(), MSG_MORE), 100);
    ASSERT_EQ(shutdown(client.get(), SHUT_WR), 0);
    const linger at_once = {1, 0};
    setsockopt(server.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    server = UniqueFd();
  }
  const nm_cell sum = Sum();
  EXPECT_EQ(sum.tx_payload_bytes, 20u * 100);
  EXPECT_EQ(sum.rx_payload_bytes, 20u * 100);
  // Each of them, at either end. The bug: the server's was never closed.
  nm_tcp seen = {};
  // The client's end comes with the RST, by a softirq.
  Await([&] {
    seen = Connections();
    return seen.closed >= 40;
  });
  EXPECT_EQ(seen.opened + seen.accepted, 2u * 20);
  EXPECT_EQ(seen.closed, 2u * 20);
}

// close(2) may send a RST after TCP has ended. By then another socket may have the entry
// of the table.
TEST_F(Sockets, AResetIsItsOwnersThoughAnotherSocketHasTheEntry) {
  ProgramOptions options;
  options.max_sockets = 1;
  options.destination_kinds =
      0;  // pending ones would keep their owner in storage
  Start(options);
  const UniqueFd listener = Listen(kPorts[2], 1000);
  ASSERT_TRUE(listener.ok()) << strerror(errno);
  const sockaddr_in address = Loopback(kPorts[2]);
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  const std::vector<int> cpus = AllowedCpus();
  std::atomic<bool> stop{false};
  std::thread acceptor([&] {
    while (!stop) {
      pollfd ready = {listener.get(), POLLIN, 0};
      if (poll(&ready, 1, 10) == 1) {
        UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      }
    }
  });
  std::vector<std::thread> clients;
  for (const int cpu : {cpus.front(), cpus.back()}) {
    clients.emplace_back([&, cpu] {
      PinToCpu(cpu);
      const linger at_once = {1, 0};
      for (int i = 0; i < 30000; ++i) {
        const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        EXPECT_EQ(connect(fd.get(), name, sizeof(address)), 0);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  stop = true;
  acceptor.join();
  EXPECT_EQ(BytesOfKind(NM_KIND_UNATTRIBUTED), 0u);
  EXPECT_EQ(Connections().resets_sent, 60000u);
  const nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.unowned_sockets, 0u);
  EXPECT_GT(stats.sockets_claimed, 1000u);
  EXPECT_GT(stats.socket_collisions, 1000u);
}

// A program beside ours, first of its type.
class Foreign {
 public:
  Foreign(bpf_prog_type type, bpf_attach_type hook, int cgroup,
          const std::vector<bpf_insn>& code)
      : hook_(hook), cgroup_(cgroup) {
    bpf_prog_load_opts options = {};
    options.sz = sizeof(options);
    options.expected_attach_type = hook;
    program_ = UniqueFd(bpf_prog_load(type, "foreign", "GPL", code.data(),
                                      code.size(), &options));
    EXPECT_EQ(bpf_prog_attach(program_.get(), cgroup, hook, BPF_F_ALLOW_MULTI),
              0)
        << strerror(errno);
  }
  ~Foreign() { bpf_prog_detach2(program_.get(), cgroup_, hook_); }

 private:
  const bpf_attach_type hook_;
  const int cgroup_;
  UniqueFd program_;
};

// The bug: its entry was given back twice, by close(2) and then by a STATE_CB for which
// we had not asked.
TEST_F(Sockets, AnEntryIsGivenBackOnceThoughAnotherProgramAsksForTheEnd) {
  Start({});
  const Foreign asks(
      BPF_PROG_TYPE_SOCK_OPS, BPF_CGROUP_SOCK_OPS, cgroup_->fd(),
      {{BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0,
        BPF_SOCK_OPS_STATE_CB_FLAG},
       {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_sock_ops_cb_flags_set},
       {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
       {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}});
  for (int i = 0; i < 5; ++i) {
    const UniqueFd listener = Listen(8779, 1);
    ASSERT_TRUE(listener.ok()) << strerror(errno);
    const sockaddr_in address = Loopback(8779);
    const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof(address)),
              0);
    const UniqueFd server(
        accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_EQ(write(server.get(), "unread", 6), 6);
  }
  const nm_stats stats = programs_->ReadStats();
  EXPECT_GE(stats.sockets_claimed, 5u);
  EXPECT_EQ(stats.sockets_claimed, stats.sockets_freed);
}

// The bug: a socket that another program refused kept its entry for good.
TEST_F(Sockets, ARefusedSocketLeavesNoEntry) {
  if (!KernelAtLeast(6, 2)) GTEST_SKIP() << "no bpf_get_retval()";
  Start({});
  programs_->Detach();
  const Foreign refuses(BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE,
                        cgroup_->fd(),
                        {{BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0},
                         {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}});
  std::string error;
  ASSERT_TRUE(programs_->AttachSocketHooks(cgroup_->fd(), &error)) << error;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), -1);
  }
  const nm_stats stats = programs_->ReadStats();
  EXPECT_EQ(stats.sockets_claimed, stats.sockets_freed);
}

// The second meter on a cgroup sees a call that the first one took: its length is
// -1 then, and the name ends with its NUL. What stands after that in the kernel's
// buffer, the end of a longer name here, became part of the key.
TEST_F(Sockets, ANameThatAnotherMeterTookIsTheSame) {
  Start({});
  ProgramOptions options;
  options.socket_hooks = true;
  const std::unique_ptr<Programs> other = LoadOrFail(options);
  ASSERT_NE(other, nullptr);
  std::string error;
  ASSERT_TRUE(other->AttachSocketHooks(cgroup_->fd(), &error)) << error;
  const std::string names[] = {"a",  std::string(31, 'b'), "c",
                               "dd", std::string(64, 'e'), "f"};
  for (const std::string& name : names) {
    ASSERT_TRUE(Register(name));
  }
  for (const Programs* programs : {programs_.get(), other.get()}) {
    const nm_stats stats = programs->ReadStats();
    EXPECT_EQ(stats.registrations, std::size(names));
    EXPECT_EQ(stats.refused_controls, 0u);
    for (const std::string& name : names) {
      nm_name_key key = {};
      key.kind = NM_KIND_SERVICE;
      key.length = static_cast<uint16_t>(name.size());
      std::memcpy(key.bytes, name.data(), name.size());
      uint32_t id = 0;
      EXPECT_EQ(bpf_map__lookup_elem(programs->skeleton()->maps.nm_name_ids,
                                     &key, sizeof(key), &id, sizeof(id), 0),
                0)
          << name;
    }
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
