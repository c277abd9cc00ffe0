// SPDX-License-Identifier: BSD-3-Clause
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/no_throw.h"
#include "lib/base/status_util.h"
#include "lib/netlink/diag_message.h"
#include "lib/netlink/number_fields.h"
#include "netmeter/connections.h"

namespace netmeter {
namespace {

constexpr int kMptcp = 262;  // IPPROTO_MPTCP, which glibc 2.36 lacks

// Larger than the tcp_info of any kernel yet (Linux 7.3: 280 bytes).
constexpr size_t kMostTcpInfo = 1024;

// The member of Connection for a field of struct tcp_info.
struct Member {
  absl::string_view name;
  uint32_t Connection::*small;
  uint64_t Connection::*large;
  const internal::NumberField* field;
};

std::vector<Member>* MakeMembers() {
  using C = Connection;
  auto members = std::make_unique<std::vector<Member>>(std::vector<Member>{
      {"tcpi_rtt", &C::rtt_us, nullptr, nullptr},
      {"tcpi_rttvar", &C::rtt_variation_us, nullptr, nullptr},
      {"tcpi_min_rtt", &C::min_rtt_us, nullptr, nullptr},
      {"tcpi_rto", &C::retransmission_timeout_us, nullptr, nullptr},
      {"tcpi_bytes_sent", nullptr, &C::sent_bytes, nullptr},
      {"tcpi_bytes_retrans", nullptr, &C::retransmitted_bytes, nullptr},
      {"tcpi_bytes_acked", nullptr, &C::acknowledged_bytes, nullptr},
      {"tcpi_bytes_received", nullptr, &C::received_bytes, nullptr},
      {"tcpi_notsent_bytes", &C::unsent_bytes, nullptr, nullptr},
      {"tcpi_segs_out", &C::sent_segments, nullptr, nullptr},
      {"tcpi_segs_in", &C::received_segments, nullptr, nullptr},
      {"tcpi_total_retrans", &C::retransmitted_segments, nullptr, nullptr},
      {"tcpi_rcv_ooopack", &C::out_of_order_segments, nullptr, nullptr},
      {"tcpi_dsack_dups", &C::duplicate_segments, nullptr, nullptr},
      {"tcpi_unacked", &C::unacknowledged_segments, nullptr, nullptr},
      {"tcpi_lost", &C::lost_segments, nullptr, nullptr},
      {"tcpi_retransmits", &C::timeouts_in_a_row, nullptr, nullptr},
      {"tcpi_total_rto", &C::timeouts, nullptr, nullptr},
      {"tcpi_total_rto_time", &C::timeout_time_ms, nullptr, nullptr},
      {"tcpi_delivery_rate", nullptr, &C::delivery_rate, nullptr},
      {"tcpi_pacing_rate", nullptr, &C::pacing_rate, nullptr},
      {"tcpi_busy_time", nullptr, &C::busy_us, nullptr},
      {"tcpi_rwnd_limited", nullptr, &C::limited_by_receiver_us, nullptr},
      {"tcpi_sndbuf_limited", nullptr, &C::limited_by_buffer_us, nullptr},
      {"tcpi_snd_cwnd", &C::congestion_window_segments, nullptr, nullptr},
      {"tcpi_snd_mss", &C::segment_bytes, nullptr, nullptr},
      {"tcpi_pmtu", &C::path_mtu, nullptr, nullptr},
      {"tcpi_snd_wnd", &C::send_window_bytes, nullptr, nullptr},
      {"tcpi_last_data_sent", &C::since_sent_ms, nullptr, nullptr},
      {"tcpi_last_data_recv", &C::since_received_ms, nullptr, nullptr}});
  for (Member& member : *members) {
    for (const internal::NumberField& field : internal::TcpInfoFields()) {
      if (member.name == field.name) member.field = &field;
    }
  }
  return members.release();
}

uint64_t NumberOf(absl::string_view info, absl::string_view name) {
  uint64_t value = 0;
  for (const internal::NumberField& field : internal::TcpInfoFields()) {
    if (name == field.name) internal::ReadNumber(info, field, &value);
  }
  return value;
}

void TakeTcpInfo(Connection* connection) {
  static const std::vector<Member>* const members = MakeMembers();
  const absl::string_view info = connection->tcp_info;
  for (const Member& member : *members) {
    uint64_t value = 0;
    const bool known = internal::ReadNumber(info, *member.field, &value);
    if (member.small == &Connection::timeouts) {
      connection->timeouts_known = known;
    }
    if (member.small != nullptr) {
      connection->*member.small = static_cast<uint32_t>(value);
    } else {
      connection->*member.large = value;
    }
  }
  connection->state =
      internal::StateName(static_cast<uint8_t>(NumberOf(info, "tcpi_state")));
  connection->delivery_limited_by_application =
      NumberOf(info, "tcpi_delivery_rate_app_limited") != 0;
  // Fields mean other things for a listener: tcpi_unacked is the length of its queue.
  if (connection->state == "LISTEN") {
    Connection bare;
    bare.fd = connection->fd;
    bare.cookie = connection->cookie;
    bare.mptcp = connection->mptcp;
    bare.state = std::move(connection->state);
    bare.local_address = std::move(connection->local_address);
    bare.local_port = connection->local_port;
    bare.tcp_info = std::move(connection->tcp_info);
    *connection = std::move(bare);
  }
}

template <typename T>
int GetOption(int fd, int level, int name, T* value) {
  socklen_t size = sizeof(*value);
  return getsockopt(fd, level, name, value, &size) == 0 ? 0 : errno;
}

// "" and 0 if the address is not an IP address.
void TakeAddress(const sockaddr_storage& from, std::string* address,
                 uint16_t* port) {
  std::array<uint8_t, 16> bytes = {};
  if (from.ss_family == AF_INET) {
    sockaddr_in in;
    memcpy(&in, &from, sizeof(in));
    memcpy(bytes.data(), &in.sin_addr, 4);
    *address = internal::AddressText(AF_INET, bytes);
    *port = ntohs(in.sin_port);
  } else if (from.ss_family == AF_INET6) {
    sockaddr_in6 in;
    memcpy(&in, &from, sizeof(in));
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&in.sin6_addr);
    memcpy(bytes.data(), in.sin6_addr.s6_addr + (mapped ? 12 : 0),
           mapped ? 4 : 16);
    *address = internal::AddressText(mapped ? AF_INET : AF_INET6, bytes);
    *port = ntohs(in.sin6_port);
  }
}

absl::Status NoTcpSocket(int fd) {
  return absl::InvalidArgumentError(absl::StrCat(
      "read the connection of descriptor ", fd, ": no TCP socket"));
}

absl::Status ErrorOf(int error, int fd) {
  if (error == EBADF || error == ENOTSOCK) return NoTcpSocket(fd);
  return internal::ErrnoStatus(
      error, absl::StrCat("read the connection of descriptor ", fd));
}

// Makes only checks that stay valid if the descriptor is replaced in between.
absl::Status CheckIsTcp(int fd, bool* mptcp) {
  int family = 0, protocol = 0;
  const int error = GetOption(fd, SOL_SOCKET, SO_PROTOCOL, &protocol);
  if (error != 0) return ErrorOf(error, fd);
  // For AF_UNIX the protocol is 0. AF_VSOCK and other families have numbers of their own.
  if ((protocol != IPPROTO_TCP && protocol != kMptcp) ||
      GetOption(fd, SOL_SOCKET, SO_DOMAIN, &family) != 0 ||
      (family != AF_INET && family != AF_INET6)) {
    return NoTcpSocket(fd);
  }
  *mptcp = protocol == kMptcp;
  return absl::OkStatus();
}

absl::StatusOr<Connection> Read(int fd) {
  Connection connection;
  connection.fd = fd;
  NETMETER_RETURN_IF_ERROR(CheckIsTcp(fd, &connection.mptcp));
  int error = GetOption(fd, SOL_SOCKET, SO_COOKIE, &connection.cookie);
  if (error != 0) return ErrorOf(error, fd);
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return ErrorOf(errno, fd);
  }
  TakeAddress(address, &connection.local_address, &connection.local_port);
  address = {};
  size = sizeof(address);
  // ENOTCONN: the socket listens, or the peer has reset the connection.
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    TakeAddress(address, &connection.remote_address, &connection.remote_port);
  }
  char bytes[kMostTcpInfo];
  size = sizeof(bytes);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, bytes, &size) != 0) {
    error = errno;
    // MPTCP sockets had no TCP_INFO before Linux 5.16.
    if (error == EOPNOTSUPP || error == ENOPROTOOPT) {
      return absl::UnimplementedError(absl::StrCat(
          "read the connection of descriptor ", fd,
          ": this kernel has no TCP_INFO of MPTCP (it needs Linux 5.16)"));
    }
    return ErrorOf(error, fd);
  }
  connection.tcp_info.assign(bytes, size);
  char name[16] = {};  // TCP_CA_NAME_MAX
  size = sizeof(name);
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0) {
    connection.congestion.assign(name, strnlen(name, sizeof(name)));
  }
  TakeTcpInfo(&connection);
  return connection;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

absl::StatusOr<std::vector<int>> OpenDescriptors() {
  // The thread's directory: the first thread of the process may have ended.
  const std::unique_ptr<DIR, CloseDirectory> directory(
      opendir("/proc/thread-self/fd"));
  if (directory == nullptr) {
    return internal::ErrnoStatus(errno, "list the descriptors of this process",
                                 "is /proc mounted?");
  }
  std::vector<int> descriptors;
  while (const dirent* const entry = readdir(directory.get())) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    if (fd != dirfd(directory.get())) descriptors.push_back(fd);
  }
  std::sort(descriptors.begin(), descriptors.end());
  return descriptors;
}

// False if fd is not a TCP socket, or no longer the one it was.
absl::StatusOr<bool> ReadOwn(int fd, Connection* connection) {
  absl::StatusOr<Connection> read = Read(fd);
  if (read.status().code() == absl::StatusCode::kResourceExhausted) {
    return read.status();
  }
  uint64_t cookie = 0;
  if (!read.ok() || GetOption(fd, SOL_SOCKET, SO_COOKIE, &cookie) != 0 ||
      cookie != read->cookie) {
    return false;
  }
  *connection = *std::move(read);
  return true;
}

}  // namespace

absl::StatusOr<Connection> ReadConnection(int fd) {
  const internal::WithoutCancellation guard;
  return internal::WithoutThrowing([&] { return Read(fd); });
}

absl::StatusOr<std::vector<Connection>> ReadOwnConnections() {
  using Result = absl::StatusOr<std::vector<Connection>>;
  const internal::WithoutCancellation guard;
  return internal::WithoutThrowing([&]() -> Result {
    const absl::StatusOr<std::vector<int>> descriptors = OpenDescriptors();
    NETMETER_RETURN_IF_ERROR(descriptors.status());
    std::vector<Connection> connections;
    for (const int fd : *descriptors) {
      Connection connection;
      const absl::StatusOr<bool> is_one = ReadOwn(fd, &connection);
      NETMETER_RETURN_IF_ERROR(is_one.status());
      if (*is_one) connections.push_back(std::move(connection));
    }
    // Keeps one entry for each socket: the one with the lowest descriptor.
    const auto by_cookie = [](const Connection& a, const Connection& b) {
      return a.cookie != b.cookie ? a.cookie < b.cookie : a.fd < b.fd;
    };
    std::sort(connections.begin(), connections.end(), by_cookie);
    connections.erase(std::unique(connections.begin(), connections.end(),
                                  [](const Connection& a, const Connection& b) {
                                    return a.cookie == b.cookie;
                                  }),
                      connections.end());
    std::sort(
        connections.begin(), connections.end(),
        [](const Connection& a, const Connection& b) { return a.fd < b.fd; });
    return connections;
  });
}

}  // namespace netmeter
