// SPDX-License-Identifier: BSD-3-Clause
#include "test/program/packet.h"

#include <linux/if_ether.h>
#include <netinet/in.h>

#include <algorithm>

namespace netmeter {
namespace internal {

Packet Packet::Ipv4(size_t option_bytes) {
  Packet packet(ETH_P_IP);
  packet.bytes_.resize(20 + option_bytes);
  packet.bytes_[0] = static_cast<uint8_t>(0x40 | (20 + option_bytes) / 4);
  packet.bytes_[8] = 64;
  // No options: 1 is a no-operation, RFC 791.
  std::fill(packet.bytes_.begin() + 20, packet.bytes_.end(), 1);
  packet.Put(12, uint32_t{0x0a000001});
  packet.Put(16, uint32_t{0x0a000002});
  packet.next_ = 9;
  return packet.Protocol(IPPROTO_NONE);
}

Packet Packet::Ipv6() {
  Packet packet(ETH_P_IPV6);
  packet.bytes_.resize(40);
  packet.bytes_[0] = 0x60;
  packet.bytes_[7] = 64;
  packet.bytes_[8] = packet.bytes_[24] = 0xfd;
  packet.bytes_[23] = 1;
  packet.bytes_[39] = 2;
  packet.next_ = 6;
  return packet.Protocol(IPPROTO_NONE);
}

Packet Packet::Raw(uint16_t ethernet_type, const std::vector<uint8_t>& bytes) {
  Packet packet(ethernet_type);
  packet.bytes_ = bytes;
  packet.lengths_ = false;
  return packet;
}

Packet& Packet::Ipv4Fragment(uint16_t offset, bool more) {
  Put(6, static_cast<uint16_t>(offset | (more ? 0x2000 : 0)));
  return *this;
}

Packet& Packet::HopByHop(uint8_t units) {
  return Extension(IPPROTO_HOPOPTS, units);
}

Packet& Packet::Routing(uint8_t units) {
  return Extension(IPPROTO_ROUTING, units);
}

Packet& Packet::DestinationOptions(uint8_t units) {
  return Extension(IPPROTO_DSTOPTS, units);
}

Packet& Packet::Fragment(uint16_t offset, bool more) {
  Header(IPPROTO_FRAGMENT, 8);
  next_ = header_;
  Put(header_ + 2, static_cast<uint16_t>(offset << 3 | (more ? 1 : 0)));
  return Protocol(IPPROTO_NONE);
}

Packet& Packet::Authentication(uint8_t units) {
  Header(IPPROTO_AH, (units + 2) * 4);
  next_ = header_;
  HeaderByte(1, units);
  return Protocol(IPPROTO_NONE);
}

Packet& Packet::JumboPayload(uint32_t length) {
  HopByHop();
  HeaderByte(2, 0xc2);  // RFC 2675
  HeaderByte(3, 4);
  Put(header_ + 4, length);
  return *this;
}

Packet& Packet::Tcp(uint16_t source, uint16_t target, size_t option_bytes) {
  Header(IPPROTO_TCP, 20 + option_bytes);
  Put(header_, source);
  Put(header_ + 2, target);
  HeaderByte(12, static_cast<uint8_t>((20 + option_bytes) / 4 << 4));
  std::fill(bytes_.end() - static_cast<long>(option_bytes), bytes_.end(), 1);
  return *this;
}

Packet& Packet::Seq(uint32_t seq) {
  Put(header_ + 4, seq);
  return *this;
}

Packet& Packet::Ack(uint32_t ack) {
  Put(header_ + 8, ack);
  bytes_[header_ + 13] |= kAck;
  return *this;
}

Packet& Packet::Flags(uint8_t flags) {
  bytes_[header_ + 13] |= flags;
  return *this;
}

Packet& Packet::Udp(uint16_t source, uint16_t target) {
  Header(IPPROTO_UDP, 8);
  Put(header_, source);
  Put(header_ + 2, target);
  return *this;
}

Packet& Packet::Sctp(uint16_t source, uint16_t target) {
  Header(IPPROTO_SCTP, 12);
  Put(header_, source);
  Put(header_ + 2, target);
  return *this;
}

Packet& Packet::Icmp() { return Header(IPPROTO_ICMP, 8); }

Packet& Packet::Icmpv6() { return Header(IPPROTO_ICMPV6, 8); }

Packet& Packet::Protocol(uint8_t number) {
  bytes_[next_] = number;
  return *this;
}

Packet& Packet::Payload(size_t bytes) {
  bytes_.insert(bytes_.end(), bytes, 'x');
  return *this;
}

Packet& Packet::Truncate(size_t bytes) {
  bytes_.resize(bytes);
  return *this;
}

Packet& Packet::Byte(size_t at, uint8_t value) {
  bytes_[at] = value;
  return *this;
}

Packet& Packet::HeaderByte(size_t at, uint8_t value) {
  return Byte(header_ + at, value);
}

Packet& Packet::Broadcast() {
  broadcast_ = true;
  return *this;
}

std::vector<uint8_t> Packet::Frame() const {
  Packet ip = *this;
  if (lengths_ && ethernet_type_ == ETH_P_IP && size() >= 4) {
    ip.Put(2, static_cast<uint16_t>(size()));
  } else if (lengths_ && ethernet_type_ == ETH_P_IPV6 && size() >= 40) {
    ip.Put(4, static_cast<uint16_t>(size() - 40));
  }
  std::vector<uint8_t> frame(ETH_HLEN + size());
  if (broadcast_) std::fill_n(frame.begin(), ETH_ALEN, uint8_t{0xff});
  frame[12] = static_cast<uint8_t>(ethernet_type_ >> 8);
  frame[13] = static_cast<uint8_t>(ethernet_type_ & 0xff);
  std::copy(ip.bytes_.begin(), ip.bytes_.end(), frame.begin() + ETH_HLEN);
  return frame;
}

Packet& Packet::Header(uint8_t protocol, size_t size) {
  Protocol(protocol);
  header_ = bytes_.size();
  bytes_.resize(header_ + size);
  return *this;
}

Packet& Packet::Extension(uint8_t protocol, uint8_t units) {
  Header(protocol, (units + 1) * 8);
  next_ = header_;
  HeaderByte(1, units);
  return Protocol(IPPROTO_NONE);
}

void Packet::Put(size_t at, uint16_t value) {
  bytes_[at] = static_cast<uint8_t>(value >> 8);
  bytes_[at + 1] = static_cast<uint8_t>(value & 0xff);
}

void Packet::Put(size_t at, uint32_t value) {
  Put(at, static_cast<uint16_t>(value >> 16));
  Put(at + 2, static_cast<uint16_t>(value & 0xffff));
}

}  // namespace internal
}  // namespace netmeter
