// SPDX-License-Identifier: BSD-3-Clause
// `netmeter list`: every series, once or repeatedly.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/clients/clients.h"
#include "lib/apps/history/since.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/list/list.h"
#include "lib/apps/netmeter/list/list_view.h"
#include "lib/apps/netmeter/options.h"
#include "lib/apps/netmeter/uplinks.h"
#include "lib/base/loader_command.h"
#include "lib/base/status_util.h"
#include "lib/base/text_table.h"
#include "lib/reader/shared_maps.h"
#include "lib/reader/words.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kListFooter[] = R"(
Columns:
  TX, RX          network-layer bytes as on the link: from the IP header on,
                  TCP retransmissions included
  TX/RX PKTS      packets on the link
  TX/RX PAYLOAD   payload bytes of the transport, each TCP byte once
  RETRANSMIT      retransmitted TCP payload bytes
  TX/S, RX/S      bytes per second; --watch shows them in place of packets and
                  payload
--bytes, --csv and --json have exact numbers.
PATH is proxy for traffic over loopback to or from a proxy port, otherwise direct.
The column UPLINK exists if the configuration has uplinks.

On a terminal, lines fit the width: a narrow one shows fewer columns. The sum of
each path or uplink stands below the table. A file or a pipe gets all columns, and
without --since and --watch no sums.

KIND:
  service         registered, or named by its command line or the configuration
  binary          any other program, by the name of its executable
  unit            a systemd unit, if names_from of the configuration has unit
  container       a container, by its short id, if names_from has container; as
                  root also by its name, from Docker's or Podman's files
  evicted         the counts of evicted idle series of a kind
                  (netmeter-loader evict)
  pending         traffic of the kinds above on connections that have not named
                  their destination yet; it moves to its own series when they do
  unattributed    sockets that no process owns, such as the kernel's own
  overflow        traffic for which no series or name was free
  forwarded       what this host forwarded over an uplink, by the interface at the
                  other side, such as br0; with forwarded_clients, DESTINATION is
                  an address there, or with --clients a MAC address or a
                  WireGuard key. Needs uplinks and Linux 6.4
The total of an uplink and its unnamed traffic are what its interfaces counted, less
layer-2 headers: `netmeter uplinks` shows each part. Exceptions: an interface that has
gone took its count with it; one that counts a GSO packet as one, and a queue that
drops packets, make the interfaces' count smaller.
If a total says "without forwarded" (the field sum_lacks in --json and --csv), the
meter does not count forwarded traffic, or this user cannot read it: before Linux 5.19,
or in another network namespace than the uplinks.
An uplink of forwarded_clients has forwarded traffic a second time, so add up the
others alone. Traffic in no uplink, such as that of containers behind a bridge, has a
total of its own, and is forwarded traffic of an uplink. Without uplinks the total of
PATH direct is this host's own traffic.

Exit status: 0 printed; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter list
  netmeter list --watch --top 10
  netmeter list --sort rx --kind service
  netmeter list --kind forwarded --clients mac
  netmeter list --since 13:00
  netmeter list --json | python3 -m json.tool
  netmeter list --csv > series.csv
  netmeter list --pin-dir /run/netmeter-test
)";

constexpr char kHomeAndClear[] = "\x1b[H\x1b[J";

double Monotonic() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) / 1e9;
}

class ListCommand : public Command {
 public:
  std::string Name() const override { return "list"; }

  std::string Description() const override {
    return "Prints every series, most traffic first";
  }

  void Declare(Flags* flags) override {
    flags_ = flags;
    AddPinDir(flags, &pin_dir_);
    const Option as_json =
        flags->AddFlag("--json", &json_, "Print one JSON array of objects");
    const Option as_csv =
        flags->AddFlag("--csv", &csv_, "Print comma-separated values")
            .Excludes(as_json);
    AddSizes(flags, {as_json, as_csv}, &sizes_);
    flags
        ->AddChoice("--sort", &sort_,
                    std::map<std::string, ListSort>{
                        {"total", ListSort::kTotal},
                        {"tx", ListSort::kSent},
                        {"rx", ListSort::kReceived},
                        {"packets", ListSort::kPackets},
                        {"retransmit", ListSort::kRetransmit},
                        {"name", ListSort::kName},
                        {"rate", ListSort::kRate}},
                    "Sort by total, tx, rx, packets, retransmit, name or\n"
                    "rate (default: total; with --watch: rate)")
        .Type("WHAT")
        .Default("total");
    flags->AddOption("--top", &top_, "Print at most N series")
        .Type("N")
        .InRange(1, 1000000);
    flags
        ->AddOption("--service", &filter_.service,
                    "Only this name, of any kind")
        .Type("NAME");
    flags
        ->AddOption("--destination", &filter_.destination,
                    "Only this destination")
        .Type("NAME");
    flags->AddOption("--kind", &filter_.kind, "Only this kind")
        .Type("KIND")
        .OneOf(KindsOfRows());
    flags
        ->AddOption("--uplink", &filter_.uplink,
                    "Only this uplink; other: interfaces outside of the\n"
                    "configured uplinks; -: no uplink")
        .Type("NAME");
    const Option since =
        flags
            ->AddOption(
                "--since", &since_text_,
                "Counts since this time, from the history: 2026-11-22,\n"
                "'2026-11-22 13:00', 13:00, 90m, 2h or 3d")
            .Type("TIME")
            .Excludes(as_json)
            .Excludes(as_csv);
    AddDatabase(flags, &database_);
    const Option watch =
        flags
            ->AddOption("--watch", &watch_,
                        "Repeat at this interval, with rates (default 2)")
            .Type("SECONDS")
            .OptionalValue()
            .Default("2")
            .InRange(0.1, 86400.0)
            .Excludes(as_json)
            .Excludes(as_csv)
            .Excludes(since);
    flags->AddOption("--count", &count_, "With --watch: stop after N times")
        .Type("N")
        .InRange(1, 1000000000, Option::InHelp::kNo)
        .Needs(watch);
    AddClientOptions(flags, &client_options_);
    flags->SetFooter(kListFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckPinDir(pin_dir_));
    NETMETER_RETURN_IF_ERROR(CheckDatabase(database_));
    if (!flags_->WasGiven("--watch")) {
      watch_ = 0;
      if (sort_ == ListSort::kRate) {
        return absl::InvalidArgumentError("--sort rate needs --watch");
      }
    } else if (!sort_.has_value()) {
      sort_ = ListSort::kRate;
    }
    if (since_text_.empty()) return absl::OkStatus();
    const auto since = ParseSince(since_text_, time(nullptr));
    if (!since.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--since: ", since.status().message()));
    }
    since_ = *since;
    return absl::OkStatus();
  }

  int Run() override {
    units_ = sizes_.Or(MeterUnits(pin_dir_));
    MeterOptions options;
    options.pin_dir = pin_dir_;
    const auto meter = Meter::Open(options);
    if (!meter.ok()) return Fail(meter.status().message());
    // The history may have uplinks that the meter does not have.
    if (since_text_.empty()) {
      const absl::Status known = CheckUplinks(pin_dir_, {filter_.uplink});
      if (!known.ok()) return Fail(known.message());
    }
    if (watch_ > 0) return Watch(**meter);
    std::vector<Sample> samples;
    if (since_text_.empty()) {
      const absl::Status read = ReadNow(**meter, &samples);
      if (!read.ok()) return Fail(read.message());
    } else {
      const absl::Status read = ReadHistory(**meter, &samples);
      if (!read.ok()) return Fail(read.message());
    }
    const absl::Status clients = ReadClients();
    if (!clients.ok()) return Fail(clients.message());
    return Show(samples);
  }

 private:
  static std::vector<std::string> KindsOfRows() {
    std::vector<std::string> kinds = KindNames();
    kinds.emplace_back(KindName(kForwardedRow));
    return kinds;
  }

  // Read each time, because a container may be new.
  ReadableNames NamesOf(const std::vector<Sample>& samples) const {
    const bool any = std::any_of(
        samples.begin(), samples.end(),
        [](const Sample& sample) { return sample.kind == Kind::kContainer; });
    ReadableNames names;
    if (any) names = ReadContainerNames("/var/lib");
    for (const Sample& sample : samples) {
      if (sample.kind != kForwardedRow) continue;
      std::string identity =
          clients_.IdentityOf(sample.destination, sample.name);
      std::string name = clients_.NameOf(identity);
      if (!name.empty()) names.emplace(std::move(identity), std::move(name));
    }
    return names;
  }

  ListView View(const std::vector<Sample>& samples) const {
    ListView view;
    view.names = NamesOf(samples);
    view.units = units_;
    view.width = TerminalWidth();
    view.top = top_;
    view.filtered = filter_.any();
    view.is_signed = !since_text_.empty();
    view.uplinks = HaveUplinks(samples);
    view.lacks_forwarded = LacksForwarded();
    view.when_empty = view.filtered ? "(no such series)" : "(nothing counted)";
    return view;
  }

  // Without forwarded traffic if it cannot be read, unless that is what is asked for.
  absl::Status ReadNow(const Meter& meter, std::vector<Sample>* samples) {
    NETMETER_RETURN_IF_ERROR(meter.ReadHost(samples));
    const absl::Status forwarded = AddForwardedRows(meter, samples);
    has_forwarded_ = forwarded.ok();
    return filter_.kind == KindName(kForwardedRow) ? forwarded
                                                   : absl::OkStatus();
  }

  // Read each time, because an address may have another client.
  absl::Status ReadClients() {
    NETMETER_ASSIGN_OR_RETURN(clients_, Clients::Read(client_options_));
    return absl::OkStatus();
  }

  // Whether sums would have forwarded traffic if it could be read. With --since they have
  // that of the history, and the heading says until when.
  bool LacksForwarded() const {
    Sample sample;
    sample.kind = kForwardedRow;
    sample.uplink = filter_.uplink;
    return since_text_.empty() && !has_forwarded_ && filter_.Matches(sample);
  }

  absl::Status ReadHistory(const Meter& meter, std::vector<Sample>* samples) {
    const auto history = OpenHistory(database_, Database::Mode::kRead);
    if (!history.ok()) return history.status();
    auto read = ReadSince(history->get(), since_, [&] {
      absl::StatusOr<Reading> reading = ReadMeter(meter);
      const auto forwarded = ReadForwarded(meter);
      has_forwarded_ = forwarded.ok() || absl::IsNotFound(forwarded.status()) ||
                       absl::IsUnimplemented(forwarded.status());
      if (reading.ok() && forwarded.ok()) {
        reading->has_forwarded = true;
        reading->forwarded = *forwarded;
      }
      return reading;
    });
    if (!read.ok()) return read.status();
    *samples = std::move(read->samples);
    heading_ = absl::StrCat(
        "since ", FormatTime(read->begin),
        has_forwarded_ ? "" : "; forwarded traffic until the last record",
        "\n");
    return absl::OkStatus();
  }

  // Once.
  int Show(const std::vector<Sample>& samples) const {
    std::vector<ListRow> rows = ListRows(samples, {}, 0);
    MergeClients(clients_, &rows);
    FilterRows(filter_, &rows);
    ListView view = View(samples);
    SortRows(sort_.value_or(ListSort::kTotal), &rows, view.is_signed);
    // For programs: only series, no sums.
    view.sums = !json_ && !csv_ && (view.width > 0 || view.is_signed);
    if (!view.sums && top_ > 0 && rows.size() > top_) rows.resize(top_);
    if (json_ || csv_) {
      std::vector<Sample> chosen;
      for (ListRow& row : rows) chosen.push_back(std::move(row.sample));
      return Print((json_ ? FormatJson : FormatCsv)(chosen, view.names,
                                                    view.lacks_forwarded));
    }
    // Either the meter has no series, or the filter matches none.
    if (samples.empty() && since_text_.empty()) {
      view.when_empty = absl::StrCat(
          "(nothing counted yet: the meter is loaded, but saw no packet; if "
          "there is traffic, run: ",
          LoaderCommand("status", pin_dir_), ")");
    }
    return Print(absl::StrCat(heading_, FormatView(rows, view)));
  }

  // Runs until a signal, until the reader of its output has gone, or --count times.
  int Watch(const Meter& meter) {
    std::vector<Sample> before;
    double read_before = 0;
    // Rates need two readings. The first rates come soon.
    std::chrono::duration<double> pause(std::min(watch_, 0.5));
    int shown = 0;
    for (;; std::this_thread::sleep_for(pause)) {
      std::vector<Sample> samples;
      absl::Status read = ReadNow(meter, &samples);
      if (read.ok()) read = ReadClients();
      if (!read.ok()) return Fail(read.message());
      const double now = Monotonic();
      const double seconds = now - read_before;
      std::vector<ListRow> rows = ListRows(samples, before, seconds);
      MergeClients(clients_, &rows);
      FilterRows(filter_, &rows);
      SortRows(sort_.value_or(ListSort::kTotal), &rows);
      ListView view = View(samples);
      before = std::move(samples);
      if (std::exchange(read_before, now) == 0) continue;
      pause = std::chrono::duration<double>(watch_);
      view.rates = true;
      const size_t height = TerminalHeight();
      // Time, header, two rows for others, two for sums, and the cursor's line.
      constexpr size_t kOthers = 7;
      if (height > kOthers + 1) {
        const size_t room = height - kOthers;
        view.top = top_ == 0 ? room : std::min<size_t>(top_, room);
      }
      const std::string screen =
          absl::StrCat(height > 0 ? kHomeAndClear : "",
                       FormatSecond(time(nullptr)), ", every ", watch_, " s\n",
                       FormatView(rows, view), height > 0 ? "" : "\n");
      const int status = Print(screen);
      if (status != 0 || ++shown == count_) return status;
    }
  }

  std::string pin_dir_;
  bool json_ = false;
  bool csv_ = false;
  bool has_forwarded_ = true;
  SizeOptions sizes_;
  SizeUnits units_ = SizeUnits::kBinary;
  std::optional<ListSort> sort_;
  size_t top_ = 0;
  ListFilter filter_;
  ClientOptions client_options_;
  Clients clients_;
  std::string since_text_;
  int64_t since_ = 0;
  std::string database_;
  std::string heading_;
  const Flags* flags_ = nullptr;
  double watch_ = 2;
  int count_ = 0;  // 0: any number of times
};

}  // namespace

std::unique_ptr<Command> NewListCommand() {
  return std::make_unique<ListCommand>();
}

}  // namespace internal
}  // namespace netmeter
