// SPDX-License-Identifier: BSD-3-Clause
// `netmeter uplinks`: what the interfaces of each uplink counted, and whose it was.

#include <bpf/bpf.h>
#include <errno.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/core/series_reader.h"
#include "lib/core/shared_maps.h"
#include "lib/core/status_util.h"
#include "lib/core/text.h"
#include "lib/core/unique_fd.h"
#include "lib/loader/kernel_object.h"
#include "lib/loader/map_elements.h"
#include "lib/tools/commands.h"
#include "lib/tools/list.h"
#include "lib/tools/text_table.h"
#include "lib/uplinks/balance.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kUplinksFooter[] = R"(
For each uplink of the configuration and each direction:
  interface     what its interfaces counted since counting began in this uplink
  local         wire bytes of this host's own sockets: the sum of `netmeter list
                --uplink NAME`
  link headers  those of local packets, as the interface counts them
  forwarded     the rest: what was forwarded for others, with its link headers, and
                what no socket had, such as ARP and pings of the kernel's
  remainder     the same where nothing is forwarded in this network namespace
The first is always the sum of the others. Where that cannot be known, the rest is
"-", and a line says why: an interface that has gone took its count with it; one
that counts super-packets (GRO, TSO) has fewer packets than were on the link.

Root only, in the network namespace of the uplinks. Exit status: 0 printed; 1
failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter uplinks
  netmeter uplinks --json | python3 -m json.tool
)";

template <typename Key, typename Value, typename Body>
absl::Status ForEachIn(const std::string& pin_dir, const char* pin,
                       const Body& body) {
  const std::string path = absl::StrCat(pin_dir, "/", pin);
  const UniqueFd fd(bpf_obj_get(path.c_str()));
  if (!fd.ok() && errno == ENOENT) {
    return absl::NotFoundError(
        absl::StrCat("the meter has no uplinks: no ", path,
                     " (uplinks in the configuration, and ",
                     LoaderCommand("load", pin_dir), ")"));
  }
  bpf_map_info about = {};
  if (!fd.ok() || !GetInfo(fd.get(), &about)) {
    return ErrnoStatus(errno, absl::StrCat("open ", path), "run as root");
  }
  if (about.key_size != sizeof(Key) || about.value_size != sizeof(Value)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of another version"));
  }
  return ForEachElement<Key, Value>(
      fd.get(), [&body](const Key& key, const Value& value) {
        body(key, value);
        return absl::OkStatus();
      });
}

absl::Status ReadInput(const std::string& pin_dir, BalanceInput* input) {
  auto maps = SharedMaps::Open(pin_dir);
  if (!maps.ok()) return maps.status();
  const SeriesReader names((*maps)->view());
  for (uint32_t i = 0; i < NM_MAX_UPLINKS; ++i) {
    const uint32_t id = (*maps)->view().info->uplinks[i];
    std::string name;
    if (id != 0 && names.ReadName(id, &name)) input->names[i + 1] = name;
  }
  input->names[NM_UPLINK_OTHER] = kOtherUplink;
  NETMETER_RETURN_IF_ERROR((ForEachIn<nm_uplink_key, uint32_t>(
      pin_dir, "uplink_names", [&](const nm_uplink_key& key, uint32_t number) {
        input->patterns[input->names[number]].push_back(PatternOf(key));
      })));
  uint64_t network = 0;
  NETMETER_RETURN_IF_ERROR((ForEachIn<nm_interface_key, nm_interface>(
      pin_dir, "interfaces",
      [&](const nm_interface_key& key, const nm_interface& value) {
        if (key.ifindex == 0) {
          network = value.base.tx_bytes;
          input->moved = value.ended != 0;
        } else {
          input->entries.emplace_back(key, value);
        }
      })));
  if (input->patterns.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "the meter has no uplinks (uplinks in the configuration, and ",
        LoaderCommand("load", pin_dir), ")"));
  }
  const auto own = OwnNetwork(/*by_inode=*/true);
  if (!own.ok()) return own.status();
  if (network != 0 && network != *own) {
    return absl::FailedPreconditionError(
        "the uplinks are those of another network namespace (run it there: ip "
        "netns exec, nsenter --net)");
  }
  // First what we counted, and then what they did: theirs is not less.
  MeterOptions options;
  options.pin_dir = pin_dir;
  const auto meter = Meter::Open(options);
  if (!meter.ok()) return meter.status();
  NETMETER_RETURN_IF_ERROR((*meter)->ReadHost(&input->samples));
  auto interfaces = ListInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  input->interfaces = *std::move(interfaces);
  input->forwards = Forwards(input->interfaces, /*root=*/"");
  return absl::OkStatus();
}

nlohmann::ordered_json ToJson(const DirectionBalance& one, bool known,
                              bool forwards) {
  const nlohmann::ordered_json rest =
      known ? nlohmann::ordered_json(one.rest_bytes) : nullptr;
  const nlohmann::ordered_json packets =
      known ? nlohmann::ordered_json(one.rest_packets) : nullptr;
  return {{"interface_bytes", one.interface_bytes},
          {"interface_packets", one.interface_packets},
          {"local_bytes", one.local_bytes},
          {"local_packets", one.local_packets},
          {"link_header_bytes", one.header_bytes},
          {forwards ? "forwarded_bytes" : "remainder_bytes", rest},
          {forwards ? "forwarded_packets" : "remainder_packets", packets}};
}

std::string FormatUplinksJson(const std::vector<UplinkBalance>& all,
                              bool forwards) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const UplinkBalance& one : all) {
    nlohmann::ordered_json interfaces = nlohmann::ordered_json::array();
    for (const std::string& name : one.interfaces) {
      interfaces.push_back(ToUtf8(name));
    }
    const bool known = one.unknown.empty();
    array.push_back(
        {{"uplink", ToUtf8(one.name)},
         {"interfaces", interfaces},
         {"tx", ToJson(one.tx, known, forwards)},
         {"rx", ToJson(one.rx, known, forwards)},
         {"unknown", known ? nlohmann::ordered_json()
                           : nlohmann::ordered_json(ToUtf8(one.unknown))}});
  }
  return array.dump(2) + "\n";
}

class UplinksCommand : public Command {
 public:
  std::string Name() const override { return "uplinks"; }

  std::string Description() const override {
    return "Prints what each uplink carried, and whose it was";
  }

  void Declare(Flags* flags) override {
    AddPinDir(flags, &pin_dir_);
    const Option json =
        flags->AddFlag("--json", &json_, "Print one JSON array of objects");
    flags->AddFlag("--bytes", &exact_, "Print exact bytes, not KiB or MiB")
        .Excludes(json);
    flags->SetFooter(kUplinksFooter);
  }

  absl::Status CheckOptions() override { return CheckPinDir(pin_dir_); }

  int Run() override {
    BalanceInput input;
    const absl::Status read = ReadInput(pin_dir_, &input);
    if (!read.ok()) return Fail(read.message());
    const std::vector<UplinkBalance> all = BalanceUplinks(input);
    return Print(json_ ? FormatUplinksJson(all, input.forwards)
                       : Table(all, input.forwards));
  }

 private:
  std::string Bytes(uint64_t bytes) const {
    return exact_ ? absl::StrCat(bytes) : HumanBytes(bytes);
  }

  std::string Table(const std::vector<UplinkBalance>& all,
                    bool forwards) const {
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
      add("local", &DirectionBalance::local_bytes,
          &DirectionBalance::local_packets);
      table.Add({name, "link headers", Bytes(one.tx.header_bytes),
                 Bytes(one.rx.header_bytes), "-", "-"});
      const std::string rest = forwards ? "forwarded" : "remainder";
      if (one.unknown.empty()) {
        add(rest, &DirectionBalance::rest_bytes,
            &DirectionBalance::rest_packets);
      } else {
        table.Add({name, rest, "-", "-", "-", "-"});
        absl::StrAppend(&notes, name, ": ", rest,
                        " is not known: ", ToTerminal(one.unknown), "\n");
      }
    }
    return absl::StrCat(table.Format(TerminalWidth()), notes);
  }

  std::string pin_dir_;
  bool json_ = false;
  bool exact_ = false;
};

}  // namespace

std::unique_ptr<Command> NewUplinksCommand() {
  return std::make_unique<UplinksCommand>();
}

}  // namespace internal
}  // namespace netmeter
