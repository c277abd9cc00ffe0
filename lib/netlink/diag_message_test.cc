// SPDX-License-Identifier: BSD-3-Clause
#include "lib/netlink/diag_message.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

// The next header needs this one.
#include <linux/sctp.h>

#include <string>
#include <vector>

#include "lib/netlink/number_fields.h"

namespace netmeter {
namespace internal {
namespace {

template <typename T>
std::string Bytes(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Attribute(uint16_t type, const std::string& value) {
  nlattr header = {};
  header.nla_type = type;
  header.nla_len = static_cast<uint16_t>(sizeof(header) + value.size());
  return Bytes(header) + value + std::string((4 - value.size() % 4) % 4, '\0');
}

std::string Message(uint16_t type, const std::string& payload) {
  nlmsghdr header = {};
  header.nlmsg_type = type;
  header.nlmsg_seq = 7;
  header.nlmsg_len = static_cast<uint32_t>(sizeof(header) + payload.size());
  return Bytes(header) + payload;
}

std::string Connection() {
  inet_diag_msg message = {};
  message.idiag_family = AF_INET;
  message.idiag_state = 1;
  message.id.idiag_sport = htons(40000);
  message.id.idiag_dport = htons(443);
  message.id.idiag_src[0] = htonl(0xc0000201);
  message.id.idiag_dst[0] = htonl(0xcb007109);
  message.id.idiag_cookie[0] = 5;
  message.id.idiag_cookie[1] = 2;
  message.idiag_inode = 77;
  return Bytes(message);
}

uint64_t Number(absl::string_view structure, const std::string& name,
                const std::vector<NumberField>& fields = TcpInfoFields()) {
  for (const NumberField& field : fields) {
    uint64_t value = 0;
    if (field.name == name && ReadNumber(structure, field, &value)) {
      return value;
    }
  }
  return UINT64_MAX;
}

TEST(DiagMessage, ASocketIsReadWithItsAttributes) {
  tcp_info info = {};
  info.tcpi_rtt = 1234;
  info.tcpi_snd_wscale = 7;
  info.tcpi_rcv_wscale = 9;
  info.tcpi_delivery_rate_app_limited = 1;
  info.tcpi_bytes_sent = 1ULL << 40;
  const std::string storage =
      Attribute(SK_DIAG_BPF_STORAGE,
                Attribute(SK_DIAG_BPF_STORAGE_MAP_ID, Bytes(uint32_t{9})) +
                    Attribute(SK_DIAG_BPF_STORAGE_MAP_VALUE, "owner"));
  const std::string payload =
      Connection() + Attribute(INET_DIAG_INFO, Bytes(info)) +
      Attribute(INET_DIAG_CONG, std::string("bbr\0", 4)) +
      Attribute(INET_DIAG_TOS, "\x10") +
      Attribute(INET_DIAG_SK_BPF_STORAGES, storage) + Attribute(999, "new");
  DiagSocket socket;
  ASSERT_TRUE(ParseDiagSocket(payload, IPPROTO_TCP, &socket));
  EXPECT_EQ(AddressText(socket.family, socket.local_address), "192.0.2.1");
  EXPECT_EQ(AddressText(socket.family, socket.remote_address), "203.0.113.9");
  EXPECT_EQ(socket.local_port, 40000);
  EXPECT_EQ(socket.remote_port, 443);
  EXPECT_EQ(socket.cookie, (2ULL << 32) + 5);
  EXPECT_EQ(socket.inode, 77u);
  EXPECT_EQ(socket.congestion, "bbr");
  EXPECT_EQ(socket.owner, "owner");
  EXPECT_TRUE(socket.tos.known);
  EXPECT_EQ(socket.tos.value, 16u);
  EXPECT_FALSE(socket.mark.known);
  EXPECT_EQ(Number(socket.info, "tcpi_rtt"), 1234u);
  EXPECT_EQ(Number(socket.info, "tcpi_snd_wscale"), 7u);
  EXPECT_EQ(Number(socket.info, "tcpi_rcv_wscale"), 9u);
  EXPECT_EQ(Number(socket.info, "tcpi_delivery_rate_app_limited"), 1u);
  EXPECT_EQ(Number(socket.info, "tcpi_bytes_sent"), 1ULL << 40);
}

// The bug: ::ffff:192.0.2.1 and ipv6, for what `netmeter flows` calls 192.0.2.1 and ipv4.
TEST(DiagMessage, ADualStackSocketThatUsesIpv4HasIpv4Addresses) {
  inet_diag_msg message = {};
  message.idiag_family = AF_INET6;
  message.id.idiag_src[2] = message.id.idiag_dst[2] = htonl(0xffff);
  message.id.idiag_src[3] = htonl(0xc0000201);
  message.id.idiag_dst[3] = htonl(0xcb007109);
  DiagSocket socket;
  ASSERT_TRUE(ParseDiagSocket(Bytes(message), IPPROTO_TCP, &socket));
  EXPECT_EQ(socket.family, AF_INET);
  EXPECT_EQ(AddressText(socket.family, socket.local_address), "192.0.2.1");
  EXPECT_EQ(AddressText(socket.family, socket.remote_address), "203.0.113.9");
  // A listener has no remote end. One for both families stays one of IPv6.
  message.id.idiag_dst[2] = message.id.idiag_dst[3] = 0;
  ASSERT_TRUE(ParseDiagSocket(Bytes(message), IPPROTO_TCP, &socket));
  EXPECT_EQ(AddressText(socket.family, socket.local_address), "192.0.2.1");
  EXPECT_EQ(AddressText(socket.family, socket.remote_address), "0.0.0.0");
  message.id.idiag_src[2] = message.id.idiag_src[3] = 0;
  ASSERT_TRUE(ParseDiagSocket(Bytes(message), IPPROTO_TCP, &socket));
  EXPECT_EQ(AddressText(socket.family, socket.local_address), "::");
}

// Sockets and associations have different numbers of the kernel; only an association has
// peers.
TEST(DiagMessage, AnAssociationOfSctpIsToldFromItsSocket) {
  inet_diag_msg message = {};
  message.idiag_family = AF_INET;
  message.idiag_state = 3;
  message.idiag_timer = 4;
  message.idiag_expires = 9;
  const std::string of_socket = Bytes(message);
  const std::string of_association =
      of_socket + Attribute(INET_DIAG_PEERS, std::string(128, '\0'));
  DiagSocket socket;
  ASSERT_TRUE(ParseDiagSocket(of_association, IPPROTO_SCTP, &socket));
  EXPECT_TRUE(socket.association);
  EXPECT_EQ(StateName(socket.state), "ESTABLISHED");
  EXPECT_EQ(TimerName(socket.timer), "on");
  ASSERT_TRUE(ParseDiagSocket(of_socket, IPPROTO_SCTP, &socket));
  EXPECT_FALSE(socket.association);
  EXPECT_EQ(StateName(socket.state), "SYN_RECV");
  EXPECT_EQ(socket.expires_ms, 0u);
  message.idiag_state = 255;
  ASSERT_TRUE(ParseDiagSocket(
      Bytes(message) + Attribute(INET_DIAG_PEERS, std::string(128, '\0')),
      IPPROTO_SCTP, &socket));
  EXPECT_EQ(StateName(socket.state), "255");
}

// Linux 5.10's structure has 232 bytes. Its missing fields are absent, and not 0.
TEST(DiagMessage, AShorterStructureHasFewerFieldsAndALongerOneIsKept) {
  const std::string old(232, '\x01');
  EXPECT_EQ(Number(old, "tcpi_snd_wnd"), 0x01010101u);
  EXPECT_EQ(Number(old, "tcpi_rcv_wnd"), UINT64_MAX);
  EXPECT_EQ(RestOf(old, TcpInfoFields()), "");
  const std::string newer = std::string(276, '\x01') + "more";
  EXPECT_EQ(Number(newer, "tcpi_received_ce_bytes"), 0x01010101u);
  EXPECT_EQ(RestOf(newer, TcpInfoFields()), "more");
  // Before 6.5 there was padding at the place of mptcpi_retransmits.
  for (const NumberField& field : MptcpInfoFields()) {
    uint64_t value;
    if (std::string(field.name) == "mptcpi_retransmits") {
      EXPECT_FALSE(ReadNumber(std::string(48, '\0'), field, &value));
      EXPECT_TRUE(ReadNumber(std::string(80, '\0'), field, &value));
    }
  }
}

// The bug: sockets without a measured round trip, such as those in SYN_SENT, had the
// largest of all, 4294967.295 ms, and came first.
TEST(DiagMessage, ARoundTripThatWasNotMeasuredIsNotThere) {
  tcp_info info = {};
  info.tcpi_min_rtt = ~uint32_t{0};
  info.tcpi_snd_ssthresh = ~uint32_t{0};
  EXPECT_EQ(Number(Bytes(info), "tcpi_min_rtt"), UINT64_MAX);
  EXPECT_EQ(Number(Bytes(info), "tcpi_snd_ssthresh"), UINT32_MAX);
  info.tcpi_min_rtt = 70;
  EXPECT_EQ(Number(Bytes(info), "tcpi_min_rtt"), 70u);
}

TEST(DiagMessage, WhatIsCutShortIsRefused) {
  DiagSocket socket;
  const std::string whole =
      Connection() + Attribute(INET_DIAG_CONG, std::string("cubic\0", 6));
  for (size_t size = 0; size < sizeof(inet_diag_msg); size++) {
    EXPECT_FALSE(ParseDiagSocket(whole.substr(0, size), IPPROTO_TCP, &socket));
  }
  // The socket is complete, but its last attribute is not.
  for (size_t size = sizeof(inet_diag_msg); size < whole.size() - 2; size++) {
    ASSERT_TRUE(ParseDiagSocket(whole.substr(0, size), IPPROTO_TCP, &socket));
    EXPECT_EQ(socket.congestion, "");
  }
  std::string unix_socket = whole;
  unix_socket[0] = AF_UNIX;
  EXPECT_FALSE(ParseDiagSocket(unix_socket, IPPROTO_TCP, &socket));
}

TEST(DiagMessage, DatagramsAreWalkedUpToTheLastWholeMessage) {
  const std::string two = Message(SOCK_DIAG_BY_FAMILY, Connection()) +
                          Message(NLMSG_DONE, Bytes(int32_t{-ENOENT}));
  NetlinkMessages messages(two);
  NetlinkMessage message;
  ASSERT_TRUE(messages.Next(&message));
  EXPECT_EQ(message.payload, Connection());
  EXPECT_EQ(message.sequence, 7u);
  EXPECT_EQ(ErrorOf(message), 0);
  ASSERT_TRUE(messages.Next(&message));
  EXPECT_EQ(ErrorOf(message), ENOENT);
  EXPECT_FALSE(messages.Next(&message));
  EXPECT_FALSE(messages.malformed());

  NetlinkMessages cut(absl::string_view(two).substr(0, two.size() - 1));
  ASSERT_TRUE(cut.Next(&message));
  EXPECT_FALSE(cut.Next(&message));
  EXPECT_TRUE(cut.malformed());

  // A length that alignment would turn into 0.
  nlmsghdr header = {};
  header.nlmsg_len = UINT32_MAX;
  NetlinkMessages huge(
      absl::string_view(reinterpret_cast<char*>(&header), sizeof(header)));
  EXPECT_FALSE(huge.Next(&message));
  EXPECT_TRUE(huge.malformed());
}

TEST(DiagMessage, StatesHaveTheKernelsNames) {
  EXPECT_EQ(StateName(1), "ESTABLISHED");
  EXPECT_EQ(StateName(12), "NEW_SYN_RECV");
  EXPECT_EQ(StateName(200), "200");
  EXPECT_EQ(StateOfName("time-wait"), 6);
  EXPECT_EQ(StateOfName("LISTEN"), 10);
  EXPECT_EQ(StateOfName("up"), 0);
  EXPECT_EQ(ProtocolName(262), "mptcp");
  EXPECT_EQ(TimerName(2), "keepalive");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
