// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/base/no_throw.h"
#include "lib/reader/c_result.h"
#include "lib/reader/words.h"
#include "netmeter/connections.h"
#include "netmeter/connections_c.h"

namespace netmeter {
namespace internal {
namespace {

// The longest record has some 1,000 bytes: names have at most 256 each.
constexpr uint64_t kMostBytes = 64 * 1024;

constexpr uint32_t kRecordNumber = 1;  // of the only field that each record has

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

template <typename Enum, size_t count>
uint64_t ValueOf(absl::string_view word, const Enum (&all)[count],
                 const char* (*name)(Enum)) {
  for (const Enum value : all) {
    if (word == name(value)) return static_cast<uint64_t>(value);
  }
  return UINT64_MAX;
}

// The enum of a text, which is 0 for other texts.
uint64_t ValueOf(absl::string_view word, const Kind*) {
  return ValueOf(word, kAllKinds, KindName);
}
uint64_t ValueOf(absl::string_view word, const Transport*) {
  return ValueOf(word, kAllTransports, TransportName);
}
uint64_t ValueOf(absl::string_view word, const Path*) {
  return ValueOf(word, kAllPaths, PathName);
}
uint64_t ValueOf(absl::string_view, const std::string*) { return 0; }

void SetText(const protozero::data_view& text, netmeter_flow_field* field) {
  field->text = text.data();
  field->text_length = text.size();
}

// One of a protobuf map: a message of a key and a value.
void ReadLabel(protozero::pbf_reader entry, netmeter_flow_field* field) {
  field->text = field->label = "";
  while (entry.next()) {
    if (entry.tag() == 1) {
      const protozero::data_view label = entry.get_view();
      field->label = label.data();
      field->label_length = label.size();
    } else if (entry.tag() == 2) {
      SetText(entry.get_view(), field);
    } else {
      entry.skip();
    }
  }
}

// Reads the field at which the message is. Returns false if this version does not know
// the field, or if it is not of the type that it has now.
bool ReadField(protozero::pbf_reader* message, netmeter_flow_field* field) {
  const FlowRecord types;
  bool known = false;
  VisitFields(&types, [&](uint32_t number, const char* name,
                          const auto* member) {
    using Type = std::decay_t<decltype(*member)>;
    constexpr auto kWireType = std::is_arithmetic_v<Type>
                                   ? protozero::pbf_wire_type::varint
                                   : protozero::pbf_wire_type::length_delimited;
    if (number != message->tag() || message->wire_type() != kWireType) return;
    known = true;
    field->size = sizeof(*field);
    field->name = name;
    field->number = number;
    if constexpr (std::is_arithmetic_v<Type>) {
      field->value = message->get_uint64();
    } else if constexpr (std::is_same_v<Type, decltype(FlowRecord::labels)>) {
      ReadLabel(message->get_message(), field);
    } else {
      const protozero::data_view text = message->get_view();
      SetText(text, field);
      field->value = ValueOf({text.data(), text.size()}, member);
    }
  });
  return known;
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
      netmeter_flow_field field = {};
      if (!ReadField(&message, &field)) {
        message.skip();
        continue;
      }
      named |= field.number == kRecordNumber && field.text_length != 0;
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
    if (length > PTRDIFF_MAX) {
      return absl::InvalidArgumentError("length is larger than any memory");
    }
    size_t length_of_record = 0;
    const absl::Status status = netmeter::internal::Decode(
        {bytes, length}, take, context, &taken, &length_of_record);
    if (status.ok()) *used = length_of_record;
    return status;
  });
  return netmeter::internal::ReturnTaken(decoded, taken, error);
}
