// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/users.h"

#include <grp.h>
#include <pwd.h>

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

// Also empty in a static program.
extern decltype(getpwnam_r) getpwnam_r __attribute__((weak));

namespace netmeter {
namespace internal {
namespace {

constexpr char kGroupFile[] = "/etc/group";
// An entry lists all members of a group. A longer entry is treated as missing.
constexpr size_t kMostBytes = 4 << 20;

// Calls `find(entry, buffer, size, result)` with a buffer that grows until it suffices.
template <typename Find>
std::optional<Group> WithRoom(Find find) {
  std::vector<char> buffer(4096);
  struct group entry, *found = nullptr;
  while (find(&entry, buffer.data(), buffer.size(), &found) == ERANGE &&
         buffer.size() < kMostBytes) {
    buffer.resize(2 * buffer.size());
  }
  if (found == nullptr) return std::nullopt;
  return Group{found->gr_name, found->gr_gid};
}

}  // namespace

std::optional<Group> FindGroupInFile(
    const std::string& path,
    const std::function<bool(const Group&)>& is_wanted) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"),
                                                   fclose);
  if (file == nullptr) return std::nullopt;
  for (;;) {
    // After ERANGE the position is still that of the same entry.
    const std::optional<Group> group =
        WithRoom([&](struct group* entry, char* buffer, size_t size,
                     struct group** found) {
          return fgetgrent_r(file.get(), entry, buffer, size, found);
        });
    if (!group.has_value()) return std::nullopt;
    if (is_wanted(*group)) return group;
  }
}

std::optional<Group> FindGroupByName(const std::string& name) {
  if (getgrnam_r == nullptr) {
    return FindGroupInFile(
        kGroupFile, [&](const Group& group) { return group.name == name; });
  }
  return WithRoom([&](struct group* entry, char* buffer, size_t size,
                      struct group** found) {
    return getgrnam_r(name.c_str(), entry, buffer, size, found);
  });
}

std::optional<Group> FindGroupById(gid_t id) {
  if (getgrgid_r == nullptr) {
    return FindGroupInFile(kGroupFile,
                           [&](const Group& group) { return group.id == id; });
  }
  return WithRoom([&](struct group* entry, char* buffer, size_t size,
                      struct group** found) {
    return getgrgid_r(id, entry, buffer, size, found);
  });
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

constexpr char kPasswordFile[] = "/etc/passwd";
// Calls `find(entry, buffer, size, result)` with a buffer that grows until it suffices.
template <typename Find>
std::optional<passwd> WithRoom(std::vector<char>* buffer, Find find) {
  passwd entry, *found = nullptr;
  buffer->resize(4096);
  while (find(&entry, buffer->data(), buffer->size(), &found) == ERANGE &&
         buffer->size() < kMostBytes) {
    buffer->resize(2 * buffer->size());
  }
  if (found == nullptr) return std::nullopt;
  return entry;
}

}  // namespace

std::optional<uid_t> FindUserInFile(const std::string& path,
                                    const std::string& name) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"),
                                                   fclose);
  if (file == nullptr) return std::nullopt;
  std::vector<char> buffer;
  for (;;) {
    const std::optional<passwd> user = WithRoom(
        &buffer, [&](passwd* entry, char* room, size_t size, passwd** found) {
          return fgetpwent_r(file.get(), entry, room, size, found);
        });
    if (!user.has_value()) return std::nullopt;
    if (user->pw_name == name) return user->pw_uid;
  }
}

std::optional<uid_t> FindUserByName(const std::string& name) {
  if (getpwnam_r == nullptr) return FindUserInFile(kPasswordFile, name);
  std::vector<char> buffer;
  const std::optional<passwd> user = WithRoom(
      &buffer, [&](passwd* entry, char* room, size_t size, passwd** found) {
        return getpwnam_r(name.c_str(), entry, room, size, found);
      });
  if (!user.has_value()) return std::nullopt;
  return user->pw_uid;
}

}  // namespace internal
}  // namespace netmeter
