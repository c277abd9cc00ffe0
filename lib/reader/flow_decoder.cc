// SPDX-License-Identifier: BSD-3-Clause
#include <protozero/pbf_reader.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/base/no_throw.h"
#include "lib/reader/c_result.h"
#include "netmeter/connections.h"
#include "netmeter/connections_c.h"

namespace netmeter {
namespace internal {
namespace {

// The longest record has some 1,000 bytes: names have at most 256 each.
constexpr uint64_t kMostBytes = 64 * 1024;

absl::Status NoStream() {
  return absl::DataLossError(
      "read flow records: this is not what `netmeter flows --protobuf` writes");
}

// Decodes a varint; returns its number of bytes. 0 if it is incomplete.
size_t LengthOf(absl::string_view bytes, uint64_t* length) {
  *length = 0;
  for (size_t i = 0; i < bytes.size() && i < 10; ++i) {
    *length |= static_cast<uint64_t>(bytes[i] & 127) << (7 * i);
    if ((bytes[i] & 128) == 0) return i + 1;
  }
  return 0;
}

// Null if this version does not know the field, or it is not of the type that it has now.
const FlowRecordField* FieldOf(const protozero::pbf_reader& message) {
  for (const FlowRecordField& field : FlowRecordFields()) {
    if (field.number != message.tag()) continue;
    const auto type = field.text != nullptr
                          ? protozero::pbf_wire_type::length_delimited
                          : protozero::pbf_wire_type::varint;
    return message.wire_type() == type ? &field : nullptr;
  }
  return nullptr;
}

using TakeField = int (*)(const netmeter_flow_field* field, void* context);

absl::Status Decode(absl::string_view bytes, TakeField take, void* context,
                    int* taken, size_t* used) {
  uint64_t length = 0;
  const size_t head = LengthOf(bytes, &length);
  if (head == 0 && bytes.size() < 10) return absl::OkStatus();
  if (head == 0 || length > kMostBytes) return NoStream();
  if (bytes.size() - head < length) return absl::OkStatus();
  bool named = false;
  try {
    protozero::pbf_reader message(bytes.data() + head,
                                  static_cast<size_t>(length));
    while (message.next()) {
      const FlowRecordField* const known = FieldOf(message);
      if (known == nullptr) {
        message.skip();
        continue;
      }
      netmeter_flow_field field = {};
      field.size = sizeof(field);
      field.name = known->name;
      field.number = known->number;
      if (known->text != nullptr) {
        const protozero::data_view text = message.get_view();
        field.text = text.data();
        field.text_length = text.size();
        named |= known->text == &FlowRecord::record && !text.empty();
      } else {
        field.value = message.get_uint64();
      }
      *taken = take(&field, context);
      const absl::Status status = StatusOfTaken(*taken);
      if (!status.ok()) return status;
    }
  } catch (const protozero::exception&) {
    return NoStream();
  }
  if (!named) return NoStream();
  *used = head + static_cast<size_t>(length);
  return absl::OkStatus();
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int netmeter_decode_flow(const char* bytes, size_t length,
                         int (*take)(const netmeter_flow_field* field,
                                     void* context),
                         void* context, size_t* used, netmeter_error* error) {
  int taken = NETMETER_OK;
  const absl::Status decoded = netmeter::internal::WithoutThrowing([&] {
    if (bytes == nullptr || take == nullptr || used == nullptr) {
      return absl::InvalidArgumentError("bytes, take or used is NULL");
    }
    size_t length_of_record = 0;
    const absl::Status status = netmeter::internal::Decode(
        {bytes, length}, take, context, &taken, &length_of_record);
    if (status.ok()) *used = length_of_record;
    return status;
  });
  return netmeter::internal::ReturnTaken(decoded, taken, error);
}
