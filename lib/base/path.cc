// SPDX-License-Identifier: BSD-3-Clause
// realpath(3) fails if the last part of a path does not exist, as a pin directory before
// the first load. So parts are cut from the end of the path until the remaining path
// exists. Then the parts are put back.
#include "lib/base/path.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {

std::string CanonicalPath(const std::string& path) {
  if (path.empty()) return path;
  char here[PATH_MAX];
  std::string base = path, rest;
  if (path[0] != '/' && getcwd(here, sizeof(here)) != nullptr) {
    base = absl::StrCat(here, "/", path);
  }
  const std::string whole = base;
  while (base.size() > 1 && base.back() == '/') base.pop_back();
  for (;;) {
    char resolved[PATH_MAX];
    if (realpath(base.c_str(), resolved) != nullptr) {
      return rest.empty()
                 ? std::string(resolved)
                 : absl::StrCat(strcmp(resolved, "/") == 0 ? "" : resolved,
                                rest);
    }
    const size_t slash = base.rfind('/');
    if (slash == std::string::npos || base.size() <= 1) return whole;
    rest = absl::StrCat(base.substr(slash), rest);
    base = slash == 0 ? "/" : base.substr(0, slash);
    while (base.size() > 1 && base.back() == '/') base.pop_back();
  }
}

absl::StatusOr<std::vector<std::string>> ListDirectory(
    const std::string& path) {
  std::vector<std::string> names;
  DIR* const handle = opendir(path.c_str());
  if (handle == nullptr) {
    if (errno == ENOENT) return names;
    return ErrnoStatus(errno, absl::StrCat("open ", path),
                       errno == EACCES ? "run as root" : "");
  }
  errno = 0;
  while (const dirent* entry = readdir(handle)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  closedir(handle);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("read ", path));
  return names;
}

}  // namespace internal
}  // namespace netmeter
