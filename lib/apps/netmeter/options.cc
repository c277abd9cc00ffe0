// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/options.h"

#include <time.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/status_util.h"
#include "lib/reader/consistent_read.h"
#include "lib/reader/shared_maps.h"

namespace netmeter {
namespace internal {

SizeUnits MeterUnits(const std::string& pin_dir) {
  const auto maps = SharedMaps::Open(pin_dir);
  return maps.ok() && (*maps)->view().info->decimal_sizes != 0
             ? SizeUnits::kDecimal
             : SizeUnits::kBinary;
}

Option AddUnits(Flags* flags, SizeOptions* sizes) {
  return flags
      ->AddChoice(
          "--units", &sizes->units,
          std::map<std::string, SizeUnits>{{"binary", SizeUnits::kBinary},
                                           {"decimal", SizeUnits::kDecimal}},
          "binary: KiB, 1024 bytes; decimal: kB, 1000 bytes\n"
          "(default: size_units of the configuration)")
      .Type("UNITS");
}

void AddSizes(Flags* flags, const std::vector<Option>& excluded,
              SizeOptions* sizes) {
  const Option units = AddUnits(flags, sizes);
  const Option exact =
      flags->AddFlag("--bytes", &sizes->exact, "Print exact bytes")
          .Excludes(units);
  for (const Option& other : excluded) {
    units.Excludes(other);
    exact.Excludes(other);
  }
}

namespace {

constexpr char kThisMonth[] = "this", kLastMonth[] = "last";

absl::StatusOr<Day> ParseDayOrWord(const std::string& text, Day today) {
  constexpr int kMostDays = 36500;
  if (text == "today") return today;
  if (text == "yesterday") return AddDays(today, -1);
  absl::string_view number = text;
  int days = 0;
  if (absl::ConsumeSuffix(&number, "d") && absl::SimpleAtoi(number, &days) &&
      days >= 0 && days <= kMostDays) {
    return AddDays(today, -days);
  }
  return ParseDay(text);
}

absl::Status Prefixed(const char* option, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": ", status.message()));
}

}  // namespace

void AddDatabase(Flags* flags, std::string* path) {
  *path = kDefaultHistory;
  flags->AddOption("--database", path, "The history, an SQLite database")
      .Type("FILE")
      .ShowDefault();
}

absl::Status CheckDatabase(const std::string& path) {
  if (!path.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--database: expected a path, not ''");
}

void PeriodOptions::Declare(Flags* flags) {
  const Option month =
      flags
          ->AddOption("--month", &month_,
                      "The billing period that begins in this month, "
                      "such as 2026-11; last: the one before the present one\n"
                      "(without a value: the present one)")
          .Type("MONTH")
          .OptionalValue()
          .Default(kThisMonth);
  const Option from =
      flags
          ->AddOption("--from", &from_,
                      "The first day: 2026-11-22, today, yesterday, or 7d for\n"
                      "7 days ago")
          .Type("DAY")
          .Excludes(month);
  flags->AddOption("--to", &to_, "The last day, likewise (default: today)")
      .Type("DAY")
      .Needs(from);
  flags
      ->AddOption("--reset-day", &reset_day_,
                  "The day of the month on which a period begins")
      .Excludes(from)
      .Type("DAY")
      .InRange(1, 31)
      .ShowDefault();
}

absl::StatusOr<Period> PeriodOptions::Get(Day today) const {
  if (from_.empty()) {
    if (month_.empty() || month_ == kThisMonth) {
      return PeriodAround(today, reset_day_);
    }
    if (month_ == kLastMonth) {
      const Day first = PeriodAround(today, reset_day_).from;
      return PeriodAround(AddDays(first, -1), reset_day_);
    }
    const auto period = ParseMonth(month_, reset_day_);
    if (!period.ok()) return Prefixed("--month", period.status());
    return period;
  }
  const auto from = ParseDayOrWord(from_, today);
  if (!from.ok()) return Prefixed("--from", from.status());
  if (to_.empty()) return Period{*from, std::max(*from, today)};
  const auto to = ParseDayOrWord(to_, today);
  if (!to.ok()) return Prefixed("--to", to.status());
  if (*to < *from) {
    return absl::InvalidArgumentError(
        absl::StrCat("--to: ", to_, " is before ", from_));
  }
  return Period{*from, *to};
}

Day Today() { return HourOf(time(nullptr)).day; }

namespace {

absl::StatusOr<std::string> BootId() {
  constexpr char kPath[] = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kPath);
  std::string id;
  if (!std::getline(file, id)) {
    return absl::FailedPreconditionError(absl::StrCat("cannot read ", kPath));
  }
  return id;
}

int64_t Seconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return now.tv_sec;
}

}  // namespace

absl::StatusOr<Reading> ReadMeter(const Meter& meter) {
  Reading reading;
  Health health;
  NETMETER_RETURN_IF_ERROR(ReadConsistently(
      meter, [&] { return meter.ReadHost(&reading.samples); }, &health));
  auto boot_id = BootId();
  if (!boot_id.ok()) return boot_id.status();
  reading.now = Seconds(CLOCK_REALTIME);
  reading.boottime = Seconds(CLOCK_BOOTTIME);
  reading.boot_id = *std::move(boot_id);
  reading.start_ns = static_cast<int64_t>(health.start_time_ns);
  reading.cgroup = health.cgroup;
  return reading;
}

}  // namespace internal
}  // namespace netmeter
