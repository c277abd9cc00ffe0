// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/mounts.h"

#include <stdio.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <sstream>

namespace netmeter {
namespace internal {
namespace {

// A field may be empty (the source of a mount), so a stream's operator>> does not fit.
std::vector<std::string> FieldsOf(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ' ') {
      fields.emplace_back();
    } else {
      fields.back().push_back(c);
    }
  }
  return fields;
}

bool IsOctal(char c, char most) { return c >= '0' && c <= most; }

// proc(5): id, parent, device, root, mount point, options, any number of optional
// fields, "-", type, source, options of the file system.
bool ParseLine(const std::string& line, Mount* mount) {
  const std::vector<std::string> fields = FieldsOf(line);
  size_t dash = 0;
  while (dash < fields.size() && fields[dash] != "-") dash++;
  if (dash < 6 || dash + 2 >= fields.size()) return false;
  unsigned major_number = 0, minor_number = 0;
  if (sscanf(fields[2].c_str(), "%u:%u", &major_number, &minor_number) != 2) {
    return false;
  }
  mount->root = UnescapeMount(fields[3]);
  mount->point = UnescapeMount(fields[4]);
  mount->type = UnescapeMount(fields[dash + 1]);
  mount->source = UnescapeMount(fields[dash + 2]);
  mount->device = makedev(major_number, minor_number);
  return true;
}

}  // namespace

std::string UnescapeMount(const std::string& field) {
  std::string out;
  for (size_t i = 0; i < field.size(); i++) {
    if (field[i] == '\\' && i + 3 < field.size() &&
        IsOctal(field[i + 1], '3') && IsOctal(field[i + 2], '7') &&
        IsOctal(field[i + 3], '7')) {
      out.push_back(static_cast<char>((field[i + 1] - '0') * 64 +
                                      (field[i + 2] - '0') * 8 +
                                      (field[i + 3] - '0')));
      i += 3;
    } else {
      out.push_back(field[i]);
    }
  }
  return out;
}

std::vector<Mount> ParseMounts(const std::string& text) {
  std::vector<Mount> mounts;
  std::istringstream lines(text);
  Mount mount;
  for (std::string line; std::getline(lines, line);) {
    if (ParseLine(line, &mount)) mounts.push_back(mount);
  }
  return mounts;
}

std::vector<Mount> ReadMounts() {
  std::ifstream file("/proc/thread-self/mountinfo");
  std::string text;
  for (std::string line; std::getline(file, line);) text += line + '\n';
  return ParseMounts(text);
}

}  // namespace internal
}  // namespace netmeter
