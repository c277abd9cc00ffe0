// SPDX-License-Identifier: BSD-3-Clause
// What `netmeter sockets` says of sockets, on this kernel: beside ss(8), and beside the
// kernel's own description of its structures.

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/btf.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "lib/apps/connections/format.h"
#include "lib/apps/connections/poll.h"
#include "lib/netlink/number_fields.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

using Json = nlohmann::json;

constexpr int kPort = 8750;
constexpr int kMptcp = 262;

// --- Ours -------------------------------------------------------------------

struct Ours {
  std::vector<Json> rows;

  // nullptr unless there is one.
  const Json* Find(const std::string& key) const {
    for (const Json& row : rows) {
      if (KeyOf(row) == key) return &row;
    }
    return nullptr;
  }
  static std::string KeyOf(const Json& row) {
    const auto end = [&](const std::string& name) {
      const int port = row[name + "_port"];
      return row[name + "_address"].get<std::string>() + " " +
             (port == 0 ? "*" : std::to_string(port));
    };
    return row["protocol"].get<std::string>() + " " + end("local") + " " +
           end("remote");
  }
};

Ours ReadOurs(SocketPoll* poll) {
  Ours ours;
  const absl::Status status =
      poll->Run(PollOptions(), [&](const SocketRow& row) {
        std::string line;
        AppendJson(AllColumns(), row, Origin(), &line);
        ours.rows.push_back(Json::parse(line));
      });
  EXPECT_TRUE(status.ok()) << status;
  return ours;
}

// --- What ss prints ---------------------------------------------------------

struct SsLine {
  std::string protocol, state, rqueue, wqueue, local, remote;
  std::vector<std::string> words;  // the rest
};

std::vector<SsLine> ReadSs(const std::string& options) {
  std::string output;
  EXPECT_EQ(RunProgram({"ss", options}, &output), 0) << output;
  std::vector<SsLine> lines;
  std::istringstream text(output);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    SsLine one;
    if (!(words >> one.protocol >> one.state >> one.rqueue >> one.wqueue >>
          one.local >> one.remote)) {
      continue;
    }
    for (std::string word; words >> word;) one.words.push_back(word);
    lines.push_back(one);
  }
  return lines;
}

// "[2001:db8::1]:80" as "2001:db8::1 80"; "*" is any address of IPv6.
std::string SsEnd(const std::string& end) {
  const size_t colon = end.rfind(':');
  std::string address = end.substr(0, colon);
  address = address.substr(0, address.find('%'));
  if (address == "*") address = "::";
  if (address[0] == '[') {
    address = address.substr(1, address.find(']') - 1);
  }
  return address + " " + end.substr(colon + 1);
}

std::string KeyOf(const SsLine& line) {
  return line.protocol + " " + SsEnd(line.local) + " " + SsEnd(line.remote);
}

std::string SsState(const std::string& state) {
  static const auto* const names =
      new std::map<std::string, std::string>{{"ESTAB", "ESTABLISHED"},
                                             {"UNCONN", "CLOSE"},
                                             {"FIN-WAIT-1", "FIN_WAIT1"},
                                             {"FIN-WAIT-2", "FIN_WAIT2"}};
  const auto found = names->find(state);
  if (found != names->end()) return found->second;
  std::string same = state;
  std::replace(same.begin(), same.end(), '-', '_');
  return same;
}

// `users:(("name",pid=1,fd=2),...)` as a set of "name 1 2".
std::set<std::string> SsUsers(const SsLine& line) {
  std::set<std::string> users;
  for (const std::string& word : line.words) {
    if (word.rfind("users:(", 0) != 0) continue;
    size_t at = 0;
    while ((at = word.find("(\"", at)) != std::string::npos) {
      char name[64];
      int pid, fd;
      if (sscanf(word.c_str() + at, "(\"%63[^\"]\",pid=%d,fd=%d", name, &pid,
                 &fd) == 3) {
        users.insert(std::string(name) + " " + std::to_string(pid) + " " +
                     std::to_string(fd));
      }
      at++;
    }
  }
  return users;
}

std::set<std::string> OurUsers(const Json& row) {
  std::set<std::string> users;
  for (const Json& process : row["processes"]) {
    users.insert(process["name"].get<std::string>() + " " +
                 std::to_string(process["pid"].get<int>()) + " " +
                 std::to_string(process["fd"].get<int>()));
  }
  return users;
}

// --- Sockets to look at -----------------------------------------------------

// Connections of each family with some data in both directions, sockets of UDP,
// a raw one, and one in TIME_WAIT.
void OpenSockets(std::vector<int>* open) {
  Register("diag-service");
  for (const Family family : {Family::kIpv4, Family::kIpv6}) {
    const Address to = Lab::Server(family);
    for (int i = 0; i < 3; i++) {
      const int fd = OpenSocket(to.family(), SOCK_STREAM);
      Control(fd, NM_TAG, "diag-destination");
      Connect(fd, to, kPort);
      SendAll(fd, static_cast<uint64_t>(100000 * i + 1));
      ReceiveExactly(fd, 1000);
      open->push_back(fd);
    }
    const int listener = OpenSocket(to.family(), SOCK_STREAM);
    Bind(listener, Lab::Client(family), kPort + 1);
    listen(listener, 17);
    open->push_back(listener);
    const int udp = OpenSocket(to.family(), SOCK_DGRAM);
    Bind(udp, Lab::Client(family), kPort + 2);
    open->push_back(udp);
    const int connected = Connected(to, kPort + 3, SOCK_DGRAM);
    SendAll(connected, 100);
    open->push_back(connected);
    const int raw = OpenSocket(
        to.family(), SOCK_RAW,
        to.family() == AF_INET ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6});
    open->push_back(raw);
  }
}

// Accepts all of them, answers, and keeps them.
void Serve(Child::Parent& parent) {
  std::vector<int> listeners;
  for (const Family family : {Family::kIpv4, Family::kIpv6}) {
    const Address address = Lab::Server(family);
    const int listener = Listen(address, kPort, 10);
    listeners.push_back(listener);
  }
  parent.Send(0);
  for (const int listener : listeners) {
    for (int i = 0; i < 3; i++) {
      const int fd = Accept(listener);
      ReceiveExactly(fd, static_cast<uint64_t>(100000 * i + 1));
      SendAll(fd, 1000);
    }
  }
  parent.Receive<int>();
}

class SockDiagTest : public LiveTest {
 protected:
  // Runs body in the namespace of the sockets, once all is quiet.
  void WithSockets(const std::function<void()>& body) {
    Child server = AtServer(Serve);
    server.Receive<int>();
    Child client = AtClient([](Child::Parent& parent) {
      std::vector<int> open;
      OpenSockets(&open);
      parent.Send(0);
      parent.Receive<int>();
    });
    client.Receive<int>();
    usleep(500000);  // delayed acknowledgements
    Child reader(nullptr, lab().client, [&](Child::Parent& parent) {
      body();
      parent.Send(testing::Test::HasFailure() ? 1 : 0);
    });
    EXPECT_EQ(reader.Receive<int>(), 0);
    reader.Join();
    client.Send(0);
    client.Join();
    server.Send(0);
    server.Join();
  }
};

TEST_F(SockDiagTest, SocketsAreThoseOfSs) {
  const std::string pin_dir = World::ClientMeter().pin_dir();
  WithSockets([&] {
    SocketPoll poll(pin_dir);
    ASSERT_TRUE(poll.attribution().ok()) << poll.attribution();
    const Ours ours = ReadOurs(&poll);
    const std::vector<SsLine> lines = ReadSs("-tinpuOHa");
    std::set<std::string> theirs;
    int alive = 0;
    for (const SsLine& line : lines) {
      const std::string key = KeyOf(line);
      SCOPED_TRACE(key);
      theirs.insert(key);
      alive += line.state != "TIME-WAIT";
      const Json* const row = ours.Find(key);
      ASSERT_NE(row, nullptr);
      EXPECT_EQ((*row)["state"], SsState(line.state));
      EXPECT_EQ(std::to_string((*row)["rqueue"].get<uint64_t>()), line.rqueue);
      EXPECT_EQ(std::to_string((*row)["wqueue"].get<uint64_t>()), line.wqueue);
      EXPECT_EQ(OurUsers(*row), SsUsers(line));
    }
    // And only those; ss has no state of sockets that are bound only.
    std::set<std::string> keys;
    for (const Json& row : ours.rows) {
      const std::string protocol = row["protocol"];
      if (protocol == "tcp" || protocol == "udp") keys.insert(Ours::KeyOf(row));
    }
    EXPECT_EQ(keys, theirs);
    EXPECT_EQ(alive, 12);
  });
}

TEST_F(SockDiagTest, EachSocketHasItsServiceAndItsDestination) {
  const std::string pin_dir = World::ClientMeter().pin_dir();
  WithSockets([&] {
    SocketPoll poll(pin_dir);
    const Ours ours = ReadOurs(&poll);
    int tagged = 0, raw = 0;
    for (const Json& row : ours.rows) {
      SCOPED_TRACE(row.dump());
      if (row["state"] == "TIME_WAIT") {  // of the test before
        EXPECT_EQ(row.count("service"), 0u);
        continue;
      }
      EXPECT_EQ(row.value("service", ""), "diag-service");
      EXPECT_EQ(row.value("kind", ""), "service");
      // For a UDP socket that had a packet, the socket table has only the series.
      if (row.count("owner_pid") != 0) {
        ASSERT_EQ(row["processes"].size(), 1u);
        EXPECT_EQ(row["owner_pid"], row["processes"][0]["pid"]);
      } else {
        EXPECT_EQ(row["protocol"], "udp");
      }
      if (row["remote_port"] == kPort) {
        EXPECT_EQ(row.value("destination", ""), "diag-destination");
        tagged++;
      } else {
        EXPECT_EQ(row.value("destination", ""), "");
      }
      if (row["protocol"] == "raw") raw++;
    }
    EXPECT_EQ(tagged, 6);
    // A kernel may be built without raw_diag; then who asks for raw is told.
    PollOptions options;
    options.protocols = {IPPROTO_RAW};
    const absl::Status status = poll.Run(options, [](const SocketRow&) {});
    EXPECT_EQ(raw, absl::IsUnimplemented(status) ? 0 : 2) << status;
  });
}

TEST_F(SockDiagTest, MptcpSocketsAreShownWhereTheKernelHasThem) {
  const std::string pin_dir = World::ClientMeter().pin_dir();
  Child child = AtClient([&](Child::Parent& parent) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, kMptcp);
    if (fd < 0) return parent.Send(-1);
    Bind(fd, Lab::Client(Family::kIpv4), kPort + 4);
    listen(fd, 5);
    SocketPoll poll(pin_dir);
    int found = 0;
    for (const Json& row : ReadOurs(&poll).rows) {
      if (row["protocol"] == "mptcp" && row["local_port"] == kPort + 4) {
        found++;
      }
    }
    parent.Send(found);
  });
  const int found = child.Receive<int>();
  child.Join();
  if (found < 0) {  // this kernel has no MPTCP, and says so
    EXPECT_EQ(found, -1);
    return;
  }
  // mptcp_diag lists listeners from 5.19 on (commit 4fa39b701ce9).
  EXPECT_EQ(found, KernelAtLeast(5, 19) ? 1 : 0);
}

// What a child of the test below saw.
struct SctpSeen {
  int lines = 0, associations = 0, listeners = 0, established = 0, wrong = 0;
};

SctpSeen LookAtSctp(SocketPoll* poll, const std::string& service) {
  SctpSeen seen;
  for (const Json& row : ReadOurs(poll).rows) {
    if (row["protocol"] != "sctp") continue;
    seen.lines++;
    const bool association = row.count("association") != 0;
    seen.associations += association;
    seen.listeners += row["state"] == "LISTEN";
    seen.established += row["state"] == "ESTABLISHED";
    const bool right =
        row.value("service", "") == service && row["processes"].size() == 1 &&
        row.count("tcpi_rto") == 0 &&
        association == (row.count("sctpi_opackets") != 0) &&
        (!association ||
         (row["remote_port"] == kPort + 5 && row["sctpi_outstrms"] > 0 &&
          row["sctpi_opackets"] > 0 && row["sctpi_p_srtt"] < 10000));
    if (!right) fprintf(stderr, "%s\n", row.dump().c_str());
    seen.wrong += !right;
  }
  return seen;
}

int CountSctp(SocketPoll* poll, const char* state) {
  PollOptions options;
  EXPECT_TRUE(AddState(state, &options.filter).ok());
  options.protocols = {IPPROTO_SCTP};
  int count = 0;
  const absl::Status status =
      poll->Run(options, [&](const SocketRow&) { count++; });
  EXPECT_TRUE(status.ok()) << status;
  return count;
}

// A socket of SCTP is listed once, and then each association of it.
TEST_F(SockDiagTest,
       SctpSocketsAndTheirAssociationsAreShownWhereTheKernelHasThem) {
  const Address address = Lab::Server(Family::kIpv4);
  if (!KernelHas(AF_INET, SOCK_STREAM, IPPROTO_SCTP, "sctp")) return;
  const std::string pin_dir = World::ClientMeter().pin_dir();
  Child server = AtServer([&](Child::Parent& parent) {
    const int listener = OpenSocket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    Bind(listener, address, kPort + 5);
    listen(listener, 5);
    parent.Send(0);
    const int first = Accept(listener), second = Accept(listener);
    ReceiveExactly(first, 100);
    ReceiveExactly(second, 100);
    parent.Receive<int>();
  });
  server.Receive<int>();
  Child client = AtClient([&](Child::Parent& parent) {
    Register("diag-sctp");
    for (int i = 0; i < 2; i++) {
      const int fd = OpenSocket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
      Connect(fd, address, kPort + 5);
      SendAll(fd, 100);
    }
    const int listener = OpenSocket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    Bind(listener, Lab::Client(Family::kIpv4), kPort + 6);
    listen(listener, 5);
    usleep(300000);
    SocketPoll poll(pin_dir);
    parent.Send(LookAtSctp(&poll, "diag-sctp"));
    parent.Send(CountSctp(&poll, "listen"));
    parent.Send(CountSctp(&poll, "established"));
    parent.Send(CountSctp(&poll, "shutdown-sent"));
  });
  const SctpSeen seen = client.Receive<SctpSeen>();
  EXPECT_EQ(seen.lines, 5);
  EXPECT_EQ(seen.associations, 2);
  EXPECT_EQ(seen.listeners, 1);
  EXPECT_EQ(seen.established, 4);
  EXPECT_EQ(seen.wrong, 0);
  EXPECT_EQ(client.Receive<int>(), 1);
  EXPECT_EQ(client.Receive<int>(), 4);
  EXPECT_EQ(client.Receive<int>(), 0);
  client.Join();
  server.Send(0);
  server.Join();
}

// --- The kernel's structures ------------------------------------------------

// Members by name: bit offset, and bits of a bit field.
std::map<std::string, std::pair<uint32_t, uint32_t>> MembersOf(
    const char* name) {
  std::map<std::string, std::pair<uint32_t, uint32_t>> members;
  btf* const types = btf__load_vmlinux_btf();
  EXPECT_EQ(libbpf_get_error(types), 0);
  const int id = btf__find_by_name_kind(types, name, BTF_KIND_STRUCT);
  const btf_type* const type = id > 0 ? btf__type_by_id(types, id) : nullptr;
  for (int i = 0; type != nullptr && i < btf_vlen(type); i++) {
    const auto index = static_cast<uint32_t>(i);
    members[btf__name_by_offset(types, btf_members(type)[i].name_off)] = {
        btf_member_bit_offset(type, index),
        btf_member_bitfield_size(type, index)};
  }
  btf__free(types);
  return members;
}

void ExpectFields(const char* structure,
                  const std::vector<NumberField>& fields) {
  const auto members = MembersOf(structure);
  if (members.empty()) {  // a kernel without MPTCP, say, has no such structure
    ASSERT_STRNE(structure, "tcp_info");
    return;
  }
  uint32_t end = 0;
  std::set<std::string> known;
  for (const NumberField& field : fields) {
    known.insert(field.name);
    end = std::max<uint32_t>(end, 8u * (field.offset + field.size));
    const auto member = members.find(field.name);
    if (member == members.end()) continue;  // of a newer kernel
    EXPECT_EQ(member->second.first, 8u * field.offset + field.shift)
        << field.name;
    EXPECT_EQ(member->second.second, field.bits) << field.name;
  }
  for (const auto& member : members) {
    if (member.first == "reserved" || known.count(member.first) != 0) continue;
    EXPECT_GE(member.second.first, end) << member.first << " is in no table";
  }
}

TEST_F(SockDiagTest, TablesAreTheStructuresOfThisKernel) {
  ExpectFields("tcp_info", TcpInfoFields());
  for (const auto& member : MembersOf("tcp_info")) {
    EXPECT_NE(FindField(member.first), nullptr) << member.first;
  }
  ExpectFields("mptcp_info", MptcpInfoFields());
  ExpectFields("tcp_bbr_info", BbrFields());
  ExpectFields("tcp_dctcp_info", DctcpFields());
  ExpectFields("tcpvegas_info", VegasFields());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
