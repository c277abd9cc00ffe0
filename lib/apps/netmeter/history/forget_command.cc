// SPDX-License-Identifier: BSD-3-Clause
// `netmeter forget`: takes the name of a client or a service out of the history.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/export/cursor.h"
#include "lib/apps/history/forget.h"
#include "lib/apps/history/identity.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/options.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kForgetFooter[] = R"(
The bytes stay: they belong to the name `forgotten` then, in the same hours and with the
same uplink, kind and path. So each sum stays as it was. A budget of that name has less.
The name is as `netmeter usage` prints it: the address, MAC address or WireGuard key of a
client, a destination such as example.org, or a service, program, unit, container or user.

If a line says that the name is still needed, run the command again later:
  the meter   until a reboot, or `netmeter-loader load --restart`, and a record. If the
              name is used again, it is recorded again.
  an export   until the next call has sent that the former rows have no bytes.
A centre keeps the name until it is deleted there (docs/privacy.md). Copies of the file
and a history that was put aside (--database) are files of their own.
SQLite writes the file anew, which needs twice its size of free disk. A record that waits
for it longer than 10 seconds fails, and the next one has its bytes.

Exit status: 0 done; 1 failed, or the history does not have the name, one line on
stderr says why; 2 wrong usage.

Examples:
  netmeter forget --destination 192.168.1.7
  netmeter forget --destination 02:00:5e:10:00:07
  netmeter forget --service 1000   a user of names_from: user
)";

class ForgetCommand : public Command {
 public:
  std::string Name() const override { return "forget"; }

  std::string Description() const override {
    return "Takes the name of a client or a service out of the history";
  }

  void Declare(Flags* flags) override {
    AddDatabase(flags, &database_);
    const Option destination = flags
                                   ->AddOption("--destination", &destination_,
                                               "This destination or client")
                                   .Type("NAME");
    flags->AddOption("--service", &service_, "This name, whatever its kind")
        .Type("NAME")
        .Excludes(destination);
    flags
        ->AddOption("--cursor", &cursor_,
                    "That of netmeter export --since-last, if it exists")
        .Type("FILE")
        .ShowDefault();
    flags->SetFooter(kForgetFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckDatabase(database_));
    const std::string name = destination_ + service_;
    if (name.empty()) {
      return absl::InvalidArgumentError("expected --destination or --service");
    }
    if (name == kForgotten) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", kForgotten, "' is the name of what was forgotten"));
    }
    return absl::OkStatus();
  }

  int Run() override {
    const auto forgotten = ForgetName();
    if (!forgotten.ok()) {
      const bool is_user =
          absl::IsPermissionDenied(forgotten.status()) && geteuid() != 0;
      return Fail(absl::StrCat(forgotten.status().message(),
                               is_user ? " (run as root)" : ""));
    }
    return Print(*forgotten);
  }

 private:
  // Returns the text to print.
  absl::StatusOr<std::string> ForgetName() const {
    NETMETER_ASSIGN_OR_RETURN(const auto history,
                              OpenHistory(database_, Database::Mode::kWrite));
    NETMETER_ASSIGN_OR_RETURN(const int64_t sent, SentVersion(history.get()));
    NETMETER_ASSIGN_OR_RETURN(const Forgotten forgotten,
                              Forget(history.get(),
                                     service_.empty() ? ForgetWhat::kDestination
                                                      : ForgetWhat::kService,
                                     destination_ + service_, sent));
    NETMETER_ASSIGN_OR_RETURN(const SizeUnits units,
                              ReadSizeUnits(history.get()));
    const auto count = [](int64_t rows) {
      return absl::StrCat(rows, rows == 1 ? " row" : " rows");
    };
    std::string text = absl::StrCat(
        database_, ": ", HumanSignedBytes(forgotten.bytes, units), " in ",
        count(forgotten.rows), " of hours and days: the name is `", kForgotten,
        "` now\n");
    if (forgotten.in_meter) {
      text +=
          "the meter still has the name: run this again after a reboot, or "
          "netmeter-loader load --restart, and a record\n";
    }
    if (forgotten.unsent != 0) {
      absl::StrAppend(&text, "an export still needs the name, in ",
                      count(forgotten.unsent),
                      " without bytes: run this again when netmeter export has "
                      "sent these days\n");
    }
    return text;
  }

  // A cursor of another history: this one was put aside, or has never been sent.
  absl::StatusOr<int64_t> SentVersion(Database* history) const {
    const auto cursor = ReadCursor(cursor_);
    if (absl::IsNotFound(cursor.status())) return kAllIsSent;
    if (!cursor.ok()) return cursor.status();
    NETMETER_ASSIGN_OR_RETURN(const std::string host_id, ReadHostId(history));
    return cursor->host_id == host_id ? cursor->version : kAllIsSent;
  }

  std::string database_;
  std::string destination_;
  std::string service_;
  std::string cursor_ = kDefaultCursor;
};

}  // namespace

std::unique_ptr<Command> NewForgetCommand() {
  return std::make_unique<ForgetCommand>();
}

}  // namespace internal
}  // namespace netmeter
