// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/identity.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/history/history.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

absl::StatusOr<std::string> ReadSetting(Database* history, const char* name) {
  Statement query =
      history->Prepare("SELECT value FROM setting WHERE name = ?");
  const std::string value = query.Bind(1, name).Step() ? query.Text(0) : "";
  if (!query.status().ok()) return query.status();
  return value;
}

absl::Status SetMachine(Database* history, const std::string& machine) {
  return history->Prepare("INSERT OR REPLACE INTO setting VALUES('machine', ?)")
      .Bind(1, machine)
      .Run();
}

// Empties each table, and makes a new host id.
absl::Status Empty(Database* history) {
  std::vector<std::string> tables;
  Statement names =
      history->Prepare("SELECT name FROM sqlite_master WHERE type = 'table'");
  while (names.Step()) tables.push_back(names.Text(0));
  NETMETER_RETURN_IF_ERROR(names.status());
  for (const std::string& table : tables) {
    NETMETER_RETURN_IF_ERROR(
        history->Execute(absl::StrCat("DELETE FROM ", table)));
  }
  return history->Execute(kNewIdentity);
}

}  // namespace

std::string ReadMachine() {
  for (const char* path : {"/sys/class/dmi/id/product_uuid",
                           "/sys/firmware/devicetree/base/serial-number"}) {
    std::ifstream file(path);
    std::string number;
    std::getline(file, number);
    // Firmware without a number has only zeros or only ones.
    const std::string upper = absl::AsciiStrToUpper(number);
    if (upper.find_first_not_of(std::string("0-\0", 3)) == upper.npos ||
        upper.find_first_not_of("F-") == upper.npos) {
      continue;
    }
    // Only root may read the UUID, and more users the history: FNV-1a.
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : number) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
    return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
  }
  return "";
}

absl::StatusOr<std::string> KeepToMachine(Database* history,
                                          const std::string& machine,
                                          bool adopt) {
  if (machine.empty()) return "";
  NETMETER_ASSIGN_OR_RETURN(const std::string before,
                            ReadSetting(history, "machine"));
  if (before == machine) return "";
  if (before.empty() || adopt) {
    NETMETER_RETURN_IF_ERROR(SetMachine(history, machine));
    return "";
  }
  auto transaction = Transaction::Begin(history);
  if (!transaction.ok()) return transaction.status();
  // Another process may have been faster: then the copy is not to be made again.
  NETMETER_ASSIGN_OR_RETURN(const std::string now,
                            ReadSetting(history, "machine"));
  if (now == machine) return "";
  NETMETER_ASSIGN_OR_RETURN(const std::string host_id, ReadHostId(history));
  const std::string aside =
      absl::StrCat(history->path(), ".", host_id.substr(0, 8));
  // An earlier try that was killed before it emptied the history left this file.
  unlink(aside.c_str());
  // SQLite copies only outside of a transaction, so another connection does.
  auto reader = Database::Open(history->path(), Database::Mode::kRead);
  if (!reader.ok()) return reader.status();
  NETMETER_RETURN_IF_ERROR(
      (*reader)->Prepare("VACUUM INTO ?").Bind(1, aside).Run());
  // SQLite leaves the copy to the kernel, and empties what it was made of on the disk.
  sync();
  NETMETER_RETURN_IF_ERROR(Empty(history));
  NETMETER_RETURN_IF_ERROR(SetMachine(history, machine));
  NETMETER_RETURN_IF_ERROR((*transaction)->Commit());
  return aside;
}

absl::StatusOr<std::string> ReadHostId(Database* history) {
  NETMETER_ASSIGN_OR_RETURN(const std::string id,
                            ReadSetting(history, "host_id"));
  if (id.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(history->path(),
                     " has no host id yet (the next netmeter record of this "
                     "version makes it)"));
  }
  return id;
}

}  // namespace internal
}  // namespace netmeter
