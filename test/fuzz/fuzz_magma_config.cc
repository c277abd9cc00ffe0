// SPDX-License-Identifier: BSD-3-Clause
// lib/loader/magma_config.h: the directories of --magma-config and --magma-overrides.
// The input is up to four files, with a line "%%" between one and the next:
// service_registry.yml and control_proxy.yml, then the overrides of both. An empty one
// is not there.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "lib/loader/magma_config.h"
#include "test/fuzz/check.h"

namespace netmeter {
namespace fuzz {
namespace {

// Two folders in memory, which are gone when the process is.
struct Folders {
  Folders() {
    char name[] = "/dev/shm/netmeter-fuzz-XXXXXX";
    FUZZ_CHECK(mkdtemp(name) != nullptr);
    directory = name;
    overrides = directory + "/overrides";
    FUZZ_CHECK(mkdir(overrides.c_str(), 0700) == 0);
  }
  ~Folders() {
    for (const std::string& file : Files()) unlink(file.c_str());
    rmdir(overrides.c_str());
    rmdir(directory.c_str());
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const std::string& folder : {directory, overrides}) {
      files.push_back(folder + "/service_registry.yml");
      files.push_back(folder + "/control_proxy.yml");
    }
    return files;
  }
  std::string directory, overrides;
};

void Write(const std::string& file, absl::string_view text) {
  unlink(file.c_str());
  if (text.empty()) return;
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  FUZZ_CHECK(fd >= 0);
  FUZZ_CHECK(write(fd, text.data(), text.size()) ==
             static_cast<ssize_t>(text.size()));
  close(fd);
}

}  // namespace
}  // namespace fuzz
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace netmeter::internal;  // NOLINT
  static const netmeter::fuzz::Folders folders;
  absl::string_view left(reinterpret_cast<const char*>(data), size);
  for (const std::string& file : folders.Files()) {
    const size_t end = std::min(left.find("\n%%\n"), left.size());
    netmeter::fuzz::Write(file, left.substr(0, end));
    left.remove_prefix(std::min(left.size(), end + 4));
  }
  const absl::StatusOr<Config> config =
      ImportMagmaConfig(folders.directory, folders.overrides, Config());
  if (config.ok()) {
    FUZZ_CHECK(CheckConfig(*config).ok());
    FUZZ_CHECK(!config->sources.empty());
    // What Magma's programs are called does not depend on the files.
    FUZZ_CHECK(config->aliases.count("oai_mme") == 1);
  } else {
    // One line, which names the file or the directory.
    FUZZ_CHECK(absl::StrContains(config.status().message(), folders.directory));
    FUZZ_CHECK(config.status().code() == absl::StatusCode::kInvalidArgument ||
               config.status().code() == absl::StatusCode::kNotFound);
  }
  return 0;
}
