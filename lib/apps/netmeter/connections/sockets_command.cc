// SPDX-License-Identifier: BSD-3-Clause
// `netmeter sockets`: the sockets of the host, with their processes and services.

#include <netinet/in.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/apps/connections/fields.h"
#include "lib/apps/connections/format.h"
#include "lib/apps/connections/poll.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/options.h"
#include "lib/apps/netmeter/uplinks.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/netlink/dump.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kOutputBytes = 64 * 1024;
constexpr std::chrono::seconds kNamesWait{2};

constexpr char kSocketsFooter[] = R"(
COLUMNS is a list of:
  local, remote   address and port
  process         a process that has the socket open, its pid, and the number of
                  further descriptors; --json has all
  user            the name of the socket's user
  remote_name     the name of the remote address, by DNS and /etc/hosts; "-" for names
                  that do not come within two seconds
  any field of --json, such as tcpi_min_rtt
--json and --protobuf take fields alone, and processes for the list of them. Their
default is all. Elsewhere it is protocol, state, rqueue, wqueue, local, remote,
process, kind, service, destination, tcpi_rtt, tcpi_total_retrans, tcpi_bytes_sent
and tcpi_bytes_received; and uplink, if the configuration has uplinks.
Fields have the kernel's names: tcpi_* is struct tcp_info of linux/tcp.h, with times
in microseconds (tcpi_last_*: milliseconds) and rates in bytes a second; a table shows
ms and MiB. A field that this kernel lacks is left out. kind, service, destination and
uplink are those of the last packet, as in netmeter list; a socket in TIME_WAIT has none.
docs/output.md lists all fields.

On a terminal, lines fit the width: a narrow one shows fewer columns, unless
--columns names them, and "~" ends a text that is cut. A file or a pipe gets all.

The sockets are the tcp, udp, mptcp, sctp and raw ones of this network namespace. An
sctp socket has one line, and one more for each association. Without root there are
only the user's own processes, and no services.

Exit status: 0 printed; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter sockets --state established --sort tcpi_rtt
  netmeter sockets --service subscriberdb --port 443
  netmeter sockets --address 10.0.0.0/8 --columns local,remote,tcpi_snd_cwnd
  netmeter sockets --json | python3 -m json.tool
  netmeter sockets --csv --columns remote_address,user,tcpi_bytes_sent > sockets.csv
  netmeter sockets --json --interval 10 --all-netns > sockets.jsonl
)";

class SocketsCommand : public Command {
 public:
  std::string Name() const override { return "sockets"; }

  std::string Description() const override {
    return "Prints every socket: process, service, addresses, TCP_INFO";
  }

  void Declare(Flags* flags) override {
    AddPinDir(flags, &pin_dir_);
    AddList(flags, "--service", "NAME", "Only this service name, of any kind",
            &services_);
    AddList(flags, "--destination", "NAME", "Only this destination",
            &destinations_);
    AddList(flags, "--uplink", "NAME",
            "Only sockets whose last packet used this uplink; -: none",
            &uplinks_);
    AddList(flags, "--state", "STATE", "Only this state, such as time-wait",
            &states_);
    AddList(flags, "--address", "PREFIX",
            "Only sockets with an address in this prefix", &addresses_);
    flags->AddOption("--port", &ports_, "Only sockets with this port")
        .Type("PORT")
        .InRange(0, 65535, Option::InHelp::kNo);
    AddList(flags, "--protocol", "NAME",
            "tcp, udp, mptcp, sctp, raw or udplite", &protocols_);
    flags->AddFlag("--all-netns", &poll_.all_networks,
                   "Sockets of all network namespaces (needs root)");
    flags
        ->AddOption("--sort", &sort_,
                    "Sort by this field: largest number or first word first.\n"
                    "Keeps all sockets in memory")
        .Type("FIELD");
    flags->AddOption("--columns", &columns_, "Columns, or fields of --json")
        .Type("COLUMNS");
    const Option exact =
        flags->AddFlag("--exact", &sizes_.exact, "Exact numbers in the table");
    const Option units = AddUnits(flags, &sizes_);
    units.Excludes(exact);
    const Option json = flags->AddFlag("--json", &json_,
                                       "One JSON array, one line per socket; "
                                       "with --interval only lines");
    const Option protobuf =
        flags->AddFlag("--protobuf", &protobuf_,
                       "Messages of lib/apps/connections/sockets.proto, each "
                       "after its length");
    const Option csv = flags->AddFlag(
        "--csv", &csv_, "A line of column names, and one line per socket");
    json.Excludes(protobuf).Excludes(csv);
    protobuf.Excludes(csv);
    for (const Option& form : {json, protobuf, csv}) {
      form.Excludes(units).Excludes(exact);
    }
    flags
        ->AddOption("--label", &labels_,
                    "With --json or --protobuf: a label of each record")
        .Type("KEY=VALUE");
    flags
        ->AddOption("--interval", &interval_,
                    "Repeat at this interval, at least 0.1")
        .Type("SECONDS")
        .InRange(0.1, 86400.0, Option::InHelp::kNo);
    flags->AddOption("--count", &count_, "With --interval: stop after N times")
        .Type("N")
        .InRange(1, 1000000000, Option::InHelp::kNo);
    flags
        ->AddOption("--sample", &sample_,
                    "Only one in N sockets, the same ones in each reading")
        .Type("N")
        .InRange(1, 1000000000, Option::InHelp::kNo);
    flags->AddFlag("--stats", &stats_, "Print time and memory on stderr");
    flags->SetFooter(kSocketsFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckPinDir(pin_dir_));
    poll_.sample = static_cast<uint32_t>(sample_);
    poll_.filter.services = services_;
    poll_.filter.destinations = destinations_;
    for (const std::string& uplink : uplinks_) {
      poll_.filter.uplinks.push_back(uplink == "-" ? "" : uplink);
    }
    for (const int port : ports_) {
      poll_.filter.ports.push_back(static_cast<uint16_t>(port));
    }
    for (const std::string& state : states_) {
      NETMETER_RETURN_IF_ERROR(AddState(state, &poll_.filter));
    }
    for (const std::string& address : addresses_) {
      NETMETER_RETURN_IF_ERROR(AddAddress(address, &poll_.filter));
    }
    for (const std::string& protocol : protocols_) {
      NETMETER_RETURN_IF_ERROR(AddProtocol(protocol));
    }
    if (!sort_.empty()) {
      sort_field_ = FindField(sort_);
      std::vector<std::string> names;
      for (const SocketField& field : SocketFields())
        names.push_back(field.name);
      if (sort_field_ == nullptr) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--sort: unknown field '", sort_, "'", DidYouMean(sort_, names)));
      }
    }
    chosen_ = columns_ != DefaultColumns(false);
    NETMETER_RETURN_IF_ERROR(UseColumns(columns_));
    if (!labels_.empty() && !json_ && !protobuf_) {
      return absl::InvalidArgumentError("--label: needs --json or --protobuf");
    }
    auto origin = Origin::Make(labels_);
    if (!origin.ok()) return origin.status();
    origin_ = *std::move(origin);
    if (count_ != 0 && interval_ == 0) {
      return absl::InvalidArgumentError("--count: needs --interval");
    }
    return absl::OkStatus();
  }

  int Run() override {
    units_ = sizes_.Or(MeterUnits(pin_dir_));
    const absl::Status known = CheckUplinks(pin_dir_, uplinks_);
    if (!known.ok()) return Fail(known.message());
    SocketPoll poll(pin_dir_);
    if (!poll.attribution().ok()) {
      if (!services_.empty() || !destinations_.empty() || !uplinks_.empty()) {
        return Fail(poll.attribution().message());
      }
      Fail(absl::StrCat("services are not shown: ",
                        poll.attribution().message()));
    }
    if (poll.has_uplinks() && !chosen_) {
      const absl::Status used = UseColumns(DefaultColumns(true));
      if (!used.ok()) return Fail(used.message());
    }
    if (csv_) output_ = CsvHeader(parsed_columns_);
    if (std::any_of(parsed_columns_.begin(), parsed_columns_.end(),
                    [](const SocketColumn& column) {
                      return column.name == kRemoteName;
                    })) {
      const absl::Status asked = AskForNames(&poll);
      if (!asked.ok()) return Fail(asked.message());
    }
    auto next = std::chrono::steady_clock::now();
    for (int i = 0; count_ == 0 || i < count_; i++) {
      const int exit_status = RunOnce(&poll);
      if (i == 0 && poll.has_hidden_networks()) {
        Fail(
            absl::StrCat("some network namespaces are not accessible: sockets "
                         "may be missing",
                         geteuid() == 0 ? "" : " (run as root)"));
      }
      if (exit_status != 0 || interval_ == 0) return exit_status;
      // After a stall the next poll comes at once; missed polls are not repeated.
      next = std::max(
          next +
              std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                  std::chrono::duration<double>(interval_)),
          std::chrono::steady_clock::now());
      if (i + 1 == count_) break;
      if (WaitForLostReader(next - std::chrono::steady_clock::now())) {
        return kExitError;
      }
    }
    return 0;
  }

 private:
  // The part of a socket that sorting keeps.
  struct Kept {
    FieldValue key;
    std::string text;
  };

  static void AddList(Flags* flags, const char* name, const char* type,
                      const char* description,
                      std::vector<std::string>* values) {
    flags->AddOption(name, values, description).Type(type);
  }

  absl::Status AddProtocol(const std::string& name) {
    for (const uint16_t protocol :
         {uint16_t{IPPROTO_TCP}, uint16_t{IPPROTO_UDP}, uint16_t{IPPROTO_RAW},
          uint16_t{IPPROTO_UDPLITE}, uint16_t{IPPROTO_SCTP}, kProtocolMptcp}) {
      if (ProtocolName(protocol) != absl::AsciiStrToLower(name)) continue;
      poll_.protocols.push_back(protocol);
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--protocol: expected tcp, udp, mptcp, sctp, raw or "
                     "udplite, not '",
                     name, "'"));
  }

  absl::Status UseColumns(const std::string& list) {
    if (!chosen_ && (json_ || protobuf_)) {
      parsed_columns_ = AllColumns();
      return absl::OkStatus();
    }
    auto columns = ParseColumns(list, /*in_table=*/!json_ && !protobuf_);
    if (!columns.ok()) return columns.status();
    parsed_columns_ = std::move(*columns);
    return absl::OkStatus();
  }

  bool IsTable() const { return !json_ && !protobuf_ && !csv_; }

  // Rows are made one by one, so the names must be there before.
  absl::Status AskForNames(SocketPoll* poll) {
    poll_.names = &names_.emplace();
    const absl::Status status = poll->Run(poll_, [this](const SocketRow& row) {
      Cells(parsed_columns_, row, units_);
    });
    names_->Wait(kNamesWait);
    return status;
  }

  std::string Text(const SocketRow& row) const {
    if (IsTable()) {
      return TextTable::RowOf(Cells(parsed_columns_, row, units_));
    }
    if (csv_) return CsvLine(parsed_columns_, row);
    std::string text;
    if (json_) {
      AppendJson(parsed_columns_, row, origin_, &text);
    } else {
      AppendProtobuf(parsed_columns_, row, origin_, &text);
    }
    return text;
  }

  // Adds one socket to the output, and writes the output when it is large enough.
  void Emit(std::string text, TextTable* table) {
    sockets_++;
    if (IsTable()) return table->AddRow(std::move(text));
    const bool lines = interval_ != 0;
    if (json_) output_ += lines ? "" : sockets_ == 1 ? "[\n" : ",\n";
    output_ += text;
    if (json_ && lines) output_ += '\n';
    if (output_.size() >= kOutputBytes) Flush();
  }

  // After the first failure it writes nothing.
  void Flush() {
    if (exit_status_ == 0) exit_status_ = Print(output_);
    output_.clear();
  }

  int RunOnce(SocketPoll* poll) {
    const auto begin = std::chrono::steady_clock::now();
    TextTable table(TextColumns(parsed_columns_, chosen_));
    std::vector<Kept> kept;
    sockets_ = 0;
    poll_.holders = std::any_of(parsed_columns_.begin(), parsed_columns_.end(),
                                NeedsHolders);
    const absl::Status status = poll->Run(poll_, [&](const SocketRow& row) {
      if (exit_status_ != 0) return;
      std::string text = Text(row);
      if (sort_field_ == nullptr) return Emit(std::move(text), &table);
      Kept one;
      sort_field_->read(row, &one.key);
      one.text = std::move(text);
      kept.push_back(std::move(one));
    });
    if (!status.ok()) return Fail(status.message());
    std::stable_sort(kept.begin(), kept.end(),
                     [](const Kept& a, const Kept& b) {
                       if (a.key.number != b.key.number) {
                         return a.key.number > b.key.number;
                       }
                       return a.key.text < b.key.text;
                     });
    for (Kept& one : kept) Emit(std::move(one.text), &table);
    if (IsTable()) output_ += table.Format(TerminalWidth());
    if (json_ && interval_ == 0) output_ += sockets_ == 0 ? "[]\n" : "\n]\n";
    Flush();
    if (stats_) {
      PrintStats(std::chrono::steady_clock::now() - begin);
    }
    return exit_status_;
  }

  void PrintStats(std::chrono::duration<double> took) const {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    std::cerr << absl::StrFormat(
        "netmeter: %d sockets in %.3f s, %.2f us a socket; %.1f MiB of memory "
        "at most\n",
        sockets_, took.count(),
        sockets_ == 0 ? 0 : took.count() * 1e6 / static_cast<double>(sockets_),
        static_cast<double>(usage.ru_maxrss) / 1024);
  }

  std::string pin_dir_;
  std::vector<std::string> services_, destinations_, uplinks_, states_,
      addresses_, protocols_, labels_;
  Origin origin_;
  std::vector<int> ports_;
  std::string sort_;
  std::string columns_ = DefaultColumns(false);
  bool chosen_ = false;  // columns are from --columns
  SizeOptions sizes_;
  SizeUnits units_ = SizeUnits::kBinary;
  bool json_ = false;
  bool protobuf_ = false;
  bool csv_ = false;
  bool stats_ = false;
  double interval_ = 0;
  int count_ = 0;
  int sample_ = 1;

  PollOptions poll_;
  std::optional<ReverseNames> names_;
  const SocketField* sort_field_ = nullptr;
  std::vector<SocketColumn> parsed_columns_;
  std::string output_;
  int exit_status_ = 0;
  size_t sockets_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewSocketsCommand() {
  return std::make_unique<SocketsCommand>();
}

}  // namespace internal
}  // namespace netmeter
