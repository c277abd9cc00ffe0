// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/clients/clients.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/status_util.h"
#include "lib/base/unique_fd.h"
#include "lib/netlink/diag_message.h"
#include "lib/netlink/receive.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kMac[] = "mac", kWireGuard[] = "wireguard",
               kAddress[] = "address";
constexpr int kIpv4Prefix = 96;  // of addresses of IPv4 within those of IPv6
constexpr off_t kMaxFile = 16 << 20;
constexpr int kTimedOut = 124;  // of timeout(1)

std::vector<std::string> SplitIdentities(const std::string& list) {
  return absl::StrSplit(list, ',', absl::SkipEmpty());
}

// IPv4 becomes ::ffff:0:0/96.
bool ParseAddress(const std::string& text, in6_addr* address) {
  if (inet_pton(AF_INET6, text.c_str(), address) == 1) return true;
  *address = {};
  memset(address->s6_addr + 10, 0xff, 2);
  return inet_pton(AF_INET, text.c_str(), address->s6_addr + kIpv4Prefix / 8) ==
         1;
}

// As the rows of the meter have it; "": no address.
std::string AddressOf(absl::string_view text) {
  in6_addr address;
  if (!ParseAddress(std::string(text), &address)) return "";
  std::array<uint8_t, 16> bytes = {};
  const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&address);
  const size_t skipped = is_ipv4 ? kIpv4Prefix / 8 : 0;
  memcpy(bytes.data(), address.s6_addr + skipped, bytes.size() - skipped);
  return AddressText(is_ipv4 ? AF_INET : AF_INET6, bytes);
}

// In lower case with all zeros; "": no MAC address.
std::string MacOf(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 6) return "";
  std::vector<std::string> digits;
  for (const std::string& part : parts) {
    if (part.empty() || part.size() > 2 ||
        !std::all_of(part.begin(), part.end(), absl::ascii_isxdigit)) {
      return "";
    }
    digits.push_back(
        absl::AsciiStrToLower(part.size() == 1 ? "0" + part : part));
  }
  return absl::StrJoin(digits, ":");
}

// A public key of WireGuard: 32 bytes in base64.
std::string KeyOf(absl::string_view text) {
  std::string bytes;
  return text.size() == 44 && absl::Base64Unescape(text, &bytes) &&
                 bytes.size() == 32
             ? std::string(text)
             : "";
}

bool Matches(const in6_addr& address, const in6_addr& prefix, int length) {
  const auto whole = static_cast<size_t>(length / 8);
  if (memcmp(address.s6_addr, prefix.s6_addr, whole) != 0) return false;
  const int left = length % 8;
  return left == 0 ||
         (address.s6_addr[whole] ^ prefix.s6_addr[whole]) >> (8 - left) == 0;
}

}  // namespace

void AddClientOptions(Flags* flags, ClientOptions* options) {
  flags
      ->AddOption("--clients", &options->identities,
                  "What tells the clients of forwarded traffic apart: mac,\n"
                  "wireguard, address, or several of them in the order in\n"
                  "which they are asked (default: address)")
      .Type("LIST")
      .Check([](const std::string& list) -> std::string {
        for (const std::string& word : SplitIdentities(list)) {
          if (word != kMac && word != kWireGuard && word != kAddress) {
            return absl::StrCat("expected mac, wireguard or address, not '",
                                word, "'");
          }
        }
        return "";
      });
  flags
      ->AddOption("--client-names", &options->name_files,
                  "Names of clients: leases of dnsmasq, ethers(5), hosts(5),\n"
                  "or lines of a WireGuard key and a name")
      .Type("FILE");
}

absl::StatusOr<Clients> Clients::Read(const ClientOptions& options) {
  Clients clients;
  clients.identities_ = SplitIdentities(options.identities);
  for (const std::string& word : clients.identities_) {
    if (word == kMac) NETMETER_RETURN_IF_ERROR(clients.ReadNeighbours());
    if (word == kWireGuard) NETMETER_RETURN_IF_ERROR(clients.ReadPeers());
  }
  for (const std::string& path : options.name_files) {
    NETMETER_RETURN_IF_ERROR(clients.ReadNames(path));
  }
  // A file may have only one of them.
  if (!options.name_files.empty() && !clients.has_macs()) {
    NETMETER_RETURN_IF_ERROR(clients.ReadNeighbours());
  }
  for (const auto& [place, mac] : clients.neighbours_) {
    clients.ShareName(place.first, mac);
  }
  for (const auto& [address, mac] : clients.leases_) {
    clients.ShareName(address, mac);
  }
  return clients;
}

void Clients::ShareName(const std::string& address, const std::string& mac) {
  for (const auto& [known, other] :
       {std::make_pair(address, mac), std::make_pair(mac, address)}) {
    const auto name = names_.find(known);
    if (name != names_.end()) names_.emplace(other, std::string(name->second));
  }
}

std::string Clients::MacOfAddress(const std::string& address,
                                  const std::string& interface) const {
  const auto neighbour = neighbours_.lower_bound({address, interface});
  if (neighbour != neighbours_.end() && neighbour->first.first == address &&
      (interface.empty() || neighbour->first.second == interface)) {
    return neighbour->second;
  }
  const auto lease = leases_.find(address);
  return lease == leases_.end() ? "" : lease->second;
}

std::string Clients::IdentityOf(const std::string& address,
                                const std::string& interface) const {
  for (const std::string& word : identities_) {
    if (word == kAddress) break;
    if (word == kWireGuard) {
      std::string key = PeerOf(address, interface);
      if (!key.empty()) return key;
      continue;
    }
    std::string mac = MacOfAddress(address, interface);
    if (!mac.empty()) return mac;
  }
  return address;
}

bool Clients::has_macs() const {
  return std::find(identities_.begin(), identities_.end(), kMac) !=
         identities_.end();
}

std::string Clients::PeerOf(const std::string& address,
                            const std::string& interface) const {
  in6_addr bytes;
  const Peer* best = nullptr;
  if (peers_.empty() || !ParseAddress(address, &bytes)) return "";
  const int shortest = IN6_IS_ADDR_V4MAPPED(&bytes) ? kIpv4Prefix : 0;
  for (const Peer& peer : peers_) {
    // A peer that leads to the internet has all addresses, but only on its interface.
    if (interface.empty() ? peer.length <= shortest
                          : peer.interface != interface) {
      continue;
    }
    if (peer.length >= shortest && Matches(bytes, peer.prefix, peer.length) &&
        (best == nullptr || peer.length > best->length)) {
      best = &peer;
    }
  }
  return best == nullptr ? "" : best->key;
}

std::string Clients::NameOf(const std::string& identity) const {
  const auto found = names_.find(identity);
  if (found == names_.end()) return "";
  // In ethers(5), an address may stand for the name.
  const auto further = names_.find(found->second);
  return (further == names_.end() ? found : further)->second;
}

absl::Status Clients::ReadNeighbours() {
  constexpr char kWhat[] = "read the kernel's neighbours";
  const UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.ok()) return ErrnoStatus(errno, kWhat);
  struct {
    nlmsghdr header;
    ndmsg neighbour;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETNEIGH;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  const auto add = [this](const NetlinkMessage& message) {
    ndmsg neighbour;
    if (message.payload.size() < sizeof(neighbour)) return false;
    memcpy(&neighbour, message.payload.data(), sizeof(neighbour));
    std::array<uint8_t, 16> address = {};
    absl::string_view mac;
    ForEachAttribute(message.payload.substr(sizeof(neighbour)),
                     [&](int type, absl::string_view value) {
                       if (type == NDA_DST && value.size() <= address.size()) {
                         memcpy(address.data(), value.data(), value.size());
                       }
                       if (type == NDA_LLADDR) mac = value;
                     });
    // Only entries that are valid have a MAC address. Devices without ARP have one of
    // zeros or none.
    if (mac.size() != 6 || neighbour.ndm_state == NUD_NOARP) return true;
    const std::string text =
        absl::StrJoin(mac, ":", [](std::string* out, char byte) {
          absl::StrAppend(
              out, absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2));
        });
    char interface[IF_NAMESIZE] = "";
    if_indextoname(static_cast<unsigned>(neighbour.ndm_ifindex), interface);
    neighbours_.emplace(
        std::make_pair(AddressText(neighbour.ndm_family, address), interface),
        text);
    return true;
  };
  // A neighbour that is missing because others changed meanwhile keeps its address.
  return DumpFromKernel(
             fd.get(),
             {reinterpret_cast<const char*>(&request), sizeof(request)}, kWhat,
             add)
      .status();
}

absl::Status Clients::ReadPeers() {
  // The program knows WireGuard of the kernel, and that of other programs.
  FILE* const pipe =
      popen("timeout 10 wg show all allowed-ips </dev/null 2>&1", "re");
  if (pipe == nullptr) return ErrnoStatus(errno, "run wg");
  std::string text, error;
  char buffer[4096];
  size_t bytes;
  while ((bytes = fread(buffer, 1, sizeof(buffer), pipe)) > 0) {
    text.append(buffer, bytes);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return absl::NotFoundError(
        "wg is not installed (Debian's package wireguard-tools)");
  }
  // wg ends with 0 if it could read any of the interfaces.
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    if (fields.size() != 3 || KeyOf(fields[1]).empty()) {
      if (!line.empty()) error = std::string(line);
      continue;
    }
    for (const absl::string_view cidr : absl::StrSplit(fields[2], ' ')) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(cidr, absl::MaxSplits('/', 1));
      Peer peer = {fields[0], fields[1], {}, 0};
      if (!ParseAddress(parts.first, &peer.prefix) ||
          !absl::SimpleAtoi(parts.second, &peer.length)) {
        continue;  // "(none)"
      }
      if (peer.length < 0 || peer.length > 128) continue;
      if (IN6_IS_ADDR_V4MAPPED(&peer.prefix)) peer.length += kIpv4Prefix;
      peers_.push_back(std::move(peer));
    }
  }
  // Only root sees that there are any of other programs.
  if (error.empty() && peers_.empty() && geteuid() != 0) error = "no peers";
  if (WIFEXITED(status) && WEXITSTATUS(status) == kTimedOut) {
    return absl::DeadlineExceededError(
        "wg show all allowed-ips: no answer in 10 seconds");
  }
  if (error.empty() && status != 0) {
    error = absl::StrCat("status ", WEXITSTATUS(status));
  }
  if (error.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("wg show all allowed-ips: ", error, " (it needs root)"));
}

absl::Status Clients::ReadNames(const std::string& path) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(about.st_mode) || about.st_size > kMaxFile) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a file of 16 MiB at most"));
  }
  std::ifstream file(path);
  if (!file) return ErrnoStatus(errno, path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (ReadLine(line)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, ":", number,
        ": expected a lease of dnsmasq, or an address, a MAC address or a "
        "WireGuard key, and a name"));
  }
  return file.bad() ? ErrnoStatus(errno, path) : absl::OkStatus();
}

bool Clients::ReadLine(absl::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"),
                     absl::SkipEmpty());
  // dnsmasq writes its own identity before the leases of IPv6.
  if (words.empty() || words[0] == "duid") return true;
  if (words.size() >= 4 &&
      std::all_of(words[0].begin(), words[0].end(), absl::ascii_isdigit)) {
    const std::string address = AddressOf(words[2]);
    // "": a lease of IPv6, whose second word is a number.
    const std::string mac = MacOf(words[1]);
    if (address.empty()) return false;
    if (!mac.empty()) leases_.emplace(address, mac);
    if (words[3] == "*") return true;
    names_.emplace(address, words[3]);
    if (!mac.empty()) names_.emplace(mac, words[3]);
    return true;
  }
  // hosts(5) may have the interface of an address.
  const absl::string_view first =
      absl::string_view(words[0]).substr(0, words[0].find('%'));
  for (const auto& parse : {AddressOf, MacOf, KeyOf}) {
    const std::string identity = parse(first);
    if (identity.empty()) continue;
    if (words.size() < 2) return false;
    const std::string address = AddressOf(words[1]);
    names_.emplace(identity, address.empty() ? words[1] : address);
    return true;
  }
  return false;
}

}  // namespace internal
}  // namespace netmeter
