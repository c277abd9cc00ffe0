// SPDX-License-Identifier: BSD-3-Clause
// The program `netmeter-exporter` from outside, without a meter; see
// netmeter_exporter_root_test.cc for one.
#include <errno.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lib/apps/exporter/exporter_process.h"
#include "lib/base/version.h"
#include "lib/testing/run_shell.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using magma::orc8r::MetricsContainer;
using magma::orc8r::Void;

using Result = ShellResult;

// Runs `netmeter-exporter ` + arguments by the shell. Without --foreground, timeout(1)
// sends SIGCONT after a signal. At the end of the exporter the leak sanitizer stops its
// threads by ptrace(2). If SIGCONT came then, it ended the stop, and the sanitizer waited
// forever.
Result RunExporter(const std::string& arguments) {
  return RunShell(
      "timeout --foreground --kill-after=10 10 "
      "lib/apps/exporter/netmeter-exporter " +
      arguments);
}

const std::vector<std::string> kNoMeter = {"--pin-dir", "/nonexistent"};

grpc::Status GetMetrics(magma::orc8r::Service303::Stub* stub,
                        MetricsContainer* container) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(30));
  return stub->GetMetrics(&context, Void(), container);
}

void ExpectServes(const ExporterProcess& exporter) {
  EXPECT_THAT(exporter.Get("/metrics"), EndsWith("\nnetmeter_up 0\n"));
  MetricsContainer container;
  const grpc::Status status = GetMetrics(exporter.Stub().get(), &container);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(container.family_size(), 1);
}

TEST(Exporter, HelpExplainsAndHasExamples) {
  const Result result = RunExporter("--help 2>&1");
  EXPECT_EQ(result.exit_status, 0);
  for (const char* text : {"Examples:", "127.0.0.1:9384", "127.0.0.1:50084",
                           "kernsnoopd", "--allow-public", "/run/netmeter"}) {
    EXPECT_THAT(result.output, HasSubstr(text));
  }
}

TEST(Exporter, VersionIsOneLine) {
  EXPECT_EQ(RunExporter("--version 2>&1").output,
            std::string("netmeter-exporter ") + kVersion + "\n");
}

// `--help > /dev/full` ended with 0, and --estimate with 1, both without a word.
TEST(Exporter, LostOutputIsAnError) {
  for (const char* arguments : {"--help", "--version"}) {
    SCOPED_TRACE(arguments);
    const Result full =
        RunExporter(std::string(arguments) + " 2>&1 >/dev/full");
    EXPECT_EQ(full.exit_status, 1);
    EXPECT_EQ(full.output,
              "netmeter-exporter: write to standard output: No space left on "
              "device\n");
  }
}

// libgrpc++ brought 24 libraries more, and nine threads.
TEST(Exporter, IsLinkedWithoutGrpcProtobufAndTls) {
  const Result result = RunShell("ldd lib/apps/exporter/netmeter-exporter");
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(result.output, HasSubstr("libnghttp2.so"));
  for (const char* library : {"libgrpc", "libgpr", "libprotobuf", "libcares",
                              "libssl", "libcrypto", "libre2", "libupb"}) {
    EXPECT_THAT(result.output, Not(HasSubstr(library)));
  }
}

TEST(Exporter, WrongUseIsOneLineAndExitStatus2) {
  for (const char* arguments :
       {"nonsense",
        "--nonsense",
        "--listen",
        "--listen nonsense",
        "--listen 127.0.0.1",
        "--service303 x:1",
        "--pin-dir ''",
        "--listen off",
        "--allow-stop",
        "--listen unix:x",
        "--listen unix:/tmp/x --socket-group nosuchgroup",
        "--service303 unix:/tmp/x",
        "--allow-stop --allow-public --service303 0.0.0.0:0",
        "--families nonsense",
        "--families ''",
        "--budgets ''",
        "--database ''",
        "--service-name ''",
        "--service-name \"$(printf '\\377')\"",
        "--estimate=5"}) {
    const Result result =
        RunExporter(std::string(arguments) + " 2>&1 >/dev/null");
    EXPECT_EQ(result.exit_status, 2) << arguments;
    EXPECT_THAT(result.output, StartsWith("netmeter-exporter: ")) << arguments;
    EXPECT_EQ(result.output.find('\n'), result.output.size() - 1);
  }
}

TEST(Exporter, RefusesAPublicAddressUnlessToldTo) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    for (const char* option : {"--listen ", "--service303 "}) {
      const Result result =
          RunExporter(std::string(option) + address + " 2>&1 >/dev/null");
      EXPECT_EQ(result.exit_status, 2);
      EXPECT_THAT(result.output, HasSubstr("--allow-public"));
    }
  }
  // Now it gets as far as the address, which is not ours.
  const Result result =
      RunExporter("--allow-public --listen 192.0.2.1:0 2>&1 >/dev/null");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.output, HasSubstr("192.0.2.1:0: listen: "));
}

TEST(Exporter, SaysWhoseThePortIs) {
  ExporterProcess exporter(kNoMeter);
  const Result result =
      RunExporter("--listen 127.0.0.1:" + std::to_string(exporter.http_port()) +
                  " 2>&1 >/dev/null");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.output, EndsWith("listen: Address already in use "
                                      "(another program listens there)\n"));
}

// It told stdout, so that a service's log had it late or not at all.
TEST(Exporter, SaysInOneLineOnStderrWhereItServes) {
  ExporterProcess exporter(kNoMeter);
  EXPECT_THAT(exporter.output(),
              StartsWith("netmeter-exporter: serving http://127.0.0.1:" +
                         std::to_string(exporter.http_port()) +
                         "/metrics and magma.orc8r.Service303 at 127.0.0.1:" +
                         std::to_string(exporter.grpc_port()) + "\n"));
  EXPECT_EQ(exporter.Stop(), 0);
}

// magmad's state reporter logged an error at each check-in, and service303_cli could
// not stop it.
TEST(Exporter, AnswersWhatMagmaAsksOfEveryService) {
  ExporterProcess exporter({"--pin-dir", "/nonexistent", "--allow-stop"});
  const auto stub = exporter.Stub();
  grpc::ClientContext states_context, reload_context, level_context,
      stop_context;
  magma::orc8r::GetOperationalStatesResponse states;
  const grpc::Status status =
      stub->GetOperationalStates(&states_context, Void(), &states);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(states.states_size(), 0);
  magma::orc8r::ReloadConfigResponse reload;
  EXPECT_TRUE(stub->ReloadServiceConfig(&reload_context, Void(), &reload).ok());
  EXPECT_TRUE(reload.result() ==
              magma::orc8r::ReloadConfigResponse::RELOAD_UNSUPPORTED);
  Void none;
  EXPECT_EQ(
      stub->SetLogLevel(&level_context, magma::orc8r::LogLevelMessage(), &none)
          .error_code(),
      grpc::StatusCode::UNIMPLEMENTED);
  const grpc::Status stopped = stub->StopService(&stop_context, Void(), &none);
  EXPECT_TRUE(stopped.ok()) << stopped.error_message();
  siginfo_t end;
  EXPECT_EQ(
      waitid(P_PID, static_cast<id_t>(exporter.pid()), &end, WEXITED | WNOWAIT),
      0);
  EXPECT_EQ(end.si_code, CLD_EXITED);
  EXPECT_EQ(end.si_status, 0);
}

// Any local user could end it, as it answered StopService unless it was told not to.
TEST(Exporter, StopsForNobodyUnlessToldTo) {
  ExporterProcess exporter(kNoMeter);
  const auto stub = exporter.Stub();
  grpc::ClientContext context;
  Void none;
  EXPECT_EQ(stub->StopService(&context, Void(), &none).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(exporter.Stop(), 0);
}

// It listened at 127.0.0.1:50084 for whoever came.
TEST(Exporter, OpensNoService303UnlessToldTo) {
  const std::string log = testing::TempDir() + "/no-service303.log";
  const Result said =
      RunExporter("--listen 127.0.0.1:0 --pin-dir /nonexistent 2>" + log +
                  " & until grep -q serving " + log +
                  "; do sleep 0.05; done; kill $!; wait; cat " + log);
  EXPECT_THAT(said.output, HasSubstr("serving http://127.0.0.1:"));
  EXPECT_THAT(said.output, Not(HasSubstr("Service303")));
}

TEST(Exporter, NamesWithoutTotalAreTextAlways) {
  ExporterProcess exporter(
      {"--pin-dir", "/nonexistent", "--names-without-total"});
  EXPECT_THAT(exporter.Get("/metrics", "application/openmetrics-text"),
              HasSubstr("\r\nContent-Type: text/plain; version=0.0.4"));
}

TEST(Exporter, AnswersInTheFormatThatIsAskedFor) {
  ExporterProcess exporter(kNoMeter);
  EXPECT_THAT(exporter.Get("/metrics"),
              HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; "
                        "charset=utf-8\r\n"));
  const std::string open_metrics = exporter.Get(
      "/metrics",
      "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
  EXPECT_THAT(open_metrics,
              HasSubstr("\r\nContent-Type: application/openmetrics-text; "
                        "version=1.0.0; charset=utf-8\r\n"));
  EXPECT_THAT(open_metrics, EndsWith("\nnetmeter_up 0\n# EOF\n"));
  EXPECT_THAT(exporter.Get("/"), HasSubstr("/metrics"));
  EXPECT_THAT(exporter.Get("/etc/passwd"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ExporterProcess::ReadAll(ExporterProcess::Connect(
                  exporter.http_port(), "POST /metrics HTTP/1.0\r\n\r\n")),
              StartsWith("HTTP/1.1 405 "));
}

TEST(Exporter, EndsCleanlyOnSigtermWhateverPeersDo) {
  ExporterProcess exporter(kNoMeter);
  const auto stub = exporter.Stub();
  MetricsContainer container;
  ASSERT_TRUE(GetMetrics(stub.get(), &container).ok());
  std::vector<UniqueFd> peers;
  for (int i = 0; i < 20; ++i) {
    peers.push_back(ExporterProcess::Connect(exporter.http_port(), "GET"));
    peers.push_back(ExporterProcess::Connect(
        exporter.grpc_port(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  }
  EXPECT_EQ(exporter.Stop(), 0);
}

// accept(2) needs a descriptor before it looks for a waiting connection. Without one, the
// exporter closed each new connection and kept the idle ones.
TEST(Exporter, PeersThatIdleMakeRoomWhereDescriptorsAreShort) {
  ExporterProcess exporter(kNoMeter);
  ExpectServes(exporter);
  const rlimit few = {64, 64};
  ASSERT_EQ(prlimit(exporter.pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 60; ++i) {
    idle.push_back(ExporterProcess::Connect(
        exporter.grpc_port(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  }
  int served = 0;
  for (int i = 0; i < 20; ++i) {
    served +=
        exporter.Get("/metrics").find("netmeter_up 0") != std::string::npos;
    MetricsContainer container;
    served += GetMetrics(exporter.Stub().get(), &container).ok();
  }
  EXPECT_GE(served, 38);  // gRPC's connection may be the one to go
  EXPECT_EQ(exporter.Stop(), 0);
}

// A frame of HTTP/2 (RFC 9113, 4.1).
std::string Frame(char type, char flags, char stream,
                  const std::string& payload) {
  std::string bytes = {0,
                       static_cast<char>(payload.size() >> 8),
                       static_cast<char>(payload.size()),
                       type,
                       flags,
                       0,
                       0,
                       0,
                       stream};
  return bytes + payload;
}

#ifdef __SANITIZE_ADDRESS__
constexpr long kMostKib = 1024 * 1024;  // it keeps what was freed
// An instrumented server takes several times longer for a connection, and a queue that is
// always full refuses new connections for seconds or minutes. So the storm is smaller by
// the same factor.
constexpr useconds_t kPauseUs = 4000;
constexpr int kFewestConnections = 500;
constexpr double kStormMs = 2000;
#else
constexpr long kMostKib = 128 * 1024;
constexpr useconds_t kPauseUs = 0;
constexpr int kFewestConnections = 3000;
constexpr double kStormMs = 3000;
#endif

// HTTP/2's preface, SETTINGS and a call of GetMetrics.
std::string RawCall() {
  const auto text = [](const std::string& s) {
    return std::string(1, static_cast<char>(s.size())) + s;
  };
  // RFC 7541: :method POST, :scheme http, and literals without indexing.
  const std::string headers =
      "\x83\x86\x04" + text("/magma.orc8r.Service303/GetMetrics") + "\x01" +
      text("localhost") + std::string(1, '\0') + text("content-type") +
      text("application/grpc") + std::string(1, '\0') + text("te") +
      text("trailers");
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, "") +
         Frame(1, 4, 1, headers) + Frame(0, 1, 1, std::string(5, '\0'));
}

// Each took the place of the connection that had made fewest calls, and then was
// idle longest: of those that had not come to their first call, so that calls of
// others ended with UNAVAILABLE.
TEST(Exporter, ThousandsOfConnectionsWithACallOnEachKeepNobodyFromBeingServed) {
  // Peers that close at once; that keep what they have open, and take their
  // reply or not; that only connect.
  for (const char* sort : {"closing", "keeping", "taking", "silent"}) {
    const std::string kind = sort;
    ExporterProcess exporter(kNoMeter);
    const auto magmad = exporter.Stub();
    MetricsContainer container;
    ASSERT_TRUE(GetMetrics(magmad.get(), &container).ok());
    const long before = exporter.MemoryKib();
    std::atomic<bool> stop(false);
    std::atomic<int> connections(0);
    std::vector<std::thread> peers;
    for (int i = 0; i < 4; ++i) {
      peers.emplace_back([&] {
        const std::string call = kind == "silent" ? "" : RawCall();
        std::deque<UniqueFd> open;
        char buffer[4096];
        while (!stop) {
          open.push_back(ExporterProcess::Connect(exporter.grpc_port(), call));
          ++connections;
          if (kind == "closing") open.clear();
          if (kind == "taking") {
            recv(open.back().get(), buffer, sizeof(buffer), 0);
          }
          if (open.size() > 200) open.pop_front();
          if (kPauseUs > 0) usleep(kPauseUs);
        }
      });
    }
    double most = 0;
    int served = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto ms_since = [](std::chrono::steady_clock::time_point then) {
      return std::chrono::duration<double, std::milli>(
                 std::chrono::steady_clock::now() - then)
          .count();
    };
    // Takes longer if a busy machine keeps the peers from making their storm.
    while (ms_since(begin) < kStormMs ||
           (connections <= kFewestConnections && ms_since(begin) < 30000)) {
      const auto asked = std::chrono::steady_clock::now();
      // On a connection that is there, and on new ones.
      const grpc::Status status = GetMetrics(magmad.get(), &container);
      EXPECT_TRUE(status.ok()) << kind << ": " << status.error_message();
      ExpectServes(exporter);
      most = std::max(most, ms_since(asked));
      ++served;
    }
    const double storm = ms_since(begin);
    stop = true;
    for (std::thread& peer : peers) peer.join();
    printf(
        "%s peers, %.0f connections a second: %d times 2 calls and a scrape, "
        "at most %.0f ms; memory %ld KiB, then %ld KiB\n",
        sort, connections * 1000.0 / storm, served, most, before,
        exporter.MemoryKib());
    EXPECT_GT(connections, kFewestConnections);
    EXPECT_LT(exporter.MemoryKib(), before + kMostKib);
    EXPECT_EQ(exporter.Stop(), 0);
  }
}

// A `netmeter-fds` that hung, or another listener at its path, stalled the one thread
// that serves HTTP for 2 seconds of every 3.
TEST(Exporter, AListenerThatNeverAnswersKeepsNobodyFromBeingServed) {
  char root[] = "/tmp/netmeter-test-XXXXXX";
  ASSERT_NE(mkdtemp(root), nullptr);
  const std::string pin_dir = std::string(root) + "/meter";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, (pin_dir + ".sock").c_str());
  const UniqueFd silent(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<const sockaddr*>(&address),
                 sizeof(address)),
            0);
  ASSERT_EQ(listen(silent.get(), 4), 0);
  ExporterProcess exporter({"--pin-dir", pin_dir});
  UniqueFd(accept(silent.get(), nullptr, nullptr));  // that of its start
  std::atomic<bool> stop{false};
  std::thread scrapes([&] {
    while (!stop) ExpectServes(exporter);
  });
  // The machine itself may stand still for a while, but not each time.
  auto shortest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 3; ++i) {
    const UniqueFd peer(accept(silent.get(), nullptr, nullptr));
    const auto begin = std::chrono::steady_clock::now();
    char byte;
    EXPECT_EQ(recv(peer.get(), &byte, 1, 0), 0);
    shortest = std::min(shortest, std::chrono::steady_clock::now() - begin);
  }
  stop = true;
  scrapes.join();
  EXPECT_LT(shortest, std::chrono::seconds(1));
  EXPECT_EQ(exporter.Stop(), 0);
  unlink(address.sun_path);
  rmdir(root);
}

// Each peer here would once have cost a thread, a descriptor or memory.
TEST(Exporter, HostilePeersKeepNobodyFromBeingServed) {
  ExporterProcess exporter(kNoMeter);
  ExpectServes(exporter);
  const auto magmad = exporter.Stub();
  MetricsContainer container;
  ASSERT_TRUE(GetMetrics(magmad.get(), &container).ok());
  std::mt19937 random(7);
  const long before = exporter.MemoryKib();
  std::vector<UniqueFd> peers;
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (int round = 0; round < 40; ++round) {
    for (const int port : {exporter.http_port(), exporter.grpc_port()}) {
      std::string noise(1 + random() % 5000, '\0');
      for (char& c : noise) c = static_cast<char>(random());
      peers.push_back(ExporterProcess::Connect(port, ""));       // silent
      peers.push_back(ExporterProcess::Connect(port, "GET /"));  // half
      peers.push_back(ExporterProcess::Connect(port, noise));
      peers.push_back(ExporterProcess::Connect(port, preface));
      peers.push_back(ExporterProcess::Connect(port, preface + noise));
      // A frame of HTTP/2 that says it has 16 MiB - 1.
      peers.push_back(ExporterProcess::Connect(
          port, preface + std::string("\xff\xff\xff\x04\0\0\0\0\0", 9)));
      peers.push_back(ExporterProcess::Connect(
          port, "GET /" + std::string(1 << 20, 'x')));  // oversized
      // Many requests at once, of which nothing is read.
      std::string many;
      for (int i = 0; i < 1000; ++i) many += "GET /metrics HTTP/1.0\r\n\r\n";
      peers.push_back(ExporterProcess::Connect(port, many));
    }
    ExpectServes(exporter);
    while (peers.size() > 500) peers.erase(peers.begin());
  }
  // A client that was there before comes back by itself, if not at once: its
  // connection may have been the oldest of too many.
  grpc::Status status;
  for (int i = 0; i < 2; ++i) {
    status = GetMetrics(magmad.get(), &container);
    if (status.ok()) break;
  }
  EXPECT_TRUE(status.ok()) << status.error_message();
  printf("memory: %ld KiB before, %ld KiB after 640 hostile peers\n", before,
         exporter.MemoryKib());
  EXPECT_LT(exporter.MemoryKib(), before + 64 * 1024);
  EXPECT_EQ(exporter.Stop(), 0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
