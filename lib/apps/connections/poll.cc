// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/poll.h"

#include <netinet/in.h>
#include <time.h>

#include <utility>

#include "absl/types/optional.h"
#include "lib/base/status_util.h"
#include "lib/netlink/dump.h"
#include "lib/netlink/holders.h"

namespace netmeter {
namespace internal {
namespace {

uint64_t Now() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 +
         static_cast<uint64_t>(now.tv_nsec);
}

// The kernel hands out cookies in a row, so their remainders would not be random.
bool IsInSample(uint64_t cookie, uint32_t sample) {
  return sample == 1 || (cookie * 0x9e3779b97f4a7c15 >> 32) % sample == 0;
}

}  // namespace

SocketPoll::SocketPoll(const std::string& pin_dir) : pin_dir_(pin_dir) {
  OpenMeter();
}

void SocketPoll::OpenMeter() {
  attribution_.reset();
  auto attribution = Attribution::Open(pin_dir_);
  status_ = attribution.status();
  if (attribution.ok()) attribution_ = std::move(*attribution);
}

absl::Status SocketPoll::ReadNetwork(
    const PollOptions& options, const Network& network, const Holders& holders,
    const std::function<void(const SocketRow&)>& body) {
  absl::optional<SocketDump> dump;
  const absl::Status opened = InNetwork(network, [&]() -> absl::Status {
    auto made = SocketDump::Open();
    if (!made.ok()) return made.status();
    dump.emplace(std::move(*made));
    return absl::OkStatus();
  });
  // Its last process may have ended since it was listed, or its name is being removed.
  if (absl::IsNotFound(opened)) return absl::OkStatus();
  if (!opened.ok()) return opened;
  static const SocketOwner* const kNobody = new SocketOwner();
  SocketRow row;
  row.holders = &holders;
  row.names = options.names;
  row.time_ns = Now();
  row.network = network.inode;
  const auto take = [&](const DiagSocket& socket, absl::string_view) {
    if (!IsInSample(socket.cookie, options.sample)) return;
    row.socket = &socket;
    row.owner = attribution_ ? &attribution_->Find(socket, holders) : kNobody;
    if (options.filter.Matches(row)) body(row);
  };
  const bool any = options.protocols.empty();
  const std::vector<uint16_t> known = {IPPROTO_TCP, IPPROTO_UDP, kProtocolMptcp,
                                       IPPROTO_SCTP, IPPROTO_RAW};
  for (const uint16_t protocol : any ? known : options.protocols) {
    for (const int family : {AF_INET, AF_INET6}) {
      DumpRequest request;
      request.family = static_cast<uint8_t>(family);
      request.protocol = protocol;
      request.states = options.filter.states;
      request.owners = attribution_ ? attribution_->owners() : -1;
      const absl::Status status = dump->Read(request, take);
      if (any && absl::IsUnimplemented(status)) continue;
      NETMETER_RETURN_IF_ERROR(status);
    }
  }
  return absl::OkStatus();
}

absl::Status SocketPoll::Run(
    const PollOptions& options,
    const std::function<void(const SocketRow&)>& body) {
  if (attribution_ == nullptr ? has_run_ : attribution_->closed()) OpenMeter();
  has_run_ = true;
  // The service of some sockets is found through their processes, and so are some network
  // namespaces.
  const bool needed =
      options.holders || options.all_networks || attribution_ != nullptr;
  const Holders holders = needed ? Holders::Read() : Holders();
  if (!options.all_networks) {
    return ReadNetwork(options, OwnNetwork(), holders, body);
  }
  for (const Network& network :
       AllNetworks(holders.networks(), &has_hidden_networks_)) {
    const absl::Status status = ReadNetwork(options, network, holders, body);
    if (absl::IsPermissionDenied(status)) {
      has_hidden_networks_ = true;
      continue;
    }
    NETMETER_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
