// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/late_packets.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
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

// Of a connection: family, the measured side's port, and its peer's.
using Key = std::tuple<int, int, int>;
Key KeyOf(const Packet& packet, bool sent) {
  return {packet.ethertype, sent ? packet.source_port : packet.destination_port,
          sent ? packet.destination_port : packet.source_port};
}

bool IsTimeWait(const char* name) {
  return name != nullptr && std::strcmp(name, "time-wait") == 0;
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
    // It finds no socket, and nobody answers a RST.
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

bool FindLateInstead(const std::vector<Packet>& packets,
                     const std::vector<const char*>& names,
                     bool sent_is_outgoing, int64_t bytes, LatePair* pair) {
  // By family, ports and number, those without payload.
  std::map<std::tuple<int, int, int, uint32_t>, std::vector<size_t>> alike;
  for (size_t i = 0; i < packets.size(); ++i) {
    const Packet& packet = packets[i];
    if (!packet.tcp() || packet.syn() || packet.rst() || packet.payload != 0 ||
        packet.outgoing == sent_is_outgoing)
      continue;
    std::vector<size_t>& others =
        alike[{packet.ethertype, packet.source_port, packet.destination_port,
               packet.tcp_acknowledged}];
    for (const size_t other : others) {
      if ((names[i] == nullptr) == (names[other] == nullptr)) continue;
      *pair = names[i] != nullptr ? LatePair{i, other} : LatePair{other, i};
      const int64_t more = static_cast<int64_t>(packets[pair->named].bytes) -
                           packets[pair->other].bytes;
      if (more == bytes) return true;
    }
    others.push_back(i);
  }
  return false;
}

bool FindStillOpen(const std::vector<Packet>& packets,
                   const std::vector<const char*>& names, bool sent_is_outgoing,
                   int64_t bytes, size_t* named) {
  std::map<Key, size_t> last;  // packet of a connection, in either direction
  std::map<Key, size_t> unanswered;  // a FIN that may have found the socket
  for (size_t i = 0; i < packets.size(); ++i) {
    const Packet& packet = packets[i];
    if (!packet.tcp()) continue;
    const bool sent = packet.outgoing == sent_is_outgoing;
    const Key key = KeyOf(packet, sent);
    if (packet.syn()) unanswered.erase(key);
    const auto fin = unanswered.find(key);
    if (fin != unanswered.end() && !sent && packet.fin() &&
        packet.tcp_sequence == packets[fin->second].tcp_sequence) {
      *named = fin->second;
      return true;
    }
    const auto before = last.insert({key, i});
    if (before.second) continue;
    const size_t j = before.first->second;
    const Packet& first = packets[j];
    before.first->second = i;
    if (sent || packet.syn() || packet.rst() || packet.payload != 0 ||
        packet.bytes != bytes || !IsTimeWait(names[i]))
      continue;
    if (first.outgoing != packet.outgoing || names[j] != nullptr ||
        first.tcp_acknowledged != packet.tcp_acknowledged)
      continue;
    if (packet.fin()) {
      unanswered[key] = i;
      continue;
    }
    *named = i;
    return true;
  }
  return false;
}

bool FindAnsweredFin(const std::vector<Packet>& packets,
                     const std::vector<const char*>& names,
                     bool sent_is_outgoing, int64_t fin_bytes,
                     int64_t answer_bytes, AnsweredFin* found) {
  std::map<Key, size_t> last;  // packet of a connection, in either direction
  for (size_t i = 0; i < packets.size(); ++i) {
    const Packet& packet = packets[i];
    if (!packet.tcp()) continue;
    const bool sent = packet.outgoing == sent_is_outgoing;
    const Key key = KeyOf(packet, sent);
    const auto before = last.find(key);
    const size_t j = before == last.end() ? i : before->second;
    last[key] = i;
    const Packet& fin = packets[j];
    if (!sent || j == i || fin.outgoing == packet.outgoing || !fin.fin() ||
        packet.syn() || packet.fin() || packet.rst() ||
        packet.tcp_acknowledged != fin.tcp_sequence + fin.payload + 1 ||
        fin.bytes != fin_bytes || packet.bytes != answer_bytes)
      continue;
    if (!IsTimeWait(names[i]) || !IsTimeWait(names[j])) continue;
    *found = {j, i};
    return true;
  }
  return false;
}

bool FindUnseenFin(const std::vector<Packet>& packets,
                   const std::vector<const char*>& names, bool sent_is_outgoing,
                   int64_t fin_bytes, int64_t answer_bytes,
                   AnsweredFin* found) {
  struct End {
    bool fin_sent = false, acknowledged = false, fin_received = false;
    uint32_t sent_end = 0;
    size_t fin = 0;
  };
  std::map<Key, End> ends;
  for (size_t i = 0; i < packets.size(); ++i) {
    const Packet& packet = packets[i];
    if (!packet.tcp()) continue;
    const bool sent = packet.outgoing == sent_is_outgoing;
    End& end = ends[KeyOf(packet, sent)];
    if (packet.syn()) end = End();
    if (sent && packet.fin() && !end.fin_sent) {
      end.fin_sent = true;
      end.sent_end = packet.tcp_sequence + packet.payload + 1;
    }
    if (!sent && packet.fin() && end.acknowledged && names[i] == nullptr &&
        packet.bytes == fin_bytes) {
      end.fin_received = true;
      end.fin = i;
    }
    if (!sent && end.fin_sent && packet.tcp_acknowledged == end.sent_end)
      end.acknowledged = true;
    if (!sent || !end.fin_received || packet.fin() || packet.rst() ||
        names[i] != nullptr || packet.bytes != answer_bytes)
      continue;
    const Packet& fin = packets[end.fin];
    if (packet.tcp_acknowledged != fin.tcp_sequence + fin.payload + 1) continue;
    *found = {end.fin, i};
    return true;
  }
  return false;
}

}  // namespace internal
}  // namespace netmeter
