// SPDX-License-Identifier: BSD-3-Clause
#include "lib/sockets/field.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/core/text.h"

namespace netmeter {
namespace internal {

std::string NumberText(uint64_t number, Unit unit, SizeUnits sizes) {
  if (sizes == SizeUnits::kExact) return absl::StrCat(number);
  switch (unit) {
    case Unit::kBytes:
      return HumanBytes(number, sizes);
    case Unit::kBytesPerSecond:
      return number == UINT64_MAX
                 ? "unlimited"
                 : absl::StrCat(HumanBytes(number, sizes), "/s");
    case Unit::kMicroseconds:
      return absl::StrFormat("%.3f ms", static_cast<double>(number) / 1000);
    case Unit::kNone:
      break;
  }
  return absl::StrCat(number);
}

void AppendJsonField(const std::string& name, const FieldValue& value,
                     bool first, std::string* out) {
  absl::StrAppend(out, first ? "" : ",", "\"", name, "\":");
  if (value.kind == FieldValue::kNumber) {
    absl::StrAppend(out, value.number);
  } else {
    out->append(nlohmann::json(ToUtf8(value.text)).dump());
  }
}

void AppendProtobufField(uint32_t number, const FieldValue& value,
                         std::string* message) {
  protozero::pbf_writer writer(*message);
  if (value.kind == FieldValue::kNumber) {
    writer.add_uint64(number, value.number);
  } else if (value.kind == FieldValue::kText) {
    // A field of type string must be UTF-8.
    writer.add_string(number, ToUtf8(value.text));
  }
}

void AppendDelimited(absl::string_view message, std::string* out) {
  protozero::write_varint(std::back_inserter(*out), message.size());
  out->append(message.data(), message.size());
}

}  // namespace internal
}  // namespace netmeter
