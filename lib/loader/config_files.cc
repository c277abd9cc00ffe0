// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/config_files.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/core/group.h"
#include "lib/core/path.h"
#include "lib/core/status_util.h"
#include "lib/loader/magma_config.h"
#include "lib/loader/registrants.h"
#include "lib/loader/settings.h"
#include "lib/loader/system.h"
#include "lib/uplinks/interfaces.h"
#include "lib/uplinks/uncounted.h"

namespace netmeter {
namespace internal {
namespace {

// Where Magma has what the cloud or the operator wrote.
constexpr char kMagmaOverrides[] = "/var/opt/magma/configs";

// Comments alone, as the file of the package has them.
bool HasNoKeys(absl::string_view yaml) {
  for (absl::string_view line : absl::StrSplit(yaml, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty() && line[0] != '#' && line != "---" && line != "...") {
      return false;
    }
  }
  return true;
}

absl::Status AddFile(const std::string& path, FileConfig* all) {
  const absl::StatusOr<std::string> text = ReadConfigFile(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<Config> read =
      ParseConfig(*text, path, all->config, CheckOnHost);
  if (!read.ok()) return read.status();
  const std::string source =
      SourceOfKeys(CanonicalPath(path), all->config, *read);
  all->config = *std::move(read);
  if (!source.empty()) all->config.sources.push_back(source);
  all->files.push_back(path);
  if (HasNoKeys(*text)) {
    all->notes.push_back(absl::StrCat(path, " has no keys: all defaults"));
  }
  return absl::OkStatus();
}

absl::Status AddMagma(const ConfigFiles& files, FileConfig* all) {
  const std::string& overrides = files.magma_overrides;
  if (!overrides.empty() && access(overrides.c_str(), F_OK) != 0) {
    return ErrnoStatus(errno, absl::StrCat("--magma-overrides ", overrides));
  }
  absl::StatusOr<Config> read = ImportMagmaConfig(
      CanonicalPath(files.magma_config),
      overrides.empty() ? kMagmaOverrides : CanonicalPath(overrides),
      all->config);
  if (!read.ok()) return read.status();
  all->config = *std::move(read);
  all->files.push_back(files.magma_config);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileConfig> ReadConfigFiles(const ConfigFiles& files) {
  FileConfig all;
  if (!files.config.empty()) {
    NETMETER_RETURN_IF_ERROR(AddFile(files.config, &all));
  }
  if (!files.magma_config.empty()) {
    NETMETER_RETURN_IF_ERROR(AddMagma(files, &all));
  }
  return all;
}

absl::Status CheckOnHost(const Config& config) {
  if (config.group_required) {
    const absl::StatusOr<gid_t> group = FindGroup(config.group);
    if (!group.ok()) {
      return absl::NotFoundError(
          absl::StrCat("group: ", group.status().message()));
    }
  }
  NETMETER_RETURN_IF_ERROR(FindRegistrants(config.register_by).status());
  if (config.cgroup.empty()) return absl::OkStatus();
  uint64_t id = 0;
  return OpenCgroup(CanonicalPath(config.cgroup), &id).status();
}

std::vector<std::string> NotesOnUplinks(const Config& config) {
  std::vector<std::string> notes;
  if (config.uplinks.empty()) return notes;
  const absl::StatusOr<std::vector<Interface>> interfaces = ListInterfaces();
  if (!interfaces.ok()) return notes;  // the load says why
  for (const Uncounted& one : FindUncounted(config.uplinks, *interfaces)) {
    notes.push_back(NoteOf(one));
  }
  return notes;
}

}  // namespace internal
}  // namespace netmeter
