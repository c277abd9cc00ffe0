// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/export/cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {

std::string ReceiverName(const std::string& to) {
  if (to.find("://") == std::string::npos) return "";
  const std::string url = to.substr(0, to.find('#'));
  const size_t end = std::min(url.find('?'), url.size());
  std::string receiver = url.substr(0, end);
  if (end < url.size()) {
    const std::string query = url.substr(end);
    absl::StrAppend(
        &receiver, "?",
        absl::Hex(crc32(0, reinterpret_cast<const Bytef*>(query.data()),
                        static_cast<uInt>(query.size())),
                  absl::kZeroPad8));
  }
  return receiver;
}

absl::StatusOr<Cursor> ReadCursor(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) return ErrnoStatus(errno, absl::StrCat("open ", file));
  std::string text;
  std::getline(stream, text,
               '\0');  // a directory fails here, without an exception
  const auto json = nlohmann::json::parse(text, nullptr, false);
  Cursor cursor;
  const auto read = [&json](const char* key, auto* value) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    using Value = std::remove_pointer_t<decltype(value)>;
    if (found == json.end() ||
        found->is_string() != std::is_same_v<Value, std::string> ||
        !(found->is_string() || found->is_number_integer())) {
      return false;
    }
    *value = found->template get<Value>();
    return true;
  };
  if (!read("host_id", &cursor.host_id) ||
      !read("receiver", &cursor.receiver) || !read("by", &cursor.by) ||
      !read("version", &cursor.version)) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " is no cursor of netmeter export (rm ", file,
                     " to send everything again, which a centre has once)"));
  }
  return cursor;
}

absl::Status WriteCursor(const std::string& file, const Cursor& cursor) {
  auto written = NewFile::Create(file);
  if (!written.ok()) return written.status();
  const nlohmann::ordered_json json = {{"host_id", cursor.host_id},
                                       {"receiver", cursor.receiver},
                                       {"by", cursor.by},
                                       {"version", cursor.version}};
  NETMETER_RETURN_IF_ERROR(written->Write(json.dump() + "\n"));
  return written->Commit();
}

NewFile::NewFile(const std::string& path)
    : path_(path),
      temporary_(absl::StrCat(path, ".", getpid(), ".new")),
      fd_(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
               0666)) {}

absl::StatusOr<NewFile> NewFile::Create(const std::string& path) {
  NewFile file(path);
  if (!file.fd_.ok()) return ErrnoStatus(errno, absl::StrCat("write ", path));
  return file;
}

NewFile::~NewFile() {
  if (fd_.ok()) unlink(temporary_.c_str());
}

absl::Status NewFile::Write(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd_.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, absl::StrCat("write ", path_));
    text.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status NewFile::Commit() {
  const size_t slash = path_.rfind('/');
  const std::string directory =
      slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const UniqueFd parent(
      open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fsync(fd_.get()) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0 ||
      fsync(parent.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", path_));
  }
  fd_ = UniqueFd();
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
