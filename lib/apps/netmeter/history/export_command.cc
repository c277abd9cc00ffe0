// SPDX-License-Identifier: BSD-3-Clause
// `netmeter export`: the history as rows, for a store that has many gateways.
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/budgets/budget.h"
#include "lib/apps/connections/origin.h"
#include "lib/apps/export/cursor.h"
#include "lib/apps/export/estimate.h"
#include "lib/apps/export/http.h"
#include "lib/apps/export/rows.h"
#include "lib/apps/history/identity.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/options.h"
#include "lib/base/standard_output.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kExportFooter[] = R"(
Each row has a key and a version that grows. A store that keeps the newest row of each
key is right, whatever arrives twice, late or in another order. docs/fleet-bill.md has
the rows, and a schema for ClickHouse and DuckDB.

--to URL sends pieces of some 10,000 rows by HTTP POST, with gzip. The receiver confirms
each by a status of 200 to 299. Nothing is tried again: the next call does so.
--since-last sends only what changed since the last call with the same cursor, which
moves when the receiver has confirmed, or when FILE is on the disk. So nothing is lost
while the receiver is away: the history waits. Without --running, the present hour (or
day) waits until it is over.

Exit status: 0 sent; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter export
  netmeter export --by day --to november.ndjson
  netmeter export --since-last --token-file /etc/netmeter/token --to \
    'https://centre.example:8443/?query=INSERT+INTO+netmeter.rows+FORMAT+JSONEachRow'
  netmeter export --estimate
)";

class ExportCommand : public Command {
 public:
  std::string Name() const override { return "export"; }

  std::string Description() const override {
    return "Sends the history to a store that has many gateways";
  }

  void Declare(Flags* flags) override {
    AddDatabase(flags, &database_);
    flags
        ->AddOption("--to", &receiver_.url,
                    "Where to: a new file, -, or a URL of HTTP or HTTPS")
        .Type("FILE|-|URL")
        .ShowDefault();
    flags
        ->AddChoice("--by", &options_.by,
                    std::map<std::string, ExportBy>{{"hour", ExportBy::kHour},
                                                    {"day", ExportBy::kDay}},
                    "The time of a row")
        .Type("WHAT")
        .Default("hour");
    flags->AddFlag("--samples", &options_.samples,
                   "Also each uplink's bytes in five minutes, for percentiles");
    flags->AddFlag("--running", &options_.running,
                   "Also the hour, or day, that is not over");
    const Option since_last = flags->AddFlag(
        "--since-last", &since_last_, "Only what the last call did not send");
    flags->AddOption("--cursor", &cursor_, "With --since-last: how far it is")
        .Type("FILE")
        .Needs(since_last)
        .ShowDefault();
    flags->AddOption("--label", &labels_, "A label of each row")
        .Type("KEY=VALUE");
    flags
        ->AddOption("--token-file", &receiver_.token_file,
                    "A file with the receiver's token, or USER:PASSWORD")
        .Type("FILE");
    flags
        ->AddOption("--ca-file", &receiver_.ca_file,
                    "Trust these certificates (PEM), not those of the host")
        .Type("FILE");
    flags
        ->AddOption("--timeout", &timeout_,
                    "With a URL: for each piece and its answer")
        .Type("SECONDS")
        .InRange(1, 86400)
        .ShowDefault();
    flags->AddOption("--budgets", &budgets_, "The budget file, if it exists")
        .Type("FILE")
        .ShowDefault();
    const Option csv = flags->AddFlag("--csv", &options_.csv,
                                      "Print comma-separated values, not JSON");
    flags
        ->AddFlag("--estimate", &estimate_,
                  "Print how many bytes a month a URL takes on the link")
        .Excludes(since_last)
        .Excludes(csv);
    flags->AddFlag("--verbose", &verbose_, "Print how many rows were sent");
    flags->SetFooter(kExportFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckDatabase(database_));
    NETMETER_ASSIGN_OR_RETURN(const Origin origin, Origin::Make(labels_));
    options_.origin = origin.json();
    options_.now = time(nullptr);
    is_url_ = absl::StrContains(receiver_.url, "://");
    receiver_.timeout = std::chrono::seconds(timeout_);
    if (receiver_.url.empty()) {
      return absl::InvalidArgumentError("--to: expected FILE, - or a URL");
    }
    if (!is_url_ && !(receiver_.token_file + receiver_.ca_file).empty()) {
      return absl::InvalidArgumentError(
          "--token-file and --ca-file: need --to URL");
    }
    if (is_url_ && options_.csv) {
      return absl::InvalidArgumentError("--csv: a URL gets JSON");
    }
    if (since_last_ && receiver_.url == "-") {
      return absl::InvalidArgumentError(
          "--since-last: needs --to FILE or URL, because nothing confirms what "
          "a pipe has");
    }
    if (is_url_) return CheckReceiver(receiver_);
    return absl::OkStatus();
  }

  int Run() override {
    const auto history = OpenHistory(database_, Database::Mode::kRead);
    if (!history.ok()) return Fail(history.status().message());
    if (estimate_) {
      const auto text = EstimateExport(history->get(), options_);
      return text.ok() ? Print(*text) : Fail(text.status().message());
    }
    const absl::Status sent = Send(history->get());
    // The reader of a pipe has gone.
    if (absl::IsCancelled(sent)) return kExitError;
    return sent.ok() ? 0 : Fail(sent.message());
  }

 private:
  // Finds the version after which to begin.
  absl::StatusOr<Cursor> Begin(Database* history) const {
    Cursor cursor;
    cursor.receiver = ReceiverName(receiver_.url);
    cursor.by = absl::StrCat(options_.by == ExportBy::kHour ? "hour" : "day",
                             options_.samples ? " --samples" : "");
    NETMETER_ASSIGN_OR_RETURN(cursor.host_id, ReadHostId(history));
    if (!since_last_) return cursor;
    const auto last = ReadCursor(cursor_);
    if (absl::IsNotFound(last.status())) return cursor;
    if (!last.ok()) return last.status();
    if (last->host_id != cursor.host_id || last->receiver != cursor.receiver) {
      return cursor;
    }
    if (last->by != cursor.by) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--by ", cursor.by, ": ", cursor_, " is of --by ", last->by, " (rm ",
          cursor_, " to send everything again)"));
    }
    NETMETER_ASSIGN_OR_RETURN(const int64_t newest, ReadVersion(history));
    if (last->version > newest) {
      std::cerr << "netmeter: note: " << database_
                << " is older than what was sent (restored from a backup?): "
                   "everything is sent again\n";
      return cursor;
    }
    cursor.version = last->version;
    return cursor;
  }

  // Adds the budgets and costs to *piece. One that cannot be read is a note.
  absl::Status AddBudgets(Database* history, int64_t since,
                          ExportPiece* piece) const {
    NETMETER_ASSIGN_OR_RETURN(const int64_t begin,
                              FirstChange(history, options_, since));
    const auto file = ReadBudgetFile(budgets_);
    if (absl::IsNotFound(file.status()) && budgets_ == kDefaultBudgets) {
      return absl::OkStatus();
    }
    if (!file.ok()) return file.status();
    const auto note = [](const absl::Status& added) {
      if (!absl::IsInvalidArgument(added) && !absl::IsOutOfRange(added)) {
        return added;
      }
      std::cerr << "netmeter: note: " << added.message() << "\n";
      return absl::OkStatus();
    };
    for (const Budget& budget : file->budgets) {
      NETMETER_RETURN_IF_ERROR(
          note(AddBudget(history, options_, budget, begin, piece)));
    }
    for (const Plan& plan : file->plans) {
      NETMETER_RETURN_IF_ERROR(
          note(AddCost(history, options_, plan, begin, piece)));
    }
    return absl::OkStatus();
  }

  absl::Status Send(Database* history) {
    NETMETER_ASSIGN_OR_RETURN(Cursor cursor, Begin(history));
    std::optional<NewFile> file;
    if (!is_url_ && receiver_.url != "-") {
      if (access(receiver_.url.c_str(), F_OK) == 0) {
        return absl::AlreadyExistsError(absl::StrCat(
            receiver_.url, " exists: choose another name, or move it away"));
      }
      auto created = NewFile::Create(receiver_.url);
      if (!created.ok()) return created.status();
      file.emplace(*std::move(created));
    }
    // A cursor that cannot be written would let each call send the same piece.
    if (is_url_ && since_last_) {
      NETMETER_RETURN_IF_ERROR(WriteCursor(cursor_, cursor));
    }
    size_t count = 0, pieces = 0;
    for (bool is_last = false; !is_last;) {
      NETMETER_ASSIGN_OR_RETURN(ExportPiece piece,
                                ReadPiece(history, options_, cursor.version));
      is_last = piece.is_last;
      if (options_.csv && pieces == 0) piece.text.insert(0, ExportCsvHeader());
      // With the first piece, because the cursor moves with it.
      if (pieces == 0) {
        NETMETER_RETURN_IF_ERROR(AddBudgets(history, cursor.version, &piece));
      }
      NETMETER_RETURN_IF_ERROR(is_url_ ? Post(receiver_, piece.text)
                               : file  ? file->Write(piece.text)
                                       : WriteToStandardOutput(piece.text));
      cursor.version = piece.version;
      if (is_url_ && since_last_) {
        NETMETER_RETURN_IF_ERROR(WriteCursor(cursor_, cursor));
      }
      count += piece.rows;
      ++pieces;
    }
    if (file) {
      NETMETER_RETURN_IF_ERROR(file->Commit());
      if (since_last_) NETMETER_RETURN_IF_ERROR(WriteCursor(cursor_, cursor));
    }
    if (verbose_) {
      std::cerr << "netmeter: sent " << count << " rows in " << pieces
                << (pieces == 1 ? " piece\n" : " pieces\n");
    }
    return absl::OkStatus();
  }

  std::string database_;
  HttpReceiver receiver_ = MakeReceiver();
  bool is_url_ = false;
  int timeout_ = 60;
  ExportOptions options_;
  bool since_last_ = false;
  std::string cursor_ = kDefaultCursor;
  std::vector<std::string> labels_;
  std::string budgets_ = kDefaultBudgets;
  bool estimate_ = false;
  bool verbose_ = false;

  static HttpReceiver MakeReceiver() {
    HttpReceiver receiver;
    receiver.url = "-";
    return receiver;
  }
};

}  // namespace

std::unique_ptr<Command> NewExportCommand() {
  return std::make_unique<ExportCommand>();
}

}  // namespace internal
}  // namespace netmeter
