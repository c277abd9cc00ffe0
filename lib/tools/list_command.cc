// SPDX-License-Identifier: BSD-3-Clause
// `netmeter list`: every series, once.

#include "absl/status/status.h"
#include "lib/core/shared_maps.h"
#include "lib/tools/commands.h"
#include "lib/tools/list.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kListFooter[] = R"(
Columns:
  TX, RX          bytes on the network layer, as on the link: IP header and up,
                  TCP retransmissions included
  TX/RX PKTS      packets on the link
  TX/RX PAYLOAD   bytes of the transport's payload, each TCP byte once
  RETRANSMIT      TCP payload bytes that were sent again
Units are binary: 1 KiB is 1024 bytes. --bytes and --json have exact numbers.
PATH is proxy for traffic over loopback to or from a proxy port, else direct.

KIND:
  service         registered, or named by its command line or the configuration
  binary          any other program, by the name of its executable
  pending         of any of these, on connections that have not named their
                  destination yet; moves to their own kind when they have
  unattributed    of sockets that no process owns, such as the kernel's own
  overflow        what found no room for a series or a name of its own
The sum over all kinds with PATH direct is what the interfaces counted, less
their link headers.

Exit status: 0 printed; 1 failed, one line on stderr says why; 2 wrong usage.

Examples:
  netmeter list
  netmeter list --json | python3 -m json.tool
  netmeter list --pin-dir /run/netmeter-test
)";

class ListCommand : public Command {
 public:
  std::string Name() const override { return "list"; }

  std::string Description() const override {
    return "Prints every series, that with most traffic first";
  }

  void Declare(CLI::App* app) override {
    AddPinDir(app, &pin_dir_);
    CLI::Option* as_json =
        app->add_flag("--json", json_, "Print one JSON array of objects");
    app->add_flag("--bytes", exact_, "Print exact bytes, not KiB or MiB")
        ->excludes(as_json);
    app->footer(kListFooter);
  }

  absl::Status CheckOptions() override { return CheckPinDir(pin_dir_); }

  int Run() override {
    MeterOptions options;
    options.pin_dir = pin_dir_;
    const auto meter = Meter::Open(options);
    if (!meter.ok()) return Fail(meter.status().message());
    auto samples = (*meter)->ReadHost();
    if (!samples.ok()) return Fail(samples.status().message());
    SortByTraffic(&*samples);
    if (json_) return Print(FormatJson(*samples));
    return Print(FormatTable(*samples,
                             exact_ ? ByteFormat::kExact : ByteFormat::kHuman,
                             LoaderCommand("status", pin_dir_)));
  }

 private:
  std::string pin_dir_;
  bool json_ = false;
  bool exact_ = false;
};

}  // namespace

std::unique_ptr<Command> NewListCommand() {
  return std::make_unique<ListCommand>();
}

}  // namespace internal
}  // namespace netmeter
