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

#include "bpf/internal.h"
#include "test/benchmark/harness.h"
#include "test/benchmark/namespaces.h"
#include "test/benchmark/network.h"
#include "test/benchmark/run_time.h"
#include "test/program/default_options.h"
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

std::string BigEndian(size_t value, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    text.push_back(static_cast<char>(value >> shift));
  }
  return text;
}

std::string Repeated(const std::string& part) {
  std::string text;
  while (text.size() < kBytes) text += part;
  return text;
}

// `text`, and then as often as there is room.
std::string Filled(std::string text, const std::string& part) {
  text += Repeated(part);
  text.resize(kBytes);
  return text;
}

// A record of TLS (RFC 8446, 5.1) of type handshake.
std::string Record(const std::string& text) {
  return "\x16\x03\x01" + BigEndian(text.size(), 2) + text;
}

// A ClientHello (RFC 8446, 4.1.2), which says of itself that it is so long.
std::string HelloOf(size_t bytes, const std::string& extensions) {
  const std::string body = "\x03\x03" + std::string(32, 'r') +
                           std::string(1, '\0') + BigEndian(2, 2) + "\x13\x01" +
                           std::string("\x01\x00", 2) + BigEndian(bytes, 2) +
                           extensions;
  return "\x01" + BigEndian(body.size() + bytes - extensions.size(), 3) + body;
}

std::string Extension(int type, const std::string& text) {
  return BigEndian(static_cast<size_t>(type), 2) + BigEndian(text.size(), 2) +
         text;
}

std::string ServerName(const std::string& host) {
  const std::string entry =
      std::string(1, '\0') + BigEndian(host.size(), 2) + host;
  return Extension(0, BigEndian(entry.size(), 2) + entry);
}

// The same bytes in records of one byte each.
std::string InRecordsOfOneByte(const std::string& text) {
  std::string records;
  for (const char byte : text) records += Record(std::string(1, byte));
  records.resize(kBytes);
  return records;
}

// The beginning of HTTP/2 (RFC 9113, 3.4), and of a frame of header fields that is
// longer than what is read.
std::string Headers(const std::string& fields) {
  const std::string settings = BigEndian(0, 3) + "\x04" + BigEndian(0, 5);
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + BigEndian(16384, 3) +
         "\x01" + BigEndian(0, 1) + BigEndian(1, 4) + fields;
}

std::vector<FirstBytes> AllFirstBytes() {
  const std::string usual = ServerName("www.example.com");
  const std::string curl = HelloOf(usual.size(), usual);
  const std::string get = "GET / HTTP/1.1\r\n";
  const std::string unknown = Extension(0xfafa, "");
  const std::string endless = HelloOf(60000, Repeated(unknown));
  return {
      {"no name to read", kPortOfNone, std::string(kBytes, 'x'), false},
      {"TLS, a name first", kPortOfTls, Filled(Record(curl), "x"), false},
      {"HTTP/1, a name first", kPortOfHttp,
       Filled(get + "Host: www.example.com\r\n\r\n", "x"), false},
      {"TLS, extensions without end", kPortOfTls,
       Filled("\x16\x03\x01" + BigEndian(16384, 2) + endless, unknown), true},
      {"TLS, one long extension", kPortOfTls,
       Filled("\x16\x03\x01" + BigEndian(16384, 2) +
                  HelloOf(60000, Extension(0xfafa, std::string(50000, 'x'))),
              "x"),
       true},
      {"TLS, records of one byte", kPortOfTls, InRecordsOfOneByte(endless),
       true},
      {"HTTP/1, one long line", kPortOfHttp, Filled(get + "X: ", "x"), true},
      {"HTTP/1, lines without end", kPortOfHttp, Filled(get, "a:\r\n"), true},
      {"HTTP/1, almost Host", kPortOfHttp, Filled(get, "Hosu:\r\n"), true},
      // A literal field with a new name (RFC 7541, 6.2.2), of 15,000 bytes.
      {"HTTP/2, one long value", kPortOfProxy,
       Filled(Headers(std::string(1, '\0') + "\x01x\x7f\x99\x74"), "x"), true},
      {"HTTP/2, fields without end", kPortOfProxy, Filled(Headers(""), "\x82"),
       true},
      {"HTTP/2, literals without end", kPortOfProxy,
       Filled(Headers(""), std::string(1, '\0') + "\x01x\x01x"), true},
      {"HTTP/2, almost :authority", kPortOfProxy,
       Filled(Headers(""), std::string(1, '\0') + "\x0a:authoritx\x01x"), true},
  };
}

const Place& PlaceOf(uint16_t port, const Network& network) {
  return port == kPortOfProxy ? network.loopback() : network.veth();
}

// The run time of the program at egress while the first bytes of one connection
// are sent.
double NsOfConnection(const FirstBytes& first, const Programs& programs,
                      Network* network, const UniqueFd& listener) {
  const UniqueFd client =
      network->Connect(PlaceOf(first.port, *network), SOCK_STREAM, first.port);
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
  if (!EnterOwnNetwork(&error)) Die(error);
  Network network(run->cgroup());
  const std::string large = "ip link set dev ";
  Shell(large + "nm0 mtu 65535");
  network.AsServer(network.veth(), [&] { Shell(large + "nm1 mtu 65535"); });
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
        network.Listen(PlaceOf(first.port, network), first.port);
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
  int rounds = 41;
  Benchmark benchmark("names",
                      "what it costs to read a name from crafted first bytes");
  benchmark.Number("rounds", &rounds, 1, "rounds of every measurement");
  return benchmark.Main(argc, argv, [&](Run* run) { Measure(rounds, run); });
}
