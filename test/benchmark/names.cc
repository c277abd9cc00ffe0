// SPDX-License-Identifier: BSD-3-Clause
// What it costs to read the name of a destination from the first bytes of a
// connection, and what it can cost at most: who sends chooses these bytes.
//
// A connection sends NM_MAX_PENDING_BYTES less one byte in one packet: over veth with
// packets of 64 KiB, or, for HTTP/2, to a proxy on this host. So a single run of the
// program reads all that may ever be read of a connection, and is timed by the kernel's
// own clock. Bytes that never end in a name are the worst: the reader may not stop
// before, which is checked. Beside them is what clients really send, and a connection
// to a port that names nothing.
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bpf/first_bytes_testing.h"
#include "bpf/internal.h"
#include "test/benchmark/harness.h"
#include "test/benchmark/network.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kBytes = NM_MAX_PENDING_BYTES - 1;
constexpr uint16_t kPortOfTls = 443, kPortOfHttp = 80, kPortOfProxy = 8443,
                   kPortOfNone = 4000;

struct FirstBytes {
  std::string name;
  uint16_t port;
  std::string bytes;
  bool pending;  // all of them are read, and name nothing yet
};

std::string Repeated(const std::string& part) {
  std::string text;
  while (text.size() < kBytes) text += part;
  return text;
}

// The first kBytes of the text, which has at least that length.
std::string Cut(const std::string& bytes) { return bytes.substr(0, kBytes); }

std::vector<FirstBytes> AllFirstBytes() {
  const std::string rest = Repeated("x");
  const std::string get = "GET / HTTP/1.1\r\n";
  const auto hello = [](const std::string& extensions, size_t record) {
    return Cut(Records(Hello(extensions), record));
  };
  const std::string sni = Sni("www.example.com");
  const std::string unknown = Repeated(Extension(0xfafa, ""));
  constexpr size_t kMostOfRecord = 16384;
  // One frame of header fields: HEADERS is 1, SETTINGS 4.
  const auto headers = [](const std::string& fields) {
    return Cut(kPreface + Frame(4, 0, "") + Frame(1, 0, fields));
  };
  // A literal field with a new name (RFC 7541, 6.2.2).
  const auto field = [](const std::string& name, const std::string& value) {
    return Number(0, 1) + String(name) + String(value);
  };
  return {
      {"no name to read", kPortOfNone, rest, false},
      {"TLS, a name first", kPortOfTls, Cut(Record(Hello(sni)) + rest), false},
      {"HTTP/1, a name first", kPortOfHttp,
       Cut(get + "Host: www.example.com\r\n\r\n" + rest), false},
      {"TLS, extensions without end", kPortOfTls, hello(unknown, kMostOfRecord),
       true},
      {"TLS, one long extension", kPortOfTls,
       hello(Extension(0xfafa, rest) + sni, kMostOfRecord), true},
      {"TLS, records of one byte", kPortOfTls, hello(unknown, 1), true},
      {"HTTP/1, one long line", kPortOfHttp, Cut(get + "X: " + rest), true},
      {"HTTP/1, lines without end", kPortOfHttp, Cut(get + Repeated("a:\r\n")),
       true},
      {"HTTP/1, almost Host", kPortOfHttp, Cut(get + Repeated("Hosu:\r\n")),
       true},
      {"HTTP/2, one long value", kPortOfProxy, headers(field("x", rest)), true},
      {"HTTP/2, fields without end", kPortOfProxy, headers(Repeated("\x82")),
       true},
      {"HTTP/2, literals without end", kPortOfProxy,
       headers(Repeated(field("x", "x"))), true},
      {"HTTP/2, almost :authority", kPortOfProxy,
       headers(Repeated(field(":authoritx", "x"))), true},
  };
}

const Place& PlaceForPort(uint16_t port, const TestNetwork& network) {
  return port == kPortOfProxy ? network.loopback() : network.veth();
}

// The run time of the program at egress while the first bytes of one connection
// are sent.
double NsOfConnection(const FirstBytes& first, const Programs& programs,
                      TestNetwork* network, const UniqueFd& listener) {
  const UniqueFd client = network->Connect(PlaceForPort(first.port, *network),
                                           SOCK_STREAM, first.port);
  const UniqueFd server = Accept(listener);
  const int egress = programs.ProgramFd(Direction::kEgress);
  const RunTime before = ReadRunTime(egress);
  if (send(client.get(), first.bytes.data(), first.bytes.size(), 0) !=
      static_cast<ssize_t>(first.bytes.size())) {
    DieWithErrno("send");
  }
  std::string received(first.bytes.size(), '\0');
  if (recv(server.get(), &received[0], received.size(), MSG_WAITALL) !=
      static_cast<ssize_t>(received.size())) {
    DieWithErrno("receive");
  }
  const RunTime after = ReadRunTime(egress);
  // The packet, and acknowledgements: over loopback also those of the other end.
  if (after.runs - before.runs > 3) Die(first.name + ": not in one packet");
  bool pending = false;
  for (const auto& slot : programs.ReadCounters()) {
    pending |= slot.second.kind == NM_KIND_PENDING &&
               slot.second.tx_bytes > first.bytes.size();
  }
  if (pending != first.pending) {
    Die(first.name + (pending ? ": no end" : ": ended too early"));
  }
  return static_cast<double>(after.ns - before.ns);
}

void Measure(int rounds, Run* run) {
  std::string error;
  TestNetwork network(run->cgroup());
  Shell("ip link set dev nm0 mtu 65535");
  network.AsServer(network.veth(),
                   [] { Shell("ip link set dev nm1 mtu 65535"); });
  const auto programs = Programs::Load(DefaultOptions(), &error);
  if (programs == nullptr ||
      !programs->AttachSocketHooks(run->cgroup()->fd(), &error) ||
      !programs->AttachPacketHooks(run->cgroup()->fd(), &error)) {
    Die(error);
  }
  const std::vector<FirstBytes> all = AllFirstBytes();
  std::map<uint16_t, UniqueFd> listeners;
  for (const FirstBytes& first : all) {
    if (listeners.count(first.port) != 0) continue;
    listeners[first.port] =
        network.Listen(PlaceForPort(first.port, network), first.port);
  }
  const UniqueFd statistics = EnableRunTime();
  ForEachRound(rounds, static_cast<int>(all.size()), [&](int i) {
    const FirstBytes& first = all[static_cast<size_t>(i)];
    const double ns =
        NsOfConnection(first, *programs, &network, listeners[first.port]);
    run->results()->Add(first.name, "netmeter", "us per connection",
                        Better::kLess, ns / 1e3);
  });
  run->results()->Fact("bytes of a connection that are read at most",
                       NM_MAX_PENDING_BYTES);
  programs->Detach();
  if (!run->cgroup()->Leave()) Die("cannot leave the cgroup");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  using namespace netmeter::internal;
  return RunBenchmark("names", argc, argv,
                      [](Run* run) { Measure(run->Of(41, 1), run); });
}
