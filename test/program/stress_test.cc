// SPDX-License-Identifier: BSD-3-Clause
// Adds that are not atomic (bpf/add.bpf.h), under stress: TCP connections of one series
// on each CPU. Threads send on some as fast as they can. Others are paced: a timer's
// interrupt lets their next segment go, in a softirq, at any moment of the threads' work.
// The programs are a build that takes a microsecond between the load and the store of
// each word. Beside them the normal build counts the packets, too, by atomic adds. The
// sums are equal to the byte; with a build without the guard they are not.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/unique_fd.h"
#include "lib/loader/object.h"
#include "lib/testing/net_namespace.h"
#include "stressed.skel.h"
#include "test/program/fixture.h"
#include "test/program/sandbox.h"
#include "unguarded.skel.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kConnectionsPerCpu = 6;  // half of them paced
constexpr uint32_t kPacedBytesPerSecond = 1000000;
constexpr uint16_t kPort = 5001;
constexpr int kRounds = 60;
constexpr std::chrono::milliseconds kDuration(700);

// Two network namespaces with a link between them.
class Link {
 public:
  // Moves the calling thread to the client's.
  Link() {
    Join({&client_, "nm0", MacAddress(1), {Address("10.99.0.1")}},
         {&server_, "nm1", MacAddress(2), {server_address_}});
    server_.Run([this] {
      listener_ = UniqueFd(
          Check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
      const sockaddr_storage address = server_address_.WithPort(kPort);
      Check(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address),
                 Address::Length(address)),
            "bind");
      Check(listen(listener_.get(), 100), "listen");
    });
    client_.Enter();
  }

  // A connection over the link: the client's end, and the server's.
  std::pair<UniqueFd, UniqueFd> Connect(bool paced) const {
    UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_storage address = server_address_.WithPort(kPort);
    const int on = 1;
    EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address),
                      Address::Length(address)),
              0);
    UniqueFd server(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(server.ok());
    setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (paced) {
      EXPECT_EQ(setsockopt(client.get(), SOL_SOCKET, SO_MAX_PACING_RATE,
                           &kPacedBytesPerSecond, sizeof(kPacedBytesPerSecond)),
                0);
    }
    return {std::move(client), std::move(server)};
  }

 private:
  const Address server_address_{"10.99.0.2"};
  NetNamespace client_, server_;
  UniqueFd listener_;
};

// Sends in small pieces, so as to be in the program most of the time.
void Send(int fd, const std::atomic<bool>* stop) {
  const std::string data(200, 'x');
  while (!*stop && send(fd, data.data(), data.size(), MSG_NOSIGNAL) > 0) {
  }
  shutdown(fd, SHUT_WR);
}

void Receive(int fd) {
  std::string buffer(65536, '\0');
  while (recv(fd, &buffer[0], buffer.size(), 0) > 0) {
  }
}

struct Sum {
  uint64_t tx_bytes = 0, rx_bytes = 0, tx_packets = 0, rx_packets = 0;
  uint64_t tx_payload = 0, rx_payload = 0, tx_retransmit = 0;
  uint64_t shared = 0;  // tx_packets of the shared cells

  bool operator==(const Sum& other) const {
    return tx_bytes == other.tx_bytes && rx_bytes == other.rx_bytes &&
           tx_packets == other.tx_packets && rx_packets == other.rx_packets &&
           tx_payload == other.tx_payload && rx_payload == other.rx_payload &&
           tx_retransmit == other.tx_retransmit;
  }
};

Sum SumOf(const Programs& programs) {
  Sum sum;
  for (const auto& entry : programs.ReadCounters()) {
    const nm_cell& cell = entry.second;
    sum.tx_bytes += cell.tx_bytes;
    sum.rx_bytes += cell.rx_bytes;
    sum.tx_packets += cell.tx_packets;
    sum.rx_packets += cell.rx_packets;
    sum.tx_payload += cell.tx_payload_bytes;
    sum.rx_payload += cell.rx_payload_bytes;
    sum.tx_retransmit += cell.tx_retransmit_bytes;
    const uint32_t shared = (entry.first + 1) * programs.cells_per_series() - 1;
    nm_cell value = {};
    bpf_map__lookup_elem(programs.skeleton()->maps.nm_counters, &shared,
                         sizeof(shared), &value, sizeof(value), 0);
    sum.shared += value.tx_packets;
  }
  return sum;
}

void PrintTo(const Sum& sum, std::ostream* out) {
  *out << "tx " << sum.tx_packets << " packets, " << sum.tx_bytes << " bytes, "
       << sum.tx_payload << " of payload, " << sum.tx_retransmit
       << " again; rx " << sum.rx_packets << " packets, " << sum.rx_bytes
       << " bytes, " << sum.rx_payload << " of payload";
}

class Stress : public testing::Test {
 protected:
  static void SetUpTestSuite() { link_ = new Link; }
  static void TearDownTestSuite() {
    delete link_;
    link_ = nullptr;
  }

  void SetUp() override {
    std::string error;
    cgroup_ = OwnCgroup::Make("nm-stress", &error);
    ASSERT_NE(cgroup_, nullptr) << error;
    ASSERT_TRUE(cgroup_->Enter(&error)) << error;
  }

  std::unique_ptr<Programs> LoadAndAttach(nm_adds egress,
                                          absl::string_view elf) {
    const Adds adds = {
        egress == NM_ADDS_ATOMIC || ReadPreemption().value().realtime
            ? NM_ADDS_ATOMIC
            : NM_ADDS_PLAIN,
        egress};
    ProgramOptions options;
    options.adds = &adds;
    options.elf = elf;
    options.socket_hooks = true;
    std::unique_ptr<Programs> programs = LoadOrFail(options);
    std::string error;
    if (programs != nullptr) {
      EXPECT_TRUE(programs->AttachSocketHooks(cgroup_->fd(), &error)) << error;
      EXPECT_TRUE(programs->AttachPacketHooks(cgroup_->fd(), &error)) << error;
    }
    return programs;
  }

  // Traffic on every CPU.
  static void Load() {
    std::atomic<bool> stop{false};
    std::vector<std::pair<UniqueFd, UniqueFd>> connections;
    std::vector<std::thread> threads;
    for (int cpu : AllowedCpus()) {
      for (int i = 0; i < kConnectionsPerCpu; ++i) {
        connections.push_back(link_->Connect(i % 2 == 0));
        const int client = connections.back().first.get();
        const int server = connections.back().second.get();
        threads.emplace_back([cpu, client, &stop] {
          PinToCpu(cpu);
          Send(client, &stop);
        });
        threads.emplace_back([cpu, server] {
          PinToCpu(cpu);
          Receive(server);
        });
      }
    }
    std::this_thread::sleep_for(kDuration);
    stop = true;
    for (std::thread& thread : threads) thread.join();
  }

  // What the stressed programs counted, and what there was; in up to kRounds
  // rounds, until there has been what the case is about: one is enough, but on
  // an emulated machine.
  std::pair<Sum, Sum> Run(nm_adds adds, absl::string_view elf,
                          bool (*is_enough)(const Sum&, const Sum&)) {
    const std::unique_ptr<Programs> stressed = LoadAndAttach(adds, elf);
    const std::unique_ptr<Programs> exact = LoadAndAttach(NM_ADDS_ATOMIC, "");
    if (stressed == nullptr || exact == nullptr) return {};
    std::pair<Sum, Sum> sums, last;
    for (int round = 0; round < kRounds && !is_enough(sums.first, sums.second);
         ++round) {
      Load();
      // The last acknowledgements are on their way.
      do {
        last = sums;
        usleep(50000);
        sums = {SumOf(*stressed), SumOf(*exact)};
      } while (!(sums.first == last.first && sums.second == last.second));
    }
    EXPECT_GT(sums.second.tx_packets, 500u);
    printf(
        "%-8s %8llu packets sent, %6llu of them to shared cells, %lld lost\n",
        NameOf(adds), static_cast<unsigned long long>(sums.second.tx_packets),
        static_cast<unsigned long long>(sums.first.shared),
        static_cast<long long>(sums.second.tx_packets - sums.first.tx_packets));
    return sums;
  }

  static absl::string_view Stressed() {
    size_t size = 0;
    const void* bytes = stressed_bpf__elf_bytes(&size);
    return {static_cast<const char*>(bytes), size};
  }
  static absl::string_view Unguarded() {
    size_t size = 0;
    const void* bytes = unguarded_bpf__elf_bytes(&size);
    return {static_cast<const char*>(bytes), size};
  }

  // The ways that are exact on this kernel, except for atomic adds.
  static std::vector<nm_adds> Ways() {
    const Preemption preemption = ReadPreemption().value();
    std::vector<nm_adds> ways;
    if (ChooseAdds(preemption).egress == NM_ADDS_PLAIN) {
      ways.push_back(NM_ADDS_PLAIN);
    }
    if (preemption.has_exchange) ways.push_back(NM_ADDS_CLAIMED);
    return ways;
  }

  static Link* link_;
  std::unique_ptr<OwnCgroup> cgroup_;
};

Link* Stress::link_ = nullptr;

TEST_F(Stress, NothingIsLost) {
  for (nm_adds adds : Ways()) {
    SCOPED_TRACE(NameOf(adds));
    const std::pair<Sum, Sum> sums = Run(
        adds, Stressed(),
        [](const Sum& stressed, const Sum&) { return stressed.shared != 0; });
    EXPECT_EQ(sums.first, sums.second);
    EXPECT_GT(sums.first.shared, 0u) << "no softirq came in between";
  }
}

// Were it not so, the test above would show nothing.
TEST_F(Stress, WithoutTheGuardPacketsAreLost) {
  ASSERT_FALSE(Ways().empty());
  const std::pair<Sum, Sum> sums = Run(
      Ways().front(), Unguarded(), [](const Sum& stressed, const Sum& exact) {
        return stressed.tx_packets != exact.tx_packets;
      });
  EXPECT_LT(sums.first.tx_packets, sums.second.tx_packets);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
