// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/ipfix/messages.h"

#include <arpa/inet.h>
#include <fixbuf/public.h>
#include <netinet/ether.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

// Fits every IPv6 path (1280 bytes), and so nearly every IPv4 path.
constexpr uint16_t kMaxMessage = 1280 - 40 - 8;
constexpr size_t kSetHeader = 4;
// Six names of this length and all else fit a message. The meter's names have 64 bytes at
// most, or 256 if each byte of them is no character.
constexpr size_t kMaxName = 180;

// A data record as libfixbuf reads it: the fields of kElements in their order.
struct Data {
  uint64_t start_ms;
  uint64_t end_ms;
  uint64_t bytes;
  uint64_t packets;
  in6_addr source6;
  in6_addr destination6;
  uint32_t source4;
  uint32_t destination4;
  uint32_t ingress;
  uint32_t egress;
  uint16_t source_port;
  uint16_t destination_port;
  uint16_t tcp_flags;
  uint8_t protocol;
  uint8_t direction;
  uint8_t end_reason;
  uint8_t source_mac[6];
  uint8_t post_destination_mac[6];
  uint8_t padding[3];
  fbVarfield_t service;
  fbVarfield_t destination;
  fbVarfield_t uplink;
  fbVarfield_t kind;
  fbVarfield_t client_name;
  fbVarfield_t client_peer;
};
static_assert(offsetof(Data, service) == 104,
              "a gap that no element describes");

// An element with one of these is only in templates that have it, too.
constexpr uint32_t kIpv4 = 1;
constexpr uint32_t kIpv6 = 2;
constexpr uint32_t kSourceMac = 4;
constexpr uint32_t kDestinationMac = 8;
constexpr uint32_t kInternal = 16;  // not sent
constexpr uint32_t kAll = ~uint32_t{0};

char* Name(const char* name) { return const_cast<char*>(name); }

const fbInfoElementSpec_t kElements[] = {
    {Name("flowStartMilliseconds"), 8, 0},
    {Name("flowEndMilliseconds"), 8, 0},
    {Name("octetDeltaCount"), 8, 0},
    {Name("packetDeltaCount"), 8, 0},
    {Name("sourceIPv6Address"), 16, kIpv6},
    {Name("destinationIPv6Address"), 16, kIpv6},
    {Name("sourceIPv4Address"), 4, kIpv4},
    {Name("destinationIPv4Address"), 4, kIpv4},
    {Name("ingressInterface"), 4, 0},
    {Name("egressInterface"), 4, 0},
    {Name("sourceTransportPort"), 2, 0},
    {Name("destinationTransportPort"), 2, 0},
    {Name("tcpControlBits"), 2, 0},
    {Name("protocolIdentifier"), 1, 0},
    {Name("flowDirection"), 1, 0},
    {Name("flowEndReason"), 1, 0},
    {Name("sourceMacAddress"), 6, kSourceMac},
    {Name("postDestinationMacAddress"), 6, kDestinationMac},
    {Name("paddingOctets"), 3, kInternal},
    {Name("serviceName"), FB_IE_VARLEN, 0},
    {Name("destinationName"), FB_IE_VARLEN, 0},
    {Name("uplinkName"), FB_IE_VARLEN, 0},
    {Name("serviceKind"), FB_IE_VARLEN, 0},
    {Name("clientName"), FB_IE_VARLEN, 0},
    {Name("clientPeer"), FB_IE_VARLEN, 0},
    FB_IESPEC_NULL,
};

// The elements of the enterprise, numbered from 1 on. A number is never used again.
constexpr const char* kOwnElements[] = {"serviceName", "destinationName",
                                        "uplinkName",  "serviceKind",
                                        "clientName",  "clientPeer"};

// The templates have the ids from 256 on, as RFC 7011 says.
constexpr uint32_t kTemplates[] = {
    kIpv4,
    kIpv6,
    kIpv4 | kSourceMac,
    kIpv6 | kSourceMac,
    kIpv4 | kDestinationMac,
    kIpv6 | kDestinationMac,
};
constexpr uint16_t kFirstTemplate = 256;
constexpr uint16_t kInternalTemplate = 1000;

uint16_t TemplateOf(uint32_t flags) {
  const auto* const found =
      std::find(std::begin(kTemplates), std::end(kTemplates), flags);
  return static_cast<uint16_t>(kFirstTemplate + (found - kTemplates));
}

// Bytes of a data record, without its names.
size_t FixedBytes(uint32_t flags) {
  size_t bytes = 0;
  for (const fbInfoElementSpec_t& element : kElements) {
    if (element.name == nullptr || element.len_override == FB_IE_VARLEN) break;
    if ((element.flags & flags) == element.flags) bytes += element.len_override;
  }
  return bytes;
}

absl::Status StatusOf(GError* error) {
  const absl::Status status = absl::InternalError(
      absl::StrCat("libfixbuf: ", error == nullptr ? "?" : error->message));
  g_clear_error(&error);
  return status;
}

uint8_t ProtocolOf(const FlowRecord& record) {
  constexpr std::pair<const char*, uint8_t> kNames[] = {
      {"tcp", IPPROTO_TCP},         {"udp", IPPROTO_UDP},
      {"icmp", IPPROTO_ICMP},       {"icmpv6", IPPROTO_ICMPV6},
      {"sctp", IPPROTO_SCTP},       {"mptcp", IPPROTO_TCP},
      {"udplite", IPPROTO_UDPLITE}, {"raw", IPPROTO_RAW}};
  // Traffic that is in no flow only has the word for its transport.
  const absl::string_view word = record.protocol.empty()
                                     ? TransportName(record.transport)
                                     : record.protocol.c_str();
  for (const auto& [name, number] : kNames) {
    if (word == name) return number;
  }
  uint32_t number;
  if (!absl::SimpleAtoi(word, &number) || number > UINT8_MAX) {
    number = IPPROTO_RAW;  // reserved
  }
  return static_cast<uint8_t>(number);
}

// flowEndReason of IANA's registry.
uint8_t EndReasonOf(const FlowRecord& record) {
  constexpr uint8_t kIdle = 1, kActive = 2, kEnd = 3, kForced = 4, kLack = 5;
  constexpr std::pair<const char*, uint8_t> kReasons[] = {
      {"idle", kIdle},       {"half_open", kIdle},   {"active", kActive},
      {"moved", kForced},    {"open", kForced},      {"", kForced},
      {"late", kForced},     {"no_flow", kForced},   {"other_uplink", kForced},
      {"table_full", kLack}, {"lost_records", kLack}};
  const std::string& word =
      record.record == "flow" ? record.end : record.reason;
  for (const auto& [name, reason] : kReasons) {
    if (word == name) return reason;
  }
  return kEnd;
}

fbVarfield_t Varfield(absl::string_view text) {
  text = text.substr(0, kMaxName);
  // libfixbuf only reads it.
  auto* const bytes =
      reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  return {text.size(), bytes};
}

// Unspecified addresses, of IPv4, if the record has none.
void SetAddresses(const std::string& source, const std::string& destination,
                  Data* data) {
  in_addr address;
  if (inet_pton(AF_INET, source.c_str(), &address) == 1) {
    data->source4 = ntohl(address.s_addr);
  }
  if (inet_pton(AF_INET, destination.c_str(), &address) == 1) {
    data->destination4 = ntohl(address.s_addr);
  }
  inet_pton(AF_INET6, source.c_str(), &data->source6);
  inet_pton(AF_INET6, destination.c_str(), &data->destination6);
}

// FlowRecord has no value for the only kind that is no series.
absl::string_view KindOf(const FlowRecord& record) {
  if (record.service.empty()) return "";
  return record.kind == static_cast<Kind>(-1) ? "forwarded"
                                              : KindName(record.kind);
}

// False if it has none.
bool GetMac(const FlowRecord& record, ether_addr* mac) {
  return ether_aton_r(record.client_mac.c_str(), mac) != nullptr;
}

Data DataOf(const FlowRecord& record, bool tx) {
  Data data = {};
  data.start_ms = record.start_ns / 1000000;
  data.end_ms = record.end_ns / 1000000;
  data.bytes = tx ? record.tx_bytes : record.rx_bytes;
  data.packets = tx ? record.tx_packets : record.rx_packets;
  const std::string *source = &record.local_address,
                    *destination = &record.remote_address;
  data.source_port = record.local_port;
  data.destination_port = record.remote_port;
  data.ingress = static_cast<uint32_t>(record.client_interface);
  data.egress = static_cast<uint32_t>(record.interface_index);
  if (!tx) {
    std::swap(source, destination);
    std::swap(data.source_port, data.destination_port);
    std::swap(data.ingress, data.egress);
  }
  SetAddresses(*source, *destination, &data);
  data.tcp_flags =
      static_cast<uint16_t>(tx ? record.tx_tcp_flags : record.rx_tcp_flags);
  data.protocol = ProtocolOf(record);
  data.direction = tx ? 1 : 0;  // 1: egress
  data.end_reason = EndReasonOf(record);
  data.service = Varfield(record.service);
  data.destination = Varfield(record.destination);
  data.uplink = Varfield(record.uplink);
  data.kind = Varfield(KindOf(record));
  data.client_name = Varfield(record.client_name);
  data.client_peer = Varfield(record.client_peer);
  ether_addr mac;
  if (GetMac(record, &mac)) {
    memcpy(tx ? data.source_mac : data.post_destination_mac, &mac, sizeof(mac));
  }
  return data;
}

}  // namespace

struct Messages::Fixbuf {
  ~Fixbuf() {
    // Also frees the session, its templates, and the exporter.
    if (buffer != nullptr) fBufFree(buffer);
    if (model != nullptr) fbInfoModelFree(model);
  }

  fbInfoModel_t* model = nullptr;
  fbSession_t* session = nullptr;  // of the buffer
  fBuf_t* buffer = nullptr;
  uint8_t message[kMaxMessage];  // the one that it writes
};

Messages::Messages(const MessageOptions& options, Take take)
    : repeat_(options.repeat),
      take_(std::move(take)),
      fixbuf_(std::make_unique<Fixbuf>()) {}

Messages::~Messages() = default;

absl::StatusOr<std::unique_ptr<Messages>> Messages::Make(
    const MessageOptions& options, Take take) {
  std::unique_ptr<Messages> messages(new Messages(options, std::move(take)));
  NETMETER_RETURN_IF_ERROR(messages->Init(options));
  return messages;
}

absl::Status Messages::Init(const MessageOptions& options) {
  Fixbuf& fixbuf = *fixbuf_;
  fixbuf.model = fbInfoModelAlloc();
  uint16_t number = 0;
  for (const char* const name : kOwnElements) {
    fbInfoElement_t element =
        FB_IE_INIT_FULL(name, options.enterprise, ++number, FB_IE_VARLEN,
                        FB_IE_DEFAULT, 0, 0, FB_STRING, nullptr);
    fbInfoModelAddElement(fixbuf.model, &element);
  }
  fixbuf.session = fbSessionAlloc(fixbuf.model);
  // Before the templates, which a session keeps for each domain.
  fbSessionSetDomain(fixbuf.session, options.domain);
  const auto add = [&](uint16_t id, uint32_t flags, bool internal) {
    GError* error = nullptr;
    fbTemplate_t* const elements = fbTemplateAlloc(fixbuf.model);
    const bool added =
        fbTemplateAppendSpecArray(elements,
                                  const_cast<fbInfoElementSpec_t*>(kElements),
                                  flags, &error) &&
        fbSessionAddTemplate(fixbuf.session, internal, id, elements, &error);
    return added ? absl::OkStatus() : StatusOf(error);
  };
  NETMETER_RETURN_IF_ERROR(add(kInternalTemplate, kAll, true));
  for (const uint32_t flags : kTemplates) {
    NETMETER_RETURN_IF_ERROR(add(TemplateOf(flags), flags, false));
  }
  fixbuf.buffer = fBufAllocForExport(
      fixbuf.session, fbExporterAllocBuffer(fixbuf.message, kMaxMessage));
  fBufSetAutomaticMode(fixbuf.buffer, FALSE);
  GError* error = nullptr;
  if (!fBufSetInternalTemplate(fixbuf.buffer, kInternalTemplate, &error)) {
    return StatusOf(error);
  }
  return absl::OkStatus();
}

absl::Status Messages::Append(
    const std::function<bool(GError** error)>& append) {
  GError* error = nullptr;
  bool appended = append(&error);
  // Templates and data are in messages of their own.
  if (!appended && g_error_matches(error, FB_ERROR_DOMAIN, FB_ERROR_EOM)) {
    g_clear_error(&error);
    NETMETER_RETURN_IF_ERROR(Flush());
    appended = append(&error);
  }
  if (!appended) return StatusOf(error);
  empty_ = false;
  return absl::OkStatus();
}

absl::Status Messages::AddTemplatesIfDue() {
  const auto now = std::chrono::steady_clock::now();
  if (now < templates_due_) return absl::OkStatus();
  templates_due_ = repeat_.count() == 0
                       ? std::chrono::steady_clock::time_point::max()
                       : now + repeat_;
  return Append([this](GError** error) {
    return fbSessionExportTemplates(fixbuf_->session, error) != FALSE;
  });
}

absl::Status Messages::Add(const FlowRecord& record) {
  for (const bool tx : {true, false}) {
    if ((tx ? record.tx_packets : record.rx_packets) == 0) continue;
    NETMETER_RETURN_IF_ERROR(AddDirection(record, tx));
  }
  return absl::OkStatus();
}

absl::Status Messages::AddDirection(const FlowRecord& record, bool tx) {
  Data data = DataOf(record, tx);
  uint32_t flags = record.family == "ipv6" ? kIpv6 : kIpv4;
  ether_addr mac;
  if (GetMac(record, &mac)) flags |= tx ? kSourceMac : kDestinationMac;
  size_t bytes = FixedBytes(flags);
  for (const fbVarfield_t& name :
       {data.service, data.destination, data.uplink, data.kind,
        data.client_name, data.client_peer}) {
    bytes += 1 + name.len;
  }
  // libfixbuf would begin a set before it finds that the record has no room, and leave it
  // empty, which RFC 7011 forbids.
  if (used_ + kSetHeader + bytes > kMaxMessage) {
    NETMETER_RETURN_IF_ERROR(Flush());
  }
  if (empty_) NETMETER_RETURN_IF_ERROR(AddTemplatesIfDue());
  NETMETER_RETURN_IF_ERROR(Append([&](GError** error) {
    return fBufSetExportTemplate(fixbuf_->buffer, TemplateOf(flags), error) &&
           fBufAppend(fixbuf_->buffer, reinterpret_cast<uint8_t*>(&data),
                      sizeof(data), error);
  }));
  used_ += kSetHeader + bytes;
  records_++;
  return absl::OkStatus();
}

absl::Status Messages::Flush() {
  if (std::exchange(empty_, true)) return absl::OkStatus();
  GError* error = nullptr;
  if (!fBufEmit(fixbuf_->buffer, &error)) return StatusOf(error);
  used_ = kMessageHeader;
  take_({reinterpret_cast<const char*>(fixbuf_->message),
         fbExporterGetMsgLen(fBufGetExporter(fixbuf_->buffer))},
        std::exchange(records_, 0));
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
