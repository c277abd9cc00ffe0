// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/budgets/budget.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

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
constexpr const char* kBudgetKeys[] = {
    "name",   "limit", "service",   "destination", "kind",
    "uplink", "path",  "direction", "reset_day",   "days",
    "start",  "free",  "factor",    "warn"};
constexpr const char* kPlanKeys[] = {
    "name",  "uplink", "currency",  "fee",       "included", "price",
    "round", "from",   "direction", "reset_day", "days",     "start"};
// The largest price or fee: 10^9 of the currency, so that no cost overflows (plan.cc).
constexpr int64_t kMostMicros = 1000000000000000;
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

Day DayOf(const YAML::Node& node, absl::string_view key) {
  const auto day = ParseDay(Scalar(node, key, "a day, as 2026-11-22"));
  if (!day.ok()) {
    throw BudgetError(node, absl::StrCat(key, ": ", day.status().message()));
  }
  return *day;
}

Size SizeOf(const YAML::Node& node, absl::string_view key) {
  const auto size = ParseSize(Scalar(node, key, "a size, as 100 GB"));
  if (!size.ok()) {
    throw BudgetError(node, absl::StrCat(key, ": ", size.status().message()));
  }
  return *size;
}

// Sets the period of a budget or a plan, if it is a key of periods.
template <typename T>
bool SetPeriod(const std::string& key, const YAML::Node& value, T* out) {
  if (key == "reset_day") {
    out->reset_day = Number(value, key, 1, 31);
  } else if (key == "days") {
    out->days = Number(value, key, 1, 3660);
  } else if (key == "start") {
    out->start = DayOf(value, key);
  } else {
    return false;
  }
  return true;
}

void CheckPeriod(const YAML::Node& map, const std::set<std::string>& seen,
                 absl::string_view what) {
  if (seen.count("days") != 0 && seen.count("reset_day") != 0) {
    throw BudgetError(map, absl::StrCat(what, " has either days or reset_day"));
  }
  if (seen.count("start") != 0 && seen.count("days") == 0) {
    throw BudgetError(map, "start: needs days, the length of a period");
  }
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
      const Size limit = SizeOf(value, key);
      budget.limit = limit.bytes;
      budget.units = limit.units;
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
    } else if (!SetPeriod(key, value, &budget)) {
      UnknownKey(pair.first, key,
                 {std::begin(kBudgetKeys), std::end(kBudgetKeys)});
    }
  }
  CheckPeriod(map, seen, "a budget");
  if (budget.name.empty()) throw BudgetError(map, "a budget needs a name");
  if (budget.limit == 0) {
    throw BudgetError(map, absl::StrCat(budget.name, " needs a limit"));
  }
  return budget;
}

// A number without a sign, as text, times `scale`: a numerator and a denominator.
struct Fraction {
  __int128 numerator = 0;
  __int128 denominator = 1;
};
std::optional<Fraction> ParseDecimal(absl::string_view text, int64_t scale) {
  Fraction value;
  int digits = 0, points = 0;
  for (const char c : text) {
    if (c == '.') {
      ++points;
      continue;
    }
    if (c < '0' || c > '9' || ++digits > 18) return std::nullopt;
    value.numerator = value.numerator * 10 + (c - '0');
    if (points != 0) value.denominator *= 10;
  }
  if (digits == 0 || points > 1) return std::nullopt;
  value.numerator *= scale;
  return value;
}

struct Unit {
  absl::string_view name;
  int64_t bytes;
  SizeUnits units;
};
const Unit* FindUnit(absl::string_view name) {
  static constexpr Unit kUnits[] = {
      {"B", 1, SizeUnits::kDecimal},
      {"kB", 1000, SizeUnits::kDecimal},
      {"MB", 1000000, SizeUnits::kDecimal},
      {"GB", 1000000000, SizeUnits::kDecimal},
      {"TB", 1000000000000, SizeUnits::kDecimal},
      {"KiB", int64_t{1} << 10, SizeUnits::kBinary},
      {"MiB", int64_t{1} << 20, SizeUnits::kBinary},
      {"GiB", int64_t{1} << 30, SizeUnits::kBinary},
      {"TiB", int64_t{1} << 40, SizeUnits::kBinary}};
  for (const Unit& unit : kUnits) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

// "0.09/GB" and "50 GB/day" in their two parts; the second is "" without a slash.
std::pair<std::string, std::string> SplitAtSlash(const std::string& text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('/', 1));
  return {std::string(absl::StripAsciiWhitespace(parts.first)),
          std::string(absl::StripAsciiWhitespace(parts.second))};
}

int64_t Micros(const YAML::Node& node, absl::string_view key,
               absl::string_view expected, const std::string& amount,
               const std::string& text) {
  const auto value = ParseDecimal(amount, 1000000);
  if (!value.has_value() ||
      value->numerator > kMostMicros * value->denominator) {
    Wrong(node, key, expected, text);
  }
  if (value->numerator % value->denominator != 0) {
    Wrong(node, key, "6 decimals at most (name the price of more bytes)", text);
  }
  return static_cast<int64_t>(value->numerator / value->denominator);
}

// Returns the micros, and sets the bytes that they are for.
int64_t Price(const YAML::Node& node, int64_t* price_bytes) {
  constexpr char kExpected[] = "a price, as 0.09/GB, or a list of tiers";
  const std::string text = Scalar(node, "price", kExpected);
  const auto parts = SplitAtSlash(text);
  const Unit* const unit = FindUnit(parts.second);
  if (unit == nullptr) Wrong(node, "price", kExpected, text);
  // So that a cost is rounded once.
  if (*price_bytes != 1 && *price_bytes != unit->bytes) {
    Wrong(node, "price", "one unit in all tiers", text);
  }
  *price_bytes = unit->bytes;
  return Micros(node, "price", kExpected, parts.first, text);
}

void SetTiers(const YAML::Node& node, PlanTerms* terms) {
  if (!node.IsSequence()) {
    PlanTerms::Tier tier;
    tier.micros = Price(node, &terms->price_bytes);
    terms->tiers = {tier};
    return;
  }
  if (node.size() == 0 || node.size() > 100) {
    throw BudgetError(node, "price: expected 1 to 100 tiers");
  }
  for (const YAML::Node& map : node) {
    constexpr char kExpected[] =
        "price: expected tiers, as [{to: 10 TB, price: 0.09/GB}, {price: "
        "0.05/GB}]";
    const bool is_last = terms->tiers.size() + 1 == node.size();
    if (!map.IsMap() || map.size() != (is_last ? 1 : 2) || !map["price"] ||
        (!is_last && !map["to"])) {
      throw BudgetError(map, kExpected);
    }
    PlanTerms::Tier tier;
    if (!is_last) tier.to = SizeOf(map["to"], "to").bytes;
    tier.micros = Price(map["price"], &terms->price_bytes);
    if (!terms->tiers.empty() && tier.to <= terms->tiers.back().to) {
      throw BudgetError(map, "to: expected the smaller tier first");
    }
    terms->tiers.push_back(tier);
  }
}

// A plan with one element of its terms.
Plan ParsePlan(const YAML::Node& map, int reset_day) {
  if (!map.IsMap()) throw BudgetError(map, "expected a plan with its keys");
  Plan plan;
  plan.reset_day = reset_day;
  PlanTerms terms;
  std::set<std::string> seen;
  for (const auto& pair : map) {
    const std::string key = KeyOf(pair.first);
    const YAML::Node& value = pair.second;
    if (!seen.insert(key).second) {
      throw BudgetError(pair.first, absl::StrCat(key, ": is there twice"));
    }
    if (key == "name") {
      plan.name = Scalar(value, key, "a name");
    } else if (key == "uplink") {
      plan.uplink = Scalar(value, key, "a name");
    } else if (key == "currency") {
      constexpr char kExpected[] = "three letters of ISO 4217, as EUR";
      plan.currency = Scalar(value, key, kExpected);
      if (plan.currency.size() != 3 ||
          !std::all_of(plan.currency.begin(), plan.currency.end(),
                       [](char c) { return c >= 'A' && c <= 'Z'; })) {
        Wrong(value, key, kExpected, plan.currency);
      }
    } else if (key == "fee") {
      constexpr char kExpected[] = "an amount, as 65 or 0.06/day";
      const std::string text = Scalar(value, key, kExpected);
      const auto parts = SplitAtSlash(text);
      terms.fee_is_daily = parts.second == "day";
      if (!terms.fee_is_daily && text.find('/') != std::string::npos) {
        Wrong(value, key, kExpected, text);
      }
      terms.fee_micros = Micros(value, key, kExpected, parts.first, text);
    } else if (key == "included") {
      terms.included_bytes = SizeOf(value, key).bytes;
    } else if (key == "price") {
      SetTiers(value, &terms);
    } else if (key == "round") {
      constexpr char kExpected[] = "a size, as 1 MB or 1 MB/day";
      const std::string text = Scalar(value, key, kExpected);
      const auto parts = SplitAtSlash(text);
      const auto size = ParseSize(parts.first);
      terms.rounds_days = parts.second == "day";
      if (!size.ok() ||
          (!terms.rounds_days && text.find('/') != std::string::npos)) {
        Wrong(value, key, kExpected, text);
      }
      terms.round_bytes = size->bytes;
    } else if (key == "from") {
      terms.from = DayOf(value, key);
    } else if (key == "direction") {
      const std::string word = Word<std::string>(
          value, key, {{"both", "both"}, {"tx", "tx"}, {"rx", "rx"}});
      plan.counts_sent = word != "rx";
      plan.counts_received = word != "tx";
    } else if (!SetPeriod(key, value, &plan)) {
      UnknownKey(pair.first, key, {std::begin(kPlanKeys), std::end(kPlanKeys)});
    }
  }
  CheckPeriod(map, seen, "a plan");
  if (plan.name.empty()) throw BudgetError(map, "a plan needs a name");
  const auto needs = [&](bool has, absl::string_view what) {
    if (has) return;
    throw BudgetError(map, absl::StrCat(plan.name, " needs ", what));
  };
  needs(!plan.currency.empty(), "a currency, as EUR");
  needs(seen.count("fee") + seen.count("price") != 0, "a fee or a price");
  for (const char* const key : {"included", "round"}) {
    needs(seen.count(key) == 0 || seen.count("price") != 0,
          absl::StrCat("a price, because it has the key ", key));
  }
  if (terms.included_bytes != 0 && terms.tiers.size() > 1) {
    throw BudgetError(
        map, "included: with tiers it is one, {to: 1 GB, price: 0/GB}");
  }
  plan.terms.push_back(std::move(terms));
  return plan;
}

// The plans of one name become one. The terms of an uplink end when the next ones begin.
std::vector<Plan> ParsePlans(const YAML::Node& list, int reset_day) {
  std::vector<Plan> plans;
  std::map<std::string, std::map<Day, PlanTerms>> of_uplinks;
  for (const YAML::Node& map : list) {
    Plan plan = ParsePlan(map, reset_day);
    const PlanTerms& terms = plan.terms[0];
    for (const Plan& other : plans) {
      if (other.name != plan.name) continue;
      if (other.uplink != plan.uplink || other.currency != plan.currency ||
          other.counts_sent != plan.counts_sent ||
          other.counts_received != plan.counts_received ||
          other.reset_day != plan.reset_day || other.days != plan.days ||
          other.start != plan.start) {
        throw BudgetError(
            map, absl::StrCat("name: '", plan.name,
                              "' has another uplink, currency, direction or "
                              "period above: give this plan another name"));
      }
    }
    if (!of_uplinks[plan.uplink].emplace(terms.from, terms).second) {
      throw BudgetError(
          map, absl::StrCat("from: ",
                            plan.uplink.empty()
                                ? "the sum of uplinks"
                                : absl::StrCat("uplink ", plan.uplink),
                            " has a plan that begins at this time: say from "
                            "which day this one is valid"));
    }
    if (of_uplinks.count("") != 0 && of_uplinks.size() > 1) {
      throw BudgetError(map,
                        "uplink: a plan without one is for all uplinks, so "
                        "either all plans have one or none has");
    }
    plans.push_back(std::move(plan));
  }
  std::vector<Plan> merged;
  for (Plan& plan : plans) {
    std::map<Day, PlanTerms>& terms = of_uplinks[plan.uplink];
    const auto next = terms.upper_bound(plan.terms[0].from);
    if (next != terms.end()) plan.terms[0].to = AddDays(next->first, -1);
    const auto same = std::find_if(
        merged.begin(), merged.end(),
        [&](const Plan& other) { return other.name == plan.name; });
    if (same == merged.end()) {
      merged.push_back(std::move(plan));
    } else {
      same->terms.push_back(std::move(plan.terms[0]));
    }
  }
  return merged;
}

std::vector<Budget> ParseBudgetList(const YAML::Node& list, int reset_day) {
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

BudgetFile ParseDocument(const YAML::Node& root) {
  if (!root.IsMap()) throw BudgetError(root, "expected the key budgets");
  int reset_day = 1;
  YAML::Node budgets(YAML::NodeType::Undefined);
  YAML::Node plans(YAML::NodeType::Undefined);
  std::set<std::string> seen;
  for (const auto& pair : root) {
    const std::string key = KeyOf(pair.first);
    if (!seen.insert(key).second) {
      throw BudgetError(pair.first, absl::StrCat(key, ": is there twice"));
    }
    if (key == "reset_day") {
      reset_day = Number(pair.second, key, 1, 31);
      continue;
    }
    if (key != "budgets" && key != "plans") {
      UnknownKey(pair.first, key, {"budgets", "plans", "reset_day"});
    }
    const YAML::Node& list = pair.second;
    if (!list.IsSequence()) {
      throw BudgetError(list, absl::StrCat(key, ": expected a list of ", key));
    }
    if (list.size() == 0) {
      throw BudgetError(list, absl::StrCat(key, ": the list is empty"));
    }
    if (list.size() > kMostBudgets) {
      throw BudgetError(list, absl::StrCat(key, ": more than ", kMostBudgets));
    }
    (key == "budgets" ? budgets : plans).reset(list);
  }
  if (!budgets.IsDefined() && !plans.IsDefined()) {
    throw BudgetError(root, "expected the key budgets or plans");
  }
  BudgetFile file;
  // Last, because reset_day may stand below.
  if (budgets.IsDefined()) file.budgets = ParseBudgetList(budgets, reset_day);
  if (plans.IsDefined()) file.plans = ParsePlans(plans, reset_day);
  return file;
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
  const absl::string_view number = text.substr(0, end);
  if (!ParseDecimal(number, 1).has_value()) return wrong;
  const absl::string_view name =
      end == absl::string_view::npos
          ? ""
          : absl::StripAsciiWhitespace(text.substr(end));
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' has no unit: expected a size, as ", text,
                     " GB, ", text, " GiB or ", text, " B"));
  }
  const Unit* const unit = FindUnit(name);
  if (unit == nullptr) return wrong;
  const Fraction size = *ParseDecimal(number, unit->bytes);
  const __int128 bytes =
      (2 * size.numerator + size.denominator) / (2 * size.denominator);
  // Below 2^60, so that percentages do not overflow.
  if (bytes < 1 || bytes >= __int128{1} << 60) return wrong;
  return Size{static_cast<int64_t>(bytes), unit->units};
}

absl::StatusOr<BudgetFile> ParseBudgets(const std::string& yaml,
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

absl::StatusOr<BudgetFile> ReadBudgetFile(const std::string& file) {
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
