// SPDX-License-Identifier: BSD-3-Clause
// `netmeter flows`: a record of each connection that ends while the command runs.

#include <netinet/in.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/clients/clients.h"
#include "lib/apps/connections/filter.h"
#include "lib/apps/connections/flow.h"
#include "lib/apps/connections/follower.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/connections/ipfix_child.h"
#include "lib/apps/netmeter/options.h"
#include "lib/apps/netmeter/uplinks.h"
#include "lib/base/status_util.h"
#include "lib/base/text_table.h"
#include "lib/netlink/diag_message.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kOutputBytes = 64 * 1024;
constexpr int kPollMs = 250;
// A stream may run for weeks, in which clients change.
constexpr std::chrono::seconds kClientsFor{10};

constexpr char kFlowsFooter[] = R"(
A record is printed when a connection ends, when another socket (UDP, ICMP, SCTP, raw)
is closed, or when a flow of such a socket has been silent for --idle. --active adds
records of open flows (end: active), each with what the flow counted since its last
record. --follow prints each record at once, until a signal. Without --follow all are
printed at the end: after --duration, or at a signal. Flows that are open at the end have
a record, too (end: open), and each series has a line for its traffic without a record:
packets without a socket, and lost records. So the sum of all lines is what netmeter list
counted in that time, to the byte.

A line on stderr says when the command is attached, which takes a second or some. A
script may begin its traffic then.

In a table, TIME is the local time at which a record ended. DURATION begins with ">" if
the connection is older than this command; JSON has "partial": 1. PROCESS is the name and
pid of the process that made the socket, or only the pid if it has ended. On a
terminal, lines fit the width: a narrow one shows fewer columns. A file or a pipe
gets all columns. docs/output.md lists the fields of --json.

With --forwarded, records of kind "forwarded" have what this host forwards for others:
LOCAL is the client, REMOTE its peer, and SERVICE the interface of the client. PROCESS
is the client, too, by its name if --client-names has one. --clients mac and
--clients wireguard add fields to --json: the address of the client's frames, and the
key of the peer.

This command needs root: it loads its own BPF programs, which go when it ends or is
killed. While it does not run, nothing is spent. After a kill, each packet costs a little
more until another netmeter flows has run, or until a load that changes something.

Exit status: 0 printed; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter flows --duration 60
  netmeter flows --follow --service subscriberdb
  netmeter flows --follow --json > flows.jsonl
  netmeter flows --forwarded --ipfix 192.0.2.1:4739 --active 60
  netmeter flows --follow --forwarded --client-names /var/lib/misc/dnsmasq.leases
)";

std::string WrongNumber(const std::string& text) {
  uint32_t number;
  return absl::SimpleAtoi(text, &number)
             ? ""
             : absl::StrCat("expected a number, not '", text, "'");
}

volatile sig_atomic_t stopped = 0;
void OnSignal(int) { stopped = 1; }

class FlowsCommand : public Command {
 public:
  std::string Name() const override { return "flows"; }

  std::string Description() const override {
    return "Prints each connection that ends: process, time, duration, bytes";
  }

  void Declare(Flags* flags) override {
    AddPinDir(flags, &follow_.pin_dir);
    flags->AddFlag("--follow", &follows_,
                   "Print each record at once, until a signal");
    flags->AddOption("--duration", &duration_, "Stop after this time")
        .Type("SECONDS")
        .InRange(0.1, 86400.0 * 365, Option::InHelp::kNo);
    flags
        ->AddOption("--service", &follow_.filter.services,
                    "Only this service name, of any kind")
        .Type("NAME");
    flags
        ->AddOption("--destination", &follow_.filter.destinations,
                    "Only this destination")
        .Type("NAME");
    flags
        ->AddOption("--uplink", &uplinks_,
                    "Only flows over this uplink; -: over none")
        .Type("NAME");
    flags
        ->AddOption("--address", &addresses_,
                    "Only flows with an address in this prefix")
        .Type("PREFIX");
    flags->AddOption("--port", &ports_, "Only flows with this port")
        .Type("PORT")
        .InRange(0, 65535, Option::InHelp::kNo);
    flags->AddOption("--protocol", &protocols_, "tcp, udp, icmp or sctp")
        .Type("NAME");
    flags->AddFlag("--forwarded", &follow_.forwarded,
                   "Also flows that this host forwards, if there are uplinks");
    AddClientOptions(flags, &client_options_);
    const Option json = flags->AddFlag(
        "--json", &json_,
        "One JSON array, one line per record; with --follow only lines");
    const Option units = AddUnits(flags, &sizes_);
    units.Excludes(json);
    const Option protobuf =
        flags
            ->AddFlag(
                "--protobuf", &protobuf_,
                "Messages of lib/flows/flows.proto, each after its length")
            .Excludes(json)
            .Excludes(units);
    DeclareIpfix(flags, {json, units, protobuf});
    flags
        ->AddOption("--label", &labels_,
                    "With --json or --protobuf: a label of each record")
        .Type("KEY=VALUE");
    flags
        ->AddOption("--idle", &idle_,
                    "A flow other than TCP's ends after this silence")
        .Type("SECONDS")
        .InRange(0.1, 86400.0, Option::InHelp::kNo)
        .ShowDefault();
    flags
        ->AddOption("--active", &active_,
                    "A record of each open flow, too, once in this time")
        .Type("SECONDS")
        .InRange(0.1, 86400.0, Option::InHelp::kNo);
    flags->AddOption("--max-flows", &max_flows_, "The maximum of open flows")
        .Type("N")
        .InRange(1, 4194304, Option::InHelp::kNo)
        .ShowDefault();
    flags
        ->AddOption("--buffer", &buffer_mib_,
                    "MiB for unread records: a power of two")
        .Type("MIB")
        .InRange(1, 1024, Option::InHelp::kNo)
        .ShowDefault();
    flags->SetFooter(kFlowsFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckPinDir(follow_.pin_dir));
    if (!labels_.empty() && !json_ && !protobuf_) {
      return absl::InvalidArgumentError("--label: needs --json or --protobuf");
    }
    if (!collector_.empty()) follows_ = protobuf_ = true;
    if (!follows_ && duration_ == 0) {
      return absl::InvalidArgumentError("--follow or --duration is needed");
    }
    if (client_options_.any() && !follow_.forwarded) {
      return absl::InvalidArgumentError(
          "--clients and --client-names need --forwarded");
    }
    if ((buffer_mib_ & (buffer_mib_ - 1)) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--buffer: expected a power of two, not ", buffer_mib_));
    }
    for (const int port : ports_) {
      follow_.filter.ports.push_back(static_cast<uint16_t>(port));
    }
    for (const std::string& uplink : uplinks_) {
      follow_.filter.uplinks.push_back(uplink == "-" ? "" : uplink);
    }
    for (const std::string& address : addresses_) {
      NETMETER_RETURN_IF_ERROR(AddAddress(address, &follow_.filter));
    }
    for (const std::string& name : protocols_) {
      Transport transport = Transport::kOther;
      for (const Transport known : {Transport::kTcp, Transport::kUdp,
                                    Transport::kIcmp, Transport::kSctp}) {
        if (absl::EqualsIgnoreCase(name, TransportName(known))) {
          transport = known;
        }
      }
      if (transport == Transport::kOther) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--protocol: expected tcp, udp, icmp or sctp, not '", name, "'"));
      }
      transports_.push_back(transport);
    }
    auto origin = Origin::Make(labels_);
    if (!origin.ok()) return origin.status();
    origin_ = *std::move(origin);
    follow_.refuses = !follow_.filter.services.empty() ||
                      !follow_.filter.destinations.empty() ||
                      !follow_.filter.uplinks.empty() || !transports_.empty();
    follow_.idle =
        std::chrono::milliseconds(static_cast<int64_t>(idle_ * 1000));
    follow_.active =
        std::chrono::milliseconds(static_cast<int64_t>(active_ * 1000));
    follow_.max_flows = static_cast<uint32_t>(max_flows_);
    follow_.buffer_bytes = static_cast<uint32_t>(buffer_mib_) << 20;
    return absl::OkStatus();
  }

  int Run() override {
    units_ = sizes_.Or(MeterUnits(follow_.pin_dir));
    const absl::Status known = CheckUplinks(follow_.pin_dir, uplinks_);
    if (!known.ok()) return Fail(known.message());
    auto clients = Clients::Read(client_options_);
    if (!clients.ok()) return Fail(clients.status().message());
    clients_ = *std::move(clients);
    next_clients_ = std::chrono::steady_clock::now() + kClientsFor;
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    // A second signal ends the program even if a write blocks.
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      sigaction(signal, &action, nullptr);
    }
    pid_t ipfix = 0;
    if (!collector_.empty()) {
      const auto child = StartIpfix(IpfixArguments());
      if (!child.ok()) return Fail(child.status().message());
      ipfix = *child;
    }
    auto started = Follower::Start(follow_);
    if (!started.ok()) return Fail(started.status().message());
    Follower& follower = **started;
    names_ = std::make_unique<FlowNames>(follower.maps());
    std::cerr << "netmeter: attached: connections that begin now are seen "
                 "from their beginning\n";
    if (IsTable()) output_ += layout_.Header();
    if (follows_) Flush();
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::duration<double>(duration_));
    const Follower::Body body = [this,
                                 &follower](const nm_flow_record& record) {
      const uint64_t moves = names_->Moves();
      FlowRow row = names_->RowOf(record, follower.WireNameOf(record));
      if (WantsSeries(row)) {
        if (row.is_forwarded()) NameClient(&row.client, LocalAddress(row));
        Emit(row);
      } else {
        follower.Refuse(record.state.slot, moves);
      }
    };
    absl::Status status;
    while (stopped == 0 && exit_status_ == 0 && status.ok()) {
      int wait_ms = kPollMs;
      if (duration_ != 0) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            end - std::chrono::steady_clock::now());
        if (left.count() <= 0) break;
        wait_ms = static_cast<int>(std::min<int64_t>(wait_ms, left.count()));
      }
      status = follower.Poll(wait_ms, body);
      KnowUnrecorded(follower);
      EmitLost(follower);
      if (follows_) Flush();
      if (exit_status_ == 0 && WaitForLostReader({})) exit_status_ = kExitError;
    }
    const int exit_status = Finish(&follower, body, status);
    return ipfix == 0 ? exit_status : std::max(exit_status, FinishIpfix(ipfix));
  }

 private:
  void DeclareIpfix(Flags* flags, const std::vector<Option>& formats) {
    const Option collector =
        flags
            ->AddOption("--ipfix", &collector_,
                        "Send records to this collector of IPFIX at once\n"
                        "(needs netmeter-ipfix)")
            .Type("HOST:PORT");
    for (const Option& format : formats) collector.Excludes(format);
    flags
        ->AddOption("--ipfix-protocol", &ipfix_protocol_,
                    "How it listens (default: udp)")
        .Type("NAME")
        .OneOf({"udp", "tcp"})
        .Needs(collector);
    flags
        ->AddOption("--ipfix-domain", &ipfix_domain_,
                    "The observation domain (default: 0)")
        .Type("N")
        .Check(WrongNumber)
        .Needs(collector);
    flags
        ->AddOption("--ipfix-enterprise", &ipfix_enterprise_,
                    "The enterprise number of elements with names")
        .Type("N")
        .Check(WrongNumber)
        .Needs(collector);
  }

  // netmeter-ipfix knows the defaults.
  std::vector<std::string> IpfixArguments() const {
    const std::pair<const char*, const std::string*> options[] = {
        {"--protocol", &ipfix_protocol_},
        {"--domain", &ipfix_domain_},
        {"--enterprise", &ipfix_enterprise_}};
    std::vector<std::string> arguments;
    for (const auto& [option, value] : options) {
      if (value->empty()) continue;
      arguments.push_back(option);
      arguments.push_back(*value);
    }
    arguments.push_back(collector_);
    return arguments;
  }

  bool IsTable() const { return !json_ && !protobuf_; }

  int Finish(Follower* follower, const Follower::Body& body,
             absl::Status status) {
    const absl::Status ended = follower->Stop(body);
    if (status.ok()) status = ended;
    auto rests = follower->Unrecorded();
    if (status.ok()) status = rests.status();
    if (rests.ok()) {
      for (const auto& row : RowsOf(*rests)) Emit(row.second);
    }
    EmitLost(*follower);
    if (json_ && !follows_) output_ += lines_ == 0 ? "[]\n" : "\n]\n";
    Flush();
    const nm_flow_stats stats = follower->Stats();
    if (stats.lost != 0) {
      std::cerr << absl::StrCat(
          "netmeter: ", stats.lost,
          " records were lost, because reading was too slow "
          "(give a larger --buffer)\n");
    }
    if (stats.full != 0) {
      std::cerr << "netmeter: the table of flows was full (give a larger "
                   "--max-flows)\n";
    }
    if (stats.unrecorded_full != 0) {
      std::cerr << "netmeter: the lines of unrecorded traffic are incomplete\n";
    }
    if (!status.ok()) return Fail(status.message());
    return exit_status_;
  }

  using UnrecordedKey = std::tuple<uint32_t, Kind, std::string, std::string,
                                   Transport, Path, std::string>;

  // One row for each series and reason.
  std::map<UnrecordedKey, FlowRow> RowsOf(
      const std::vector<FlowUnrecorded>& rests) {
    std::map<UnrecordedKey, FlowRow> rows;
    for (const FlowUnrecorded& rest : rests) {
      FlowRow row = names_->RowOf(rest.key, rest.value);
      const Sample& s = row.series;
      const auto found = rows.try_emplace(
          UnrecordedKey(row.reason, s.kind, s.name, s.destination, s.transport,
                        s.path, s.uplink),
          row);
      if (!found.second) AddRemainder(row, &found.first->second);
    }
    return rows;
  }

  // Looks up the names for unrecorded traffic early, before other series reuse the
  // slots.
  void KnowUnrecorded(const Follower& follower) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_names_) return;
    next_names_ = now + std::chrono::milliseconds(kPollMs);
    const auto rests = follower.Unrecorded();
    if (!rests.ok()) return;
    for (const FlowUnrecorded& rest : *rests) names_->Know(rest.key);
  }

  void NameClient(FlowClient* client, const std::string& address) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_clients_ && stopped == 0) {
      auto clients = Clients::Read(client_options_);
      if (clients.ok()) {
        clients_ = *std::move(clients);
      } else {
        std::cerr << "netmeter: note: clients are those of before: "
                  << ToTerminal(clients.status().message()) << "\n";
      }
      // Counted from here, because wg(8) may take its time.
      next_clients_ = std::chrono::steady_clock::now() + kClientsFor;
    }
    client->peer = clients_.PeerOf(address, client->interface_name);
    for (const std::string& identity : {client->peer, address, client->mac}) {
      if (client->name.empty()) client->name = clients_.NameOf(identity);
    }
    if (!clients_.has_macs()) client->mac.clear();
  }

  // Prints the number of lost records if it has grown.
  void EmitLost(const Follower& follower) {
    const nm_flow_stats stats = follower.Stats();
    if (stats.lost == lost_) return;
    lost_ = stats.lost;
    Add(names_->RowOfLost(stats.lost));
  }

  // A remainder of forwarded flows has all protocols.
  bool WantsSeries(const FlowRow& row) const {
    return MatchesSeries(follow_.filter, row) &&
           (transports_.empty() ||
            (row.is_forwarded() && row.line == FlowLine::kRemainder) ||
            std::find(transports_.begin(), transports_.end(),
                      row.series.transport) != transports_.end());
  }

  void Emit(const FlowRow& row) {
    if (WantsSeries(row) && Matches(follow_.filter, row)) Add(row);
  }

  void Add(const FlowRow& row) {
    lines_++;
    if (json_ && !follows_) output_ += lines_ == 1 ? "[\n" : ",\n";
    if (json_) {
      AppendJson(row, origin_, &output_);
      if (follows_) output_ += '\n';
    } else if (protobuf_) {
      AppendProtobuf(row, origin_, &output_);
    } else {
      output_ += TableLine(row, layout_, units_);
    }
    if (output_.size() >= kOutputBytes) Flush();
  }

  // After the first failure it writes nothing.
  void Flush() {
    if (exit_status_ == 0 && !output_.empty()) exit_status_ = Print(output_);
    output_.clear();
  }

  FollowOptions follow_;
  std::vector<std::string> uplinks_, addresses_, protocols_, labels_;
  Origin origin_;
  ClientOptions client_options_;
  Clients clients_;
  std::chrono::steady_clock::time_point next_clients_;
  std::vector<int> ports_;
  std::vector<Transport> transports_;
  bool follows_ = false;
  bool json_ = false;
  bool protobuf_ = false;
  std::string collector_, ipfix_protocol_, ipfix_domain_, ipfix_enterprise_;
  SizeOptions sizes_;
  SizeUnits units_ = SizeUnits::kBinary;
  double duration_ = 0;
  double idle_ = 60;
  double active_ = 0;  // 0: open flows have no record
  int max_flows_ = 262144;
  int buffer_mib_ = 8;

  const TextLayout layout_ = FlowLayout(TerminalWidth());
  std::unique_ptr<FlowNames> names_;
  std::chrono::steady_clock::time_point next_names_;
  std::string output_;
  int exit_status_ = 0;
  size_t lines_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewFlowsCommand() {
  return std::make_unique<FlowsCommand>();
}

}  // namespace internal
}  // namespace netmeter
