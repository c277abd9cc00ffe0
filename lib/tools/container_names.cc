// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/container_names.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "lib/core/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

using nlohmann::json;

constexpr size_t kShortId = 12;
// Far more than a runtime writes.
constexpr size_t kMostBytes = 64 << 20;

// "" for what is no file, or cannot be read.
std::string ReadRegularFile(const std::string& path) {
  // Of a FIFO nobody may be the writer.
  const UniqueFd fd(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat about;
  if (!fd.ok() || fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return "";
  }
  std::string text;
  char buffer[65536];
  ssize_t bytes;
  while (text.size() < kMostBytes &&
         (bytes = read(fd.get(), buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(bytes));
  }
  return text;
}

// The text of a member; "" if it is none.
std::string TextOf(const json& object, const char* member) {
  const auto found = object.find(member);
  return found != object.end() && found->is_string() ? found->get<std::string>()
                                                     : "";
}

void Add(const std::string& id, const std::string& name,
         ContainerNames* names) {
  if (id.size() >= kShortId && !name.empty()) {
    names->emplace(id.substr(0, kShortId), name);
  }
}

// Docker: a directory for each container, by its id. The name begins with a slash.
void ReadDocker(const std::string& directory, ContainerNames* names) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(directory.c_str()),
                                                    closedir);
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries.get())) {
    const std::string id = entry->d_name;
    if (id.size() < kShortId) continue;
    const json config = json::parse(
        ReadRegularFile(directory + "/" + id + "/config.v2.json"), nullptr,
        /*allow_exceptions=*/false);
    if (!config.is_object()) continue;
    const std::string name = TextOf(config, "Name");
    Add(id, name.substr(name.find_first_not_of('/') == 1 ? 1 : 0), names);
  }
}

// containers/storage: one array for all containers of a storage driver.
void ReadStorage(const std::string& directory, ContainerNames* names) {
  for (const char* driver : {"overlay", "vfs", "btrfs", "zfs"}) {
    const json all = json::parse(ReadRegularFile(directory + "/" + driver +
                                                 "-containers/containers.json"),
                                 nullptr, /*allow_exceptions=*/false);
    if (!all.is_array()) continue;
    for (const json& one : all) {
      if (!one.is_object()) continue;
      const auto found = one.find("names");
      if (found == one.end() || !found->is_array() || found->empty()) continue;
      const json& name = found->front();
      if (name.is_string()) {
        Add(TextOf(one, "id"), name.get<std::string>(), names);
      }
    }
  }
}

}  // namespace

ContainerNames ReadContainerNames(const std::string& state) {
  ContainerNames names;
  ReadDocker(state + "/docker/containers", &names);
  ReadStorage(state + "/containers/storage", &names);
  return names;
}

}  // namespace internal
}  // namespace netmeter
