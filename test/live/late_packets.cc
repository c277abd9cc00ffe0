// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/late_packets.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace netmeter {
namespace internal {
namespace {

struct Connection {
  bool fin_sent = false;
  bool fin_received = false;
  uint32_t sent_end = 0;  // the number after the FIN's
  uint32_t received_end = 0;
  bool closed_first = false;
  bool sent_acknowledged = false;
  bool received_acknowledged = false;
  int unanswered = 0;  // packets that came to the TIME_WAIT socket
  bool reset = false;  // by either end: there is no socket any more
  bool peer_syn = false;
  uint32_t received_start = 0;
  std::map<uint32_t, uint32_t> received;  // payload by sequence number

  // What comes next finds a TIME_WAIT socket, which no hook knows.
  bool time_wait() const {
    return closed_first && fin_received && sent_acknowledged && complete();
  }

  // Nothing in front of the peer's FIN is missing.
  bool complete() const {
    if (!peer_syn) return true;
    uint32_t bytes = 0;
    for (const auto& part : received) bytes += part.second;
    return bytes >= received_end - 1 - received_start;
  }

  // A TIME_WAIT socket sends nothing but answers. The acknowledgement of the
  // FIN itself leaves before the socket becomes one (tcp_fin()).
  bool answers() const { return received_acknowledged && unanswered > 0; }

  void See(const Packet& packet, bool sent) {
    if (packet.syn() && !packet.ack()) *this = Connection();
    if (!sent && packet.syn()) {
      peer_syn = true;
      received_start = packet.tcp_sequence + 1;
    }
    if (!sent && packet.payload > 0) {
      const uint32_t first = packet.tcp_sequence + (packet.syn() ? 1 : 0);
      received[first] = std::max(received[first], packet.payload);
    }
    const uint32_t end = packet.tcp_sequence + packet.payload + 1;
    if (sent && packet.fin() && !fin_sent) {
      fin_sent = true;
      sent_end = end;
      closed_first = !fin_received || packet.tcp_acknowledged != received_end;
    }
    if (!sent && packet.fin()) {
      fin_received = true;
      received_end = end;
    }
    if (sent && fin_received && packet.tcp_acknowledged == received_end)
      received_acknowledged = true;
    if (!sent && fin_sent && packet.tcp_acknowledged == sent_end)
      sent_acknowledged = true;
  }
};

// A connection: family, the measured side's port, and its peer's.
using Key = std::tuple<int, int, int>;
Key KeyOf(const Packet& packet, bool sent) {
  return {packet.ethertype, sent ? packet.source_port : packet.destination_port,
          sent ? packet.destination_port : packet.source_port};
}

constexpr int kMostLate = 3;

// Bytes of a packet, below zero if its name says that no hook saw it; and how many.
using Sizes = std::map<int64_t, int>;

bool IsSumOf(Sizes* sizes, int64_t bytes, int64_t count, int most) {
  if (bytes == 0 && count == 0) return true;
  if (most == 0) return false;
  for (auto& [size, left] : *sizes) {
    if (left == 0) continue;
    --left;
    const bool found =
        IsSumOf(sizes, bytes - size, count - (size < 0 ? -1 : 1), most - 1);
    ++left;
    if (found) return true;
  }
  return false;
}

}  // namespace

std::vector<const char*> FindLatePackets(const std::vector<Packet>& packets,
                                         bool sent_is_outgoing) {
  std::vector<const char*> names(packets.size(), nullptr);
  std::map<Key, Connection> connections;
  for (size_t i = 0; i < packets.size(); ++i) {
    const Packet& packet = packets[i];
    if (!packet.tcp()) continue;
    const bool sent = packet.outgoing == sent_is_outgoing;
    Connection& connection = connections[KeyOf(packet, sent)];
    if (connection.time_wait() && !packet.syn() &&
        (!sent || connection.answers())) {
      connection.unanswered += sent ? -1 : 1;
      names[i] = "time-wait";
      continue;
    }
    // The packet finds no socket, and a RST is not answered.
    if (!sent && packet.rst() && connection.reset) {
      names[i] = "late";
      continue;
    }
    connection.See(packet, sent);
    connection.reset |= packet.rst();
    // A reset that acknowledges nothing answers a packet that found no socket,
    // with the number that the packet acknowledged (RFC 9293, 3.5.2).
    if (!sent || !packet.rst() || packet.ack()) continue;
    for (size_t j = i; j-- > 0;) {
      const Packet& cause = packets[j];
      if (!cause.tcp() || cause.outgoing == packet.outgoing ||
          cause.ethertype != packet.ethertype ||
          cause.source_port != packet.destination_port ||
          cause.destination_port != packet.source_port ||
          cause.tcp_acknowledged != packet.tcp_sequence || names[j] != nullptr)
        continue;
      names[i] = names[j] = "late";
      break;
    }
  }
  return names;
}

bool ExplainLate(const std::vector<Packet>& packets,
                 const std::vector<const char*>& names, bool outgoing,
                 int64_t bytes, int64_t count) {
  std::set<Key> ending;
  Sizes sizes;
  for (size_t i = 0; i < packets.size(); ++i) {
    const Packet& packet = packets[i];
    if (!packet.tcp()) continue;
    const Key key = KeyOf(packet, packet.outgoing == outgoing);
    if (packet.syn()) ending.erase(key);
    if (packet.fin() || packet.rst()) ending.insert(key);
    if (packet.outgoing != outgoing || packet.payload != 0 ||
        ending.count(key) == 0)
      continue;
    const std::string name = names[i] == nullptr ? "" : names[i];
    if (name.empty()) ++sizes[packet.bytes];
    if (name == "time-wait" || name == "late")
      ++sizes[-static_cast<int64_t>(packet.bytes)];
  }
  return IsSumOf(&sizes, bytes, count, kMostLate);
}

}  // namespace internal
}  // namespace netmeter
