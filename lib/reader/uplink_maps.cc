// SPDX-License-Identifier: BSD-3-Clause
#include "lib/reader/uplink_maps.h"
#include "lib/base/loader_command.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/bpf_call.h"
#include "lib/base/pins.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/reader/series_reader.h"
#include "lib/reader/shared_maps.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

// The largest NR_CPUS of any architecture: the kernel writes a value for each CPU, and
// room for all of them needs no trust in a number. Only what it writes takes memory.
constexpr size_t kMostCpus = 8192;
constexpr uint32_t kBatch = 32;

absl::StatusOr<UniqueFd> OpenMap(const std::string& pin_dir, const char* pin,
                                 size_t key_size, size_t value_size) {
  const std::string path = absl::StrCat(pin_dir, "/", pin);
  UniqueFd fd(OpenPinnedMap(path.c_str(), BPF_F_RDONLY));
  bpf_map_info about = {};
  if (!fd.ok() || DescribeMap(fd.get(), &about) != 0) {
    const int error = errno;
    std::string hint;
    if (error == EPERM) {
      hint = "bpf(2) is refused here: needs root before Linux 5.19";
    } else if (error == EACCES) {
      hint = WhoMayRead(path, pin_dir);
    }
    return ErrnoStatus(error, absl::StrCat("open ", path), hint);
  }
  if (about.key_size != key_size || about.value_size != value_size) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is of another version (run the netmeter of the same "
                     "version as netmeter-loader)"));
  }
  return fd;
}

// Calls body(key, sum over CPUs) for each element. Values are 64-bit counters.
template <typename Key, typename Value, typename Body>
absl::Status ForEachSum(const std::string& pin_dir, const char* pin,
                        size_t cpus, const Body& body) {
  const auto fd = OpenMap(pin_dir, pin, sizeof(Key), sizeof(Value));
  if (!fd.ok()) return fd.status();
  constexpr size_t kCounters = sizeof(Value) / sizeof(uint64_t);
  using Counts = std::array<uint64_t, kCounters>;
  const std::unique_ptr<Counts[]> values(new Counts[kBatch * kMostCpus]);
  Key keys[kBatch], from, to;
  bool is_first = true;
  for (bool is_last = false; !is_last; is_first = false, from = to) {
    uint32_t count = kBatch;
    if (LookUpElements(fd->get(), is_first ? nullptr : &from, &to, keys,
                       values.get(), &count) != 0) {
      // Another error must be reported: the rest of the map would be missing.
      is_last = errno == ENOENT;
      if (!is_last) return ErrnoStatus(errno, absl::StrCat("read ", pin));
    }
    for (size_t i = 0; i < count; ++i) {
      Counts sums = {};
      for (size_t cpu = 0; cpu < cpus; ++cpu) {
        for (size_t j = 0; j < kCounters; ++j) {
          sums[j] += values[i * cpus + cpu][j];
        }
      }
      Value sum;
      static_assert(sizeof(sum) == sizeof(sums));
      memcpy(&sum, sums.data(), sizeof(sum));
      if (sums != Counts()) body(keys[i], sum);
    }
  }
  return absl::OkStatus();
}

// Calls body(key, value) for each element. Elements that are added or removed meanwhile
// may be seen or not. A trie has no LookUpElements() before 5.14.
template <typename Key, typename Value, typename Body>
absl::Status ForEachIn(const SharedMaps& maps, const char* pin,
                       const Body& body) {
  const std::string& pin_dir = maps.directory();
  const auto fd = OpenMap(pin_dir, pin, sizeof(Key), sizeof(Value));
  if (absl::IsNotFound(fd.status())) {
    return maps.view().info->uplinks_network == 0
               ? HasNoUplinks(pin_dir)
               : WithoutMap(pin_dir, maps.closed());
  }
  if (!fd.ok()) return fd.status();
  Key key = {}, next = {};
  Value value = {};
  const Key* from = nullptr;
  while (NextKey(fd->get(), from, &next) == 0) {
    key = next;
    from = &key;
    if (LookUpElement(fd->get(), &key, &value) == 0) {
      body(key, value);
    } else if (errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("read ", pin));
    }
  }
  if (errno != ENOENT) return ErrnoStatus(errno, absl::StrCat("read ", pin));
  return absl::OkStatus();
}

std::string AddressOf(const nm_client_key& key) {
  in6_addr address;
  memcpy(&address, key.address, sizeof(address));
  const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&address);
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(is_ipv4 ? AF_INET : AF_INET6, key.address + (is_ipv4 ? 12 : 0),
            text, sizeof(text));
  return text;
}

}  // namespace

std::map<uint32_t, std::string> NamesOfInterfaces(const LinkReading& links) {
  std::map<uint32_t, std::string> names;
  for (const Interface& interface : links.interfaces) {
    names[interface.index] = interface.name;
  }
  // The meter keeps the names of interfaces that have gone.
  std::map<uint32_t, const InterfaceEntry*> first;
  for (const InterfaceEntry& entry : links.entries) {
    const InterfaceEntry*& known = first[entry.first.ifindex];
    const auto order = [](const InterfaceEntry& one) {
      return std::tie(one.second.began_ns, one.first.uplink, one.first.stay);
    };
    if (known == nullptr || order(entry) < order(*known)) known = &entry;
  }
  for (const auto& one : first) {
    names[one.first] = NameOf(one.second->second);
  }
  return names;
}

absl::Status HasNoUplinks(const std::string& pin_dir) {
  // The default file is the default meter's alone.
  const bool has_file = pin_dir == MeterOptions().pin_dir;
  return absl::NotFoundError(absl::StrCat(
      "the meter has no uplinks (write uplinks into ",
      has_file ? "/etc/netmeter.yml" : "FILE", ", and run: ",
      LoaderCommand(has_file ? "load" : "load --config FILE", pin_dir), ")"));
}

absl::StatusOr<ForwardedReading> ReadForwarded(const SharedMaps& maps) {
  const std::string& pin_dir = maps.directory();
  // A series has a cell for each, and the shared one.
  const size_t cpus =
      std::min<size_t>(maps.view().cells_per_series - 1, kMostCpus);
  ForwardedReading traffic;
  // Read before the pairs, so that clients have no more than their interface.
  const absl::Status clients = ForEachSum<nm_client_key, nm_client>(
      pin_dir, kClientsPin, cpus,
      [&](const nm_client_key& key, const nm_client& sum) {
        traffic.clients.push_back({key, sum});
      });
  NETMETER_RETURN_IF_ERROR((ForEachSum<uint32_t, nm_forwarded>(
      pin_dir, kForwardedPin, cpus,
      [&](uint32_t index, const nm_forwarded& sum) {
        traffic.pairs.push_back({{0, 0, index}, sum});
      })));
  const absl::Status pairs = ForEachSum<nm_forwarded_key, nm_forwarded>(
      pin_dir, kForwardedByPin, cpus,
      [&](const nm_forwarded_key& key, const nm_forwarded& sum) {
        traffic.pairs.push_back({key, sum});
      });
  // A meter of an earlier version has no pairs, and many meters have no clients.
  for (const absl::Status& status : {clients, pairs}) {
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return traffic;
}

std::vector<MeterUplink> ListUplinks(const SharedMaps& maps) {
  const nm_info& info = *maps.view().info;
  const SeriesReader reader(maps.view());
  std::vector<MeterUplink> uplinks;
  const auto add = [&](uint32_t number, const std::string& name) {
    uplinks.push_back({number, name, (info.paid_uplinks >> number & 1) != 0,
                       (info.client_uplinks >> number & 1) != 0});
  };
  for (uint32_t i = 0; i < NM_MAX_UPLINKS; ++i) {
    std::string name;
    if (info.uplinks[i] != 0 && reader.ReadName(info.uplinks[i], &name)) {
      add(i + 1, name);
    }
  }
  add(NM_UPLINK_OTHER, kOtherUplink);
  return uplinks;
}

namespace {

absl::StatusOr<MeterLinks> ReadLinksOnce(const SharedMaps& maps) {
  const nm_info& info = *maps.view().info;
  MeterLinks links;
  links.forwarded_since_ns = info.forwarded_since_ns;
  links.uplinks = ListUplinks(maps);
  for (const MeterUplink& uplink : links.uplinks) {
    links.names[uplink.number] = uplink.name;
  }
  NETMETER_RETURN_IF_ERROR((ForEachIn<nm_uplink_key, uint32_t>(
      maps, "uplink_names", [&](const nm_uplink_key& key, uint32_t number) {
        links.patterns[links.names[number]].push_back(PatternOf(key));
      })));
  NETMETER_RETURN_IF_ERROR((ForEachIn<nm_interface_key, nm_interface>(
      maps, "interfaces",
      [&](const nm_interface_key& key, const nm_interface& value) {
        links.entries.emplace_back(key, value);
      })));
  const auto own = OwnNetworkInode();
  if (!own.ok()) return own.status();
  if (info.uplinks_network != 0 && info.uplinks_network != *own) {
    return absl::FailedPreconditionError(
        "the uplinks are those of another network namespace (run it there: ip "
        "netns exec, nsenter --net)");
  }
  links.network = *own;
  auto interfaces = ListInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  links.interfaces = *std::move(interfaces);
  return links;
}

}  // namespace

absl::StatusOr<MeterLinks> ReadLinks(const SharedMaps& maps) {
  // A load that comes in between gives an uplink what the next one counts. It marks
  // itself by build_id 0 for some 10 ms; one that was killed leaves the mark.
  constexpr int kAttempts = 10;
  constexpr std::chrono::milliseconds kPause(10);
  const nm_info& info = *maps.view().info;
  const auto load = [&info] {
    return std::make_pair(__atomic_load_n(&info.build_id, __ATOMIC_ACQUIRE),
                          __atomic_load_n(&info.loaded_ns, __ATOMIC_ACQUIRE));
  };
  for (int attempt = 1;; ++attempt) {
    const auto before = load();
    auto links = ReadLinksOnce(maps);
    const bool is_whole = before.first != 0 && load() == before;
    if (is_whole || !links.ok() || attempt == kAttempts) return links;
    std::this_thread::sleep_for(kPause);
  }
}

ForwardedSamples NameForwarded(const ForwardedReading& traffic,
                               const LinkReading& links) {
  const std::map<uint32_t, std::string> names = NamesOfInterfaces(links);
  ForwardedSamples samples;
  Counters nowhere;
  const auto at = [&](uint32_t uplink, uint32_t interface,
                      const std::string& client) -> Counters& {
    const auto to = links.names.find(uplink);
    if (to == links.names.end()) return nowhere;  // NM_UPLINK_NONE
    const auto name = names.find(interface);
    return samples[{to->second,
                    name == names.end() ? kForwardedKind : name->second,
                    client}];
  };
  const auto counters = [](uint64_t tx_bytes, uint64_t rx_bytes,
                           uint64_t tx_packets, uint64_t rx_packets) {
    const auto number = [](uint64_t n) { return static_cast<int64_t>(n); };
    Counters sum;
    sum.value = {number(tx_bytes), number(rx_bytes), number(tx_packets),
                 number(rx_packets)};
    return sum;
  };
  for (const ForwardedPair& pair : traffic.pairs) {
    const nm_forwarded& sum = pair.sum;
    at(pair.key.uplinks & 0xf, pair.key.in, "") +=
        counters(sum.bytes, 0, sum.packets, 0);
    at(pair.key.uplinks >> 4, pair.key.out, "") +=
        counters(0, sum.bytes, 0, sum.packets);
  }
  for (const ForwardedClient& client : traffic.clients) {
    const nm_client_key& key = client.key;
    const nm_client& one = client.sum;
    const Counters sum =
        counters(one.tx_bytes, one.rx_bytes, one.tx_packets, one.rx_packets);
    at(key.uplink, key.interface, AddressOf(key)) += sum;
    at(key.uplink, key.interface, "") -= sum;
  }
  // If the pin of the pairs was removed, they are younger than the clients.
  for (auto& sample : samples) {
    for (int64_t& value : sample.second.value) {
      value = std::max<int64_t>(value, 0);
    }
  }
  return samples;
}

std::string PatternOf(const nm_uplink_key& key) {
  const size_t size = std::min<size_t>(key.bits / 8, NM_INTERFACE_BYTES);
  const size_t length = strnlen(key.name, size);
  return absl::StrCat(std::string(key.name, length), length < size ? "" : "*");
}

}  // namespace internal
}  // namespace netmeter
