// SPDX-License-Identifier: BSD-3-Clause
// netmeter-exporter publishes all that the meter counts, or with --omit-registered all
// except what registered services publish themselves. It needs only the privilege to
// read the maps, and no configuration.

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/apps/exporter/budget_metrics.h"
#include "lib/apps/exporter/estimate.h"
#include "lib/apps/exporter/exporter_flags.h"
#include "lib/apps/exporter/http_peer.h"
#include "lib/apps/exporter/listen_address.h"
#include "lib/apps/exporter/reply_cache.h"
#include "lib/apps/exporter/server.h"
#include "lib/base/privileges.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/unique_fd.h"
#include "lib/base/version.h"
#include "lib/publish/exposition.h"
#include "lib/publish/families.h"
#include "lib/publish/service_info.h"
#include "netmeter/magma.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kFailed = 1;

// Enough for all connections of Server.
constexpr rlim_t kDescriptors = 8192;

int Fail(const absl::Status& status, int exit_status = kFailed) {
  std::fprintf(stderr, "netmeter-exporter: %s\n",
               ToTerminal(std::string(status.message())).c_str());
  return exit_status;
}

// The address in an option; null if it is "off". Without `socket_group`, Unix sockets are
// none.
absl::StatusOr<std::unique_ptr<ListenAddress>> AddressOf(
    const std::string& option, const std::string& text, bool allow_public,
    const std::string* socket_group) {
  std::unique_ptr<ListenAddress> result;
  if (text == kOff) return result;
  const auto address =
      socket_group != nullptr && absl::StartsWith(text, "unix:")
          ? ParseUnixAddress(text, *socket_group)
          : ParseListenAddress(text);
  if (!address.ok()) {
    // The other error of a Unix socket is that of its path.
    const bool of_group = absl::IsNotFound(address.status());
    return absl::InvalidArgumentError(
        absl::StrCat(of_group ? "--socket-group" : option, ": ",
                     address.status().message()));
  }
  if (!address->loopback && !allow_public) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", text,
                     " can be reached from other hosts, and there is no "
                     "authentication: to allow this, add --allow-public"));
  }
  result.reset(new ListenAddress(*address));
  return result;
}

// Listens at an option's address, and adds a description to `serving`. Does nothing if
// `address` is null.
absl::Status Listen(const std::string& option, const ListenAddress* address,
                    const std::string& before, const std::string& after,
                    Server::MakePeer make_peer, Server* server,
                    std::vector<std::string>* serving) {
  if (address == nullptr) return absl::OkStatus();
  const auto name = server->Listen(*address, std::move(make_peer));
  if (!name.ok()) {
    return absl::Status(name.status().code(),
                        absl::StrCat(option, ": ", name.status().message()));
  }
  serving->push_back(absl::StrCat(before, *name, after));
  return absl::OkStatus();
}

// Adds the budgets. Prints an error on stderr when it differs from the previous one.
void AddBudgets(const FamilySet& chosen, BudgetMetrics* budgets,
                std::vector<Family>* families) {
  const absl::Status before = budgets->status();
  budgets->AddTo(chosen, BudgetMetrics::Clock::now(), families);
  if (!budgets->status().ok() && budgets->status() != before) {
    Fail(budgets->status());
  }
}

// The pages over HTTP.
class Pages {
 public:
  Pages(std::shared_ptr<const Meter> meter, const PublishOptions& options,
        BudgetMetrics* budgets, ReplyCache* replies)
      : replies_(replies), text_only_(options.names_without_total) {
    const auto buffer = std::make_shared<SampleBuffer>();
    for (const TextFormat format :
         {TextFormat::kPrometheus, TextFormat::kOpenMetrics}) {
      kinds_[format] = replies->Add([meter, options, budgets, format, buffer] {
        std::vector<Family> families =
            Collect(meter.get(), options, buffer.get());
        AddBudgets(options.families, budgets, &families);
        return ToText(families, format);
      });
    }
  }

  HttpAnswer PageFor(const HttpRequest& request) const {
    if (request.method != "GET" && request.method != "HEAD") {
      return Text(405, "Only GET and HEAD are answered.\n",
                  "Allow: GET, HEAD\r\n");
    }
    if (request.path == "/") {
      return Text(200, absl::StrCat("netmeter-exporter ", kVersion,
                                    "\nMetrics are at /metrics.\n"));
    }
    if (request.path != "/metrics") {
      return Text(404, "Metrics are at /metrics.\n");
    }
    const TextFormat format =
        text_only_ ? TextFormat::kPrometheus : NegotiateFormat(request.accept);
    HttpAnswer answer;
    answer.reply.content_type = ContentType(format);
    answer.body =
        replies_->Get(kinds_.at(format), AcceptsGzip(request.accept_encoding));
    answer.reply.extra_header = absl::StrCat(
        "Vary: Accept, Accept-Encoding\r\n",
        answer.body->gzipped() ? "Content-Encoding: gzip\r\n" : "");
    return answer;
  }

 private:
  static HttpAnswer Text(int status, std::string text,
                         const char* extra_header = "") {
    HttpAnswer answer;
    answer.reply.status = status;
    answer.reply.extra_header = extra_header;
    answer.reply.body = std::move(text);
    return answer;
  }

  ReplyCache* const replies_;
  const bool text_only_;
  std::map<TextFormat, int> kinds_;  // kinds of replies
};

// The methods of Service303.
GrpcService MakeService303(std::shared_ptr<const Meter> meter,
                           const ExporterFlags& flags, ReplyCache* replies) {
  const auto metrics = std::make_shared<MagmaMetrics>(meter, flags.magma);
  const auto info = std::make_shared<ServiceInfo>(flags.service_name, kVersion);
  GrpcService service;
  service.replies = replies;
  service.path = kService303Path;
  service.methods["GetMetrics"] = replies->Add([metrics] {
    std::string bytes = metrics->Serialize();
    if (bytes.empty()) throw std::bad_alloc();  // empty means out of memory
    return bytes;
  });
  service.methods["GetServiceInfo"] =
      replies->Add([info, meter] { return info->Serialize(meter.get()); });
  service.methods["GetOperationalStates"] =
      replies->Add([] { return std::string(kNoOperationalStates); });
  service.methods["ReloadServiceConfig"] =
      replies->Add([] { return std::string(kReloadUnsupported); });
  // The reply is sent in this turn, before the loop sees the signal.
  if (flags.allow_stop) {
    service.methods["StopService"] = replies->Add([] {
      raise(SIGTERM);
      return std::string();
    });
  }
  return service;
}

// Prepares the process: enough descriptors, no SIGPIPE. Returns a descriptor that
// becomes readable at SIGTERM or SIGINT.
absl::StatusOr<UniqueFd> PrepareProcess() {
  rlimit descriptors;
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0 &&
      descriptors.rlim_cur < kDescriptors) {
    descriptors.rlim_cur = std::min(descriptors.rlim_max, kDescriptors);
    setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  UniqueFd stop(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!stop.ok()) return ErrnoStatus(errno, "signalfd");
  return stop;
}

// Prints what replies cost with the present series.
int PrintEstimate(const ExporterFlags& flags) {
  MeterOptions options;
  options.pin_dir = flags.pin_dir;
  const auto meter = Meter::Open(options);
  if (!meter.ok()) return Fail(meter.status());
  const auto text = Estimate(**meter, flags);
  if (!text.ok()) return Fail(text.status());
  return PrintFromExporter(*text);
}

int Run(const ExporterFlags& flags) {
  if (flags.estimate) return PrintEstimate(flags);
  const auto http = AddressOf("--listen", flags.listen, flags.allow_public,
                              &flags.socket_group);
  if (!http.ok()) return Fail(http.status(), kExporterUsage);
  const auto grpc =
      AddressOf("--service303", flags.service303, flags.allow_public, nullptr);
  if (!grpc.ok()) return Fail(grpc.status(), kExporterUsage);
  if (*http == nullptr && *grpc == nullptr) {
    return Fail(absl::InvalidArgumentError(
                    "nothing to serve: --listen and --service303 are both off"),
                kExporterUsage);
  }
  // There is no authentication, so another host must not be able to stop the exporter.
  if (flags.allow_stop && (*grpc == nullptr || !(*grpc)->loopback)) {
    return Fail(absl::InvalidArgumentError(
                    "--allow-stop: needs --service303 with a loopback address"),
                kExporterUsage);
  }
  const auto stop = PrepareProcess();
  if (!stop.ok()) return Fail(stop.status());

  MeterOptions meter_options;
  meter_options.pin_dir = flags.pin_dir;
  meter_options.wait_for_loader = true;
  auto opened = Meter::Open(meter_options);
  if (!opened.ok()) return Fail(opened.status(), kExporterUsage);
  const std::shared_ptr<const Meter> meter = std::move(*opened);

  ReplyCache replies((ReplyCache::Options()));
  BudgetMetrics budgets(*http == nullptr ? kOff : flags.budgets,
                        flags.database);
  const Pages pages(meter, flags.publish, &budgets, &replies);
  const HttpPeer::Handler handler = [&pages](const HttpRequest& request) {
    return pages.PageFor(request);
  };
  const GrpcService service303 = MakeService303(meter, flags, &replies);
  const Server::MakePeer make_grpc_peer = MakeGrpcPeers(&service303);
  if (*grpc != nullptr && make_grpc_peer == nullptr) {
    return Fail(absl::UnimplementedError(
                    "--service303: this program was built without it"),
                kExporterUsage);
  }

  Server server(&replies);
  std::vector<std::string> serving;
  absl::Status status = Listen(
      absl::StrCat("--listen ", flags.listen), http->get(), "http://",
      "/metrics",
      [&handler](UniqueFd fd) {
        return std::make_unique<HttpPeer>(std::move(fd), &handler);
      },
      &server, &serving);
  if (status.ok()) {
    status = Listen(absl::StrCat("--service303 ", flags.service303),
                    grpc->get(), "magma.orc8r.Service303 at ", "",
                    make_grpc_peer, &server, &serving);
  }
  // Before any other thread starts, because a thread keeps its own privileges. Start
  // threads below this line only (privileges_root_test looks at every thread).
  if (status.ok()) status = DropPrivilegesOfReader();
  if (!status.ok()) return Fail(status);
  // To stderr, like all other messages: none is output.
  std::fprintf(stderr, "netmeter-exporter: serving %s\n",
               absl::StrJoin(serving, " and ").c_str());
  const auto health = meter->ReadHealth();
  if (!health.ok()) Fail(health.status());
  std::vector<Family> first;  // report an error in the budgets at once
  AddBudgets(flags.publish.families, &budgets, &first);

  status = server.Run(stop->get());
  return status.ok() ? 0 : Fail(status);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) {
  netmeter::internal::ExporterFlags flags;
  int exit_status;
  if (!netmeter::internal::ParseExporterFlags(argc, argv, &flags,
                                              &exit_status)) {
    return exit_status;
  }
  return netmeter::internal::Run(flags);
}
