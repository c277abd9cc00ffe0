// SPDX-License-Identifier: BSD-3-Clause
// The host of a record and the labels of --label, which are the same in all records of a
// stream. A store with records of several gateways tells them apart by these.
//
//   auto origin = Origin::Make(labels);
//   AppendJson(row, *origin, &out);
//
// Threads: any; an Origin does not change.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_ORIGIN_H_
#define NETMETER_LIB_APPS_CONNECTIONS_ORIGIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace netmeter {
namespace internal {

class Origin {
 public:
  // The name of this host (gethostname(2)), with labels of the form KEY=VALUE.
  // InvalidArgument: a label without a key or '=', or a key that is there twice.
  static absl::StatusOr<Origin> Make(const std::vector<std::string>& labels);

  // The fields of an object, each after a comma: ,"host":"gw-7","labels":{"site":"ulm"}
  const std::string& json() const { return json_; }
  // The fields of a message.
  const std::string& protobuf() const { return protobuf_; }

 private:
  std::string json_;
  std::string protobuf_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_ORIGIN_H_
