// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/csv.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace netmeter {
namespace internal {

std::string CsvField(const std::string& text) {
  const bool formula = !text.empty() && std::string("=+-@\t\r").find(text[0]) !=
                                            std::string::npos;
  const std::string safe = formula ? "'" + text : text;
  if (safe.find_first_of(",\"\n\r") == std::string::npos) return safe;
  return absl::StrCat("\"", absl::StrReplaceAll(safe, {{"\"", "\"\""}}), "\"");
}

}  // namespace internal
}  // namespace netmeter
