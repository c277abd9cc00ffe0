// SPDX-License-Identifier: BSD-3-Clause
// `netmeter uplinks`: the counts of the interfaces of each uplink, and their parts.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/options.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kUplinksFooter[] = R"(
For each uplink of the configuration and each direction:
  interface     the count of its interfaces since counting began in this uplink
  local         wire bytes of this host's own sockets: the sum of `netmeter list
                --uplink NAME` without kind forwarded
  forwarded     wire bytes that this host forwarded, as the meter counts them after
                all rules of the firewall
  layer-2 headers  those of local and forwarded packets, as the interface counts them
  unnamed       the rest: traffic without a socket, such as ARP and the kernel's pings
If all are known, the first is the sum of the others. If the kernel cannot tell
forwarded traffic (before Linux 6.4), `forwarded` is "-", and its traffic is unnamed. If
the unnamed traffic cannot be known, it is "-", and a line says why: an interface that
has gone took its count with it; one that counts GSO packets (GRO, TSO) has fewer
packets than were on the link. A row without numbers is an interface of the
configuration that counts nothing, and says why.

Needs root or the meter's group, in the network namespace of the uplinks. Programs get
the same by Meter::ReadUplinks() of the library. Exit status: 0 printed; 1 failed, one
line on stderr says why; 2 wrong usage.

Examples:
  netmeter uplinks
  netmeter uplinks --json | python3 -m json.tool
)";

// What counts for the uplink now.
std::vector<std::string> NamesOfInterfaces(const Uplink& uplink) {
  std::vector<std::string> names;
  for (const UplinkInterface& one : uplink.interfaces) {
    if (one.index != 0 && !one.has_left) names.push_back(ToUtf8(one.name));
  }
  return names;
}

nlohmann::ordered_json ToJson(const UplinkCounts& one, const Uplink& uplink) {
  const auto number = [](const std::string& unknown, uint64_t n) {
    return unknown.empty() ? nlohmann::ordered_json(n) : nullptr;
  };
  return {{"interface_bytes", one.interface_bytes},
          {"interface_packets", one.interface_packets},
          {"local_bytes", one.local_bytes},
          {"local_packets", one.local_packets},
          {"forwarded_bytes",
           number(uplink.forwarded_unknown, one.forwarded_bytes)},
          {"forwarded_packets",
           number(uplink.forwarded_unknown, one.forwarded_packets)},
          {"layer2_header_bytes", one.layer2_header_bytes},
          {"unnamed_bytes", number(uplink.unknown, one.unnamed_bytes)},
          {"unnamed_packets", number(uplink.unknown, one.unnamed_packets)}};
}

nlohmann::ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json()
                      : nlohmann::ordered_json(ToUtf8(text));
}

std::string FormatUplinksJson(const std::vector<Uplink>& all) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Uplink& one : all) {
    nlohmann::ordered_json not_counted = nlohmann::ordered_json::array();
    for (const UplinkInterface& interface : one.interfaces) {
      if (interface.not_counted.empty()) continue;
      not_counted.push_back({{"interface", ToUtf8(interface.name)},
                             {"why", ToUtf8(interface.not_counted)}});
    }
    array.push_back({{"uplink", ToUtf8(one.name)},
                     {"interfaces", NamesOfInterfaces(one)},
                     {"not_counted", not_counted},
                     {"tx", ToJson(one.tx, one)},
                     {"rx", ToJson(one.rx, one)},
                     {"unknown", TextOrNull(one.unknown)},
                     {"forwarded_unknown", TextOrNull(one.forwarded_unknown)}});
  }
  return array.dump(2) + "\n";
}

class UplinksCommand : public Command {
 public:
  std::string Name() const override { return "uplinks"; }

  std::string Description() const override {
    return "Prints the traffic of each uplink, and its parts";
  }

  void Declare(Flags* flags) override {
    AddPinDir(flags, &pin_dir_);
    const Option json =
        flags->AddFlag("--json", &json_, "Print one JSON array of objects");
    AddSizes(flags, {json}, &sizes_);
    flags->SetFooter(kUplinksFooter);
  }

  absl::Status CheckOptions() override { return CheckPinDir(pin_dir_); }

  int Run() override {
    units_ = sizes_.Or(MeterUnits(pin_dir_));
    MeterOptions options;
    options.pin_dir = pin_dir_;
    const auto meter = Meter::Open(options);
    if (!meter.ok()) return Fail(meter.status().message());
    const auto uplinks = (*meter)->ReadUplinks();
    if (!uplinks.ok()) return Fail(uplinks.status().message());
    return Print(json_ ? FormatUplinksJson(*uplinks) : Table(*uplinks));
  }

 private:
  std::string Bytes(uint64_t bytes) const { return HumanBytes(bytes, units_); }

  std::string Table(const std::vector<Uplink>& all) const {
    constexpr auto kRight = TextColumn::kRight;
    TextTable table({{"UPLINK"},
                     {"WHAT"},
                     {"TX", kRight},
                     {"RX", kRight},
                     {"TX PKTS", kRight, 1},
                     {"RX PKTS", kRight, 1}});
    std::string notes, forwarded_note;
    for (const Uplink& one : all) {
      const std::string name = ToTerminal(one.name);
      const auto add = [&](const std::string& what, auto bytes, auto packets) {
        table.Add({name, what, Bytes(one.tx.*bytes), Bytes(one.rx.*bytes),
                   absl::StrCat(one.tx.*packets),
                   absl::StrCat(one.rx.*packets)});
      };
      const auto add_unknown = [&](const std::string& what) {
        table.Add({name, what, "-", "-", "-", "-"});
      };
      add(absl::StrCat("interface ",
                       ToTerminal(absl::StrJoin(NamesOfInterfaces(one), ", "))),
          &UplinkCounts::interface_bytes, &UplinkCounts::interface_packets);
      for (const UplinkInterface& other : one.interfaces) {
        if (other.not_counted.empty()) continue;
        add_unknown(absl::StrCat("interface ", ToTerminal(other.name), ": ",
                                 ToTerminal(other.not_counted)));
      }
      add("local", &UplinkCounts::local_bytes, &UplinkCounts::local_packets);
      if (one.forwarded_unknown.empty()) {
        add("forwarded", &UplinkCounts::forwarded_bytes,
            &UplinkCounts::forwarded_packets);
      } else {
        add_unknown("forwarded");
        forwarded_note = absl::StrCat(
            "forwarded is unnamed: ", ToTerminal(one.forwarded_unknown), "\n");
      }
      table.Add({name, "layer-2 headers", Bytes(one.tx.layer2_header_bytes),
                 Bytes(one.rx.layer2_header_bytes), "-", "-"});
      if (one.unknown.empty()) {
        add("unnamed", &UplinkCounts::unnamed_bytes,
            &UplinkCounts::unnamed_packets);
      } else {
        add_unknown("unnamed");
        absl::StrAppend(&notes, name,
                        ": unnamed is not known: ", ToTerminal(one.unknown),
                        "\n");
      }
      if (one.forwarded_began_later) {
        absl::StrAppend(&notes, name,
                        ": forwarded is counted for a shorter time than the "
                        "interfaces, and before that it is unnamed\n");
      }
    }
    return absl::StrCat(table.Format(TerminalWidth()), notes, forwarded_note);
  }

  std::string pin_dir_;
  bool json_ = false;
  SizeOptions sizes_;
  SizeUnits units_ = SizeUnits::kBinary;
};

}  // namespace

std::unique_ptr<Command> NewUplinksCommand() {
  return std::make_unique<UplinksCommand>();
}

}  // namespace internal
}  // namespace netmeter
