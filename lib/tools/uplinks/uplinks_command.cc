// SPDX-License-Identifier: BSD-3-Clause
// `netmeter uplinks`: the counts of the interfaces of each uplink, and their parts.

#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/kernel_object.h"
#include "lib/base/map_elements.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/base/unique_fd.h"
#include "lib/loader/config.h"
#include "lib/loader/lock_file.h"
#include "lib/netlink/not_counted.h"
#include "lib/reader/balance.h"
#include "lib/reader/shared_maps.h"
#include "lib/reader/uplink_maps.h"
#include "lib/tools/commands.h"
#include "lib/tools/options.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kUplinksFooter[] = R"(
For each uplink of the configuration and each direction:
  interface     the count of its interfaces since counting began in this uplink
  local         wire bytes of this host's own sockets: the sum of `netmeter list
                --uplink NAME`
  forwarded     wire bytes that this host forwarded, as the meter counts them after
                all rules of the firewall
  layer-2 headers  those of local and forwarded packets, as the interface counts them
  unnamed       the rest: traffic without a socket, such as ARP and the kernel's pings
If all are known, the first is the sum of the others. If the kernel cannot tell
forwarded traffic (before Linux 6.4), `forwarded` is the rest, with its layer-2 headers
and the unnamed traffic, and a line says so. If the rest cannot be known, it is "-",
and a line says why: an interface that has gone took its count with it; one that counts
GSO packets (GRO, TSO) has fewer packets than were on the link. A row without
numbers is an interface of the configuration that counts nothing, and says why.

Needs root, in the network namespace of the uplinks. Exit status: 0 printed; 1
failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter uplinks
  netmeter uplinks --json | python3 -m json.tool
)";

// Empty if the loader has kept no configuration.
Uplinks ConfiguredUplinks(const std::string& pin_dir) {
  const absl::StatusOr<LoaderState> state = PeekState(pin_dir);
  if (!state.ok()) return {};
  const absl::StatusOr<Config> config =
      ParseConfig(state->config, "the loaded configuration", Config());
  return config.ok() ? config->uplinks : Uplinks();
}

// Interfaces that got an alternative name of the configuration after the load. Only a
// load looks at alternative names.
void AddNamedLate(const Uplinks& configured, const BalanceInput& input,
                  std::vector<NotCounted>* not_counted) {
  for (const Interface& interface : input.interfaces) {
    const std::string uplink =
        FindUplink(configured, interface.name, interface.alternatives);
    if (uplink == FindUplink(configured, interface.name) ||
        uplink == FindUplink(input.patterns, interface.name)) {
      continue;
    }
    not_counted->push_back(
        {uplink, interface.name,
         absl::StrCat("its other name is newer than the load (run: ",
                      LoaderCommand("load", input.pin_dir), ")")});
  }
}

// Reads forwarded traffic if this meter counts it. *why: the reason why not, or a remark.
absl::Status ReadForwardedOf(const SharedMaps& maps, BalanceInput* input,
                             std::string* why) {
  const nm_info& info = *maps.view().info;
  constexpr char kFeature[] = "forwarded: ";
  if ((info.features & NM_FEATURE_FORWARDED) == 0) {
    for (absl::string_view line : absl::StrSplit(
             absl::string_view(info.reasons,
                               strnlen(info.reasons, sizeof(info.reasons))),
             '\n')) {
      if (absl::ConsumePrefix(&line, kFeature)) *why = std::string(line);
    }
    if (why->empty()) *why = "the meter is of an older version";
    return absl::OkStatus();
  }
  const auto forwarded = ReadForwarded(maps);
  if (!forwarded.ok()) return forwarded.status();
  input->counts_forwarded = true;
  input->forwarded = SumByUplink(forwarded->pairs);
  return absl::OkStatus();
}

// *why: a remark about forwarded traffic, or "".
absl::Status ReadInput(const std::string& pin_dir, BalanceInput* input,
                       std::vector<NotCounted>* not_counted, std::string* why) {
  input->pin_dir = pin_dir;
  // First what the meter counted, and then what the interfaces did: theirs is not less.
  MeterOptions options;
  options.pin_dir = pin_dir;
  const auto meter = Meter::Open(options);
  if (!meter.ok()) return meter.status();
  NETMETER_RETURN_IF_ERROR((*meter)->ReadHost(&input->samples));
  const auto maps = SharedMaps::Open(pin_dir);
  if (!maps.ok()) return maps.status();
  NETMETER_RETURN_IF_ERROR(ReadForwardedOf(**maps, input, why));
  auto links = ReadLinks(**maps);
  if (!links.ok()) return links.status();
  static_cast<MeterLinks&>(*input) = *std::move(links);
  if (input->counts_forwarded && input->late) {
    *why =
        "it is counted for a shorter time than the interfaces, and before that "
        "it is unnamed";
  }
  // A name that is too long for the programs is an alternative one, which only the
  // loader knows.
  Uplinks configured = ConfiguredUplinks(pin_dir);
  if (configured.empty()) configured = input->patterns;
  for (const auto& uplink : configured) {
    for (const std::string& pattern : uplink.second) {
      if (FitsInterfaceName(pattern)) continue;
      input->patterns[uplink.first].push_back(pattern);
    }
  }
  if (input->patterns.empty()) return HasNoUplinks(pin_dir);
  input->forwards = Forwards(input->interfaces, /*root=*/"");
  *not_counted = FindNotCounted(configured, input->interfaces);
  AddNamedLate(configured, *input, not_counted);
  return absl::OkStatus();
}

// The label of the rest.
const char* RestOf(const BalanceInput& input) {
  return input.forwards && !input.counts_forwarded ? "forwarded" : "unnamed";
}

nlohmann::ordered_json ToJson(const DirectionBalance& one, bool known,
                              const BalanceInput& input) {
  const std::string name = RestOf(input);
  const nlohmann::ordered_json rest =
      known ? nlohmann::ordered_json(one.rest_bytes) : nullptr;
  const nlohmann::ordered_json packets =
      known ? nlohmann::ordered_json(one.rest_packets) : nullptr;
  nlohmann::ordered_json object = {{"interface_bytes", one.interface_bytes},
                                   {"interface_packets", one.interface_packets},
                                   {"local_bytes", one.local_bytes},
                                   {"local_packets", one.local_packets}};
  if (input.counts_forwarded) {
    object["forwarded_bytes"] = one.forwarded_bytes;
    object["forwarded_packets"] = one.forwarded_packets;
  }
  object["layer2_header_bytes"] = one.header_bytes;
  object[name + "_bytes"] = rest;
  object[name + "_packets"] = packets;
  return object;
}

std::string FormatUplinksJson(const std::vector<UplinkBalance>& all,
                              const std::vector<NotCounted>& not_counted,
                              const BalanceInput& input) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const UplinkBalance& one : all) {
    nlohmann::ordered_json interfaces = nlohmann::ordered_json::array();
    for (const std::string& name : one.interfaces) {
      interfaces.push_back(ToUtf8(name));
    }
    nlohmann::ordered_json idle = nlohmann::ordered_json::array();
    for (const NotCounted& other : not_counted) {
      if (other.uplink != one.name) continue;
      idle.push_back(
          {{"interface", ToUtf8(other.interface)}, {"why", ToUtf8(other.why)}});
    }
    const bool known = one.unknown.empty();
    array.push_back(
        {{"uplink", ToUtf8(one.name)},
         {"interfaces", interfaces},
         {"not_counted", idle},
         {"tx", ToJson(one.tx, known, input)},
         {"rx", ToJson(one.rx, known, input)},
         {"unknown", known ? nlohmann::ordered_json()
                           : nlohmann::ordered_json(ToUtf8(one.unknown))}});
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
    BalanceInput input;
    std::string why;
    std::vector<NotCounted> not_counted;
    const absl::Status read = ReadInput(pin_dir_, &input, &not_counted, &why);
    if (!read.ok()) return Fail(read.message());
    const std::vector<UplinkBalance> all = BalanceUplinks(input);
    return Print(json_ ? FormatUplinksJson(all, not_counted, input)
                       : Table(all, not_counted, input, why));
  }

 private:
  std::string Bytes(uint64_t bytes) const { return HumanBytes(bytes, units_); }

  std::string Table(const std::vector<UplinkBalance>& all,
                    const std::vector<NotCounted>& not_counted,
                    const BalanceInput& input, const std::string& why) const {
    constexpr auto kRight = TextColumn::kRight;
    TextTable table({{"UPLINK"},
                     {"WHAT"},
                     {"TX", kRight},
                     {"RX", kRight},
                     {"TX PKTS", kRight, 1},
                     {"RX PKTS", kRight, 1}});
    std::string notes;
    for (const UplinkBalance& one : all) {
      const std::string name = ToTerminal(one.name);
      const auto add = [&](const std::string& what, auto bytes, auto packets) {
        table.Add({name, what, Bytes(one.tx.*bytes), Bytes(one.rx.*bytes),
                   absl::StrCat(one.tx.*packets),
                   absl::StrCat(one.rx.*packets)});
      };
      add(absl::StrCat("interface ",
                       ToTerminal(absl::StrJoin(one.interfaces, ", "))),
          &DirectionBalance::interface_bytes,
          &DirectionBalance::interface_packets);
      for (const NotCounted& other : not_counted) {
        if (other.uplink != one.name) continue;
        table.Add({name,
                   absl::StrCat("interface ", ToTerminal(other.interface), ": ",
                                ToTerminal(other.why)),
                   "-", "-", "-", "-"});
      }
      add("local", &DirectionBalance::local_bytes,
          &DirectionBalance::local_packets);
      if (input.counts_forwarded) {
        add("forwarded", &DirectionBalance::forwarded_bytes,
            &DirectionBalance::forwarded_packets);
      }
      table.Add({name, "layer-2 headers", Bytes(one.tx.header_bytes),
                 Bytes(one.rx.header_bytes), "-", "-"});
      const std::string rest = RestOf(input);
      if (one.unknown.empty()) {
        add(rest, &DirectionBalance::rest_bytes,
            &DirectionBalance::rest_packets);
      } else {
        table.Add({name, rest, "-", "-", "-", "-"});
        absl::StrAppend(&notes, name, ": ", rest,
                        " is not known: ", ToTerminal(one.unknown), "\n");
      }
    }
    if ((input.counts_forwarded || input.forwards) && !why.empty()) {
      absl::StrAppend(&notes, "forwarded: ", ToTerminal(why), "\n");
    }
    return absl::StrCat(table.Format(TerminalWidth()), notes);
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
