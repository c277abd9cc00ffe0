// SPDX-License-Identifier: BSD-3-Clause
#include <protozero/pbf_reader.hpp>
#include <utility>

#include "lib/base/no_throw.h"
#include "lib/reader/flow_record_fields.h"
#include "netmeter/connections.h"

namespace netmeter {
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

void TakeField(protozero::pbf_reader* message, FlowRecord* record) {
  for (const internal::FlowRecordField& field : internal::FlowRecordFields()) {
    if (field.number != message->tag()) continue;
    if (field.text != nullptr &&
        message->wire_type() == protozero::pbf_wire_type::length_delimited) {
      record->*field.text = message->get_string();
      return;
    }
    if (field.value != nullptr &&
        message->wire_type() == protozero::pbf_wire_type::varint) {
      record->*field.value = message->get_uint64();
      return;
    }
    break;
  }
  message->skip();
}

}  // namespace

absl::Status FlowDecoder::Append(absl::string_view bytes) {
  return internal::WithoutThrowing([&]() -> absl::Status {
    if (taken_ == bytes_.size()) {
      bytes_.clear();
      taken_ = 0;
    } else if (taken_ > kMostBytes) {
      bytes_.erase(0, taken_);
      taken_ = 0;
    }
    bytes_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> FlowDecoder::Next(FlowRecord* record) {
  return internal::WithoutThrowing([&]() -> absl::StatusOr<bool> {
    const absl::string_view rest = absl::string_view(bytes_).substr(taken_);
    uint64_t length = 0;
    const size_t head = LengthOf(rest, &length);
    if (head == 0 && rest.size() < 10) return false;
    if (head == 0 || length > kMostBytes) return NoStream();
    if (rest.size() - head < length) return false;
    FlowRecord read;
    try {
      protozero::pbf_reader message(rest.data() + head,
                                    static_cast<size_t>(length));
      while (message.next()) TakeField(&message, &read);
    } catch (const protozero::exception&) {
      return NoStream();
    }
    if (read.record.empty()) return NoStream();
    *record = std::move(read);
    taken_ += head + static_cast<size_t>(length);
    return true;
  });
}

}  // namespace netmeter
