// SPDX-License-Identifier: BSD-3-Clause
// netmeter-ipfix: sends the records of `netmeter flows --protobuf` to a collector of
// IPFIX. It is a program of its own, because libfixbuf needs glib, and `netmeter` is also
// linked without shared libraries.

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/ipfix/collector.h"
#include "lib/apps/ipfix/messages.h"
#include "lib/base/flags.h"
#include "lib/base/prepare_process.h"
#include "lib/base/privileges.h"
#include "lib/base/standard_output.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/users.h"
#include "lib/base/version.h"
#include "netmeter/connections.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kFooter[] =
    R"(netmeter flows --ipfix starts this program. It reads standard input, and ends with
it. Over UDP the templates are sent again each 20 seconds. If a collector is away,
data records are lost and counted, and it is tried again each second at most.

Root becomes the user nobody.

Exit status: 0 all was sent, as far as is known; 1 failed, or some was not sent:
one line on stderr says why; 2 wrong usage.

Examples:
  netmeter flows --follow --protobuf | netmeter-ipfix 192.0.2.1:4739)";

constexpr std::chrono::seconds kRepeatTemplates(20);

int Fail(absl::string_view message, int exit_status) {
  std::fprintf(stderr, "netmeter-ipfix: %s\n", ToTerminal(message).c_str());
  return exit_status;
}

int WrongUsage(absl::string_view message) {
  return Fail(absl::StrCat(message, " (see --help)"), 2);
}

// The first Ctrl-C, or a stop of the unit, is for the writer of the stream, whose last
// records are to be sent. The second one ends this program.
void OnSignal(int) {}

void IgnoreFirstSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    sigaction(signal, &action, nullptr);
  }
}

// A root without the right to do so, such as that of a user namespace, stays root without
// any capability.
absl::Status BecomeNobody() {
  if (geteuid() == 0) {
    // Also empties the bounding set. The user nobody has no right to do so.
    NETMETER_RETURN_IF_ERROR(DropPrivileges({CAP_SETUID, CAP_SETGID}));
    const auto nobody = FindUserByName("nobody");
    if (nobody) BecomeUser(*nobody);
  }
  return DropPrivileges({});
}

// Sends standard input.
class Sender {
 public:
  Sender(const MessageOptions& options, Collector* collector)
      : options_(options), collector_(*collector) {}

  absl::Status Run() {
    NETMETER_RETURN_IF_ERROR(BeginSession());
    char bytes[64 * 1024];
    for (;;) {
      const ssize_t length = read(STDIN_FILENO, bytes, sizeof(bytes));
      if (length < 0 && errno == EINTR) continue;
      if (length < 0) return ErrnoStatus(errno, "read standard input");
      if (length == 0) {
        collector_.Check();
        return absl::OkStatus();
      }
      if (collector_.Connect()) NETMETER_RETURN_IF_ERROR(BeginSession());
      NETMETER_RETURN_IF_ERROR(
          decoder_.Append({bytes, static_cast<size_t>(length)}));
      const absl::Status added = AddRecords();
      NETMETER_RETURN_IF_ERROR(messages_->Flush());
      NETMETER_RETURN_IF_ERROR(added);
    }
  }

 private:
  absl::Status BeginSession() {
    NETMETER_ASSIGN_OR_RETURN(
        messages_, Messages::Make(options_, [this](absl::string_view message,
                                                   size_t records) {
          collector_.Send(message, records);
        }));
    return absl::OkStatus();
  }

  absl::Status AddRecords() {
    for (;;) {
      NETMETER_ASSIGN_OR_RETURN(const bool complete, decoder_.Next(&record_));
      if (!complete) return absl::OkStatus();
      NETMETER_RETURN_IF_ERROR(messages_->Add(record_));
    }
  }

  const MessageOptions options_;
  Collector& collector_;
  FlowDecoder decoder_;
  FlowRecord record_;
  std::unique_ptr<Messages> messages_;
};

int Main(int argc, char** argv) {
  PrepareProcess();
  std::string address;
  Collector::Protocol protocol = Collector::kUdp;
  MessageOptions options;
  Flags flags("Sends records of netmeter flows to a collector of IPFIX",
              "netmeter-ipfix");
  flags.AddVersion(std::string("netmeter-ipfix ") + kVersion);
  flags
      .AddOption("COLLECTOR", &address,
                 "Where the collector listens; IPv6 in brackets")
      .Type("HOST:PORT")
      .Required();
  flags
      .AddChoice("--protocol", &protocol,
                 std::map<std::string, Collector::Protocol>{
                     {"udp", Collector::kUdp}, {"tcp", Collector::kTcp}},
                 "How to send: udp or tcp")
      .Type("NAME")
      .Default("udp");
  flags
      .AddOption("--domain", &options.domain,
                 "The observation domain, which tells exporters apart")
      .Type("N")
      .ShowDefault();
  flags
      .AddOption("--enterprise", &options.enterprise,
                 "The enterprise number of the elements with names")
      .Type("N")
      .InRange(1, INT32_MAX, Option::InHelp::kNo)
      .ShowDefault();
  flags.SetFooter(kFooter);
  std::string help;
  const absl::Status parsed = flags.Parse(argc, argv, &help);
  if (!parsed.ok()) return WrongUsage(parsed.message());
  if (!help.empty()) {
    const absl::Status written = WriteToStandardOutput(help);
    return written.ok() ? 0 : Fail(written.message(), 1);
  }
  const auto collector = Collector::Make(address, protocol);
  if (!collector.ok()) return WrongUsage(collector.status().message());
  if (protocol == Collector::kUdp) options.repeat = kRepeatTemplates;
  IgnoreFirstSignals();
  absl::Status status = BecomeNobody();
  if (status.ok()) status = (*collector)->Resolve();
  if (status.ok()) (*collector)->Connect();  // tells early that nobody is there
  if (status.ok()) status = Sender(options, collector->get()).Run();
  const uint64_t not_sent = (*collector)->not_sent();
  if (not_sent != 0) {
    Fail(absl::StrCat(not_sent, " data records were not sent"), 1);
  }
  if (!status.ok()) return Fail(status.message(), 1);
  return not_sent == 0 ? 0 : 1;
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) { return netmeter::internal::Main(argc, argv); }
