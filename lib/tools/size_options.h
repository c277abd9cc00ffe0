// SPDX-License-Identifier: BSD-3-Clause
// --units and --bytes: how a command shows sizes.
//
//   AddSizes(flags, {json}, &sizes_);
//   ... HumanBytes(bytes, sizes_.Or(MeterUnits(pin_dir_)));
//
// Threads: one; these are parts of a main().

#ifndef NETMETER_LIB_TOOLS_SIZE_OPTIONS_H_
#define NETMETER_LIB_TOOLS_SIZE_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "lib/core/flags.h"
#include "lib/core/human.h"

namespace netmeter {
namespace internal {

struct SizeOptions {
  std::optional<SizeUnits> units;
  bool exact = false;

  // What the command line says; `otherwise` if it says nothing.
  SizeUnits Or(SizeUnits otherwise) const {
    return exact ? SizeUnits::kExact : units.value_or(otherwise);
  }
};

// Those of the configuration, size_units, which the meter there has; binary without one.
SizeUnits MeterUnits(const std::string& pin_dir);

// --units.
Option AddUnits(Flags* flags, SizeOptions* sizes);

// --units and --bytes, which exclude each other, and these.
void AddSizes(Flags* flags, const std::vector<Option>& excluded,
              SizeOptions* sizes);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TOOLS_SIZE_OPTIONS_H_
