// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/budgets/budget.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/apps/history/bill.h"
#include "lib/apps/history/usage.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/unique_fd.h"
#include "lib/base/yaml.h"
#include "lib/reader/difference.h"

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMostBudgets = 1000;
constexpr absl::string_view kWeekdays[] = {"mon", "tue", "wed", "thu",
                                           "fri", "sat", "sun"};

// An invalid value, with its line. yaml-cpp throws, but no exception leaves this file.
class BudgetError : public std::exception {
 public:
  BudgetError(const YAML::Node& node, std::string text)
      : line_(node.Mark().line + 1), text_(std::move(text)) {}
  int line() const { return line_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int line_;
  std::string text_;
};

std::string Scalar(const YAML::Node& node, absl::string_view key,
                   absl::string_view expected) {
  if (!node.IsScalar() || node.Scalar().empty()) {
    throw BudgetError(node, absl::StrCat(key, ": expected ", expected));
  }
  return node.Scalar();
}

std::string KeyOf(const YAML::Node& node) {
  if (!node.IsScalar()) throw BudgetError(node, "expected key: value lines");
  return node.Scalar();
}

[[noreturn]] void Wrong(const YAML::Node& node, absl::string_view key,
                        absl::string_view expected, absl::string_view text) {
  throw BudgetError(
      node, absl::StrCat(key, ": expected ", expected, ", not '", text, "'"));
}

int Number(const YAML::Node& node, absl::string_view key, int least, int most) {
  const std::string expected =
      absl::StrCat("a number from ", least, " to ", most);
  const std::string text = Scalar(node, key, expected);
  int number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < least || number > most) {
    Wrong(node, key, expected, text);
  }
  return number;
}

// "sat", "sat-sun", "0-6" (hours, the last one excluded), "sat 0-6" and lists of these.
void AddFree(const YAML::Node& node, std::bitset<7 * 24>* hours) {
  constexpr char kExpected[] =
      "days and hours, as \"sat-sun\" or \"mon-fri 0-6\"";
  const std::string text = Scalar(node, "free", kExpected);
  int day[2] = {0, 6}, hour[2] = {0, 24};
  for (const absl::string_view part :
       absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    const bool is_hours =
        absl::ascii_isdigit(static_cast<unsigned char>(part[0]));
    if (ends.size() > 2 || (is_hours && ends.size() != 2)) {
      Wrong(node, "free", kExpected, text);
    }
    for (size_t i = 0; i < 2; ++i) {
      const absl::string_view end = ends[std::min(i, ends.size() - 1)];
      const auto* const found =
          std::find(std::begin(kWeekdays), std::end(kWeekdays), end);
      if (is_hours ? !absl::SimpleAtoi(end, &hour[i]) || hour[i] > 24
                   : found == std::end(kWeekdays)) {
        Wrong(node, "free", kExpected, text);
      }
      if (!is_hours) day[i] = static_cast<int>(found - std::begin(kWeekdays));
    }
  }
  if (day[0] > day[1] || hour[0] >= hour[1]) {
    Wrong(node, "free", "the earlier one first", text);
  }
  for (int d = day[0]; d <= day[1]; ++d) {
    for (int h = hour[0]; h < hour[1]; ++h) {
      hours->set(static_cast<size_t>(d * 24 + h));
    }
  }
}

std::bitset<7 * 24> FreeHours(const YAML::Node& node) {
  std::bitset<7 * 24> hours;
  if (!node.IsSequence() || node.size() > 100) {
    throw BudgetError(node,
                      "free: expected a list, as [sat-sun, \"mon-fri 0-6\"]");
  }
  for (const YAML::Node& one : node) AddFree(one, &hours);
  return hours;
}

std::vector<int> Levels(const YAML::Node& node) {
  if (!node.IsSequence() || node.size() > 100) {
    throw BudgetError(node, "warn: expected a list of percents, as [80, 100]");
  }
  std::set<int> levels;
  for (const YAML::Node& level : node) {
    levels.insert(Number(level, "warn", 1, 1000));
  }
  return std::vector<int>(levels.begin(), levels.end());
}

template <typename T>
T Word(const YAML::Node& node, absl::string_view key,
       const std::vector<std::pair<std::string, T>>& words) {
  std::string expected;
  for (const auto& word : words) {
    absl::StrAppend(&expected, expected.empty() ? "" : " or ", word.first);
  }
  const std::string text = Scalar(node, key, expected);
  for (const auto& word : words) {
    if (word.first == text) return word.second;
  }
  Wrong(node, key, expected, text);
}

[[noreturn]] void UnknownKey(const YAML::Node& node, const std::string& key,
                             const std::vector<std::string>& known) {
  throw BudgetError(
      node, absl::StrCat("unknown key '", key, "'", DidYouMean(key, known)));
}

Budget ParseBudget(const YAML::Node& map, int reset_day) {
  if (!map.IsMap()) throw BudgetError(map, "expected a budget with its keys");
  Budget budget;
  budget.reset_day = reset_day;
  std::set<std::string> seen;
  for (const auto& pair : map) {
    const std::string key = KeyOf(pair.first);
    const YAML::Node& value = pair.second;
    if (!seen.insert(key).second) {
      throw BudgetError(pair.first, absl::StrCat(key, ": is there twice"));
    }
    if (key == "name") {
      budget.name = Scalar(value, key, "a name");
    } else if (key == "limit") {
      const std::string text = Scalar(value, key, "a size, as 100 GB");
      const auto limit = ParseSize(text);
      if (!limit.ok()) {
        throw BudgetError(value,
                          absl::StrCat(key, ": ", limit.status().message()));
      }
      budget.limit = limit->bytes;
      budget.units = limit->units;
    } else if (key == "service") {
      budget.service = Scalar(value, key, "a name");
    } else if (key == "destination") {
      budget.destination = Scalar(value, key, "a name");
    } else if (key == "uplink") {
      budget.uplink = Scalar(value, key, "a name");
    } else if (key == "kind") {
      budget.kind = Word<std::string>(value, key,
                                      {{"service", "service"},
                                       {"binary", "binary"},
                                       {"unit", "unit"},
                                       {"container", "container"},
                                       {"user", "user"},
                                       {kForwardedKind, kForwardedKind}});
    } else if (key == "path") {
      budget.path = Word<std::string>(
          value, key, {{"direct", "direct"}, {"proxy", "proxy"}});
    } else if (key == "direction") {
      budget.direction =
          Word<Budget::Direction>(value, key,
                                  {{"both", Budget::Direction::kBoth},
                                   {"tx", Budget::Direction::kSent},
                                   {"rx", Budget::Direction::kReceived},
                                   {"larger", Budget::Direction::kLarger}});
    } else if (key == "reset_day") {
      budget.reset_day = Number(value, key, 1, 31);
    } else if (key == "days") {
      budget.days = Number(value, key, 1, 3660);
    } else if (key == "start") {
      const auto day = ParseDay(Scalar(value, key, "a day, as 2026-11-22"));
      if (!day.ok()) {
        throw BudgetError(value,
                          absl::StrCat(key, ": ", day.status().message()));
      }
      budget.start = *day;
    } else if (key == "free") {
      budget.free_hours = FreeHours(value);
    } else if (key == "factor") {
      const std::string text = Scalar(value, key, "a number, as 1.04");
      if (!absl::SimpleAtod(text, &budget.factor) ||
          !(budget.factor >= 0.01 && budget.factor <= 100)) {
        Wrong(value, key, "a number from 0.01 to 100", text);
      }
    } else if (key == "warn") {
      budget.warn = Levels(value);
    } else {
      UnknownKey(pair.first, key,
                 {"name", "limit", "service", "destination", "kind", "uplink",
                  "path", "direction", "reset_day", "days", "start", "free",
                  "factor", "warn"});
    }
  }
  if (seen.count("days") != 0 && seen.count("reset_day") != 0) {
    throw BudgetError(map, "a budget has either days or reset_day");
  }
  if (seen.count("start") != 0 && budget.days == 0) {
    throw BudgetError(map, "start: needs days, the length of a period");
  }
  if (budget.name.empty()) throw BudgetError(map, "a budget needs a name");
  if (budget.limit == 0) {
    throw BudgetError(map, absl::StrCat(budget.name, " needs a limit"));
  }
  return budget;
}

std::vector<Budget> ParseDocument(const YAML::Node& root) {
  if (!root.IsMap()) throw BudgetError(root, "expected the key budgets");
  int reset_day = 1;
  YAML::Node list(YAML::NodeType::Undefined);
  std::set<std::string> seen;
  for (const auto& pair : root) {
    const std::string key = KeyOf(pair.first);
    if (!seen.insert(key).second) {
      throw BudgetError(pair.first, absl::StrCat(key, ": is there twice"));
    }
    if (key == "reset_day") {
      reset_day = Number(pair.second, key, 1, 31);
    } else if (key == "budgets") {
      list.reset(pair.second);
    } else {
      UnknownKey(pair.first, key, {"budgets", "reset_day"});
    }
  }
  if (!list.IsDefined() || !list.IsSequence()) {
    throw BudgetError(root, "budgets: expected a list of budgets");
  }
  if (list.size() == 0) throw BudgetError(list, "budgets: the list is empty");
  if (list.size() > kMostBudgets) {
    throw BudgetError(list, absl::StrCat("budgets: more than ", kMostBudgets));
  }
  std::vector<Budget> budgets;
  std::set<std::string> names;
  for (const YAML::Node& map : list) {
    budgets.push_back(ParseBudget(map, reset_day));
    if (!names.insert(budgets.back().name).second) {
      throw BudgetError(map, absl::StrCat("name: '", budgets.back().name,
                                          "' is there twice"));
    }
  }
  return budgets;
}

absl::Status At(const std::string& file, int line, absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, line > 0 ? absl::StrCat(":", line) : "", ": ", text));
}

}  // namespace

absl::StatusOr<Size> ParseSize(absl::string_view text) {
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("expected a size, as 100 GB, not '", text, "'"));
  const size_t end = text.find_first_not_of("0123456789.");
  double number = 0;
  if (end == 0 || !absl::SimpleAtod(text.substr(0, end), &number)) return wrong;
  const absl::string_view unit =
      end == absl::string_view::npos
          ? ""
          : absl::StripAsciiWhitespace(text.substr(end));
  if (unit.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' has no unit: expected a size, as ", text,
                     " GB, ", text, " GiB or ", text, " B"));
  }
  constexpr SizeUnits kDecimal = SizeUnits::kDecimal;
  constexpr SizeUnits kBinary = SizeUnits::kBinary;
  static constexpr struct {
    absl::string_view name;
    double bytes;
    SizeUnits units;
  } kUnits[] = {{"B", 1, kDecimal},
                {"kB", 1e3, kDecimal},
                {"MB", 1e6, kDecimal},
                {"GB", 1e9, kDecimal},
                {"TB", 1e12, kDecimal},
                {"KiB", 1024.0, kBinary},
                {"MiB", 1048576.0, kBinary},
                {"GiB", 1073741824.0, kBinary},
                {"TiB", 1099511627776.0, kBinary}};
  for (const auto& known : kUnits) {
    if (unit != known.name) continue;
    const double bytes = std::round(number * known.bytes);
    // Below 2^60, so that percentages do not overflow.
    if (!(bytes >= 1 && bytes < 1152921504606846976.0)) return wrong;
    return Size{static_cast<int64_t>(bytes), known.units};
  }
  return wrong;
}

absl::StatusOr<std::vector<Budget>> ParseBudgets(const std::string& yaml,
                                                 const std::string& file) {
  try {
    const YAML::Node root = LoadYaml(yaml);
    if (LineOfSecondDocument(yaml) != 0 || root.IsNull()) {
      return At(file, 0, "expected one document with the key budgets");
    }
    return ParseDocument(root);
  } catch (const BudgetError& error) {
    return At(file, error.line(), error.what());
  } catch (const YAML::Exception& error) {
    const YamlFault fault = DescribeFault(yaml, error);
    return At(file, fault.line, fault.text);
  }
}

absl::StatusOr<std::vector<Budget>> ReadBudgetFile(const std::string& file) {
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (!fd.ok() || fstat(fd.get(), &status) != 0) {
    return ErrnoStatus(
        errno, absl::StrCat("open ", file),
        errno == ENOENT ? "an example: netmeter budget --help" : "");
  }
  if (!S_ISREG(status.st_mode)) return At(file, 0, "is no file");
  std::string text;
  char buffer[4096];
  ssize_t count;
  while ((count = read(fd.get(), buffer, sizeof(buffer))) > 0 &&
         text.size() <= kMostBytes) {
    text.append(buffer, static_cast<size_t>(count));
  }
  if (count < 0) return ErrnoStatus(errno, absl::StrCat("read ", file));
  if (text.size() > kMostBytes) return At(file, 0, "is larger than 1 MiB");
  return ParseBudgets(text, file);
}

absl::StatusOr<BudgetState> ReadBudgetState(Database* history,
                                            const Budget& budget, int64_t now) {
  const absl::Status uplink = CheckRecordedUplink(history, budget.uplink);
  if (!uplink.ok()) {
    return absl::Status(uplink.code(),
                        absl::StrCat("budget ", ToTerminal(budget.name), ": ",
                                     uplink.message()));
  }
  BudgetState state;
  const Day today = HourOf(now).day;
  state.period = budget.days == 0
                     ? PeriodAround(today, budget.reset_day)
                     : PeriodOfDays(today, budget.days, budget.start);
  UsageQuery query;
  query.period = state.period;
  // Hours that were folded into their day count as a whole.
  query.by = budget.free_hours.any() ? UsageBy::kHour : UsageBy::kNothing;
  query.path = budget.path;
  query.service = budget.service;
  query.destination = budget.destination;
  query.kind = budget.kind;
  query.uplink = budget.uplink;
  const auto usage = ReadUsage(history, query);
  if (!usage.ok()) return usage.status();
  Counters counted;
  for (const UsageRow& row : usage->rows) {
    const bool is_free =
        row.hour != 0 &&
        budget.free_hours[static_cast<size_t>(HourOfWeek(row.hour))];
    if (!is_free) counted += row.counters;
  }
  switch (budget.direction) {
    case Budget::Direction::kBoth:
      state.used = counted.bytes();
      break;
    case Budget::Direction::kSent:
      state.used = counted.tx_bytes();
      break;
    case Budget::Direction::kReceived:
      state.used = counted.rx_bytes();
      break;
    case Budget::Direction::kLarger:
      state.used = std::max(counted.tx_bytes(), counted.rx_bytes());
      break;
  }
  if (budget.factor != 1) {
    state.used = static_cast<int64_t>(
        std::llround(static_cast<double>(state.used) * budget.factor));
  }
  const auto first = FirstRecord(history);
  if (!first.ok()) return first.status();
  const Outlook outlook = OutlookOf(state.period, *first, now);
  if (outlook.to_come >= 0) {
    state.forecast =
        state.used +
        static_cast<int64_t>(static_cast<double>(state.used) * outlook.to_come);
  } else {
    state.forecast_unknown =
        absl::StrCat("too little of this period is recorded (it comes at ",
                     FormatTime(outlook.known_at), ")");
  }
  state.percent = static_cast<int64_t>(
      std::min(1e18, std::floor(100.0 * static_cast<double>(state.used) /
                                static_cast<double>(budget.limit))));
  for (const int level : budget.warn) {
    if (state.percent >= level) state.crossed.push_back(level);
  }
  return state;
}

absl::StatusOr<bool> WasWarned(Database* history, const Budget& budget,
                               const BudgetState& state, int percent) {
  Statement note = history->Prepare(
      "SELECT 1 FROM warning WHERE budget = ? AND period = ? AND percent = ?");
  const bool found = note.Bind(1, budget.name)
                         .Bind(2, int64_t{state.period.from})
                         .Bind(3, int64_t{percent})
                         .Step();
  NETMETER_RETURN_IF_ERROR(note.status());
  return found;
}

absl::Status NoteWarning(Database* history, const Budget& budget,
                         const BudgetState& state, int percent) {
  return history->Prepare("INSERT OR IGNORE INTO warning VALUES(?, ?, ?)")
      .Bind(1, budget.name)
      .Bind(2, int64_t{state.period.from})
      .Bind(3, int64_t{percent})
      .Run();
}

}  // namespace internal
}  // namespace netmeter
