// SPDX-License-Identifier: BSD-3-Clause
// Whose bytes they are: the executable's, or the service's, and never a
// thread's.

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "netmeter/abi.h"
#include "test/live/actor.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kConfig[] =
    "services: [nm-listed, nm-mme, nm-listed-by-descriptor]\n"
    "aliases:\n"
    "  nm-oai-mme: nm-mme\n"
    "destinations:\n"
    "  - {name: one, address: 10.77.3.2/32, protocol: udp}\n"
    "  - {name: two, address: 10.77.3.3/32, port: 9000-9001}\n"
    "  - {name: rest4, address: 10.77.3.0/24}\n"
    "  - {name: six, address: 'fd77:3::2/128', protocol: udp}\n"
    "  - {name: rest6, address: 'fd77:3::/64'}\n";

class NamesTest : public FamilyTest {
 protected:
  static void SetUpTestSuite() { meter_ = new MeteredCgroup("named", kConfig); }
  static void TearDownTestSuite() {
    delete meter_;
    meter_ = nullptr;
  }

  void SetUp() override {
    FamilyTest::SetUp();
    sink_ = StartSink();
    for (const Sample& sample : meter_->Samples()) before_.insert(sample.name);
  }
  void TearDown() override {
    sink_.reset();
    FamilyTest::TearDown();
  }

  // Runs a copy of this program, of the given name, in the client's cgroup.
  void Act(const std::string& name, const std::vector<std::string>& script) {
    const std::string path = CopyOfActor(name);
    Child child(meter_->cgroup(), lab().client,
                [&](Child::Parent&) { ExecActor(path, script); });
    child.Join();
  }

  // Acts by a descriptor, which is closed.
  void ActBy(ExecBy by, int fd, const std::string& action) {
    Check(fd, "open");
    RunChild(meter_->cgroup(), lab().client,
             [&] { ExecActor(fd, by, {action}); });
    close(fd);
  }

  // "udp=..." of count datagrams of 100 bytes to the server's n-th address.
  static std::string Udp(int count, int number = 0) {
    return "udp=" +
           (v4() ? "10.77.3." + std::to_string(2 + number)
                 : "fd77:3::" + std::to_string(2 + number)) +
           "/9000/" + std::to_string(count) + "/100";
  }

  int64_t Payload(Kind kind, const std::string& name,
                  const char* destination = nullptr) {
    return meter_->TotalOf(kind, name, destination).tx_payload;
  }

  // Names that were not there before this test.
  std::set<std::string> NewNames() {
    std::set<std::string> names;
    for (const Sample& sample : meter_->Samples())
      if (before_.count(sample.name) == 0) names.insert(sample.name);
    return names;
  }

  // The sum of all names, of the whole meter.
  int64_t PayloadOfAll() {
    int64_t sum = 0;
    for (const Sample& sample : meter_->Samples())
      sum += static_cast<int64_t>(sample.tx_payload_bytes);
    return sum;
  }

  static MeteredCgroup* meter_;
  std::unique_ptr<Child> sink_;
  std::set<std::string> before_;
};
MeteredCgroup* NamesTest::meter_ = nullptr;
NM_FOR_BOTH_FAMILIES(NamesTest);

// Names are told apart by family, as the meter is shared.
std::string Suffix() {
  return testing::WithParamInterface<Family>::GetParam() == Family::kIpv4 ? "4"
                                                                          : "6";
}

TEST_P(NamesTest, BinaryIsNamedByItsExecutable) {
  const std::string name = "nm-alpha" + Suffix();
  Act(name, {Udp(3)});
  EXPECT_EQ(Payload(Kind::kBinary, name), 300);
  EXPECT_EQ(NewNames(), std::set<std::string>{name});
}

// The name was "3", the end of /dev/fd/3, or, if the kernel took a name of 15
// bytes or more from the file (Linux 6.14), that with its first byte replaced.
TEST_P(NamesTest, ExecutedDescriptorsHaveTheNameOfTheirFile) {
  const int64_t all_before = PayloadOfAll();
  const std::string names[] = {"nm-fd" + Suffix(),
                               "nm-fd-fifteen-" + Suffix(),  // fills comm
                               "nm-fd-a-rather-long-name-" + Suffix()};
  const ExecBy ways[] = {ExecBy::kDescriptor, ExecBy::kPathOfDescriptor};
  for (const std::string& name : names) {
    const std::string path = CopyOfActor(name);
    for (const ExecBy by : ways) {
      ActBy(by, open(path.c_str(), O_RDONLY | O_CLOEXEC), Udp(1));
      ActBy(by, MemfdOf(path, "a/" + name), Udp(2));
    }
    EXPECT_EQ(Payload(Kind::kBinary, name), 200) << name;
    EXPECT_EQ(Payload(Kind::kBinary, "memfd:a/" + name), 400) << name;
  }
  EXPECT_EQ(PayloadOfAll() - all_before, 3 * (200 + 400));
  EXPECT_EQ(NewNames().size(), 6u);
}

TEST_P(NamesTest, ExecutedDescriptorsMayBeServices) {
  const int64_t before = Payload(Kind::kService, "nm-listed-by-descriptor");
  const int64_t all_before = PayloadOfAll();
  const std::string path = CopyOfActor("nm-listed-by-descriptor");
  ActBy(ExecBy::kDescriptor, open(path.c_str(), O_RDONLY | O_CLOEXEC), Udp(1));
  EXPECT_EQ(PayloadOfAll() - all_before, 100);
  EXPECT_EQ(Payload(Kind::kService, "nm-listed-by-descriptor") - before, 100);
}

TEST_P(NamesTest, ExecutedDescriptorsOfScriptsHaveTheInterpretersName) {
  const int64_t all_before = PayloadOfAll();
  const std::string name = "nm-interpreter-of-scripts-" + Suffix();
  const std::string script = WorkDirectory() + "/nm-script-" + Suffix();
  std::ofstream(script) << "#!" << CopyOfActor(name) << "\n";
  chmod(script.c_str(), 0700);
  // Not closed by exec: the interpreter is to read it.
  ActBy(ExecBy::kDescriptor, open(script.c_str(), O_RDONLY), Udp(3));
  EXPECT_EQ(PayloadOfAll() - all_before, 300);
  EXPECT_EQ(NewNames(), std::set<std::string>{name});
}

TEST_P(NamesTest, RegisteredProcessIsAService) {
  const std::string service = "registered" + Suffix();
  Act("nm-service" + Suffix(), {"register=" + service, Udp(5)});
  EXPECT_EQ(Payload(Kind::kService, service), 500);
  EXPECT_EQ(Payload(Kind::kBinary, "nm-service" + Suffix()), 0);
  for (const Sample& sample : meter_->Samples()) {
    if (sample.name != service) continue;
    EXPECT_TRUE(sample.registered);
  }
}

// A service that registers publishes its own metrics, so netmeter-exporter leaves it out.
// The exporter also left out a socket that only had been given a service, which no one
// published.
TEST_P(NamesTest, ServiceOfASocketAloneIsNotRegistered) {
  const std::string name = "socket-service" + Suffix();
  const auto send = [&](bool registers) {
    RunChild(meter_->cgroup(), lab().client, [&] {
      const Address to = Server();
      if (registers &&
          Control(OpenSocket(AF_INET, SOCK_DGRAM), NM_REGISTER, name) != 0) {
        _exit(1);
      }
      const int fd = OpenSocket(to.family(), SOCK_DGRAM);
      if (Control(fd, NM_SERVICE, name) != 0) _exit(1);
      SendTo(fd, std::string(100, 'x'), to, 9000);
    });
  };
  const auto is_registered = [&] {
    for (const Sample& sample : meter_->Samples()) {
      if (sample.name == name && sample.registered) return true;
    }
    return false;
  };
  send(false);
  EXPECT_EQ(Payload(Kind::kService, name), 100);
  EXPECT_FALSE(is_registered());
  send(true);  // as for the sockets of socket activation
  EXPECT_EQ(Payload(Kind::kService, name), 200);
  EXPECT_TRUE(is_registered());
}

TEST_P(NamesTest, ForkedChildInheritsTheRegistration) {
  const std::string service = "parent" + Suffix();
  Act("nm-forks" + Suffix(), {"register=" + service, "fork", Udp(6)});
  EXPECT_EQ(Payload(Kind::kService, service), 600);
}

TEST_P(NamesTest, ExecDropsTheRegistration) {
  const std::string other = "nm-other" + Suffix();
  const std::string service = "before-exec" + Suffix();
  Act("nm-execs" + Suffix(),
      {"register=" + service, Udp(1), "exec=" + CopyOfActor(other), Udp(7)});
  EXPECT_EQ(Payload(Kind::kService, service), 100);
  EXPECT_EQ(Payload(Kind::kBinary, other), 700);
}

TEST_P(NamesTest, SecondRegistrationNamesSocketsFromThenOn) {
  const std::string first = "first" + Suffix(), second = "second" + Suffix();
  Act("nm-renames" + Suffix(),
      {"register=" + first, Udp(1), "register=" + second, Udp(2)});
  EXPECT_EQ(Payload(Kind::kService, first), 100);
  EXPECT_EQ(Payload(Kind::kService, second), 200);
}

TEST_P(NamesTest, ShortLivedProcessesAreNamedEach) {
  for (int i = 0; i < 10; ++i) {
    const std::string name = "nm-short-" + std::to_string(i) + Suffix();
    Act(name, {Udp(1)});
    EXPECT_EQ(Payload(Kind::kBinary, name), 100) << name;
  }
}

TEST_P(NamesTest, ListedExecutableIsAService) {
  const int64_t before = Payload(Kind::kService, "nm-listed");
  Act("nm-listed", {Udp(2)});
  EXPECT_EQ(Payload(Kind::kService, "nm-listed") - before, 200);
}

TEST_P(NamesTest, AliasIsTheServicesName) {
  const int64_t before = Payload(Kind::kService, "nm-mme");
  Act("nm-oai-mme", {Udp(3)});
  EXPECT_EQ(Payload(Kind::kService, "nm-mme") - before, 300);
  EXPECT_EQ(NewNames().count("nm-oai-mme"), 0u);
}

TEST_P(NamesTest, LibraryRegistersTagsAndReads) {
  const std::string service = "by-library" + Suffix();
  RunChild(meter_->cgroup(), lab().client, [&] {
    MeterOptions options;
    options.pin_dir = meter_->pin_dir();
    options.service = service;
    const auto meter = Meter::Open(options);
    if (!meter.ok()) DieWithErrno(meter.status().ToString());
    const Address to = Server();
    const int fd = OpenSocket(to.family(), SOCK_DGRAM);
    const absl::Status tagged = TagSocket(fd, "tagged");
    if (!tagged.ok()) DieWithErrno(tagged.ToString());
    SendTo(fd, std::string(100, 'x'), to, 9000);
    const auto samples = (*meter)->ReadService();
    if (!samples.ok() || samples->size() != 1 ||
        (*samples)[0].tx_payload_bytes != 100)
      DieWithErrno("ReadService");
  });
  EXPECT_EQ(Payload(Kind::kService, service, "tagged"), 100);
}

TEST_P(NamesTest, RulesAndTagsNameTheDestinationsOfABinary) {
  const std::string name = "nm-somewhere" + Suffix();
  Act(name, {Udp(1, 0), Udp(1, 1)});
  EXPECT_EQ(Payload(Kind::kBinary, name, v4() ? "one" : "six"), 100);
  EXPECT_EQ(Payload(Kind::kBinary, name, v4() ? "two" : "rest6"), 100);
  const std::string tagged = "nm-tagged" + Suffix();
  Act(tagged, {"tag=streamer", Udp(4)});
  EXPECT_EQ(Payload(Kind::kBinary, tagged, "streamer"), 400);
  EXPECT_EQ(Payload(Kind::kBinary, tagged), 400);
}

TEST_P(NamesTest, AcceptedSocketInheritsFromTheListener) {
  const std::string name = "nm-listens" + Suffix();
  const std::string path = CopyOfActor(name);
  const std::string address = v4() ? "10.77.1.2" : "fd77:1::2";
  Measurement measurement(*meter_, lab().ClientReference());
  Child server(meter_->cgroup(), lab().client, [&](Child::Parent&) {
    ExecActor(path, {"serve=" + address + "/7000/50000"});
  });
  RunChild(nullptr, lab().server, [&] {
    const Address to(address);
    sockaddr_storage storage = to.WithPort(7000);
    int fd = -1;
    for (int i = 0; i < 500; ++i) {  // until it listens
      fd = OpenSocket(to.family(), SOCK_STREAM);
      if (connect(fd, reinterpret_cast<sockaddr*>(&storage),
                  Address::Length(storage)) == 0)
        break;
      close(fd);
      usleep(10000);
    }
    usleep(100000);  // as TcpClient(): or the first data is counted twice
    SendAll(fd, 50000);
    ReceiveUntilEnd(fd);
    close(fd);
  });
  server.Join();
  // The attempts that were refused belong to no socket.
  measurement.Finish([](const Packet& packet) -> Remainder {
    // A RST that acknowledges answers a SYN.
    if (packet.outgoing && packet.rst() && packet.ack())
      return Whole("refused", packet);
    return SynAckSent(packet);
  });
  const int64_t attempts = measurement.RemainderPackets("refused");
  Totals syns;
  syns.rx_packets = attempts;
  syns.rx_bytes = attempts * (v4() ? 60 : 80);
  measurement.Explain("no-socket", syns);
  measurement.ExpectBalance();
  const Totals seen = meter_->TotalOf(Kind::kBinary, name);
  EXPECT_EQ(seen.rx_payload, 50000);
  EXPECT_EQ(seen.tx_bytes, measurement.link().tx_bytes);
  EXPECT_EQ(seen.rx_packets, measurement.link().rx_packets);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
