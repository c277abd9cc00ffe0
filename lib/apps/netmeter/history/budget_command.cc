// SPDX-License-Identifier: BSD-3-Clause
// `netmeter budget`: shows how much of each budget is used, and runs a command for each
// crossed level.
//
// The history notes a level after its command has succeeded. So if a command fails, or
// its call is killed, the next call tries again. Two concurrent calls wait for each
// other, by a lock that ends with the process, so that they do not both warn.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/apps/budgets/budget.h"
#include "lib/apps/budgets/plan.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/history/usage_text.h"
#include "lib/apps/netmeter/options.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/base/unique_fd.h"
#include "lib/base/users.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kExitWarned = 3;
constexpr int kExitExceeded = 4;
constexpr std::chrono::seconds kTimeout(60);

constexpr char kBudgetFooter[] = R"(
Budgets (YAML, in a file; docs/history.md tells all keys):
  reset_day: 15
  budgets:
    - {name: satellite, limit: 100 GB, uplink: satellite}
    - {name: backups, limit: 5 GiB, service: rsync, warn: [50, 80, 100]}
  plans:
    - {name: sat50, uplink: satellite, currency: USD, fee: 65, included: 50 GB,
       price: 0.50/GB}

A plan is what the provider bills; its cost until now stands below the budgets.

--limit is a budget without a file. It is named by its uplink or service.

Used is what `netmeter record` has recorded in this billing period: of an uplink, what
its interfaces counted; without an uplink, the sum of all paid uplinks. The forecast is
for the whole period, if it goes on as it did so far. Nothing is limited. Without
--units, a budget whose limit is in GB is shown in GB, and one in GiB in GiB.

--run runs a shell command once for each level that a budget crosses, with
NETMETER_BUDGET, NETMETER_PERCENT (the level), NETMETER_USED_BYTES,
NETMETER_LIMIT_BYTES and NETMETER_PERIOD_FROM and _TO in its environment. If the
command fails, takes longer than --run-seconds, or is killed, the next call tries
again. A level is crossed only once in a period, even if the limit changes. Root must
name the user of the command: --run-as.

Exit status: 0 no level is crossed; 1 failed, one line on stderr says why; 2 wrong
usage; 3 a level is crossed; 4 a budget is used up.

Examples:
  netmeter budget
  netmeter budget --limit '100 GB' --uplink satellite --reset-day 15
  netmeter budget --run 'logger "$NETMETER_BUDGET: $NETMETER_PERCENT %"' --run-as nobody
)";

struct Row {
  Budget budget;
  BudgetState state;
};

// A budget is shown in the units of its limit.
std::string FormatRows(const std::vector<Row>& rows, const SizeOptions& sizes) {
  TextTable table({{"BUDGET"},
                   {"UNTIL", TextColumn::kLeft, 2},
                   {"USED", TextColumn::kRight},
                   {"LIMIT", TextColumn::kRight},
                   {"LEFT", TextColumn::kRight, 3},
                   {"FORECAST", TextColumn::kRight, 1},
                   {"PERCENT", TextColumn::kRight},
                   {"STATE"}});
  for (const Row& row : rows) {
    const BudgetState& state = row.state;
    const SizeUnits units = sizes.Or(row.budget.units);
    table.Add(
        {ToTerminal(row.budget.name), FormatDay(state.period.to),
         HumanSignedBytes(state.used, units),
         HumanSignedBytes(row.budget.limit, units),
         HumanSignedBytes(row.budget.limit - state.used, units),
         state.forecast < 0 ? "-" : HumanSignedBytes(state.forecast, units),
         absl::StrCat(state.percent, "%"), BudgetWord(state)});
  }
  std::vector<std::string> notes;
  std::map<std::string, std::vector<std::string>> unknown;
  for (const Row& row : rows) {
    if (row.state.forecast_unknown.empty()) continue;
    unknown[row.state.forecast_unknown].push_back(ToTerminal(row.budget.name));
  }
  for (const auto& reason : unknown) {
    notes.push_back(absl::StrCat("(no forecast for ",
                                 absl::StrJoin(reason.second, ", "), ": ",
                                 reason.first, ")"));
  }
  // If a name is misspelt, the budget is never crossed.
  for (const Row& row : rows) {
    const Budget& budget = row.budget;
    const bool of_some = !budget.service.empty() || !budget.kind.empty() ||
                         !budget.destination.empty() || !budget.uplink.empty();
    if (row.state.used != 0 || !of_some) continue;
    notes.push_back(
        absl::StrCat("(", ToTerminal(budget.name),
                     ": it selects no recorded traffic of this period)"));
  }
  const size_t width = TerminalWidth();
  std::string text = table.Format(width);
  for (const std::string& note : notes) text += WrapText(note, width);
  return text;
}

std::string FormatCosts(const std::vector<UsageCosts::Entry>& costs,
                        const SizeOptions& sizes) {
  std::string text;
  for (const UsageCosts::Entry& one : costs) {
    text += WrapText(absl::StrCat(DescribeCost(one.plan, one.cost,
                                               sizes.Or(SizeUnits::kDecimal)),
                                  ", until ", FormatDay(one.cost.period.to)),
                     TerminalWidth());
  }
  return text;
}

std::string FormatRowsJson(const std::vector<Row>& rows,
                           const std::vector<UsageCosts::Entry>& costs) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json object = {{"name", ToUtf8(row.budget.name)},
                                     {"from", FormatDay(row.state.period.from)},
                                     {"to", FormatDay(row.state.period.to)},
                                     {"limit_bytes", row.budget.limit},
                                     {"used_bytes", row.state.used},
                                     {"percent", row.state.percent},
                                     {"crossed", row.state.crossed},
                                     {"state", BudgetWord(row.state)}};
    object["forecast_bytes"] = row.state.forecast < 0
                                   ? nlohmann::ordered_json(nullptr)
                                   : nlohmann::ordered_json(row.state.forecast);
    object["forecast_unknown"] =
        row.state.forecast_unknown.empty()
            ? nlohmann::ordered_json(nullptr)
            : nlohmann::ordered_json(row.state.forecast_unknown);
    array.push_back(std::move(object));
  }
  for (const UsageCosts::Entry& one : costs) {
    array.push_back(CostJson(one.plan, one.cost));
  }
  return array.dump(2) + "\n";
}

class BudgetCommand : public Command {
 public:
  std::string Name() const override { return "budget"; }

  std::string Description() const override {
    return "Prints how much of each budget is used, and warns";
  }

  void Declare(Flags* flags) override {
    AddDatabase(flags, &database_);
    budgets_ = kDefaultBudgets;
    const Option file =
        flags->AddOption("--budgets,--config", &budgets_, "The budgets")
            .Type("FILE")
            .ShowDefault();
    const Option limit =
        flags
            ->AddOption("--limit", &limit_,
                        "One budget of this size, as '100 GB', without a file")
            .Type("SIZE")
            .Excludes(file);
    flags->AddOption("--uplink", &budget_.uplink, "Its uplink (default: all)")
        .Type("NAME")
        .Needs(limit);
    flags
        ->AddOption("--service", &budget_.service, "Its service (default: all)")
        .Type("NAME")
        .Needs(limit);
    const Option reset_day =
        flags
            ->AddOption("--reset-day", &budget_.reset_day,
                        "The day of the month on which its period begins")
            .Type("DAY")
            .InRange(1, 31)
            .ShowDefault()
            .Needs(limit);
    flags
        ->AddOption("--days", &budget_.days,
                    "Its period in days; 1: today, by itself")
        .Type("N")
        .InRange(1, 3660)
        .Needs(limit)
        .Excludes(reset_day);
    const Option run =
        flags
            ->AddOption("--run", &run_,
                        "Run this command once for each crossed level")
            .Type("COMMAND")
            .Excludes(limit);
    flags->AddOption("--run-as", &run_as_, "Run it as this user")
        .Type("USER")
        .Needs(run);
    flags->AddOption("--run-seconds", &run_seconds_, "Kill it after this time")
        .Type("SECONDS")
        .InRange(1, 86400)
        .ShowDefault()
        .Needs(run);
    const Option json =
        flags->AddFlag("--json", &json_, "Print one JSON array of objects");
    AddSizes(flags, {json}, &sizes_);
    flags->SetFooter(kBudgetFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckDatabase(database_));
    if (!limit_.empty()) {
      const auto size = ParseSize(limit_);
      if (!size.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--limit: ", size.status().message()));
      }
      budget_.limit = size->bytes;
      budget_.units = size->units;
      budget_.name = !budget_.service.empty()  ? budget_.service
                     : !budget_.uplink.empty() ? budget_.uplink
                                               : "all";
    }
    // Checked each time, not only when a level is crossed, which may be in a month.
    if (!run_as_.empty() && !FindUserByName(run_as_).has_value()) {
      return NoUser();
    }
    if (run_.empty() || !run_as_.empty() || geteuid() != 0) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "--run as root needs --run-as (root itself is allowed)");
  }

  int Run() override {
    const auto file =
        limit_.empty() ? ReadBudgetFile(budgets_) : BudgetFile{{budget_}, {}};
    if (!file.ok()) return Fail(file.status().message());
    // Closed after the history, because SQLite's own locks (fcntl(2)) end when any
    // descriptor of the file is closed. This lock is of another type (flock(2)).
    UniqueFd turn;
    const auto history =
        OpenHistory(database_, run_.empty() ? Database::Mode::kRead
                                            : Database::Mode::kWrite);
    if (!history.ok()) return Fail(history.status().message());
    std::vector<Row> rows;
    int status = 0;
    const int64_t now = time(nullptr);
    for (const Budget& budget : file->budgets) {
      const auto state = ReadBudgetState(history->get(), budget, now);
      if (state.ok()) {
        rows.push_back({budget, *state});
        continue;
      }
      // A mistyped uplink does not silence the other budgets.
      status = Fail(state.status().message());
      if (!absl::IsInvalidArgument(state.status())) return status;
    }
    if (!limit_.empty() && status != 0) return status;
    std::vector<UsageCosts::Entry> costs;
    for (const Plan& plan : file->plans) {
      const auto cost = ReadCost(history->get(), plan, HourOf(now).day);
      if (cost.ok()) {
        costs.push_back({plan, *cost});
        continue;
      }
      status = Fail(cost.status().message());
      if (!absl::IsInvalidArgument(cost.status())) return status;
    }
    const int printed =
        Print(json_ ? FormatRowsJson(rows, costs)
                    : absl::StrCat(
                          file->budgets.empty() ? "" : FormatRows(rows, sizes_),
                          FormatCosts(costs, sizes_)));
    if (printed != 0) status = printed;
    if (!run_.empty()) {
      const absl::Status locked = Lock(&turn);
      if (!locked.ok()) return Fail(locked.message());
    }
    // The warnings do not depend on the reader of the table.
    for (const Row& row : rows) {
      if (run_.empty()) break;
      for (const int percent : row.state.crossed) {
        const absl::Status warned = Warn(history->get(), row, percent);
        if (!warned.ok()) status = Fail(warned.message());
      }
    }
    if (status != 0) return status;
    for (const Row& row : rows) {
      if (row.state.percent >= 100) return kExitExceeded;
      if (!row.state.crossed.empty()) status = kExitWarned;
    }
    return status;
  }

 private:
  absl::Status NoUser() const {
    return absl::NotFoundError(
        absl::StrCat("--run-as: unknown user '", run_as_, "'"));
  }

  // Waits for a limited time: any user who can read the file can also lock it, and
  // would block the timer forever.
  absl::Status Lock(UniqueFd* turn) const {
    const std::string what = absl::StrCat("lock ", database_);
    *turn = UniqueFd(open(database_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!turn->ok()) return ErrnoStatus(errno, what);
    const auto end = std::chrono::steady_clock::now() + kTimeout;
    while (flock(turn->get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return ErrnoStatus(errno, what);
      }
      if (std::chrono::steady_clock::now() > end) {
        return absl::UnavailableError(absl::StrCat(
            what, ": another program has held it for a minute (see: fuser ",
            database_, ")"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return absl::OkStatus();
  }

  absl::Status Warn(Database* history, const Row& row, int percent) const {
    const auto warned = WasWarned(history, row.budget, row.state, percent);
    if (!warned.ok()) return warned.status();
    if (*warned) return absl::OkStatus();
    NETMETER_RETURN_IF_ERROR(RunCommand(row, percent));
    return NoteWarning(history, row.budget, row.state, percent);
  }

  absl::Status RunCommand(const Row& row, int percent) const {
    // Looked up before fork(2), after which few calls are allowed.
    std::optional<User> user;
    if (!run_as_.empty()) {
      user = FindUserByName(run_as_);
      if (!user.has_value()) return NoUser();
    }
    const std::vector<std::string> variables = {
        absl::StrCat("NETMETER_BUDGET=", row.budget.name),
        absl::StrCat("NETMETER_PERCENT=", percent),
        absl::StrCat("NETMETER_USED_BYTES=", row.state.used),
        absl::StrCat("NETMETER_LIMIT_BYTES=", row.budget.limit),
        absl::StrCat("NETMETER_PERIOD_FROM=", FormatDay(row.state.period.from)),
        absl::StrCat("NETMETER_PERIOD_TO=", FormatDay(row.state.period.to))};
    const pid_t child = fork();
    if (child < 0) return ErrnoStatus(errno, "fork");
    if (child == 0) {
      setpgid(0, 0);
      signal(SIGPIPE, SIG_DFL);
      if (user.has_value() && geteuid() == 0 && !BecomeUser(*user)) {
        _exit(126);
      }
      for (const std::string& variable : variables) {
        putenv(const_cast<char*>(variable.c_str()));
      }
      // Its output must not get into a table or into JSON.
      dup2(STDERR_FILENO, STDOUT_FILENO);
      execl("/bin/sh", "sh", "-c", run_.c_str(), nullptr);
      _exit(127);
    }
    setpgid(child, child);  // parent and child both do this
    int status = 0;
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(run_seconds_);
    for (pid_t ended = 0; ended == 0;) {
      ended = waitpid(child, &status, WNOHANG);
      if (ended < 0 && errno == EINTR) ended = 0;
      if (ended < 0) return ErrnoStatus(errno, "wait for the command");
      if (ended != 0) break;
      if (std::chrono::steady_clock::now() > end) {
        kill(-child, SIGKILL);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        return absl::DeadlineExceededError(absl::StrCat(
            "--run: the command for ", row.budget.name, " at ", percent,
            " % ran longer than ", run_seconds_, " s (--run-seconds)"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat(
        "--run: the command for ", row.budget.name, " at ", percent, " % ",
        WIFEXITED(status)
            ? absl::StrCat("exited with ", WEXITSTATUS(status))
            : absl::StrCat("was killed by signal ", WTERMSIG(status))));
  }

  std::string database_;
  std::string budgets_;
  std::string limit_;
  Budget budget_;  // of limit_
  std::string run_;
  std::string run_as_;
  int run_seconds_ = 60;
  bool json_ = false;
  SizeOptions sizes_;
};

}  // namespace

std::unique_ptr<Command> NewBudgetCommand() {
  return std::make_unique<BudgetCommand>();
}

}  // namespace internal
}  // namespace netmeter
