// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/switch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/core/pins.h"
#include "lib/core/status_util.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/attempts.h"
#include "lib/loader/step.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kSwitch[] = "netmeter_switch";
constexpr char kOldTables[] = "netmeter_switch_old";
constexpr char kNewTables[] = "netmeter_switch_new";
// What is renamed over the switch, or over a pin.
constexpr char kNext[] = "netmeter_switch_next";

constexpr int kNoLink = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

std::string In(const char* directory, const char* pin) {
  return absl::StrCat(directory, "/", pin);
}

// "" where the pin is no symbolic link, or there is none.
absl::StatusOr<std::string> TargetOf(const PinDir& pins,
                                     absl::string_view pin) {
  const std::string path = pins.PathOf(pin);
  int error = 0;
  for (int i = 0; i < kAttempts; i++) {
    char target[64];
    const ssize_t length = readlink(path.c_str(), target, sizeof(target));
    if (length >= 0) return std::string(target, static_cast<size_t>(length));
    error = errno;
    if (error == EINVAL || error == ENOENT) return std::string();
  }
  return ErrnoStatus(error, absl::StrCat("look at ", path));
}

bool Exists(const PinDir& pins, absl::string_view pin) {
  struct stat about;
  return lstat(pins.PathOf(pin).c_str(), &about) == 0 || errno != ENOENT;
}

absl::Status Rename(const PinDir& pins, const std::string& from,
                    const std::string& to) {
  if (rename(pins.PathOf(from).c_str(), pins.PathOf(to).c_str()) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("rename ", pins.PathOf(from)));
}

// A second name of the map; it takes the place of what has that name.
absl::Status Link(const PinDir& pins, const std::string& from,
                  const std::string& to) {
  NETMETER_RETURN_IF_ERROR(pins.Remove(to));
  if (link(pins.PathOf(from).c_str(), pins.PathOf(to).c_str()) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("link ", pins.PathOf(to)));
}

// Makes `pin` a symbolic link to `target`, at one instant.
absl::Status Point(const PinDir& pins, const std::string& pin,
                   const std::string& target) {
  NETMETER_RETURN_IF_ERROR(pins.Remove(kNext));
  if (symlink(target.c_str(), pins.PathOf(kNext).c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("link ", pins.PathOf(kNext)));
  }
  return Rename(pins, kNext, pin);
}

// The modes of the pins in it, and that of the directory above, say who may read.
absl::Status MakeTables(const PinDir& pins, const char* directory) {
  const std::string path = pins.PathOf(directory);
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make ", path));
  }
  const UniqueFd fd(open(path.c_str(), O_RDONLY | kNoLink));
  if (!fd.ok() || fchmod(fd.get(), 0755) != 0) {
    return ErrnoStatus(errno, absl::StrCat("make ", path));
  }
  return absl::OkStatus();
}

absl::Status NotOurs(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not ours: choose another --pin-dir"));
}

// The directories of a switch hold second names of our maps.
absl::Status CheckTables(const PinDir& pins, const char* directory) {
  const std::string path = pins.PathOf(directory);
  DIR* const handle = opendir(path.c_str());
  if (handle == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", path));
  absl::Status status;
  while (const dirent* entry = status.ok() ? readdir(handle) : nullptr) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const bool expected = std::any_of(
        MapPins().begin(), MapPins().end(),
        [&](const MapPin& map) { return map.grows && name == map.pin; });
    const std::string pin = In(directory, name.c_str());
    absl::StatusOr<bool> ours = expected;
    if (expected) ours = pins.IsOurs(pin, name);
    status = ours.ok() && !*ours ? NotOurs(pins.PathOf(pin)) : ours.status();
  }
  closedir(handle);
  return status;
}

// FailedPrecondition where another program has made what has one of the names, as in
// a BPF file system of all, or what is in one of the directories.
absl::Status CheckSwitch(const PinDir& pins) {
  const absl::StatusOr<std::string> target = TargetOf(pins, kSwitch);
  if (!target.ok()) return target.status();
  const bool ours = *target == kOldTables || *target == kNewTables;
  for (const char* pin : {kSwitch, kOldTables, kNewTables, kNext}) {
    const std::string path = pins.PathOf(pin);
    struct stat about;
    if (lstat(path.c_str(), &about) != 0) {
      if (errno == ENOENT) continue;
      return ErrnoStatus(errno, absl::StrCat("look at ", path));
    }
    const bool directory = pin == kOldTables || pin == kNewTables;
    if (about.st_uid == 0 &&
        (directory        ? S_ISDIR(about.st_mode)
         : pin == kSwitch ? ours
                          : S_ISLNK(about.st_mode) || ours)) {
      if (directory) NETMETER_RETURN_IF_ERROR(CheckTables(pins, pin));
      continue;
    }
    return NotOurs(path);
  }
  return absl::OkStatus();
}

// The switch first: what is in the directories serves nobody then. Nothing goes that
// a pin still leads through.
absl::Status RemoveSwitch(const PinDir& pins) {
  for (const MapPin& map : MapPins()) {
    struct stat about;
    if (!map.grows || !Exists(pins, kSwitch)) continue;
    if (lstat(pins.PathOf(map.pin).c_str(), &about) != 0
            ? errno != ENOENT
            : S_ISLNK(about.st_mode)) {
      return absl::UnavailableError(
          absl::StrCat(pins.PathOf(map.pin), " leads through ", kSwitch));
    }
  }
  for (const char* pin : {kNext, kSwitch}) {
    NETMETER_RETURN_IF_ERROR(pins.Remove(pin));
  }
  for (const char* directory : {kOldTables, kNewTables}) {
    const std::string path = pins.PathOf(directory);
    const UniqueFd fd(open(path.c_str(), O_PATH | kNoLink));
    if (!fd.ok() && errno == ENOENT) continue;
    if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("open ", path));
    for (const MapPin& map : MapPins()) {
      if (map.grows) unlinkat(fd.get(), map.pin, 0);
    }
    if (rmdir(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("remove ", path));
    }
  }
  Step("removed ", pins.PathOf(kSwitch));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> IsSwitchLink(const PinDir& pins, absl::string_view pin) {
  const absl::StatusOr<std::string> target = TargetOf(pins, pin);
  if (!target.ok()) return target.status();
  return *target == absl::StrCat(kSwitch, "/", pin);
}

bool LeadsToNewTables(const PinDir& pins) {
  return TargetOf(pins, kSwitch).value_or("") == kNewTables;
}

bool IsSwitching(const PinDir& pins) {
  for (const char* pin : {kSwitch, kOldTables, kNewTables, kNext}) {
    if (Exists(pins, pin)) return true;
  }
  return false;
}

bool LeadThroughSwitch(const PinDir& pins) {
  for (const MapPin& map : MapPins()) {
    if (map.grows && IsSwitchLink(pins, map.pin).value_or(true)) return true;
  }
  return false;
}

absl::Status TrySwitch(const PinDir& pins) {
  NETMETER_RETURN_IF_ERROR(CheckSwitch(pins));
  NETMETER_RETURN_IF_ERROR(MakeTables(pins, kOldTables));
  NETMETER_RETURN_IF_ERROR(Link(pins, "info", In(kOldTables, "info")));
  NETMETER_RETURN_IF_ERROR(Point(pins, kSwitch, kOldTables));
  const absl::StatusOr<UniqueFd> through = pins.Open(In(kSwitch, "info"));
  if (!through.ok()) return through.status();
  return SettleTables(pins);
}

absl::Status SwitchTables(const PinDir& pins) {
  NETMETER_RETURN_IF_ERROR(MakeTables(pins, kOldTables));
  NETMETER_RETURN_IF_ERROR(MakeTables(pins, kNewTables));
  for (const MapPin& map : MapPins()) {
    if (!map.grows) continue;
    const std::string next = NewPin(map.pin);
    NETMETER_RETURN_IF_ERROR(Link(pins, map.pin, In(kOldTables, map.pin)));
    NETMETER_RETURN_IF_ERROR(
        Link(pins, pins.Has(next) ? next : map.pin, In(kNewTables, map.pin)));
  }
  NETMETER_RETURN_IF_ERROR(Point(pins, kSwitch, kOldTables));
  Step("made ", pins.PathOf(kSwitch), ", which leads to the old tables");
  for (const MapPin& map : MapPins()) {
    if (!map.grows) continue;
    NETMETER_RETURN_IF_ERROR(Point(pins, map.pin, In(kSwitch, map.pin)));
    Step(pins.PathOf(map.pin), " leads through ", kSwitch);
  }
  NETMETER_RETURN_IF_ERROR(Point(pins, kSwitch, kNewTables));
  Step("switched to the new tables");
  return SettleTables(pins);
}

absl::Status SettleTables(const PinDir& pins) {
  if (!IsSwitching(pins)) return absl::OkStatus();
  NETMETER_RETURN_IF_ERROR(CheckSwitch(pins));
  const absl::StatusOr<std::string> read = TargetOf(pins, kSwitch);
  if (!read.ok()) return read.status();
  const std::string& target = *read;
  const bool forward = target == kNewTables;
  for (const MapPin& map : MapPins()) {
    if (!map.grows || (!forward && target != kOldTables)) continue;
    const std::string path = pins.PathOf(map.pin);
    std::string from = NewPin(map.pin);
    if (!forward || !pins.Has(from)) {
      const absl::StatusOr<bool> link = IsSwitchLink(pins, map.pin);
      if (!link.ok()) return link.status();
      if (!*link) continue;
      from = kNext;
      NETMETER_RETURN_IF_ERROR(Link(pins, In(target.c_str(), map.pin), from));
    }
    NETMETER_RETURN_IF_ERROR(Rename(pins, from, map.pin));
    Step("renamed ", pins.PathOf(from), " to ", path);
  }
  return RemoveSwitch(pins);
}

}  // namespace internal
}  // namespace netmeter
