// SPDX-License-Identifier: BSD-3-Clause
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/no_throw.h"
#include "lib/base/status_util.h"
#include "lib/netlink/diag_message.h"
#include "lib/netlink/number_fields.h"
#include "lib/reader/c_result.h"
#include "netmeter/connections_c.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kMptcp = 262;  // IPPROTO_MPTCP, which glibc 2.36 lacks

// A netmeter_connection and what it points to. The tcp_info of any kernel yet is shorter
// (Linux 7.3: 280 bytes).
struct Row {
  Row() = default;
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  netmeter_connection connection = {};
  uint8_t tcp_info[1024];
};

// The member of netmeter_connection for a field of struct tcp_info.
struct Member {
  absl::string_view name;
  uint32_t netmeter_connection::*small;
  uint64_t netmeter_connection::*large;
  const NumberField* field;
};

std::vector<Member>* MakeMembers() {
  using C = netmeter_connection;
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
    for (const NumberField& field : TcpInfoFields()) {
      if (member.name == field.name) member.field = &field;
    }
  }
  return members.release();
}

uint64_t NumberOf(absl::string_view info, absl::string_view name) {
  uint64_t value = 0;
  for (const NumberField& field : TcpInfoFields()) {
    if (name == field.name) ReadNumber(info, field, &value);
  }
  return value;
}

void TakeTcpInfo(netmeter_connection* connection) {
  static const std::vector<Member>* const members = MakeMembers();
  const absl::string_view info(
      reinterpret_cast<const char*>(connection->tcp_info),
      connection->tcp_info_length);
  const std::string state =
      StateName(static_cast<uint8_t>(NumberOf(info, "tcpi_state")));
  CopyText(state, connection->state);
  // Fields mean other things for a listener: tcpi_unacked is the length of its queue.
  if (state == "LISTEN") return;
  for (const Member& member : *members) {
    uint64_t value = 0;
    const bool known = ReadNumber(info, *member.field, &value);
    if (member.small == &netmeter_connection::timeouts) {
      connection->timeouts_known = known;
    }
    if (member.small != nullptr) {
      connection->*member.small = static_cast<uint32_t>(value);
    } else {
      connection->*member.large = value;
    }
  }
  connection->delivery_limited_by_application =
      NumberOf(info, "tcpi_delivery_rate_app_limited") != 0;
  // TCP_CA_NAME_MAX is 16, with the NUL.
  socklen_t size = sizeof(connection->congestion) - 1;
  getsockopt(connection->fd, IPPROTO_TCP, TCP_CONGESTION,
             connection->congestion, &size);
}

template <typename T>
int GetOption(int fd, int level, int name, T* value) {
  socklen_t size = sizeof(*value);
  return getsockopt(fd, level, name, value, &size) == 0 ? 0 : errno;
}

// Leaves the outputs alone if the address is not an IP address.
void TakeAddress(const sockaddr_storage& from, char (&address)[48],
                 uint16_t* port) {
  std::array<uint8_t, 16> bytes = {};
  if (from.ss_family == AF_INET) {
    sockaddr_in in;
    memcpy(&in, &from, sizeof(in));
    memcpy(bytes.data(), &in.sin_addr, 4);
    CopyText(AddressText(AF_INET, bytes), address);
    *port = ntohs(in.sin_port);
  } else if (from.ss_family == AF_INET6) {
    sockaddr_in6 in;
    memcpy(&in, &from, sizeof(in));
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&in.sin6_addr);
    memcpy(bytes.data(), in.sin6_addr.s6_addr + (mapped ? 12 : 0),
           mapped ? 4 : 16);
    CopyText(AddressText(mapped ? AF_INET : AF_INET6, bytes), address);
    *port = ntohs(in.sin6_port);
  }
}

absl::Status NoTcpSocket(int fd) {
  return absl::InvalidArgumentError(absl::StrCat(
      "read the connection of descriptor ", fd, ": no TCP socket"));
}

absl::Status ErrorOf(int error, int fd) {
  if (error == EBADF || error == ENOTSOCK) return NoTcpSocket(fd);
  return ErrnoStatus(error,
                     absl::StrCat("read the connection of descriptor ", fd));
}

// Makes only checks that stay valid if the descriptor is replaced in between.
absl::Status CheckIsTcp(int fd, uint8_t* mptcp) {
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

// *row is new.
absl::Status Read(int fd, Row* row) {
  netmeter_connection* const connection = &row->connection;
  connection->size = sizeof(*connection);
  connection->fd = fd;
  NETMETER_RETURN_IF_ERROR(CheckIsTcp(fd, &connection->mptcp));
  int error = GetOption(fd, SOL_SOCKET, SO_COOKIE, &connection->cookie);
  if (error != 0) return ErrorOf(error, fd);
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return ErrorOf(errno, fd);
  }
  TakeAddress(address, connection->local_address, &connection->local_port);
  address = {};
  size = sizeof(address);
  // ENOTCONN: the socket listens, or the peer has reset the connection.
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    TakeAddress(address, connection->remote_address, &connection->remote_port);
  }
  size = sizeof(row->tcp_info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, row->tcp_info, &size) != 0) {
    error = errno;
    // MPTCP sockets had no TCP_INFO before Linux 5.16.
    if (error == EOPNOTSUPP || error == ENOPROTOOPT) {
      return absl::UnimplementedError(absl::StrCat(
          "read the connection of descriptor ", fd,
          ": this kernel has no TCP_INFO of MPTCP (it needs Linux 5.16)"));
    }
    return ErrorOf(error, fd);
  }
  connection->tcp_info = row->tcp_info;
  connection->tcp_info_length = size;
  TakeTcpInfo(connection);
  return absl::OkStatus();
}

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

absl::StatusOr<std::vector<int>> OpenDescriptors() {
  // The thread's directory: the first thread of the process may have ended.
  const std::unique_ptr<DIR, CloseDirectory> directory(
      opendir("/proc/thread-self/fd"));
  if (directory == nullptr) {
    return ErrnoStatus(errno, "list the descriptors of this process",
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
absl::StatusOr<bool> ReadOwn(int fd, Row* row) {
  const absl::Status read = Read(fd, row);
  if (read.code() == absl::StatusCode::kResourceExhausted) return read;
  uint64_t cookie = 0;
  return read.ok() && GetOption(fd, SOL_SOCKET, SO_COOKIE, &cookie) == 0 &&
         cookie == row->connection.cookie;
}

using TakeConnectionOfC = int (*)(const netmeter_connection* connection,
                                  void* context);

absl::Status TakeIsNull() { return absl::InvalidArgumentError("take is NULL"); }

absl::Status Visit(TakeConnectionOfC take, void* context, int* taken) {
  if (take == nullptr) return TakeIsNull();
  const absl::StatusOr<std::vector<int>> descriptors = OpenDescriptors();
  NETMETER_RETURN_IF_ERROR(descriptors.status());
  std::set<uint64_t>
      cookies;  // of sockets that were taken by a lower descriptor
  for (const int fd : *descriptors) {
    Row row;
    const absl::StatusOr<bool> is_one = ReadOwn(fd, &row);
    NETMETER_RETURN_IF_ERROR(is_one.status());
    if (!*is_one || !cookies.insert(row.connection.cookie).second) continue;
    *taken = take(&row.connection, context);
    NETMETER_RETURN_IF_ERROR(StatusOfTaken(*taken));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int netmeter_read_connection(
    int fd,
    int (*take)(const struct netmeter_connection* connection, void* context),
    void* context, netmeter_error* error) {
  // The callback makes system calls within a noexcept function.
  const netmeter::internal::WithoutCancellation guard;
  int taken = NETMETER_OK;
  const absl::Status read = netmeter::internal::WithoutThrowing([&] {
    if (take == nullptr) return netmeter::internal::TakeIsNull();
    netmeter::internal::Row row;
    NETMETER_RETURN_IF_ERROR(netmeter::internal::Read(fd, &row));
    taken = take(&row.connection, context);
    return netmeter::internal::StatusOfTaken(taken);
  });
  return netmeter::internal::ReturnTaken(read, taken, error);
}

int netmeter_visit_connections(
    int (*take)(const netmeter_connection* connection, void* context),
    void* context, netmeter_error* error) {
  const netmeter::internal::WithoutCancellation guard;
  int taken = NETMETER_OK;
  const absl::Status visited = netmeter::internal::WithoutThrowing(
      [&] { return netmeter::internal::Visit(take, context, &taken); });
  return netmeter::internal::ReturnTaken(visited, taken, error);
}
