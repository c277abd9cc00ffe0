// SPDX-License-Identifier: BSD-3-Clause
// The files that a load reads, and what is said of them.
//
//   absl::StatusOr<FileConfig> read = ReadConfigFiles({"/etc/netmeter.yml"});
//   Print(read->files, read->notes);
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

// As the command line names them; "": not at all.
struct ConfigFiles {
  std::string config;
  std::string magma_config;
  std::string magma_overrides;  // "": where Magma has them, if it has any
};

struct FileConfig {
  Config config;
  std::vector<std::string> files;  // that were read
  std::vector<std::string> notes;
};

// The defaults, then the file, then Magma's. The errors of ParseConfig(), of
// CheckOnHost() and of ImportMagmaConfig().
absl::StatusOr<FileConfig> ReadConfigFiles(const ConfigFiles& files);

// The group, the users and the cgroup that a configuration names exist. NotFound, with
// the key, if one does not.
absl::Status CheckOnHost(const Config& config);

// What of the uplinks counts nothing on this host now, a line each.
std::vector<std::string> NotesOnUplinks(const Config& config);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_CONFIG_FILES_H_
