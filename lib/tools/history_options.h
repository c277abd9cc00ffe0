// SPDX-License-Identifier: BSD-3-Clause
// What the commands that use the history share: their options, and the read of the
// meter.
//
// Threads: one; these are parts of a main().

#ifndef NETMETER_LIB_TOOLS_HISTORY_OPTIONS_H_
#define NETMETER_LIB_TOOLS_HISTORY_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/core/flags.h"
#include "lib/history/calendar.h"
#include "lib/history/record.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {

// --database, with its default in *path.
void AddDatabase(Flags* flags, std::string* path);
absl::Status CheckDatabase(const std::string& path);

// --month, --from, --to, --reset-day: which days.
class PeriodOptions {
 public:
  void Declare(Flags* flags);
  // The period of the options, or the one that is `today`. InvalidArgument says
  // which option is wrong.
  absl::StatusOr<Period> Get(Day today) const;
  int reset_day() const { return reset_day_; }

 private:
  std::string month_;
  std::string from_;
  std::string to_;
  int reset_day_ = 1;
};

// The local day that it is.
Day Today();

// A read of the meter with the clocks and the boot id of this host. Errors of Meter.
absl::StatusOr<Reading> ReadMeter(const Meter& meter);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_HISTORY_OPTIONS_H_
