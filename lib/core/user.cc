// SPDX-License-Identifier: BSD-3-Clause
#include "lib/core/user.h"

#include <pwd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

// As in group.cc: empty in a static program.
extern decltype(getpwnam_r) getpwnam_r __attribute__((weak));

namespace netmeter {
namespace internal {
namespace {

constexpr char kPasswordFile[] = "/etc/passwd";
// An entry is a line; one that takes more is no entry.
constexpr size_t kMostBytes = 1 << 20;

// Calls `find(entry, buffer, size, result)` with as much room as it wants.
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
