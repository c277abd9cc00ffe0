// SPDX-License-Identifier: BSD-3-Clause
// Fields of CSV (RFC 4180).
//
// Threads: any.

#ifndef NETMETER_LIB_BASE_CSV_H_
#define NETMETER_LIB_BASE_CSV_H_

#include <string>

namespace netmeter {
namespace internal {

// A field, quoted if it must be. A spreadsheet would take a text that begins with one of
// = + - @ for a formula, and any user may choose a name: such a text gets a ' first.
std::string CsvField(const std::string& text);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_BASE_CSV_H_
