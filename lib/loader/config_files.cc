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
#include "lib/loader/registrants.h"
#include "lib/loader/settings.h"
#include "lib/loader/system.h"
#include "lib/uplinks/interfaces.h"
#include "lib/uplinks/uncounted.h"

namespace netmeter {
namespace internal {
namespace {

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

}  // namespace

absl::StatusOr<FileConfig> ReadConfig(const std::string& path) {
  FileConfig all;
  if (path.empty()) return all;
  const absl::StatusOr<std::string> text = ReadConfigFile(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<Config> read =
      ParseConfig(*text, path, all.config, CheckOnHost);
  if (!read.ok()) return read.status();
  const std::string source =
      SourceOfKeys(CanonicalPath(path), all.config, *read);
  all.config = *std::move(read);
  if (!source.empty()) all.config.sources.push_back(source);
  all.file = path;
  if (HasNoKeys(*text)) {
    all.notes.push_back(absl::StrCat(path, " has no keys: all defaults"));
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
