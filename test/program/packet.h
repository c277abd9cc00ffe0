// SPDX-License-Identifier: BSD-3-Clause
// Packets for BPF_PROG_TEST_RUN, written the way one would describe them:
//
//   Packet::Ipv6().HopByHop().Fragment(0, true).Udp(1000, 53).Payload(100)
//
// Each header tells the one before it what it is. Lengths are filled in,
// checksums are not: no program reads them. Copies are cheap enough.

#ifndef NETMETER_TEST_PROGRAM_PACKET_H_
#define NETMETER_TEST_PROGRAM_PACKET_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace netmeter {
namespace internal {

class Packet {
 public:
  // TCP flags, RFC 9293 section 3.1.
  enum Flag : uint8_t { kFin = 1, kSyn = 2, kRst = 4, kPush = 8, kAck = 16 };

  // An Ethernet header as the test run wants it, and the IP header.
  // option_bytes: 0 to 40, a multiple of 4.
  static Packet Ipv4(size_t option_bytes = 0);
  static Packet Ipv6();
  // Bytes that need not be a packet; ethernet_type is 0x0800 or 0x86dd.
  static Packet Raw(uint16_t ethernet_type, const std::vector<uint8_t>& bytes);

  // IPv4: the fragment field of the header; offset in units of 8 bytes.
  Packet& Ipv4Fragment(uint16_t offset, bool more);

  // IPv6 extension headers, RFC 8200 section 4 and RFC 4302. units: what the
  // header's length field says.
  Packet& HopByHop(uint8_t units = 0);
  Packet& Routing(uint8_t units = 0);
  Packet& DestinationOptions(uint8_t units = 0);
  Packet& Fragment(uint16_t offset, bool more);
  Packet& Authentication(uint8_t units = 4);
  // The hop-by-hop header that the kernel puts into a GSO packet of more
  // than 64 KiB (BIG TCP).
  Packet& JumboPayload(uint32_t length);

  Packet& Tcp(uint16_t source, uint16_t target, size_t option_bytes = 0);
  Packet& Seq(uint32_t seq);
  Packet& Ack(uint32_t ack);  // and the flag
  Packet& Flags(uint8_t flags);
  Packet& Udp(uint16_t source, uint16_t target);
  Packet& Sctp(uint16_t source, uint16_t target);
  Packet& Icmp();
  Packet& Icmpv6();
  // Any other protocol number, without a header.
  Packet& Protocol(uint8_t number);

  // In an Ethernet frame to everybody on the link.
  Packet& Broadcast();

  Packet& Payload(size_t bytes);
  // Keeps that many bytes of the packet, from the IP header on.
  Packet& Truncate(size_t bytes);
  // Overwrites one byte, counted from the start of the IP header.
  Packet& Byte(size_t at, uint8_t value);
  // ... or from the start of the header that was added last.
  Packet& HeaderByte(size_t at, uint8_t value);

  // From the Ethernet header on, lengths filled in.
  std::vector<uint8_t> Frame() const;
  // What a hook sees as skb->len: from the IP header on.
  size_t size() const { return bytes_.size(); }
  // Newer kernels refuse to run a program on data without an IP header (EINVAL); at a
  // real hook there always is one.
  bool HasIpHeader() const {
    return size() >= (ethernet_type_ == 0x0800 ? 20 : 40);
  }

 private:
  explicit Packet(uint16_t ethernet_type) : ethernet_type_(ethernet_type) {}

  // Appends size zero bytes as the header of a protocol.
  Packet& Header(uint8_t protocol, size_t size);
  Packet& Extension(uint8_t protocol, uint8_t units);
  void Put(size_t at, uint16_t value);
  void Put(size_t at, uint32_t value);

  uint16_t ethernet_type_;
  std::vector<uint8_t> bytes_;  // from the IP header on
  size_t next_ = 0;             // where the next header's number goes
  size_t header_ = 0;           // where the last header begins
  bool lengths_ = true;         // Frame() fills them in
  bool broadcast_ = false;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_PROGRAM_PACKET_H_
