// SPDX-License-Identifier: BSD-3-Clause
// `netmeter record`: adds the counts since the last record to the history.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/apps/clients/clients.h"
#include "lib/apps/history/identity.h"
#include "lib/apps/history/record.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/options.h"
#include "lib/base/path.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/unique_fd.h"
#include "lib/reader/consistent_read.h"
#include "lib/reader/shared_maps.h"
#include "lib/reader/uplink_maps.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kRecordFooter[] = R"(
Run it each minute, by a timer (docs/history.md has one), and before a reboot and
`netmeter-loader unload`. What was counted since the last record is lost if the
host dies. A record that fails or is killed loses nothing: the next one has it.
In the network namespace of the uplinks it also records what their interfaces
counted, which is the total of an uplink.
A history belongs to one machine. Another one, by the number of its hardware, puts
it aside and begins a new one; with --adopt it goes on with it.
The file belongs to the group of its directory, which may read it.
With --clients, what an address behind this host counted since the last record goes to
the MAC address or the WireGuard peer that has the address now. Without an answer it goes
to the address. Names are not recorded. `netmeter forget` deletes a client.

Exit status: 0 recorded; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter record
  netmeter record --database /mnt/history.db --keep-hours 365
  netmeter record --clients mac --client-names /var/lib/misc/dnsmasq.leases
  netmeter record --adopt   after the disk has moved to a new machine
)";

// Readers of the meter may read its history: the directory and the files in it get the
// group of the pins.
absl::Status MakeDirectory(const std::string& database,
                           const std::string& pin_dir) {
  const size_t slash = database.rfind('/');
  if (slash == std::string::npos || slash == 0) return absl::OkStatus();
  const std::string directory = database.substr(0, slash);
  if (mkdir(directory.c_str(), 0750) != 0) {
    if (errno == EEXIST) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("make ", directory));
  }
  struct stat pins = {};
  if (geteuid() != 0 || stat(pin_dir.c_str(), &pins) != 0) {
    return absl::OkStatus();
  }
  if (chown(directory.c_str(), 0, pins.st_gid) != 0 ||
      chmod(directory.c_str(), 02750) != 0) {
    return ErrnoStatus(errno, absl::StrCat("give ", directory, " a group"));
  }
  return absl::OkStatus();
}

// Readers of the directory may read the history, no matter how the first record was
// made: by root, a timer, or an earlier version. A reader with SQLite needs all three
// files, and cannot make one. A file that this process may not give away waits for a
// record that may.
void ShareWithDirectory(const std::string& database) {
  const std::unique_ptr<char, decltype(&free)> real(
      realpath(database.c_str(), nullptr), free);
  if (real == nullptr) return;
  const std::string path = real.get();
  struct stat directory = {};
  // Root's group, as on /mnt, means no readers.
  if (stat(path.substr(0, path.rfind('/') + 1).c_str(), &directory) != 0 ||
      directory.st_gid == 0) {
    return;
  }
  for (const char* suffix : {"", "-wal", "-shm"}) {
    // Changes only the inspected file, because a writer of the directory may replace
    // it. Closing an O_PATH descriptor releases no lock of SQLite's.
    const UniqueFd fd(
        open((path + suffix).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat file = {};
    if (!fd.ok() || fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode) ||
        file.st_nlink != 1) {
      continue;
    }
    if (file.st_gid != directory.st_gid &&
        fchownat(fd.get(), "", static_cast<uid_t>(-1), directory.st_gid,
                 AT_EMPTY_PATH) != 0) {
      continue;
    }
    if ((file.st_mode & S_IRGRP) == 0) {
      const std::string self = absl::StrCat("/proc/self/fd/", fd.get());
      if (chmod(self.c_str(), (file.st_mode & 07777) | S_IRGRP) != 0) continue;
    }
  }
}

// With the interfaces of uplinks and forwarded traffic, if the meter has uplinks and this
// process may read them. The interfaces come last, so they have no less than the meter.
absl::StatusOr<Reading> ReadAll(const Meter& meter,
                                const std::string& pin_dir) {
  absl::StatusOr<Reading> reading = ReadMeter(meter);
  if (!reading.ok()) return reading;
  reading->size_units = MeterUnits(pin_dir);
  const auto maps = SharedMaps::Open(pin_dir);
  if (!maps.ok()) return maps.status();
  for (const MeterUplink& uplink : ListUplinks(**maps)) {
    if (uplink.name != kOtherUplink) reading->sides.names.insert(uplink.name);
    if (uplink.leads_to_clients) reading->sides.clients.insert(uplink.name);
    reading->sides.any_is_paid |= uplink.is_paid;
  }
  const auto forwarded = ReadForwarded(**maps);
  auto links = ReadLinks(**maps);
  if (absl::IsFailedPrecondition(links.status())) {
    std::cerr << "netmeter: note: recorded without interfaces: "
              << links.status().message() << "\n";
    return reading;
  }
  for (const absl::Status& status : {forwarded.status(), links.status()}) {
    if (status.ok() || absl::IsNotFound(status) ||
        absl::IsPermissionDenied(status)) {
      continue;
    }
    return status;
  }
  if (!links.ok()) return reading;
  if (forwarded.ok()) {
    reading->has_forwarded = true;
    reading->forwarded = NameForwarded(*forwarded, *links);
  }
  reading->links = *std::move(links);
  return reading;
}

class RecordCommand : public Command {
 public:
  std::string Name() const override { return "record"; }

  std::string Description() const override {
    return "Adds the counts since the last record to the history";
  }

  void Declare(Flags* flags) override {
    AddPinDir(flags, &options_.pin_dir);
    AddDatabase(flags, &database_);
    flags
        ->AddOption("--keep-hours", &options_.keep_hours_days,
                    "Keep hours for N days")
        .Type("DAYS")
        .InRange(1, 36600)
        .ShowDefault();
    flags
        ->AddOption("--keep-days", &options_.keep_days,
                    "Then keep days for N days")
        .Type("DAYS")
        .InRange(1, 36600)
        .ShowDefault();
    flags->AddFlag("--adopt", &adopt_,
                   "Go on with a history of another machine");
    flags->AddFlag("--verbose", &verbose_, "Print what was recorded");
    AddUnits(flags, &sizes_);
    AddClientOptions(flags, &client_options_);
    flags->SetFooter(kRecordFooter);
  }

  absl::Status CheckOptions() override {
    NETMETER_RETURN_IF_ERROR(CheckPinDir(options_.pin_dir));
    return CheckDatabase(database_);
  }

  int Run() override {
    MeterOptions meter_options;
    meter_options.pin_dir = options_.pin_dir;
    const auto meter = Meter::Open(meter_options);
    if (!meter.ok()) return Fail(meter.status().message());
    options_.pin_dir = CanonicalPath(options_.pin_dir);
    umask(027);
    const absl::Status directory = MakeDirectory(database_, options_.pin_dir);
    if (!directory.ok()) return FailToWrite(directory);
    const auto history = OpenHistory(database_, Database::Mode::kCreate);
    if (!history.ok()) return FailToWrite(history.status());
    ShareWithDirectory(database_);
    const auto aside = KeepToMachine(history->get(), ReadMachine(), adopt_);
    if (!aside.ok()) return FailToWrite(aside.status());
    if (!aside->empty()) {
      std::cerr << "netmeter: note: " << database_
                << " is of another machine: it is now in " << *aside
                << ", and a new history begins (docs/history.md, \"Another "
                   "machine\")\n";
    }
    const auto recorded = Record(history->get(), options_, [&] {
      auto reading = ReadAll(**meter, options_.pin_dir);
      if (reading.ok() && reading->has_forwarded) AddClients(&*reading);
      return reading;
    });
    if (!recorded.ok()) return FailToWrite(recorded.status());
    if (!verbose_) return 0;
    return Print(
        absl::StrCat(database_, ": ",
                     HumanSignedBytes(recorded->bytes,
                                      sizes_.Or(MeterUnits(options_.pin_dir))),
                     " of ", recorded->series, " series",
                     recorded->new_meter ? ", of a new meter" : "", "\n"));
  }

 private:
  // A record must not wait for a file that is wrong: a reboot would lose its bytes.
  void AddClients(Reading* reading) const {
    if (!client_options_.any()) return;
    auto clients = Clients::Read(client_options_);
    if (!clients.ok()) {
      std::cerr << "netmeter: note: recorded by address: "
                << ToTerminal(clients.status().message()) << "\n";
      return;
    }
    reading->client_of = [clients = *std::move(clients)](
                             const std::string& address,
                             const std::string& interface) {
      return clients.IdentityOf(address, interface);
    };
  }

  static int FailToWrite(const absl::Status& status) {
    const bool is_user = absl::IsPermissionDenied(status) && geteuid() != 0;
    return Fail(
        absl::StrCat(status.message(), is_user ? " (run as root)" : ""));
  }

  std::string database_;
  RecordOptions options_;
  bool adopt_ = false;
  bool verbose_ = false;
  SizeOptions sizes_;
  ClientOptions client_options_;
};

}  // namespace

std::unique_ptr<Command> NewRecordCommand() {
  return std::make_unique<RecordCommand>();
}

}  // namespace internal
}  // namespace netmeter
