// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/number_fields.h"

#include <string.h>

#include <algorithm>
#include <initializer_list>
#include <limits>

namespace netmeter {
namespace internal {
namespace {

template <typename T>
uint64_t Load(const char* bytes) {
  T value;
  memcpy(&value, bytes, sizeof(value));
  return value;
}

// A field of a structure: its size in bytes, and its number of bits if it is a bit field.
// Without a name it is no field of the table.
struct Member {
  const char* name;
  uint8_t size;
  uint8_t bits = 0;
  bool largest_is_none = false;
  uint16_t since = 0;
};

// The offsets that the compiler gives to these members. Bit fields begin at the lowest
// bit and fill bytes.
std::vector<NumberField> LayOut(std::initializer_list<Member> members) {
  std::vector<NumberField> fields;
  size_t end = 0;
  uint8_t used_bits = 8;  // of the byte before `end`
  for (const Member& member : members) {
    if (member.bits == 0 || used_bits + member.bits > 8) {
      const size_t alignment = std::min<size_t>(member.size, 8);
      end = (end + alignment - 1) / alignment * alignment + member.size;
      used_bits = 0;
    }
    if (*member.name != '\0') {
      fields.push_back({member.name, static_cast<uint16_t>(end - member.size),
                        member.size, used_bits, member.bits, member.since,
                        member.largest_is_none});
    }
    used_bits = member.bits == 0 ? 8 : used_bits + member.bits;
  }
  return fields;
}

}  // namespace

// The kernel's struct tcp_info (include/uapi/linux/tcp.h). A new field is added at the
// end: its place in the table is its number in sockets.proto. After
// tcpi_received_ce_bytes (Linux 6.18) kernels differ: lib/apps/connections/fields.cc.
const std::vector<NumberField>& TcpInfoFields() {
  static const auto* const fields = new std::vector<NumberField>(
      LayOut({{"tcpi_state", 1},
              {"tcpi_ca_state", 1},
              {"tcpi_retransmits", 1},
              {"tcpi_probes", 1},
              {"tcpi_backoff", 1},
              {"tcpi_options", 1},
              {"tcpi_snd_wscale", 1, 4},
              {"tcpi_rcv_wscale", 1, 4},
              {"tcpi_delivery_rate_app_limited", 1, 1},
              {"tcpi_fastopen_client_fail", 1, 2},
              {"tcpi_rto", 4},
              {"tcpi_ato", 4},
              {"tcpi_snd_mss", 4},
              {"tcpi_rcv_mss", 4},
              {"tcpi_unacked", 4},
              {"tcpi_sacked", 4},
              {"tcpi_lost", 4},
              {"tcpi_retrans", 4},
              {"tcpi_fackets", 4},
              {"tcpi_last_data_sent", 4},
              {"tcpi_last_ack_sent", 4},
              {"tcpi_last_data_recv", 4},
              {"tcpi_last_ack_recv", 4},
              {"tcpi_pmtu", 4},
              {"tcpi_rcv_ssthresh", 4},
              {"tcpi_rtt", 4},
              {"tcpi_rttvar", 4},
              {"tcpi_snd_ssthresh", 4},
              {"tcpi_snd_cwnd", 4},
              {"tcpi_advmss", 4},
              {"tcpi_reordering", 4},
              {"tcpi_rcv_rtt", 4},
              {"tcpi_rcv_space", 4},
              {"tcpi_total_retrans", 4},
              {"tcpi_pacing_rate", 8},
              {"tcpi_max_pacing_rate", 8},
              {"tcpi_bytes_acked", 8},
              {"tcpi_bytes_received", 8},
              {"tcpi_segs_out", 4},
              {"tcpi_segs_in", 4},
              {"tcpi_notsent_bytes", 4},
              {"tcpi_min_rtt", 4, 0, true},
              {"tcpi_data_segs_in", 4},
              {"tcpi_data_segs_out", 4},
              {"tcpi_delivery_rate", 8},
              {"tcpi_busy_time", 8},
              {"tcpi_rwnd_limited", 8},
              {"tcpi_sndbuf_limited", 8},
              {"tcpi_delivered", 4},
              {"tcpi_delivered_ce", 4},
              {"tcpi_bytes_sent", 8},
              {"tcpi_bytes_retrans", 8},
              {"tcpi_dsack_dups", 4},
              {"tcpi_reord_seen", 4},
              {"tcpi_rcv_ooopack", 4},
              {"tcpi_snd_wnd", 4},
              {"tcpi_rcv_wnd", 4},
              {"tcpi_rehash", 4},
              {"tcpi_total_rto", 2},
              {"tcpi_total_rto_recoveries", 2},
              {"tcpi_total_rto_time", 4},
              {"tcpi_received_ce", 4},
              {"tcpi_delivered_e1_bytes", 4},
              {"tcpi_delivered_e0_bytes", 4},
              {"tcpi_delivered_ce_bytes", 4},
              {"tcpi_received_e1_bytes", 4},
              {"tcpi_received_e0_bytes", 4},
              {"tcpi_received_ce_bytes", 4}}));
  return *fields;
}

// Before Linux 6.5 there was tail padding at the place of mptcpi_retransmits.
// mptcpi_endp_fullmesh_max (7.2) uses a byte that was reserved and 0 before, so it is not
// the last of the structure, but the last of sockets.proto.
const std::vector<NumberField>& MptcpInfoFields() {
  static const auto* const fields = [] {
    auto* const made = new std::vector<NumberField>(
        LayOut({{"mptcpi_subflows", 1},
                {"mptcpi_add_addr_signal", 1},
                {"mptcpi_add_addr_accepted", 1},
                {"mptcpi_subflows_max", 1},
                {"mptcpi_add_addr_signal_max", 1},
                {"mptcpi_add_addr_accepted_max", 1},
                {"mptcpi_flags", 4},
                {"mptcpi_token", 4},
                {"mptcpi_write_seq", 8},
                {"mptcpi_snd_una", 8},
                {"mptcpi_rcv_nxt", 8},
                {"mptcpi_local_addr_used", 1},
                {"mptcpi_local_addr_max", 1},
                {"mptcpi_csum_enabled", 1},
                {"mptcpi_retransmits", 4, 0, false, 80},
                {"mptcpi_bytes_retrans", 8},
                {"mptcpi_bytes_sent", 8},
                {"mptcpi_bytes_received", 8},
                {"mptcpi_bytes_acked", 8},
                {"mptcpi_subflows_total", 1},
                {"mptcpi_endp_laminar_max", 1},
                {"mptcpi_endp_fullmesh_max", 1},
                {"mptcpi_last_data_sent", 4},
                {"mptcpi_last_data_recv", 4},
                {"mptcpi_last_ack_recv", 4}}));
    const auto late =
        std::find_if(made->begin(), made->end(), [](const NumberField& field) {
          return strcmp(field.name, "mptcpi_endp_fullmesh_max") == 0;
        });
    std::rotate(late, late + 1, made->end());
    return made;
  }();
  return *fields;
}

// struct sctp_info of include/uapi/linux/sctp.h: its fields about an association and its
// primary path. The member without a name is the path's address. Later fields are about
// the socket.
const std::vector<NumberField>& SctpInfoFields() {
  static const auto* const fields = new std::vector<NumberField>(
      LayOut({{"sctpi_tag", 4},           {"sctpi_state", 4},
              {"sctpi_rwnd", 4},          {"sctpi_unackdata", 2},
              {"sctpi_penddata", 2},      {"sctpi_instrms", 2},
              {"sctpi_outstrms", 2},      {"sctpi_fragmentation_point", 4},
              {"sctpi_inqueue", 4},       {"sctpi_outqueue", 4},
              {"sctpi_overall_error", 4}, {"sctpi_max_burst", 4},
              {"sctpi_maxseg", 4},        {"sctpi_peer_rwnd", 4},
              {"sctpi_peer_tag", 4},      {"sctpi_peer_capable", 1},
              {"sctpi_peer_sack", 1},     {"sctpi_isacks", 8},
              {"sctpi_osacks", 8},        {"sctpi_opackets", 8},
              {"sctpi_ipackets", 8},      {"sctpi_rtxchunks", 8},
              {"sctpi_outofseqtsns", 8},  {"sctpi_idupchunks", 8},
              {"sctpi_gapcnt", 8},        {"sctpi_ouodchunks", 8},
              {"sctpi_iuodchunks", 8},    {"sctpi_oodchunks", 8},
              {"sctpi_iodchunks", 8},     {"sctpi_octrlchunks", 8},
              {"sctpi_ictrlchunks", 8},   {"", 128},
              {"sctpi_p_state", 4},       {"sctpi_p_cwnd", 4},
              {"sctpi_p_srtt", 4},        {"sctpi_p_rto", 4},
              {"sctpi_p_hbinterval", 4},  {"sctpi_p_pathmaxrxt", 4},
              {"sctpi_p_sackdelay", 4},   {"sctpi_p_sackfreq", 4},
              {"sctpi_p_ssthresh", 4},    {"sctpi_p_partial_bytes_acked", 4},
              {"sctpi_p_flight_size", 4}, {"sctpi_p_error", 2}}));
  return *fields;
}

// include/uapi/linux/sock_diag.h: an array.
const std::vector<NumberField>& SkMeminfoFields() {
  static const auto* const fields =
      new std::vector<NumberField>(LayOut({{"skmem_rmem_alloc", 4},
                                           {"skmem_rcvbuf", 4},
                                           {"skmem_wmem_alloc", 4},
                                           {"skmem_sndbuf", 4},
                                           {"skmem_fwd_alloc", 4},
                                           {"skmem_wmem_queued", 4},
                                           {"skmem_optmem", 4},
                                           {"skmem_backlog", 4},
                                           {"skmem_drops", 4}}));
  return *fields;
}

// include/uapi/linux/inet_diag.h
const std::vector<NumberField>& VegasFields() {
  static const auto* const fields =
      new std::vector<NumberField>(LayOut({{"tcpv_enabled", 4},
                                           {"tcpv_rttcnt", 4},
                                           {"tcpv_rtt", 4},
                                           {"tcpv_minrtt", 4}}));
  return *fields;
}

const std::vector<NumberField>& DctcpFields() {
  static const auto* const fields =
      new std::vector<NumberField>(LayOut({{"dctcp_enabled", 2},
                                           {"dctcp_ce_state", 2},
                                           {"dctcp_alpha", 4},
                                           {"dctcp_ab_ecn", 4},
                                           {"dctcp_ab_tot", 4}}));
  return *fields;
}

const std::vector<NumberField>& BbrFields() {
  static const auto* const fields =
      new std::vector<NumberField>(LayOut({{"bbr_bw_lo", 4},
                                           {"bbr_bw_hi", 4},
                                           {"bbr_min_rtt", 4, 0, true},
                                           {"bbr_pacing_gain", 4},
                                           {"bbr_cwnd_gain", 4}}));
  return *fields;
}

bool ReadNumber(absl::string_view structure, const NumberField& field,
                uint64_t* value) {
  const size_t end = std::max<size_t>(field.offset + field.size, field.since);
  if (end > structure.size()) return false;
  const char* const bytes = structure.data() + field.offset;
  uint64_t number, largest;
  switch (field.size) {
    case 1:
      number = Load<uint8_t>(bytes);
      largest = std::numeric_limits<uint8_t>::max();
      break;
    case 2:
      number = Load<uint16_t>(bytes);
      largest = std::numeric_limits<uint16_t>::max();
      break;
    case 4:
      number = Load<uint32_t>(bytes);
      largest = std::numeric_limits<uint32_t>::max();
      break;
    case 8:
      number = Load<uint64_t>(bytes);
      largest = std::numeric_limits<uint64_t>::max();
      break;
    default:
      return false;
  }
  if (field.largest_is_none && number == largest) return false;
  if (field.bits != 0) {
    number = number >> field.shift & ((uint64_t{1} << field.bits) - 1);
  }
  *value = number;
  return true;
}

size_t EndOf(const std::vector<NumberField>& fields) {
  size_t end = 0;
  for (const NumberField& field : fields) {
    end = std::max<size_t>(end, field.offset + field.size);
  }
  return end;
}

absl::string_view RestOf(absl::string_view structure,
                         const std::vector<NumberField>& fields) {
  return structure.substr(std::min(EndOf(fields), structure.size()));
}

}  // namespace internal
}  // namespace netmeter
