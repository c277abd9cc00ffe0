// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/fds/serve.h"
#include "lib/base/loader_command.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
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
constexpr std::chrono::seconds kSweep{1};
constexpr std::chrono::minutes kQuiet{1};

// Reports that a state began or changed: one line, then none for a minute, so that a
// client cannot fill the log by making it begin and end.
class Notice {
 public:
  void Begin(const std::string& line) {
    if (line == said_ || Quiet()) return;
    said_ = line;
    quiet_until_ = Clock::now() + kQuiet;
    std::cerr << "netmeter-fds: " << line << std::endl;
  }
  void End() { said_.clear(); }
  bool Quiet() const { return Clock::now() < quiet_until_; }

 private:
  std::string said_;               // the line of the present state
  Clock::time_point quiet_until_;  // the epoch, long ago
};

// The server's ends of connections whose clients have not read their answer. Without
// CAP_SYS_RESOURCE and CAP_SYS_ADMIN, which the server has dropped, the kernel allows
// all processes of a user together RLIMIT_NOFILE descriptors in unread messages
// (ETOOMANYREFS of unix(7)). A message waits in the client's socket even after the
// server closes its end, so it cannot be withdrawn. Without a limit, a client that
// reads nothing could keep all others from an answer.
class UnreadAnswers {
 public:
  UnreadAnswers() {
    rlimit descriptors = {};
    getrlimit(RLIMIT_NOFILE, &descriptors);
    limit_ = static_cast<size_t>(descriptors.rlim_cur);
    of_a_user_ = std::max<size_t>(std::min<size_t>(256, limit_ / 20), 1);
  }

  bool empty() const { return count_ == 0; }
  size_t limit() const { return limit_; }

  // Whether `uid` may have one more answer, with this number of descriptors. Leaves a
  // quarter of the limit to other processes of the server's user.
  bool HasRoomFor(uid_t uid, size_t descriptors) {
    const size_t in_all = std::max<size_t>(limit_ / descriptors / 4 * 3, 1);
    User& user = users_[uid];
    Sweep(&user);
    if (user.ends.size() >= of_a_user_) {
      user.refused.Begin(absl::StrCat(
          "user ", uid, " has ", user.ends.size(),
          " unread answers, and gets no more until some are read or closed"));
      return false;
    }
    user.refused.End();
    if (count_ >= in_all) {
      full_.Begin(absl::StrCat(
          "all users together have ", count_,
          " unread answers, and get no more until some are read or closed"));
      return false;
    }
    full_.End();
    return true;
  }

  void Add(uid_t uid, UniqueFd end) {
    users_[uid].ends.push_back(std::move(end));
    count_++;
  }

  void SweepAll() {
    for (auto entry = users_.begin(); entry != users_.end();) {
      User& user = entry->second;
      Sweep(&user);
      const bool over = user.ends.empty() && !user.refused.Quiet();
      entry = over ? users_.erase(entry) : std::next(entry);
    }
  }

 private:
  struct User {
    std::vector<UniqueFd> ends;
    Notice refused;
  };

  // Whether the answer is still unread. SIOCOUTQ is also 0 if the client is gone, as
  // the kernel frees the message then. POLLHUP would not tell: after the client's
  // shutdown(2) the message and its descriptors still wait in its socket.
  static bool Waits(const UniqueFd& end) {
    int bytes = 0;
    return ioctl(end.get(), SIOCOUTQ, &bytes) == 0 && bytes != 0;
  }

  void Sweep(User* user) {
    const auto read =
        std::remove_if(user->ends.begin(), user->ends.end(),
                       [](const UniqueFd& end) { return !Waits(end); });
    count_ -= static_cast<size_t>(user->ends.end() - read);
    user->ends.erase(read, user->ends.end());
  }

  size_t limit_ = 0;      // RLIMIT_NOFILE
  size_t of_a_user_ = 0;  // the most unread answers of one user
  size_t count_ = 0;      // the unread answers now
  std::map<uid_t, User> users_;
  Notice full_;
};

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

// Removes the socket that a killed server left at `path`, and no other: connect(2) says
// ECONNREFUSED only if no process holds the socket, whatever its type. (If two servers
// of one path start within the same microseconds, the later one gets the path.)
absl::Status RemoveStaleSocket(const std::string& path,
                               const sockaddr_un& address) {
  struct stat about;
  if (lstat(path.c_str(), &about) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : ErrnoStatus(errno, absl::StrCat("serve ", path));
  }
  if (!S_ISSOCK(about.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " exists and is not a socket"));
  }
  // Non-blocking, so that a full queue does not block.
  UniqueFd probe(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.ok()) return ErrnoStatus(errno, "socket");
  const int error =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0
          ? 0
          : errno;
  switch (error) {
    case ECONNREFUSED:
      if (unlink(path.c_str()) != 0 && errno != ENOENT) {
        return ErrnoStatus(errno, absl::StrCat("remove ", path));
      }
      return absl::OkStatus();
    case 0:
    case EAGAIN:  // its queue is full
      return absl::AlreadyExistsError(
          absl::StrCat(path, " is in use by another server"));
    case EPROTOTYPE:
      return absl::AlreadyExistsError(absl::StrCat(
          path, " is a socket of another program (choose another --socket)"));
    default:
      return ErrnoStatus(error, absl::StrCat("probe ", path),
                         "choose another --socket");
  }
}

// What socket activation hands over may be anything: accept(2) on a datagram
// socket fails at once, for ever.
absl::Status CheckListener(int fd) {
  int domain = 0, type = 0, listens = 0;
  socklen_t size = sizeof(int);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("descriptor ", fd));
  }
  if (domain != AF_UNIX || type != SOCK_STREAM || listens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd,
                     " is not a listening Unix stream socket (in the systemd "
                     "unit: ListenStream=PATH, Accept=no)"));
  }
  return absl::OkStatus();
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

// `group`: from --group.
absl::StatusOr<UniqueFd> Listen(const std::string& path,
                                const std::string& pin_dir,
                                std::optional<gid_t> group) {
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
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return ErrnoStatus(errno, "socket");
  NETMETER_RETURN_IF_ERROR(RemoveStaleSocket(path, address));
  const mode_t mask =
      umask(0177);  // no client can connect before the chmod below
  const int bound =
      bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const int error = errno;
  umask(mask);
  if (bound != 0) return ErrnoStatus(error, absl::StrCat("bind ", path));
  if (chown(path.c_str(), 0, *gid) != 0 || chmod(path.c_str(), 0660) != 0 ||
      listen(fd.get(), 128) != 0) {
    const absl::Status status =
        ErrnoStatus(errno, absl::StrCat("serve ", path));
    unlink(path.c_str());
    return status;
  }
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

  // Serves until `stop` is readable or the server is idle.
  absl::Status Run(int listener, int stop);

 private:
  // How long poll(2) may wait, in milliseconds; -1: without limit.
  int PollTimeout() const;
  bool MayRead(int client, const ucred& peer);
  void Answer(UniqueFd client);

  const ServeOptions& options_;
  const std::optional<gid_t> group_;
  UnreadAnswers unread_;
  Clock::time_point next_sweep_ = Clock::now() + kSweep;
  Clock::time_point last_client_ = Clock::now();
  Notice no_connection_;
  Notice could_write_;
  Notice no_maps_;
  Notice no_group_;
  Notice no_member_;
  Notice not_sent_;
};

// An unread answer keeps the server from exiting: the next server would not know of it,
// and a user could get a full quota from each.
int Server::PollTimeout() const {
  if (unread_.empty() && options_.idle_seconds == 0) return -1;
  const auto until =
      unread_.empty()
          ? last_client_ + std::chrono::seconds(options_.idle_seconds)
          : next_sweep_;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

// The mode of the socket is not enough: the socket may come from a unit, or be older
// than a load that took the pins from its group.
bool Server::MayRead(int client, const ucred& peer) {
  if (peer.uid == 0) return true;
  const absl::StatusOr<gid_t> group =
      group_ ? *group_ : GroupOfPins(options_.pin_dir);
  if (!group.ok()) {
    no_group_.Begin(std::string(group.status().message()));
    return false;
  }
  no_group_.End();
  if (!IsMember(client, peer, *group)) {
    no_member_.Begin(absl::StrCat("refused user ", peer.uid, ": only group ",
                                  *group, " may read the meter at ",
                                  options_.pin_dir));
    return false;
  }
  no_member_.End();
  return true;
}

void Server::Answer(UniqueFd client) {
  // It may have changed since the last client.
  if (UnprivilegedBpfDisabled() == 0) {
    could_write_.Begin(kCouldWrite);
    return;
  }
  could_write_.End();
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    no_connection_.Begin(absl::StrCat("SO_PEERCRED: ", strerror(errno)));
    return;
  }
  // Opened as a reader opens them, so that `info` never comes with older maps. And
  // opened before the check of the client, so that they do not belong to a later load
  // than the one checked.
  const absl::StatusOr<SharedMapFds> maps = OpenAll(options_.pin_dir);
  if (!maps.ok()) {
    no_maps_.Begin(std::string(maps.status().message()));
    return;
  }
  no_maps_.End();
  if (!MayRead(client.get(), peer)) {
    send(client.get(), &kDescriptorsRefused, sizeof(kDescriptorsRefused),
         MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  const auto descriptors = std::count_if(
      maps->begin(), maps->end(), [](const UniqueFd& map) { return map.ok(); });
  if (!unread_.HasRoomFor(peer.uid, static_cast<size_t>(descriptors))) return;
  const int error = SendDescriptors(client.get(), *maps);
  if (error == ETOOMANYREFS) {
    not_sent_.Begin(absl::StrCat(
        "processes of user ", getuid(), " have more than ", unread_.limit(),
        " descriptors (RLIMIT_NOFILE) in unread messages: no client gets an "
        "answer until some are read or closed"));
  } else if (error != 0 && error != EPIPE &&
             error != ECONNRESET) {  // the client left
    not_sent_.Begin(absl::StrCat("send descriptors to user ", peer.uid, ": ",
                                 strerror(error)));
  }
  if (error != 0) return;
  not_sent_.End();
  // The client sees a closed connection, and sending fails. The server still sees
  // whether the client has read.
  shutdown(client.get(), SHUT_RDWR);
  unread_.Add(peer.uid, std::move(client));
}

absl::Status Server::Run(int listener, int stop) {
  for (;;) {
    pollfd polled[] = {{listener, POLLIN, 0}, {stop, POLLIN, 0}};
    const int ready = poll(polled, 2, PollTimeout());
    if (ready < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "poll");
    }
    if (polled[1].revents != 0) return absl::OkStatus();
    if (ready == 0 && unread_.empty()) return absl::OkStatus();  // idle
    if (Clock::now() >= next_sweep_) {
      unread_.SweepAll();
      next_sweep_ = Clock::now() + kSweep;
    }
    if (ready == 0) continue;
    last_client_ = Clock::now();
    UniqueFd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (client.ok()) {
      no_connection_.End();
      Answer(std::move(client));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
               errno == ENOMEM) {
      no_connection_.Begin(
          absl::StrCat("accept: ", strerror(errno), ": clients have to wait"));
      poll(nullptr, 0, 100);  // do not spin
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      // Any other error would repeat at once.
      return ErrnoStatus(errno, "accept");
    }
  }
}

}  // namespace

absl::Status ServeDescriptors(const ServeOptions& options) {
  UniqueFd listener;
  std::string own_path;
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
    const absl::Status passed = CheckListener(listener.get());
    if (!passed.ok()) return passed;
    if (fcntl(listener.get(), F_SETFD, FD_CLOEXEC) != 0 ||
        fcntl(listener.get(), F_SETFL, O_NONBLOCK) != 0) {
      return ErrnoStatus(errno, "descriptor 3");
    }
  } else {
    // Only without a socket unit: if a server that a unit started exited while a client
    // waits, systemd would start it again at once until the unit fails. Such a server
    // runs and sends no descriptor.
    if (UnprivilegedBpfDisabled() == 0) {
      return absl::FailedPreconditionError(kCouldWrite);
    }
    own_path = options.socket.empty() ? absl::StrCat(options.pin_dir, ".sock")
                                      : options.socket;
    absl::StatusOr<UniqueFd> made = Listen(own_path, options.pin_dir, group);
    if (!made.ok()) return made.status();
    listener = std::move(*made);
  }

  const absl::Status dropped = DropPrivilegesOfReader();
  if (!dropped.ok()) {
    if (!own_path.empty()) unlink(own_path.c_str());
    return dropped;
  }

  // A descriptor, because a handler could run just before poll(2), which would then
  // wait for the next client.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd stop(signalfd(-1, &signals, SFD_CLOEXEC));

  const absl::Status status =
      stop.ok() ? Server(options, group).Run(listener.get(), stop.get())
                : ErrnoStatus(errno, "signalfd");
  if (!own_path.empty()) unlink(own_path.c_str());
  return status;
}

}  // namespace internal
}  // namespace netmeter
