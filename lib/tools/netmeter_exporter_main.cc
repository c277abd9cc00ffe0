// SPDX-License-Identifier: BSD-3-Clause
// netmeter-exporter: publishes what no service publishes for itself. Needs no
// privilege but to read the maps, and no configuration.

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/core/status_util.h"
#include "lib/core/text.h"
#include "lib/core/unique_fd.h"
#include "lib/core/version.h"
#include "lib/metrics/exposition.h"
#include "lib/metrics/families.h"
#include "lib/tools/front.h"
#include "lib/tools/http_request.h"
#include "lib/tools/relay.h"
#include "netmeter/grpc.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr char kOff[] = "off";

constexpr rlim_t kDescriptors = 4096;

// What gRPC gets from all its peers in a second: some 900 calls, or 25,000 of
// the smallest frames. magmad calls once a minute.
constexpr size_t kGrpcCostPerSecond = 1024 * 1024;

constexpr char kDescription[] =
    "Publishes the bytes that the processes of this host sent and received: "
    "all\n"
    "but those of services that registered themselves, as these publish their\n"
    "own. Runs until SIGTERM; waits for netmeter-loader and follows its "
    "reloads.";

constexpr char kEpilog[] =
    "Prometheus scrapes /metrics (text or OpenMetrics, as it asks). magmad "
    "polls\n"
    "Service303 in place of kernsnoopd, under the same names of metrics; what "
    "of a\n"
    "reply is over 4 MB is summed under the name \"overflow\".\n"
    "\n"
    "Needs no root: membership in the group of the meter's pins, usually "
    "netmeter.\n"
    "There is no authentication: who reaches the ports reads the metrics. "
    "Only\n"
    "addresses of loopback are accepted unless --allow-public is given.\n"
    "\n"
    "Examples:\n"
    "  netmeter-exporter\n"
    "  netmeter-exporter --all --service303 off\n"
    "  curl http://127.0.0.1:9384/metrics\n"
    "\n"
    "One line on stderr says where it serves, with the true ports; a second one "
    "that\n"
    "it waits for the meter, if so.\n"
    "\n"
    "Exit status: 0 after SIGTERM or SIGINT; 1 failed, one line on stderr "
    "says\n"
    "why; 2 wrong usage.";

struct Flags {
  std::string listen = "127.0.0.1:9384";
  std::string service303 = "127.0.0.1:50084";
  std::string service_name = "kernsnoopd";
  std::string pin_dir = MeterOptions().pin_dir;
  bool all = false;
  bool allow_public = false;
};

int Fail(const absl::Status& status, int exit_status = kFailed) {
  std::fprintf(stderr, "netmeter-exporter: %s\n",
               ToTerminal(std::string(status.message())).c_str());
  return exit_status;
}

// Of an option: nothing if it is "off".
absl::StatusOr<std::unique_ptr<ListenAddress>> AddressOf(
    const std::string& option, const std::string& text, bool allow_public) {
  std::unique_ptr<ListenAddress> result;
  if (text == kOff) return result;
  const auto address = ParseListenAddress(text);
  if (!address.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", address.status().message()));
  }
  if (!address->loopback && !allow_public) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", text,
                     " can be reached from other hosts, and there is no "
                     "authentication; if that is wanted, add --allow-public"));
  }
  result.reset(new ListenAddress(*address));
  return result;
}

// Answers requests; with what it has, where that was read in the same round.
class Pages {
 public:
  Pages(std::shared_ptr<const Meter> meter, FamilyScope scope)
      : meter_(std::move(meter)), scope_(scope) {}

  std::shared_ptr<Front::Reply> Answer(const HttpRequest& request,
                                       uint64_t round) {
    const bool head_only = request.method == "HEAD";
    if (request.method != "GET" && !head_only) {
      return Small(405, "Only GET and HEAD are answered.\n", false,
                   "Allow: GET, HEAD\r\n");
    }
    if (request.path == "/") {
      return Small(200,
                   absl::StrCat("netmeter-exporter ", kVersion,
                                "\nMetrics are at /metrics.\n"),
                   head_only);
    }
    if (request.path != "/metrics") {
      return Small(404, "Metrics are at /metrics.\n", head_only);
    }
    if (round != round_) metrics_.clear();
    round_ = round;
    const TextFormat format = NegotiateFormat(request.accept);
    std::shared_ptr<Front::Reply>& kept = metrics_[{format, head_only}];
    if (kept == nullptr) {
      HttpReply reply;
      reply.content_type = ContentType(format);
      reply.extra_header = "Vary: Accept\r\n";
      reply.body = ToText(Collect(meter_.get(), scope_), format);
      kept = std::make_shared<Front::Reply>(FormatHttpReply(reply, head_only));
    }
    return kept;
  }

 private:
  static std::shared_ptr<Front::Reply> Small(int status, std::string body,
                                             bool head_only,
                                             const char* extra_header = "") {
    HttpReply reply;
    reply.status = status;
    reply.extra_header = extra_header;
    reply.body = std::move(body);
    return std::make_shared<Front::Reply>(FormatHttpReply(reply, head_only));
  }

  const std::shared_ptr<const Meter> meter_;
  const FamilyScope scope_;
  uint64_t round_ = 0;
  std::map<std::pair<TextFormat, bool>, std::shared_ptr<Front::Reply>> metrics_;
};

// Without a port: the connections come from Front. Its limits are for peers
// that speak HTTP/2 well and mean ill.
std::unique_ptr<grpc::Server> StartServer(grpc::Service* service) {
  constexpr int kSecond = 1000;
  grpc::ResourceQuota quota("netmeter-exporter");
  quota.Resize(64 * 1024 * 1024);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(64 * 1024);  // requests are empty
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 16);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 600 * kSecond);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60 * kSecond);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20 * kSecond);
  // magmad keeps its channels alive, every 30 seconds.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10 * kSecond);
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

int Run(const Flags& flags) {
  const auto http = AddressOf("--listen", flags.listen, flags.allow_public);
  if (!http.ok()) return Fail(http.status(), kUsage);
  const auto grpc =
      AddressOf("--service303", flags.service303, flags.allow_public);
  if (!grpc.ok()) return Fail(grpc.status(), kUsage);
  if (*http == nullptr && *grpc == nullptr) {
    return Fail(absl::InvalidArgumentError(
                    "--listen and --service303 are both off: nothing to do"),
                kUsage);
  }

  // Replies of some megabytes, made by any of gRPC's threads, would else stay
  // in the heap of each.
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 256 * 1024);

  // For 128 connections of each sort, of which gRPC's have four.
  rlimit descriptors;
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0 &&
      descriptors.rlim_cur < kDescriptors) {
    descriptors.rlim_cur = std::min(descriptors.rlim_max, kDescriptors);
    setrlimit(RLIMIT_NOFILE, &descriptors);
  }

  // Before there are threads, so that they inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const UniqueFd stop(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!stop.ok()) return Fail(ErrnoStatus(errno, "signalfd"));

  MeterOptions meter_options;
  meter_options.pin_dir = flags.pin_dir;
  meter_options.wait_for_loader = true;
  auto opened = Meter::Open(meter_options);
  if (!opened.ok()) return Fail(opened.status(), kUsage);
  const std::shared_ptr<const Meter> meter = std::move(*opened);

  Service303Options service_options;
  service_options.name = flags.service_name;
  service_options.version = kVersion;
  service_options.metrics.scope =
      flags.all ? MagmaScope::kHost : MagmaScope::kUnregistered;
  Service303 service(meter, service_options);
  std::unique_ptr<grpc::Server> server;

  Front::Options options;
  const FamilyScope scope =
      flags.all ? FamilyScope::kHost : FamilyScope::kUnregistered;
  Pages pages(meter, scope);
  options.answer = [&pages](const HttpRequest& request, uint64_t round) {
    return pages.Answer(request, round);
  };
  Relay relay(kGrpcCostPerSecond, options.max_connections);
  options.adopt = [&server, &relay](int fd) {
    absl::StatusOr<UniqueFd> end = relay.Add(UniqueFd(fd));
    if (!end.ok()) return false;
    grpc::AddInsecureChannelFromFd(server.get(), end->Release());
    return true;
  };
  Front front(options);
  std::vector<std::string> serving;
  if (*http != nullptr) {
    const auto name = front.ListenHttp(**http);
    if (!name.ok()) {
      return Fail(absl::Status(name.status().code(),
                               absl::StrCat("--listen ", flags.listen, ": ",
                                            name.status().message())));
    }
    serving.push_back(absl::StrCat("http://", *name, "/metrics"));
  }
  if (*grpc != nullptr) {
    const auto name = front.ListenGrpc(**grpc);
    if (!name.ok()) {
      return Fail(absl::Status(name.status().code(),
                               absl::StrCat("--service303 ", flags.service303,
                                            ": ", name.status().message())));
    }
    server = StartServer(&service);
    if (server == nullptr) {
      return Fail(absl::InternalError("the gRPC server does not start"));
    }
    const absl::Status started = relay.Start();
    if (!started.ok()) return Fail(started);
    serving.push_back(absl::StrCat("magma.orc8r.Service303 at ", *name));
  }
  // stderr, with all else that it says: nothing of it is output.
  std::fprintf(stderr, "netmeter-exporter: serving %s\n",
               absl::StrJoin(serving, " and ").c_str());
  const auto health = meter->ReadHealth();
  if (!health.ok()) Fail(health.status());

  const absl::Status status = front.Run(stop.get());
  // Shutdown() cancels what is left after a second, and then waits for it; what
  // a peer that floods gRPC has queued there can take minutes.
  signal(SIGALRM, [](int) { _exit(0); });
  alarm(3);
  if (server != nullptr) {
    server->Shutdown(std::chrono::system_clock::now() +
                     std::chrono::seconds(1));
  }
  const int exit_status = status.ok() ? 0 : Fail(status);
  std::fflush(nullptr);
  // Not ~Server(): where gRPC once found no memory for a thread of its timers,
  // grpc_shutdown() waits for that thread for ever.
  _exit(exit_status);
}

int Main(int argc, char** argv) {
  CLI::App app(kDescription, "netmeter-exporter");
  app.footer(kEpilog);
  app.set_version_flag("--version",
                       std::string("netmeter-exporter ") + kVersion);
  app.get_formatter()->column_width(34);

  Flags flags;
  app.add_option("--listen", flags.listen,
                 "Address of /metrics, or off; port 0: any")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--service303", flags.service303,
                 "Address of magma.orc8r.Service303, or off")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--service-name", flags.service_name,
                 "What GetServiceInfo answers")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_flag("--all", flags.all,
               "Publish everything, also what services publish themselves");
  app.add_flag("--allow-public", flags.allow_public,
               "Accept addresses that other hosts can reach");
  app.add_option("--pin-dir", flags.pin_dir,
                 "Where netmeter-loader pinned the maps")
      ->type_name("DIR")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "netmeter-exporter: %s (see --help)\n", error.what());
    return kUsage;
  }
  // An unset variable in quotes must not mean the default.
  if (flags.pin_dir.empty()) {
    std::fprintf(stderr,
                 "netmeter-exporter: --pin-dir: expected a path, not '' (see "
                 "--help)\n");
    return kUsage;
  }
  return Run(flags);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) { return netmeter::internal::Main(argc, argv); }
