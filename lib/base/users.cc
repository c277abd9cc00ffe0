// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/users.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

// A weak reference links nothing from a static libc and stays empty there. So a program
// can tell that it is static.
extern decltype(getgrnam_r) getgrnam_r __attribute__((weak));
extern decltype(getgrgid_r) getgrgid_r __attribute__((weak));
extern decltype(initgroups) initgroups __attribute__((weak));
extern decltype(getpwnam_r) getpwnam_r __attribute__((weak));
extern decltype(getpwuid_r) getpwuid_r __attribute__((weak));

namespace netmeter {
namespace internal {
namespace {

constexpr char kGroupFile[] = "/etc/group";
constexpr char kPasswordFile[] = "/etc/passwd";

// A longer entry is treated as missing. An entry of a group lists all its members.
constexpr size_t kMostBytesOfGroup = 4 << 20;
constexpr size_t kMostBytesOfUser = 1 << 20;

// Calls `find(entry, buffer, size, result)` with a buffer that grows until it suffices,
// and `take(*result)` while the buffer exists. False if there is no entry.
template <typename Entry, typename Find, typename Take>
bool WithEntry(size_t most_bytes, Find find, Take take) {
  std::vector<char> buffer(4096);
  Entry entry, *found = nullptr;
  while (find(&entry, buffer.data(), buffer.size(), &found) == ERANGE &&
         buffer.size() < most_bytes) {
    buffer.resize(2 * buffer.size());
  }
  if (found == nullptr) return false;
  take(*found);
  return true;
}

template <typename Find>
std::optional<Group> GroupOf(Find find) {
  Group group;
  if (!WithEntry<struct group>(kMostBytesOfGroup, find,
                               [&](const struct group& entry) {
                                 group = {entry.gr_name, entry.gr_gid};
                               })) {
    return std::nullopt;
  }
  return group;
}

template <typename Find>
std::optional<User> UserOf(Find find) {
  User user;
  if (!WithEntry<passwd>(kMostBytesOfUser, find, [&](const passwd& entry) {
        user = {entry.pw_name, entry.pw_uid, entry.pw_gid};
      })) {
    return std::nullopt;
  }
  return user;
}

// The first entry of a file that `next(file)` returns and `is_wanted` accepts.
template <typename Next, typename Wanted>
auto FindInFile(const std::string& path, Next next, Wanted is_wanted)
    -> decltype(next(nullptr)) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"),
                                                   fclose);
  if (file == nullptr) return std::nullopt;
  for (;;) {
    // After ERANGE the position is still that of the same entry.
    auto entry = next(file.get());
    if (!entry.has_value() || is_wanted(*entry)) return entry;
  }
}

}  // namespace

std::optional<Group> FindGroupInFile(
    const std::string& path,
    const std::function<bool(const Group&)>& is_wanted) {
  const auto next = [](FILE* file) {
    return GroupOf([file](auto... to) { return fgetgrent_r(file, to...); });
  };
  return FindInFile(path, next, is_wanted);
}

std::optional<Group> FindGroupByName(const std::string& name) {
  if (getgrnam_r == nullptr) {
    return FindGroupInFile(
        kGroupFile, [&](const Group& group) { return group.name == name; });
  }
  return GroupOf([&](auto... to) { return getgrnam_r(name.c_str(), to...); });
}

std::optional<Group> FindGroupById(gid_t id) {
  if (getgrgid_r == nullptr) {
    return FindGroupInFile(kGroupFile,
                           [&](const Group& group) { return group.id == id; });
  }
  return GroupOf([&](auto... to) { return getgrgid_r(id, to...); });
}

absl::StatusOr<gid_t> FindGroup(const std::string& name) {
  const std::optional<Group> group = FindGroupByName(name);
  if (group.has_value()) return group->id;
  if (!name.empty() &&
      std::all_of(name.begin(), name.end(), absl::ascii_isdigit)) {
    gid_t id;
    if (absl::SimpleAtoi(name, &id) && id != static_cast<gid_t>(-1)) return id;
    return absl::NotFoundError(
        absl::StrCat("no group ", name, " (ids are below ", UINT32_MAX, ")"));
  }
  return absl::NotFoundError(
      absl::StrCat("no group ", name, " (groupadd --system ", name, ")"));
}

namespace {

std::optional<User> UserInFile(const std::string& path,
                               const std::function<bool(const User&)>& wanted) {
  const auto next = [](FILE* file) {
    return UserOf([file](auto... to) { return fgetpwent_r(file, to...); });
  };
  return FindInFile(path, next, wanted);
}

}  // namespace

std::optional<User> FindUserInFile(const std::string& path,
                                   const std::string& name) {
  return UserInFile(path, [&](const User& one) { return one.name == name; });
}

std::optional<User> FindUserByName(const std::string& name) {
  if (getpwnam_r == nullptr) return FindUserInFile(kPasswordFile, name);
  return UserOf([&](auto... to) { return getpwnam_r(name.c_str(), to...); });
}

bool BecomeUser(const User& user) {
  const int groups = initgroups == nullptr
                         ? setgroups(1, &user.group)
                         : initgroups(user.name.c_str(), user.group);
  return groups == 0 && setgid(user.group) == 0 && setuid(user.id) == 0;
}

std::string UserName(uid_t id) {
  const std::optional<User> user =
      getpwuid_r == nullptr
          ? UserInFile(kPasswordFile,
                       [id](const User& one) { return one.id == id; })
          : UserOf([&](auto... to) { return getpwuid_r(id, to...); });
  return user.has_value() ? user->name : "";
}

std::string UserName(const std::string& number) {
  uid_t id;
  return absl::SimpleAtoi(number, &id) ? UserName(id) : "";
}

}  // namespace internal
}  // namespace netmeter
