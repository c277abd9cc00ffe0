// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/fds/serve.h"
#include "lib/base/loader_command.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/activation.h"
#include "lib/base/kernel_object.h"
#include "lib/base/privileges.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/base/users.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"

namespace netmeter {
namespace internal {
namespace {

using Clock = std::chrono::steady_clock;

// The group while no meter is loaded.
constexpr char kDefaultGroup[] = "netmeter";
// How many answers a user may leave unread. Without CAP_SYS_RESOURCE and CAP_SYS_ADMIN,
// which the server has dropped, the kernel allows all processes of a user together
// RLIMIT_NOFILE descriptors in unread messages (ETOOMANYREFS of unix(7)). A message
// cannot be withdrawn: it waits in the client's socket even after the server closes its
// end. Without this quota, a client that reads nothing could keep all others from an
// answer.
size_t UnreadQuota() {
  static_assert(kReadableMaps <
                20);  // so one user stays below the kernel's limit
  rlimit descriptors = {};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  return std::clamp<size_t>(descriptors.rlim_cur / 20, 1, 256);
}

// Returns 0 or an errno.
int SendDescriptors(int client, const SharedMapFds& maps) {
  std::array<int, kReadableMaps> fds;
  std::array<unsigned char, 1 + kReadableMaps> bytes = {kDescriptorProtocol};
  size_t count = 0;
  for (size_t map = 0; map < maps.size(); map++) {
    if (!maps[map].ok()) continue;  // an extent that does not exist
    fds[count] = maps[map].get();
    bytes[++count] = static_cast<unsigned char>(map);
  }
  iovec data = {bytes.data(), 1 + count};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kReadableMaps)] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * count);
  memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * count);
  // Fits into any socket's buffer.
  return sendmsg(client, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

// Removes the socket that a killed server left at `path`, and nothing else: for a socket,
// connect(2) says ECONNREFUSED only if no process holds it. (If two servers of one path
// start within the same microseconds, the later one gets the path.)
absl::Status RemoveStaleSocket(const std::string& path,
                               const sockaddr_un& address) {
  // Non-blocking, so that a full queue does not block.
  UniqueFd probe(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.ok()) return ErrnoStatus(errno, "socket");
  struct stat about;
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    if (errno == ECONNREFUSED && lstat(path.c_str(), &about) == 0 &&
        S_ISSOCK(about.st_mode) && unlink(path.c_str()) == 0) {
      return absl::OkStatus();
    }
  }
  return absl::AlreadyExistsError(absl::StrCat(
      path, " is in use (stop the other server, or choose another --socket)"));
}

// The group that may read, by the mode of the pins. NotFound: no pins.
absl::StatusOr<gid_t> GroupOfPins(const std::string& pin_dir) {
  const std::string info = absl::StrCat(pin_dir, "/info");
  struct stat about;
  if (stat(info.c_str(), &about) != 0) {
    return ErrnoStatus(errno, absl::StrCat("look at ", info));
  }
  if ((about.st_mode & S_IRGRP) == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no group may read the meter at ", pin_dir,
        ": load it with --group (see: ", LoaderCommand("status", pin_dir),
        "), or give --group here"));
  }
  return about.st_gid;
}

// The kernel keeps the ids that the client had at connect(2).
bool IsMember(int client, const ucred& peer, gid_t group) {
  if (peer.gid == group) return true;
  // Size 0 is too small if the client has supplementary groups; then the kernel returns
  // the size that it needs.
  socklen_t size = 0;
  if (getsockopt(client, SOL_SOCKET, SO_PEERGROUPS, nullptr, &size) == 0 ||
      errno != ERANGE) {
    return false;
  }
  std::vector<gid_t> groups(size / sizeof(gid_t));
  return getsockopt(client, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) ==
             0 &&
         std::find(groups.begin(), groups.end(), group) != groups.end();
}

// `group`: from --group. On success sets `bound` to the address.
absl::StatusOr<UniqueFd> Listen(const std::string& path,
                                const std::string& pin_dir,
                                std::optional<gid_t> group,
                                sockaddr_un* bound) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a socket's path has at most ",
                     sizeof(address.sun_path) - 1, " bytes"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  absl::StatusOr<gid_t> gid = group ? *group : GroupOfPins(pin_dir);
  // No meter is loaded.
  if (absl::IsNotFound(gid.status())) gid = FindGroup(kDefaultGroup);
  if (!gid.ok()) return gid.status();
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return ErrnoStatus(errno, "socket");
  NETMETER_RETURN_IF_ERROR(RemoveStaleSocket(path, address));
  const mode_t mask =
      umask(0177);  // no client can connect before the chmod below
  const int error = bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
                         sizeof(address)) == 0
                        ? 0
                        : errno;
  umask(mask);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("bind ", path));
  if (chown(path.c_str(), 0, *gid) != 0 || chmod(path.c_str(), 0660) != 0 ||
      listen(fd.get(), 128) != 0) {
    const absl::Status status =
        ErrnoStatus(errno, absl::StrCat("serve ", path));
    unlink(path.c_str());
    return status;
  }
  *bound = address;
  return fd;
}

// All maps of the meter, or the reason why one is missing.
absl::StatusOr<SharedMapFds> OpenAll(const std::string& pin_dir) {
  absl::StatusOr<SharedMapFds> maps = OpenSharedPins(pin_dir);
  if (!maps.ok() || std::all_of(maps->begin(), maps->begin() + kSharedMaps,
                                [](const UniqueFd& map) { return map.ok(); })) {
    return maps;
  }
  nm_info info = {};
  const bool closed =
      ReadOnlyValue((*maps)[kInfo].get(), &info) && info.closed != 0;
  return WithoutMap(pin_dir, closed);
}

constexpr char kCouldWrite[] =
    "kernel.unprivileged_bpf_disabled is 0, so clients could write to the maps "
    "(run: sysctl kernel.unprivileged_bpf_disabled=2)";

// Serves one client at a time. An answer is one message of a few bytes, which fits into
// any socket's buffer, so no client can delay another. The client sees the connection
// end at once, whether it reads or not.
class Server {
 public:
  // `group`: from --group.
  Server(const ServeOptions& options, std::optional<gid_t> group)
      : options_(options), group_(group) {}

  // Returns only if accept(2) fails for ever.
  absl::Status Run(int listener);

 private:
  // Why a client gets no answer; each has a line of its own in the log.
  enum Reason {
    kConnection,
    kWritable,
    kMaps,
    kGroup,
    kMember,
    kUnread,
    kSend
  };
  struct Said {
    std::string line;
    Clock::time_point at;
  };

  void Say(Reason reason, const std::string& line);
  bool MayRead(int client, const ucred& peer);
  bool MayLeaveUnread(uid_t uid);
  void Answer(UniqueFd client);

  const ServeOptions& options_;
  const std::optional<gid_t> group_;
  const size_t quota_ = UnreadQuota();
  // The server's ends of the connections whose answers were unread at the last look.
  std::multimap<uid_t, UniqueFd> unread_;
  std::map<Reason, Said> said_;
};

// A client must not fill the log: for each reason one line a minute, and the line that
// was said last only after an hour.
void Server::Say(Reason reason, const std::string& line) {
  const Clock::time_point now = Clock::now();
  const auto [found, first] = said_.try_emplace(reason);
  Said& said = found->second;
  if (!first && now - said.at < (line == said.line ? std::chrono::minutes(60)
                                                   : std::chrono::minutes(1))) {
    return;
  }
  said = {line, now};
  std::cerr << "netmeter-fds: " << line << std::endl;
}

// The mode of the socket is not enough: the socket may come from a unit, or be older
// than a load that took the pins from its group.
bool Server::MayRead(int client, const ucred& peer) {
  if (peer.uid == 0) return true;
  const absl::StatusOr<gid_t> group =
      group_ ? *group_ : GroupOfPins(options_.pin_dir);
  if (!group.ok()) {
    Say(kGroup, std::string(group.status().message()));
    return false;
  }
  if (!IsMember(client, peer, *group)) {
    Say(kMember,
        absl::StrCat("refused user ", peer.uid, ": only group ", *group,
                     " may read the meter at ", options_.pin_dir));
    return false;
  }
  return true;
}

// SIOCOUTQ is 0 when the client has read the answer or is gone, as the kernel frees the
// message then. POLLHUP would not tell: after the client's shutdown(2) the message and
// its descriptors still wait in its socket.
bool Server::MayLeaveUnread(uid_t uid) {
  for (auto end = unread_.begin(); end != unread_.end();) {
    int bytes = 0;
    const bool waits =
        ioctl(end->second.get(), SIOCOUTQ, &bytes) == 0 && bytes != 0;
    end = waits ? std::next(end) : unread_.erase(end);
  }
  if (unread_.count(uid) < quota_) return true;
  Say(kUnread, absl::StrCat("user ", uid, " has ", quota_,
                            " unread answers, and gets no more until some are "
                            "read or closed"));
  return false;
}

void Server::Answer(UniqueFd client) {
  // It may have changed since the last client.
  if (UnprivilegedBpfDisabled() == 0) return Say(kWritable, kCouldWrite);
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return Say(kConnection, absl::StrCat("SO_PEERCRED: ", strerror(errno)));
  }
  // Opened as a reader opens them, so that `info` never comes with older maps. And
  // opened before the check of the client, so that they do not belong to a later load
  // than the one checked.
  const absl::StatusOr<SharedMapFds> maps = OpenAll(options_.pin_dir);
  if (!maps.ok()) return Say(kMaps, std::string(maps.status().message()));
  if (!MayRead(client.get(), peer)) {
    send(client.get(), &kDescriptorsRefused, sizeof(kDescriptorsRefused),
         MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  if (!MayLeaveUnread(peer.uid)) return;
  const int error = SendDescriptors(client.get(), *maps);
  if (error == ETOOMANYREFS) {
    return Say(kSend,
               absl::StrCat("unread messages from processes of user ", getuid(),
                            " have more descriptors than RLIMIT_NOFILE allows: "
                            "no client gets an answer until some are read or "
                            "closed"));
  }
  if (error == EPIPE || error == ECONNRESET) return;  // the client left
  if (error != 0) {
    return Say(kSend, absl::StrCat("send descriptors to user ", peer.uid, ": ",
                                   strerror(error)));
  }
  // The client sees a closed connection, and sending fails. The server still sees
  // whether the client has read.
  shutdown(client.get(), SHUT_RDWR);
  unread_.emplace(peer.uid, std::move(client));
}

absl::Status Server::Run(int listener) {
  for (;;) {
    UniqueFd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (client.ok()) {
      Answer(std::move(client));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
               errno == ENOMEM) {
      Say(kConnection,
          absl::StrCat("accept: ", strerror(errno), ": clients have to wait"));
      poll(nullptr, 0, 100);  // do not spin
    } else if (errno != EINTR && errno != ECONNABORTED) {
      // Any other error would repeat at once.
      return ErrnoStatus(errno, "accept");
    }
  }
}

// The socket that the server made; empty with a socket unit.
sockaddr_un own_address;

void RemoveOwnSocket() {
  if (own_address.sun_path[0] != 0) unlink(own_address.sun_path);
}

}  // namespace

absl::Status ServeDescriptors(const ServeOptions& options) {
  UniqueFd listener;
  const int fds = ActivatedDescriptors();
  if (fds == 0 && geteuid() != 0) {
    return absl::PermissionDeniedError("run as root");
  }
  std::optional<gid_t> group;
  if (!options.group.empty()) {
    const absl::StatusOr<gid_t> found = FindGroup(options.group);
    if (!found.ok()) return found.status();
    group = *found;
  }
  if (fds != 0) {
    if (fds != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "LISTEN_FDS is ", fds, ": expected one listening socket"));
    }
    listener = UniqueFd(kFirstActivated);
    if (fcntl(listener.get(), F_SETFD, FD_CLOEXEC) != 0 ||
        fcntl(listener.get(), F_SETFL, 0) != 0) {  // accept(2) waits
      return ErrnoStatus(errno, "descriptor 3");
    }
  } else {
    // Only without a socket unit: if a server that a unit started exited while a client
    // waits, systemd would start it again at once until the unit fails. Such a server
    // runs and sends no descriptor.
    if (UnprivilegedBpfDisabled() == 0) {
      return absl::FailedPreconditionError(kCouldWrite);
    }
    absl::StatusOr<UniqueFd> made =
        Listen(options.socket.empty() ? absl::StrCat(options.pin_dir, ".sock")
                                      : options.socket,
               options.pin_dir, group, &own_address);
    if (!made.ok()) return made.status();
    listener = std::move(*made);
  }
  for (const int ends : {SIGTERM, SIGINT}) {
    signal(ends, [](int) {
      RemoveOwnSocket();
      _exit(0);
    });
  }
  absl::Status status = DropPrivilegesOfReader();
  if (status.ok()) status = Server(options, group).Run(listener.get());
  RemoveOwnSocket();
  return status;
}

}  // namespace internal
}  // namespace netmeter
