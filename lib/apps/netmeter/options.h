// SPDX-License-Identifier: BSD-3-Clause
// Options of several commands, and the reading of the meter for the history.
//
// Threads: one; these are parts of a main().

#ifndef NETMETER_LIB_APPS_NETMETER_OPTIONS_H_
#define NETMETER_LIB_APPS_NETMETER_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/apps/history/calendar.h"
#include "lib/apps/history/record.h"
#include "lib/base/flags.h"
#include "lib/base/text.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// --units and --bytes: how a command shows sizes.
//
//   AddSizes(flags, {json}, &sizes_);
//   ... HumanBytes(bytes, sizes_.Or(MeterUnits(pin_dir_)));

struct SizeOptions {
  std::optional<SizeUnits> units;
  bool exact = false;

  // The units of the command line, or else `otherwise`.
  SizeUnits Or(SizeUnits otherwise) const {
    return exact ? SizeUnits::kExact : units.value_or(otherwise);
  }
};

// size_units of the loaded meter's configuration; binary if no meter is loaded.
SizeUnits MeterUnits(const std::string& pin_dir);

// Adds --units.
Option AddUnits(Flags* flags, SizeOptions* sizes);

// Adds --units and --bytes, which exclude each other and `excluded`.
void AddSizes(Flags* flags, const std::vector<Option>& excluded,
              SizeOptions* sizes);

// --- History ---

// Adds --database, with its default in *path.
void AddDatabase(Flags* flags, std::string* path);
absl::Status CheckDatabase(const std::string& path);

// --month, --from, --to and --reset-day: a range of days.
class PeriodOptions {
 public:
  void Declare(Flags* flags);
  // The period that the options name, by default the one that contains `today`.
  // InvalidArgument names the wrong option.
  absl::StatusOr<Period> Get(Day today) const;
  void set_reset_day(int day) { reset_day_ = day; }

 private:
  std::string month_;
  std::string from_;
  std::string to_;
  int reset_day_ = 1;
};

// Today, in local time.
Day Today();

// Reads the meter, with the clocks and the boot id of this host. Errors are those of
// Meter.
absl::StatusOr<Reading> ReadMeter(const Meter& meter);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_OPTIONS_H_
