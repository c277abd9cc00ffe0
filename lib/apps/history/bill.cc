// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/bill.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/apps/history/history.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/netlink/uplink_names.h"

namespace netmeter {
namespace internal {
namespace {

// The beginning of the path of an uplink's traffic; "": it is on a bill.
std::string PrefixOf(const UplinkSides& sides, const std::string& uplink) {
  if (sides.clients.count(uplink) != 0) return kClientSide;
  const bool is_none = uplink.empty() || uplink == kOtherUplink;
  return sides.any_is_paid && is_none ? kOnNoUplink : "";
}

// The paths of traffic that belongs to an uplink. Path `proxy` belongs to none.
constexpr char kPathsOfUplinks[] = "('direct', 'interface')";

bool IsOfUplinks(const std::string& path) {
  return path == PathName(Path::kDirect) || path == kInterfacePath;
}

// Moves the recorded traffic of a client side to its paths. The former rows stay, with
// zeros: an export has to send them again. Does so only once, because it reads all hours.
absl::Status MoveToClientSide(Database* history, const std::string& uplink) {
  Statement due = history->Prepare(absl::StrCat(
      "SELECT EXISTS(SELECT 1 FROM series WHERE uplink = ?1 AND path IN ",
      kPathsOfUplinks,
      ") AND NOT EXISTS(SELECT 1 FROM series WHERE uplink = ?1 AND path IN (?2 "
      "|| 'direct', ?2 || 'interface'))"));
  const bool is_due =
      due.Bind(1, uplink).Bind(2, kClientSide).Step() && due.Integer(0) != 0;
  NETMETER_RETURN_IF_ERROR(due.status());
  if (!is_due) return absl::OkStatus();
  NETMETER_RETURN_IF_ERROR(due.Run());
  NETMETER_RETURN_IF_ERROR(
      history
          ->Prepare(absl::StrCat(
              "INSERT INTO series(kind, name, destination, transport, path, "
              "uplink) SELECT kind, name, destination, transport, ?2 || path, "
              "uplink FROM series WHERE uplink = ?1 AND path IN ",
              kPathsOfUplinks))
          .Bind(1, uplink)
          .Bind(2, kClientSide)
          .Run());
  NETMETER_RETURN_IF_ERROR(history->Execute(
      "CREATE TEMP TABLE IF NOT EXISTS moved(old, new); DELETE FROM moved"));
  NETMETER_RETURN_IF_ERROR(
      history
          ->Prepare(absl::StrCat(
              "INSERT INTO moved SELECT o.id, n.id FROM series o JOIN series n "
              "USING(kind, name, destination, transport, uplink) WHERE "
              "o.uplink = ?1 AND o.path IN ",
              kPathsOfUplinks, " AND n.path = ?2 || o.path"))
          .Bind(1, uplink)
          .Bind(2, kClientSide)
          .Run());
  return MoveTraffic(history);
}

}  // namespace

Totals TakeOffBill(const UplinkSides& sides, const Totals& difference) {
  Totals billed;
  for (const auto& series : difference) {
    SeriesName name = series.first;
    if (IsOfUplinks(name.path)) {
      name.path = PrefixOf(sides, name.uplink) + name.path;
    }
    billed[name] = series.second;
  }
  return billed;
}

absl::StatusOr<UplinkSides> KeepSides(Database* history, UplinkSides sides) {
  Statement kept =
      history->Prepare("SELECT value FROM setting WHERE name = 'clients'");
  if (kept.Step()) {
    for (const absl::string_view name :
         absl::StrSplit(kept.Text(0), '\n', absl::SkipEmpty())) {
      // The meter says the side of each uplink that it knows.
      if (name != kOtherUplink && sides.names.count(std::string(name)) == 0) {
        sides.clients.insert(std::string(name));
      }
    }
  }
  NETMETER_RETURN_IF_ERROR(kept.Run());
  for (const std::string& uplink : sides.clients) {
    NETMETER_RETURN_IF_ERROR(MoveToClientSide(history, uplink));
  }
  for (const auto& setting : {std::make_pair("uplinks", sides.names),
                              std::make_pair("clients", sides.clients)}) {
    NETMETER_RETURN_IF_ERROR(
        history->Prepare("INSERT OR REPLACE INTO setting VALUES(?, ?)")
            .Bind(1, setting.first)
            .Bind(2, absl::StrJoin(setting.second, "\n"))
            .Run());
  }
  return sides;
}

absl::StatusOr<std::set<std::string>> KnownUplinks(Database* history) {
  std::set<std::string> known;
  Statement query = history->Prepare(
      "SELECT uplink FROM series UNION SELECT value FROM setting WHERE name = "
      "'uplinks'");
  while (query.Step()) {
    for (const absl::string_view name :
         absl::StrSplit(query.Text(0), '\n', absl::SkipEmpty())) {
      known.insert(std::string(name));
    }
  }
  if (!query.status().ok()) return query.status();
  if (!known.empty()) known.insert(kOtherUplink);
  return known;
}

absl::Status CheckUplink(absl::string_view uplink,
                         const std::set<std::string>& known) {
  if (uplink.empty() || uplink == "-" ||
      known.count(std::string(uplink)) != 0) {
    return absl::OkStatus();
  }
  const std::vector<std::string> names(known.begin(), known.end());
  return absl::InvalidArgumentError(absl::StrCat(
      "no uplink '", ToTerminal(uplink), "'", DidYouMean(uplink, names), "; ",
      known.empty() ? "there is no uplink"
                    : ToTerminal(absl::StrCat("there are: ",
                                              absl::StrJoin(names, ", ")))));
}

absl::Status CheckRecordedUplink(Database* history, absl::string_view uplink) {
  NETMETER_ASSIGN_OR_RETURN(const auto known, KnownUplinks(history));
  const absl::Status status = CheckUplink(uplink, known);
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(),
                   " (a new one is known after the next netmeter record)"));
}

}  // namespace internal
}  // namespace netmeter
