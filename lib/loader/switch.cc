// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/switch.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lib/core/pins.h"
#include "lib/core/status_util.h"
#include "lib/loader/step.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kSwitch[] = "switch";
constexpr char kOldTables[] = "switch_old";
constexpr char kNewTables[] = "switch_new";
// What is renamed over `switch`, or over a pin.
constexpr char kNext[] = "switch_next";

std::string In(const char* directory, const char* pin) {
  return absl::StrCat(directory, "/", pin);
}

// "" where the pin is no symbolic link.
std::string TargetOf(const PinDir& pins, absl::string_view pin) {
  char target[64];
  const ssize_t length =
      readlink(pins.PathOf(pin).c_str(), target, sizeof(target));
  return std::string(target, length > 0 ? static_cast<size_t>(length) : 0);
}

bool Exists(const PinDir& pins, absl::string_view pin) {
  struct stat about;
  return lstat(pins.PathOf(pin).c_str(), &about) == 0;
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
  pins.Remove(to);
  if (link(pins.PathOf(from).c_str(), pins.PathOf(to).c_str()) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("link ", pins.PathOf(to)));
}

// Makes `pin` a symbolic link to `target`, at one instant.
absl::Status Point(const PinDir& pins, const std::string& pin,
                   const std::string& target) {
  pins.Remove(kNext);
  if (symlink(target.c_str(), pins.PathOf(kNext).c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("link ", pins.PathOf(kNext)));
  }
  return Rename(pins, kNext, pin);
}

// The modes of the pins in it, and that of the directory above, say who may read.
absl::Status MakeTables(const PinDir& pins, const char* directory) {
  const std::string path = pins.PathOf(directory);
  if ((mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) ||
      chmod(path.c_str(), 0755) != 0) {
    return ErrnoStatus(errno, absl::StrCat("make ", path));
  }
  return absl::OkStatus();
}

// `switch` first: what is in the directories serves nobody then.
absl::Status RemoveSwitch(const PinDir& pins) {
  for (const char* pin : {kNext, kSwitch}) {
    pins.Remove(pin);
    if (!Exists(pins, pin)) continue;
    return absl::InternalError(absl::StrCat("remove ", pins.PathOf(pin)));
  }
  for (const char* directory : {kOldTables, kNewTables}) {
    for (const MapPin& map : MapPins()) {
      if (map.grows) pins.Remove(In(directory, map.pin));
    }
    const std::string path = pins.PathOf(directory);
    if (rmdir(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("remove ", path));
    }
  }
  Step("removed ", pins.PathOf(kSwitch));
  return absl::OkStatus();
}

}  // namespace

bool IsSwitchLink(const PinDir& pins, absl::string_view pin) {
  return TargetOf(pins, pin) == absl::StrCat(kSwitch, "/", pin);
}

bool IsSwitching(const PinDir& pins) {
  for (const char* pin : {kSwitch, kOldTables, kNewTables, kNext}) {
    if (Exists(pins, pin)) return true;
  }
  return false;
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
  const std::string target = TargetOf(pins, kSwitch);
  const bool forward = target == kNewTables;
  for (const MapPin& map : MapPins()) {
    if (!map.grows || (!forward && target != kOldTables)) continue;
    const std::string path = pins.PathOf(map.pin);
    std::string from = NewPin(map.pin);
    if (!forward || !pins.Has(from)) {
      if (!IsSwitchLink(pins, map.pin)) continue;
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
