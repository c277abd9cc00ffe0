// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/fields.h"

#include <netinet/in.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/apps/connections/kernel_fields.h"
#include "lib/base/text.h"
#include "lib/netlink/dump.h"
#include "lib/netlink/number_fields.h"

namespace netmeter {
namespace internal {

namespace {

// Most texts need no escape in JSON or UTF-8, and so no allocation.
bool IsPlain(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
}

}  // namespace

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
      return HumanMilliseconds(static_cast<double>(number));
    case Unit::kNone:
      break;
  }
  return absl::StrCat(number);
}

void AppendJsonText(absl::string_view text, std::string* out) {
  if (IsPlain(text)) {
    absl::StrAppend(out, "\"", text, "\"");
  } else {
    out->append(nlohmann::json(ToUtf8(text)).dump());
  }
}

void CloseJsonObject(size_t start, std::string* out) {
  if (out->size() == start) out->push_back(',');
  (*out)[start] = '{';
  out->push_back('}');
}

void AppendJsonField(const std::string& name, const FieldValue& value,
                     std::string* out) {
  absl::StrAppend(out, ",\"", name, "\":");
  if (value.kind == FieldValue::kNumber) {
    absl::StrAppend(out, value.number);
  } else {
    AppendJsonText(value.text, out);
  }
}

void AppendProtobufField(uint32_t number, const FieldValue& value,
                         std::string* message) {
  if (number == 0) return;
  protozero::pbf_writer writer(*message);
  if (value.kind == FieldValue::kNumber) {
    writer.add_uint64(number, value.number);
  } else if (value.kind == FieldValue::kText) {
    // A protobuf field of type string must be UTF-8.
    const std::string valid = IsPlain(value.text) ? "" : ToUtf8(value.text);
    writer.add_string(number, valid.empty() ? value.text : valid);
  }
}

void InsertLength(size_t start, std::string* out) {
  char length[protozero::max_varint_length];
  const int size = protozero::add_varint_to_buffer(length, out->size() - start);
  out->insert(start, length, static_cast<size_t>(size));
}

namespace {

using Structure = absl::string_view DiagSocket::*;

// The kernel's names do not include units. include/uapi/linux/tcp.h has them.
Unit UnitOf(absl::string_view name) {
  static const auto* const times = new std::set<std::string>{
      "tcpi_rto",       "tcpi_ato",          "tcpi_rtt",
      "tcpi_rttvar",    "tcpi_rcv_rtt",      "tcpi_min_rtt",
      "tcpi_busy_time", "tcpi_rwnd_limited", "tcpi_sndbuf_limited"};
  if (times->count(std::string(name)) != 0) return Unit::kMicroseconds;
  if (absl::EndsWith(name, "_rate")) return Unit::kBytesPerSecond;
  if (absl::StartsWith(name, "tcpi_bytes_") ||
      absl::StartsWith(name, "mptcpi_bytes_")) {
    return Unit::kBytes;
  }
  return Unit::kNone;
}

// The kinds of sockets that have a structure.
bool IsOfAny(const DiagSocket& socket) {
  return socket.protocol != kProtocolMptcp;
}
bool IsOfTcp(const DiagSocket& socket) {
  return IsOfAny(socket) && socket.protocol != IPPROTO_SCTP;
}
bool IsOfMptcp(const DiagSocket& socket) {
  return socket.protocol == kProtocolMptcp;
}
bool IsOfAssociation(const DiagSocket& socket) {
  return socket.protocol == IPPROTO_SCTP && socket.association;
}

class Table {
 public:
  const std::vector<SocketField>& fields() const { return fields_; }

  template <typename Read>
  void Number(uint32_t number, const char* name, const Read& read,
              Unit unit = Unit::kNone) {
    Add(number, name, false, unit,
        [read](const SocketRow& row, FieldValue* value) {
          value->SetNumber(read(row));
        });
  }

  void Maybe(uint32_t number, const char* name,
             MaybeNumber DiagSocket::*member) {
    MaybeNumberOf(number, name, [member](const SocketRow& row) {
      return row.socket->*member;
    });
  }

  template <typename Read>
  void MaybeNumberOf(uint32_t number, const char* name, const Read& read) {
    Add(number, name, false, Unit::kNone,
        [read](const SocketRow& row, FieldValue* value) {
          const MaybeNumber maybe = read(row);
          if (maybe.known) value->SetNumber(maybe.value);
        });
  }

  // An empty text counts as missing.
  template <typename Read>
  void Text(uint32_t number, const char* name, const Read& read) {
    Add(number, name, true, Unit::kNone,
        [read](const SocketRow& row, FieldValue* value) {
          value->SetText(read(row));
        });
  }

  // A field of struct tcp_info after those of TcpInfoFields().
  void LateTcpInfo(uint32_t number, const KernelField& field) {
    Add(number, field.name, false, Unit::kNone,
        [place = field.place](const SocketRow& row, FieldValue* value) {
          uint64_t read;
          if (place.size != 0 && IsOfTcp(*row.socket) &&
              ReadNumber(row.socket->info, place, &read)) {
            value->SetNumber(read);
          }
        });
  }

  // The fields of a structure, numbered in the order of their table.
  void Numbers(uint32_t first, const std::vector<NumberField>& fields,
               Structure structure,
               bool (*is_of)(const DiagSocket& socket) = IsOfAny) {
    for (const NumberField& field : fields) {
      Add(first++, field.name, false, UnitOf(field.name),
          [field, structure, is_of](const SocketRow& row, FieldValue* value) {
            uint64_t number;
            if (is_of(*row.socket) &&
                ReadNumber(row.socket->*structure, field, &number)) {
              value->SetNumber(number);
            }
          });
    }
  }

 private:
  void Add(uint32_t number, const std::string& name, bool is_text, Unit unit,
           std::function<void(const SocketRow&, FieldValue*)> read) {
    SocketField field;
    field.name = name;
    field.number = number;
    field.is_text = is_text;
    field.unit = unit;
    field.read = std::move(read);
    fields_.push_back(std::move(field));
  }

  std::vector<SocketField> fields_;
};

void AddIdentity(Table* table) {
  table->Number(1, "time_ns", [](const SocketRow& row) { return row.time_ns; });
  table->Number(2, "network", [](const SocketRow& row) { return row.network; });
  table->Text(3, "protocol", [](const SocketRow& row) {
    return ProtocolName(row.socket->protocol);
  });
  table->Text(4, "family", [](const SocketRow& row) {
    return row.socket->family == AF_INET ? "ipv4" : "ipv6";
  });
  table->Text(5, "state", [](const SocketRow& row) {
    return StateName(row.socket->state);
  });
  table->Text(6, "local_address", [](const SocketRow& row) {
    return AddressText(row.socket->family, row.socket->local_address);
  });
  table->Number(7, "local_port",
                [](const SocketRow& row) { return row.socket->local_port; });
  table->Text(8, "remote_address", [](const SocketRow& row) {
    return AddressText(row.socket->family, row.socket->remote_address);
  });
  table->Number(9, "remote_port",
                [](const SocketRow& row) { return row.socket->remote_port; });
  table->Number(10, "interface",
                [](const SocketRow& row) { return row.socket->interface; });
  table->Number(11, "cookie",
                [](const SocketRow& row) { return row.socket->cookie; });
  table->Number(12, "inode",
                [](const SocketRow& row) { return row.socket->inode; });
  table->Number(13, "uid",
                [](const SocketRow& row) { return row.socket->uid; });
}

void AddState(Table* table) {
  table->Number(14, "rqueue",
                [](const SocketRow& row) { return row.socket->rqueue; });
  table->Number(15, "wqueue",
                [](const SocketRow& row) { return row.socket->wqueue; });
  table->Text(16, "timer", [](const SocketRow& row) {
    return TimerName(row.socket->timer);
  });
  table->Number(17, "expires_ms",
                [](const SocketRow& row) { return row.socket->expires_ms; });
  table->Number(18, "retrans",
                [](const SocketRow& row) { return row.socket->retrans; });
  table->Text(19, "kind", [](const SocketRow& row) -> absl::string_view {
    return row.owner->kind;
  });
  table->Text(20, "service", [](const SocketRow& row) -> absl::string_view {
    return row.owner->service;
  });
  table->Text(21, "destination", [](const SocketRow& row) -> absl::string_view {
    return row.owner->destination;
  });
  table->Text(41, "uplink", [](const SocketRow& row) -> absl::string_view {
    return row.owner->uplink;
  });
  table->MaybeNumberOf(42, "association", [](const SocketRow& row) {
    return MaybeNumber{row.socket->association, 1};
  });
  table->MaybeNumberOf(22, "owner_pid", [](const SocketRow& row) {
    return MaybeNumber{row.owner->pid != 0, row.owner->pid};
  });
  table->Text(23, "congestion",
              [](const SocketRow& row) { return row.socket->congestion; });
  table->Text(24, "ulp", [](const SocketRow& row) { return row.socket->ulp; });
  table->Maybe(25, "tos", &DiagSocket::tos);
  table->Maybe(26, "tclass", &DiagSocket::tclass);
  table->Maybe(27, "shutdown", &DiagSocket::shutdown);
  table->Maybe(28, "v6only", &DiagSocket::v6only);
  table->Maybe(29, "mark", &DiagSocket::mark);
  table->Maybe(30, "class_id", &DiagSocket::class_id);
  table->Maybe(31, "cgroup_id", &DiagSocket::cgroup_id);
}

// Fields of struct tcp_info after those of TcpInfoFields(). Kernels differ in their
// places, which are therefore from the BTF of the running one. A field that sockets.proto
// does not have has the number 0. A field that this kernel does not have has the size 0.
std::vector<std::pair<uint32_t, KernelField>> LateTcpInfo() {
  std::map<std::string, uint32_t> numbers = {{"tcpi_accecn_fail_mode", 168},
                                             {"tcpi_accecn_opt_seen", 169},
                                             {"tcpi_ecn_mode", 170},
                                             {"tcpi_options2", 171}};
  std::vector<std::pair<uint32_t, KernelField>> fields;
  const size_t end = EndOf(TcpInfoFields());
  if (TcpInfoSize() > end) {
    for (KernelField& field : KernelFieldsFrom("tcp_info", end)) {
      const uint32_t number = numbers[field.name];
      numbers.erase(field.name);
      fields.emplace_back(number, std::move(field));
    }
  }
  for (const auto& [name, number] : numbers) {
    fields.push_back({number, {name, {}}});
  }
  return fields;
}

// Data after the fields of the tables is kept as the kernel sent it.
void AddRests(const std::vector<std::pair<uint32_t, KernelField>>& late,
              Table* table) {
  std::vector<NumberField> known = TcpInfoFields();
  for (const auto& [number, field] : late) {
    if (number != 0) known.push_back(field.place);
  }
  table->Text(80, "tcp_info_more", [known](const SocketRow& row) {
    return !IsOfTcp(*row.socket)
               ? ""
               : absl::BytesToHexString(RestOf(row.socket->info, known));
  });
  table->Text(81, "mptcp_info_more", [](const SocketRow& row) {
    return !IsOfMptcp(*row.socket) ? ""
                                   : absl::BytesToHexString(RestOf(
                                         row.socket->info, MptcpInfoFields()));
  });
}

Table* MakeTable() {
  auto* const table = new Table();
  AddIdentity(table);
  AddState(table);
  table->Numbers(32, SkMeminfoFields(), &DiagSocket::skmeminfo);
  table->Numbers(50, BbrFields(), &DiagSocket::bbr);
  table->Numbers(60, DctcpFields(), &DiagSocket::dctcp);
  table->Numbers(70, VegasFields(), &DiagSocket::vegas);
  const auto late = LateTcpInfo();
  AddRests(late, table);
  table->Numbers(100, TcpInfoFields(), &DiagSocket::info, IsOfTcp);
  for (const auto& [number, field] : late) table->LateTcpInfo(number, field);
  table->Numbers(200, MptcpInfoFields(), &DiagSocket::info, IsOfMptcp);
  table->Numbers(300, SctpInfoFields(), &DiagSocket::info, IsOfAssociation);
  return table;
}

}  // namespace

const std::vector<SocketField>& SocketFields() {
  static const Table* const table = MakeTable();
  return table->fields();
}

const SocketField* FindField(absl::string_view name) {
  for (const SocketField& field : SocketFields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

}  // namespace internal
}  // namespace netmeter
