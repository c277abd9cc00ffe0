// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/number_fields.h"

#include <string.h>

#include <algorithm>
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

}  // namespace

// A new field of the kernel is added at the end: its place in the table is its number in
// sockets.proto. After tcpi_received_ce_bytes (Linux 6.18) kernels differ.
const std::vector<NumberField>& TcpInfoFields() {
  static const auto* const fields = new std::vector<NumberField>{
      {"tcpi_state", 0, 1, 0, 0, 0},
      {"tcpi_ca_state", 1, 1, 0, 0, 0},
      {"tcpi_retransmits", 2, 1, 0, 0, 0},
      {"tcpi_probes", 3, 1, 0, 0, 0},
      {"tcpi_backoff", 4, 1, 0, 0, 0},
      {"tcpi_options", 5, 1, 0, 0, 0},
      {"tcpi_snd_wscale", 6, 1, 0, 4, 0},
      {"tcpi_rcv_wscale", 6, 1, 4, 4, 0},
      {"tcpi_delivery_rate_app_limited", 7, 1, 0, 1, 0},
      {"tcpi_fastopen_client_fail", 7, 1, 1, 2, 0},
      {"tcpi_rto", 8, 4, 0, 0, 0},
      {"tcpi_ato", 12, 4, 0, 0, 0},
      {"tcpi_snd_mss", 16, 4, 0, 0, 0},
      {"tcpi_rcv_mss", 20, 4, 0, 0, 0},
      {"tcpi_unacked", 24, 4, 0, 0, 0},
      {"tcpi_sacked", 28, 4, 0, 0, 0},
      {"tcpi_lost", 32, 4, 0, 0, 0},
      {"tcpi_retrans", 36, 4, 0, 0, 0},
      {"tcpi_fackets", 40, 4, 0, 0, 0},
      {"tcpi_last_data_sent", 44, 4, 0, 0, 0},
      {"tcpi_last_ack_sent", 48, 4, 0, 0, 0},
      {"tcpi_last_data_recv", 52, 4, 0, 0, 0},
      {"tcpi_last_ack_recv", 56, 4, 0, 0, 0},
      {"tcpi_pmtu", 60, 4, 0, 0, 0},
      {"tcpi_rcv_ssthresh", 64, 4, 0, 0, 0},
      {"tcpi_rtt", 68, 4, 0, 0, 0},
      {"tcpi_rttvar", 72, 4, 0, 0, 0},
      {"tcpi_snd_ssthresh", 76, 4, 0, 0, 0},
      {"tcpi_snd_cwnd", 80, 4, 0, 0, 0},
      {"tcpi_advmss", 84, 4, 0, 0, 0},
      {"tcpi_reordering", 88, 4, 0, 0, 0},
      {"tcpi_rcv_rtt", 92, 4, 0, 0, 0},
      {"tcpi_rcv_space", 96, 4, 0, 0, 0},
      {"tcpi_total_retrans", 100, 4, 0, 0, 0},
      {"tcpi_pacing_rate", 104, 8, 0, 0, 0},
      {"tcpi_max_pacing_rate", 112, 8, 0, 0, 0},
      {"tcpi_bytes_acked", 120, 8, 0, 0, 0},
      {"tcpi_bytes_received", 128, 8, 0, 0, 0},
      {"tcpi_segs_out", 136, 4, 0, 0, 0},
      {"tcpi_segs_in", 140, 4, 0, 0, 0},
      {"tcpi_notsent_bytes", 144, 4, 0, 0, 0},
      {"tcpi_min_rtt", 148, 4, 0, 0, 0, true},
      {"tcpi_data_segs_in", 152, 4, 0, 0, 0},
      {"tcpi_data_segs_out", 156, 4, 0, 0, 0},
      {"tcpi_delivery_rate", 160, 8, 0, 0, 0},
      {"tcpi_busy_time", 168, 8, 0, 0, 0},
      {"tcpi_rwnd_limited", 176, 8, 0, 0, 0},
      {"tcpi_sndbuf_limited", 184, 8, 0, 0, 0},
      {"tcpi_delivered", 192, 4, 0, 0, 0},
      {"tcpi_delivered_ce", 196, 4, 0, 0, 0},
      {"tcpi_bytes_sent", 200, 8, 0, 0, 0},
      {"tcpi_bytes_retrans", 208, 8, 0, 0, 0},
      {"tcpi_dsack_dups", 216, 4, 0, 0, 0},
      {"tcpi_reord_seen", 220, 4, 0, 0, 0},
      {"tcpi_rcv_ooopack", 224, 4, 0, 0, 0},
      {"tcpi_snd_wnd", 228, 4, 0, 0, 0},
      {"tcpi_rcv_wnd", 232, 4, 0, 0, 0},
      {"tcpi_rehash", 236, 4, 0, 0, 0},
      {"tcpi_total_rto", 240, 2, 0, 0, 0},
      {"tcpi_total_rto_recoveries", 242, 2, 0, 0, 0},
      {"tcpi_total_rto_time", 244, 4, 0, 0, 0},
      {"tcpi_received_ce", 248, 4, 0, 0, 0},
      {"tcpi_delivered_e1_bytes", 252, 4, 0, 0, 0},
      {"tcpi_delivered_e0_bytes", 256, 4, 0, 0, 0},
      {"tcpi_delivered_ce_bytes", 260, 4, 0, 0, 0},
      {"tcpi_received_e1_bytes", 264, 4, 0, 0, 0},
      {"tcpi_received_e0_bytes", 268, 4, 0, 0, 0},
      {"tcpi_received_ce_bytes", 272, 4, 0, 0, 0}};
  return *fields;
}

// Before Linux 6.5 there was tail padding at the place of mptcpi_retransmits. The last
// field (7.2) uses a byte that was reserved and 0 before.
const std::vector<NumberField>& MptcpInfoFields() {
  static const auto* const fields = new std::vector<NumberField>{
      {"mptcpi_subflows", 0, 1, 0, 0, 0},
      {"mptcpi_add_addr_signal", 1, 1, 0, 0, 0},
      {"mptcpi_add_addr_accepted", 2, 1, 0, 0, 0},
      {"mptcpi_subflows_max", 3, 1, 0, 0, 0},
      {"mptcpi_add_addr_signal_max", 4, 1, 0, 0, 0},
      {"mptcpi_add_addr_accepted_max", 5, 1, 0, 0, 0},
      {"mptcpi_flags", 8, 4, 0, 0, 0},
      {"mptcpi_token", 12, 4, 0, 0, 0},
      {"mptcpi_write_seq", 16, 8, 0, 0, 0},
      {"mptcpi_snd_una", 24, 8, 0, 0, 0},
      {"mptcpi_rcv_nxt", 32, 8, 0, 0, 0},
      {"mptcpi_local_addr_used", 40, 1, 0, 0, 0},
      {"mptcpi_local_addr_max", 41, 1, 0, 0, 0},
      {"mptcpi_csum_enabled", 42, 1, 0, 0, 0},
      {"mptcpi_retransmits", 44, 4, 0, 0, 80},
      {"mptcpi_bytes_retrans", 48, 8, 0, 0, 0},
      {"mptcpi_bytes_sent", 56, 8, 0, 0, 0},
      {"mptcpi_bytes_received", 64, 8, 0, 0, 0},
      {"mptcpi_bytes_acked", 72, 8, 0, 0, 0},
      {"mptcpi_subflows_total", 80, 1, 0, 0, 0},
      {"mptcpi_endp_laminar_max", 81, 1, 0, 0, 0},
      {"mptcpi_last_data_sent", 84, 4, 0, 0, 0},
      {"mptcpi_last_data_recv", 88, 4, 0, 0, 0},
      {"mptcpi_last_ack_recv", 92, 4, 0, 0, 0},
      {"mptcpi_endp_fullmesh_max", 82, 1, 0, 0, 0}};
  return *fields;
}

// struct sctp_info of include/uapi/linux/sctp.h: its fields about an association and its
// primary path. Later fields are about the socket.
const std::vector<NumberField>& SctpInfoFields() {
  static const auto* const fields = new std::vector<NumberField>{
      {"sctpi_tag", 0, 4, 0, 0, 0},
      {"sctpi_state", 4, 4, 0, 0, 0},
      {"sctpi_rwnd", 8, 4, 0, 0, 0},
      {"sctpi_unackdata", 12, 2, 0, 0, 0},
      {"sctpi_penddata", 14, 2, 0, 0, 0},
      {"sctpi_instrms", 16, 2, 0, 0, 0},
      {"sctpi_outstrms", 18, 2, 0, 0, 0},
      {"sctpi_fragmentation_point", 20, 4, 0, 0, 0},
      {"sctpi_inqueue", 24, 4, 0, 0, 0},
      {"sctpi_outqueue", 28, 4, 0, 0, 0},
      {"sctpi_overall_error", 32, 4, 0, 0, 0},
      {"sctpi_max_burst", 36, 4, 0, 0, 0},
      {"sctpi_maxseg", 40, 4, 0, 0, 0},
      {"sctpi_peer_rwnd", 44, 4, 0, 0, 0},
      {"sctpi_peer_tag", 48, 4, 0, 0, 0},
      {"sctpi_peer_capable", 52, 1, 0, 0, 0},
      {"sctpi_peer_sack", 53, 1, 0, 0, 0},
      {"sctpi_isacks", 56, 8, 0, 0, 0},
      {"sctpi_osacks", 64, 8, 0, 0, 0},
      {"sctpi_opackets", 72, 8, 0, 0, 0},
      {"sctpi_ipackets", 80, 8, 0, 0, 0},
      {"sctpi_rtxchunks", 88, 8, 0, 0, 0},
      {"sctpi_outofseqtsns", 96, 8, 0, 0, 0},
      {"sctpi_idupchunks", 104, 8, 0, 0, 0},
      {"sctpi_gapcnt", 112, 8, 0, 0, 0},
      {"sctpi_ouodchunks", 120, 8, 0, 0, 0},
      {"sctpi_iuodchunks", 128, 8, 0, 0, 0},
      {"sctpi_oodchunks", 136, 8, 0, 0, 0},
      {"sctpi_iodchunks", 144, 8, 0, 0, 0},
      {"sctpi_octrlchunks", 152, 8, 0, 0, 0},
      {"sctpi_ictrlchunks", 160, 8, 0, 0, 0},
      {"sctpi_p_state", 296, 4, 0, 0, 0},
      {"sctpi_p_cwnd", 300, 4, 0, 0, 0},
      {"sctpi_p_srtt", 304, 4, 0, 0, 0},
      {"sctpi_p_rto", 308, 4, 0, 0, 0},
      {"sctpi_p_hbinterval", 312, 4, 0, 0, 0},
      {"sctpi_p_pathmaxrxt", 316, 4, 0, 0, 0},
      {"sctpi_p_sackdelay", 320, 4, 0, 0, 0},
      {"sctpi_p_sackfreq", 324, 4, 0, 0, 0},
      {"sctpi_p_ssthresh", 328, 4, 0, 0, 0},
      {"sctpi_p_partial_bytes_acked", 332, 4, 0, 0, 0},
      {"sctpi_p_flight_size", 336, 4, 0, 0, 0},
      {"sctpi_p_error", 340, 2, 0, 0, 0}};
  return *fields;
}

// include/uapi/linux/sock_diag.h: an array.
const std::vector<NumberField>& SkMeminfoFields() {
  static const auto* const fields =
      new std::vector<NumberField>{{"skmem_rmem_alloc", 0, 4, 0, 0, 0},
                                   {"skmem_rcvbuf", 4, 4, 0, 0, 0},
                                   {"skmem_wmem_alloc", 8, 4, 0, 0, 0},
                                   {"skmem_sndbuf", 12, 4, 0, 0, 0},
                                   {"skmem_fwd_alloc", 16, 4, 0, 0, 0},
                                   {"skmem_wmem_queued", 20, 4, 0, 0, 0},
                                   {"skmem_optmem", 24, 4, 0, 0, 0},
                                   {"skmem_backlog", 28, 4, 0, 0, 0},
                                   {"skmem_drops", 32, 4, 0, 0, 0}};
  return *fields;
}

// include/uapi/linux/inet_diag.h
const std::vector<NumberField>& VegasFields() {
  static const auto* const fields =
      new std::vector<NumberField>{{"tcpv_enabled", 0, 4, 0, 0, 0},
                                   {"tcpv_rttcnt", 4, 4, 0, 0, 0},
                                   {"tcpv_rtt", 8, 4, 0, 0, 0},
                                   {"tcpv_minrtt", 12, 4, 0, 0, 0}};
  return *fields;
}

const std::vector<NumberField>& DctcpFields() {
  static const auto* const fields =
      new std::vector<NumberField>{{"dctcp_enabled", 0, 2, 0, 0, 0},
                                   {"dctcp_ce_state", 2, 2, 0, 0, 0},
                                   {"dctcp_alpha", 4, 4, 0, 0, 0},
                                   {"dctcp_ab_ecn", 8, 4, 0, 0, 0},
                                   {"dctcp_ab_tot", 12, 4, 0, 0, 0}};
  return *fields;
}

const std::vector<NumberField>& BbrFields() {
  static const auto* const fields =
      new std::vector<NumberField>{{"bbr_bw_lo", 0, 4, 0, 0, 0},
                                   {"bbr_bw_hi", 4, 4, 0, 0, 0},
                                   {"bbr_min_rtt", 8, 4, 0, 0, 0, true},
                                   {"bbr_pacing_gain", 12, 4, 0, 0, 0},
                                   {"bbr_cwnd_gain", 16, 4, 0, 0, 0}};
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

absl::string_view RestOf(absl::string_view structure,
                         const std::vector<NumberField>& fields) {
  size_t end = 0;
  for (const NumberField& field : fields) {
    end = std::max<size_t>(end, field.offset + field.size);
  }
  return structure.substr(std::min(end, structure.size()));
}

}  // namespace internal
}  // namespace netmeter
