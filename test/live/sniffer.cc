// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/sniffer.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

namespace netmeter {
namespace internal {
namespace {

uint32_t Big16(const uint8_t* p) { return p[0] << 8 | p[1]; }

void ParseTransport(const uint8_t* p, size_t size, uint32_t length,
                    Packet* packet) {
  uint32_t header = 0;
  switch (packet->protocol) {
    case 6:
      if (size < 14) return;
      packet->tcp_flags = p[13];
      packet->tcp_sequence = Big16(p + 4) << 16 | Big16(p + 6);
      packet->tcp_acknowledged = Big16(p + 8) << 16 | Big16(p + 10);
      header = (p[12] >> 4) * 4;
      break;
    case 17:
      header = 8;
      break;
    case 1:
    case 58:
      if (size < 1) return;
      packet->icmp_type = p[0];
      header = 8;
      break;
    case 132:
      header = 12;
      break;
  }
  if (size >= 4 && packet->protocol != 1 && packet->protocol != 58) {
    packet->source_port = Big16(p);
    packet->destination_port = Big16(p + 2);
  }
  constexpr uint32_t kVxlan = 4789, kHeaders = 8 + 8;
  if (packet->protocol == 17 && packet->destination_port == kVxlan &&
      size > kHeaders + ETH_HLEN)
    packet->vxlan_protocol =
        ParseFrame(p + kHeaders, size - kHeaders, length - kHeaders).protocol;
  packet->payload = length > header ? length - header : 0;
}

}  // namespace

Packet ParseFrame(const uint8_t* frame, size_t size, size_t length) {
  Packet packet;
  packet.bytes = length - ETH_HLEN;
  if (size < ETH_HLEN + 20) return packet;
  packet.ethertype = Big16(frame + 12);
  const uint8_t* ip = frame + ETH_HLEN;
  size -= ETH_HLEN;
  uint32_t total = 0;
  if (packet.ethertype == ETH_P_IP) {
    packet.ip_header = (ip[0] & 15) * 4;
    total = Big16(ip + 2);
    if (total == 0) total = packet.bytes;  // larger than 64 KiB
    packet.protocol = ip[9];
    packet.fragment_offset = (Big16(ip + 6) & 0x1fff) * 8;
    packet.fragment = (Big16(ip + 6) & 0x3fff) != 0;
  } else if (packet.ethertype == ETH_P_IPV6 && size >= 40) {
    packet.ip_header = 40;
    total = 40 + Big16(ip + 4);
    uint8_t next = ip[6];
    while ((next == 0 || next == 43 || next == 44 || next == 60) &&
           packet.ip_header + 8 <= size) {
      const uint8_t* header = ip + packet.ip_header;
      if (next == 44) {
        packet.fragment = true;
        packet.fragment_offset = Big16(header + 2) & 0xfff8;
        packet.ip_header += 8;
      } else {
        packet.ip_header += (header[1] + 1) * 8;
      }
      next = header[0];
    }
    packet.protocol = next;
  } else {
    return packet;
  }
  if (total < packet.ip_header || size < packet.ip_header) return packet;
  const uint32_t left = total - packet.ip_header;
  if (packet.fragment_offset == 0)
    ParseTransport(ip + packet.ip_header, size - packet.ip_header, left,
                   &packet);
  else
    packet.payload = left;
  return packet;
}

Sniffer::Sniffer(const NetNamespace& where, const std::string& link)
    : link_(link) {
  where.Run([&] {
    // Protocol 0: nothing is received before bind() names the interface.
    socket_ = UniqueFd(
        Check(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), "packet socket"));
  });
  const int bytes = 64 << 20;
  Check(setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes,
                   sizeof(bytes)),
        "SO_RCVBUFFORCE");
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = __builtin_bswap16(ETH_P_ALL);
  address.sll_ifindex = where.Index(link);
  Check(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address),
             sizeof(address)),
        "bind packet socket to " + link);
  packets_.reserve(8192);
  thread_ = std::thread([this] { Loop(); });
}

Sniffer::~Sniffer() {
  if (thread_.joinable()) Stop();
}

const std::vector<Packet>& Sniffer::Stop() {
  uint32_t drops = 0;
  StopAndCount(&drops);
  if (drops != 0) {
    errno = ENOBUFS;
    DieWithErrno("the sniffer on " + link_ + " lost packets");
  }
  return packets_;
}

const std::vector<Packet>& Sniffer::StopAndCount(uint32_t* drops) {
  stop_ = true;
  thread_.join();
  tpacket_stats stats = {};
  socklen_t size = sizeof(stats);
  Check(getsockopt(socket_.get(), SOL_PACKET, PACKET_STATISTICS, &stats, &size),
        "PACKET_STATISTICS");
  socket_ = UniqueFd();
  *drops = stats.tp_drops;
  return packets_;
}

// Looks now and then: the socket holds what came, and a thread that each packet
// wakes costs an emulated guest more than the packet does.
void Sniffer::Loop() {
  for (;;) {
    const bool last = stop_;
    while (ReadOne()) {
    }
    if (last) return;
    usleep(5000);
  }
}

bool Sniffer::ReadOne() {
  uint8_t frame[256];
  sockaddr_ll from = {};
  socklen_t size = sizeof(from);
  const ssize_t length =
      recvfrom(socket_.get(), frame, sizeof(frame), MSG_TRUNC | MSG_DONTWAIT,
               reinterpret_cast<sockaddr*>(&from), &size);
  if (length < ETH_HLEN) return false;
  Packet packet =
      ParseFrame(frame, std::min<size_t>(length, sizeof(frame)), length);
  packet.outgoing = from.sll_pkttype == PACKET_OUTGOING;
  packets_.push_back(packet);
  ++count_;
  return true;
}

}  // namespace internal
}  // namespace netmeter
