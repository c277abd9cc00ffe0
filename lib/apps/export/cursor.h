// SPDX-License-Identifier: BSD-3-Clause
// How far a receiver has the history: a small file, which moves only after the receiver
// has confirmed.
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_EXPORT_CURSOR_H_
#define NETMETER_LIB_APPS_EXPORT_CURSOR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/apps/export/rows.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

constexpr char kDefaultCursor[] = "/var/lib/netmeter-export/cursor";

struct Cursor {
  // What was sent, and where. Another history or receiver begins from the beginning.
  std::string host_id;
  std::string receiver;
  std::string by;  // its options: what it did not ask for was passed unsent
  int64_t version = kFromTheBeginning;
};

// A receiver's URL without its fragment; "" for files. A short checksum stands for the
// query, which names a table but may also have a secret.
std::string ReceiverName(const std::string& to);

// NotFound: nothing was sent yet. FailedPrecondition: it is no cursor. Else as open(2).
absl::StatusOr<Cursor> ReadCursor(const std::string& file);

// Replaces the file, and is on the disk when it returns. Errors as open(2) and write(2).
absl::Status WriteCursor(const std::string& file, const Cursor& cursor);

// A file that has its name when it is complete, and on the disk.
//
//   auto file = NewFile::Create("rows.ndjson");
//   if (!file.ok()) return file.status();
//   file->Write(text) ...
//   return file->Commit();
class NewFile {
 public:
  // Errors as open(2).
  static absl::StatusOr<NewFile> Create(const std::string& path);
  NewFile(NewFile&& other) noexcept = default;
  ~NewFile();

  // Errors as write(2).
  absl::Status Write(absl::string_view text);
  // Replaces a file of that name. Errors as fsync(2) and rename(2).
  absl::Status Commit();

 private:
  explicit NewFile(const std::string& path);

  std::string path_;
  std::string temporary_;
  UniqueFd fd_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORT_CURSOR_H_
