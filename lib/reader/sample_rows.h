// SPDX-License-Identifier: BSD-3-Clause
// The result of a read in the layout of the C API. The strings of a row belong to the
// reader, which has one copy of each. They live as long as `words` does.
//
//   SampleRows rows;  // kept from read to read
//   reader.ReadAll(&rows);
//
// Threads: one at a time for each object. Another thread may read with the same reader
// meanwhile: the reader adds words, and changes none.

#ifndef NETMETER_LIB_READER_SAMPLE_ROWS_H_
#define NETMETER_LIB_READER_SAMPLE_ROWS_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "netmeter/netmeter.h"

namespace netmeter {
namespace internal {

struct SampleRows {
  std::vector<netmeter_sample> rows;
  std::shared_ptr<const std::set<std::string>> words;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_SAMPLE_ROWS_H_
