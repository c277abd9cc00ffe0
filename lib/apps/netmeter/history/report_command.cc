// SPDX-License-Identifier: BSD-3-Clause
// `netmeter report`: a billing period as a page.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/apps/history/bill.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/history/report.h"
#include "lib/apps/netmeter/options.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kReportFooter[] = R"(
One self-contained HTML file: it loads nothing, has no script, and can be printed.
It shows the traffic by day, by uplink if there are any, by service and
destination; retransmissions; budgets and costs of this period; gaps. If all budgets and
plans have one reset day, it is the default of --reset-day. The sum is the bill of all uplinks, as in
`netmeter usage`; --uplink makes the page of one. --html - writes to standard output.

Exit status: 0 written; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter report --html november.html --month 2026-11
  netmeter report --html - --reset-day 15 --budgets /etc/netmeter-budgets.yml
  netmeter report --html satellite.html --uplink satellite
)";

// `path` is for error messages.
absl::Status WriteAll(int fd, absl::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
    text.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

// Replaces the file as a whole and keeps its mode, or leaves it unchanged. Anything but
// a regular file, such as /dev/stdout or a shell's pipe, is written to, not replaced.
absl::Status WriteFile(const std::string& path, absl::string_view text) {
  const std::string what = absl::StrCat("write ", path);
  struct stat existing = {};
  const bool exists = stat(path.c_str(), &existing) == 0;
  if (exists && !S_ISREG(existing.st_mode)) {
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd.ok()) return ErrnoStatus(errno, what);
    return WriteAll(fd.get(), text, path);
  }
  // The target of a symbolic link.
  std::string target = path;
  if (exists) {
    const std::unique_ptr<char, decltype(&free)> real(
        realpath(path.c_str(), nullptr), free);
    if (real == nullptr) return ErrnoStatus(errno, what);
    target = real.get();
  }
  const std::string temporary = absl::StrCat(target, ".", getpid(), ".new");
  const UniqueFd fd(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.ok()) return ErrnoStatus(errno, what);
  absl::Status written = WriteAll(fd.get(), text, path);
  if (written.ok() &&
      ((exists && fchmod(fd.get(), existing.st_mode & 07777) != 0) ||
       rename(temporary.c_str(), target.c_str()) != 0)) {
    written = ErrnoStatus(errno, what);
  }
  if (!written.ok()) unlink(temporary.c_str());
  return written;
}

class ReportCommand : public Command {
 public:
  std::string Name() const override { return "report"; }

  std::string Description() const override {
    return "Writes a billing period as one HTML page";
  }

  void Declare(Flags* flags) override {
    flags_ = flags;
    AddDatabase(flags, &database_);
    flags->AddOption("--html", &html_, "The page to write; -: standard output")
        .Type("FILE")
        .Required();
    period_options_.Declare(flags);
    report_.path = "direct";
    flags->AddOption("--path", &report_.path, "direct or proxy")
        .Type("PATH")
        .OneOf({"direct", "proxy"})
        .ShowDefault();
    flags->AddOption("--uplink", &report_.uplink, "Only this uplink")
        .Type("NAME");
    flags->AddOption("--budgets", &budgets_, "The budget file, if it exists")
        .Type("FILE");
    AddUnits(flags, &sizes_);
    flags->SetFooter(kReportFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckDatabase(database_));
    if (html_.empty()) {
      return absl::InvalidArgumentError("--html: expected a path, not ''");
    }
    return SetPeriod();
  }

  int Run() override {
    const auto history = OpenHistory(database_, Database::Mode::kRead);
    if (!history.ok()) return Fail(history.status().message());
    if (!budgets_.empty()) {
      auto file = ReadBudgetFile(budgets_);
      if (!file.ok()) return Fail(file.status().message());
      report_.budgets = std::move(file->budgets);
      report_.plans = std::move(file->plans);
    }
    const absl::Status set = SetPeriod();
    if (!set.ok()) return Fail(set.message());
    absl::Status read = CheckRecordedUplink(history->get(), report_.uplink);
    if (read.ok()) read = Read(history->get());
    if (!read.ok()) return Fail(read.message());
    const std::string page = FormatReport(report_);
    if (html_ == "-") return Print(page);
    const absl::Status written = WriteFile(html_, page);
    return written.ok() ? 0 : Fail(written.message());
  }

 private:
  // So that the page and its budgets have one period.
  absl::Status SetPeriod() {
    std::set<std::pair<int, int>> all;  // days, and reset day
    for (const Budget& one : report_.budgets) {
      all.insert({one.days, one.reset_day});
    }
    for (const Plan& one : report_.plans) all.insert({one.days, one.reset_day});
    if (all.size() == 1 && all.begin()->first == 0 &&
        !flags_->WasGiven("--reset-day")) {
      period_options_.set_reset_day(all.begin()->second);
    }
    const auto period = period_options_.Get(Today());
    if (!period.ok()) return period.status();
    report_.period = *period;
    return absl::OkStatus();
  }

  absl::Status Read(Database* history) {
    const int64_t now = time(nullptr);
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    const auto units = ReadSizeUnits(history);
    if (!units.ok()) return units.status();
    report_.units = sizes_.Or(*units);
    report_.budget_units = sizes_.units;
    report_.host = host;
    report_.made = FormatTime(now);
    for (const UsageBy by :
         {UsageBy::kUplink, UsageBy::kService, UsageBy::kDestination}) {
      // With --uplink there would be one row.
      if (by == UsageBy::kUplink && !report_.uplink.empty()) continue;
      auto part = ReadReportPart(history, &report_, by);
      if (!part.ok()) return part.status();
      const std::vector<UsageRow>& rows = part->usage.rows;
      const bool named =
          std::any_of(rows.begin(), rows.end(),
                      [](const UsageRow& row) { return !row.name.empty(); });
      // A host without uplinks has no part for them.
      if (by == UsageBy::kUplink && !named) continue;
      report_.parts.push_back(*std::move(part));
    }
    // Budgets as they were, on a page of the past.
    const int64_t end = StartOf(AddDays(report_.period.to, 1)) - 1;
    for (const Budget& budget : report_.budgets) {
      auto state = ReadBudgetState(history, budget, std::min(now, end));
      if (!state.ok()) return state.status();
      report_.states.push_back(*std::move(state));
    }
    return absl::OkStatus();
  }

  const Flags* flags_ = nullptr;
  std::string database_;
  std::string html_;
  std::string budgets_;
  SizeOptions sizes_;
  PeriodOptions period_options_;
  Report report_;
};

}  // namespace

std::unique_ptr<Command> NewReportCommand() {
  return std::make_unique<ReportCommand>();
}

}  // namespace internal
}  // namespace netmeter
