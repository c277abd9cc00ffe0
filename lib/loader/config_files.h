// SPDX-License-Identifier: BSD-3-Clause
// The file that a load reads, and what is said of it.
//
//   absl::StatusOr<FileConfig> read = ReadConfig("/etc/netmeter.yml");
//   Print(read->file, read->notes);
//
// Changes nothing on the host, and needs no privilege but to read the files.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_CONFIG_FILES_H_
#define NETMETER_LIB_LOADER_CONFIG_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/loader/config.h"

namespace netmeter {
namespace internal {

struct FileConfig {
  Config config;
  std::string file;  // that was read; "": none
  std::vector<std::string> notes;
};

// The defaults, and what the file changes; "": no file. The errors of ParseConfig() and of
// CheckOnHost().
absl::StatusOr<FileConfig> ReadConfig(const std::string& path);

// The group, the users and the cgroup that a configuration names exist. NotFound, with
// the key, if one does not.
absl::Status CheckOnHost(const Config& config);

// What of the uplinks counts nothing on this host now, a line each.
std::vector<std::string> NotesOnUplinks(const Config& config);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_CONFIG_FILES_H_
