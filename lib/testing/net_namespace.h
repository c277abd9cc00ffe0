// SPDX-License-Identifier: BSD-3-Clause
// Network namespaces and the cables between them, for live tests, program tests and
// benchmarks. A namespace has no name: it is held by a descriptor, so nothing is left
// when the process ends. Links, addresses and counters by netlink, offloads by
// ethtool's ioctl. Thus the test needs none of their tools in the guests of the
// kernel matrix.
//
//   NetNamespace a, b;
//   Join({&a, "a0", MacAddress(1), BothAddresses(77, 1, 1)},
//        {&b, "b0", MacAddress(2), BothAddresses(77, 1, 2)});
//   a.SetMtu("a0", 9000);
//
// Any method may be called from any namespace, by one thread at a time.

#ifndef NETMETER_LIB_TESTING_NET_NAMESPACE_H_
#define NETMETER_LIB_TESTING_NET_NAMESPACE_H_

#include <linux/bpf.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/testing/check.h"

namespace netmeter {
namespace internal {

class NetNamespace;

// An IPv4 or IPv6 address.
class Address {
 public:
  Address() = default;
  explicit Address(const std::string& text);

  int family() const { return family_; }
  size_t size() const { return family_ == AF_INET ? 4 : 16; }
  const uint8_t* data() const { return bytes_.data(); }
  std::string text() const;

  // ::ffff:a.b.c.d of an IPv4 address.
  Address Mapped() const;

  sockaddr_storage WithPort(int port) const;
  static socklen_t Length(const sockaddr_storage& address);

 private:
  int family_ = AF_UNSPEC;
  std::array<uint8_t, 16> bytes_{};
};

enum class Family { kIpv4, kIpv6 };

// 10.<site>.<network>.<host> or fd<site>:<network>::<host>.
Address HostAddress(Family family, int site, int network, int host);
std::vector<Address> BothAddresses(int site, int network, int host);

using Mac = std::array<uint8_t, 6>;
Mac MacAddress(int last);

// One end of a cable.
struct LinkEnd {
  NetNamespace* where;
  std::string name;
  Mac mac;
  std::vector<Address> addresses;
};

// Makes a cable, which is a pair of veth. Both ends are up and have their addresses, and
// an end that has any knows those of the other.
void Join(const LinkEnd& left, const LinkEnd& right);
// This end need not ask for the other's addresses.
void Introduce(const LinkEnd& to, const LinkEnd& other);

struct LinkCounters {
  uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, tx_dropped;

  bool operator==(const LinkCounters& o) const {
    return rx_packets == o.rx_packets && tx_packets == o.tx_packets &&
           rx_bytes == o.rx_bytes && tx_bytes == o.tx_bytes;
  }
};

// Features, by the kernel's names, that let a device carry GSO packets or unfinished
// checksums.
inline const std::vector<std::string> kOffloads = {"segmentation", "tx-gso",
                                                   "tx-checksum", "tx-udp"};

class NetNamespace {
 public:
  // Makes a namespace. lo is up, and IPv6 sends nothing by itself.
  NetNamespace();
  NetNamespace(const NetNamespace&) = delete;
  NetNamespace& operator=(const NetNamespace&) = delete;

  // Moves the calling thread here.
  void Enter() const;
  // Runs body here, in a thread of its own.
  void Run(const std::function<void()>& body) const;
  // Writes /proc/sys/net/<path>.
  void Sysctl(const std::string& path, const std::string& value) const;

  // A cable, as Join() makes, but down and without addresses.
  void AddVeth(const LinkEnd& here, const LinkEnd& there);
  int Index(const std::string& link) const;
  void SetUp(const std::string& link);
  void SetMtu(const std::string& link, uint32_t mtu);
  // Limits the segments that TCP puts into one GSO packet.
  void SetGsoMaxSegments(const std::string& link, uint32_t segments);
  // Limits the bytes of a GSO packet; false if the kernel refuses the limit.
  bool SetGsoMaxSize(const std::string& link, uint32_t bytes);
  // The length of a prefix is 24 bits for IPv4 and 64 for IPv6, unless said otherwise.
  void AddAddress(const std::string& link, const Address& address,
                  int prefix = -1);
  void AddRoute(const Address& network, const Address& gateway,
                int prefix = -1);
  void AddDefaultRoute(const Address& gateway);
  void AddNeighbour(const std::string& link, const Address& address,
                    const Mac& mac);
  void DeleteNeighbour(const std::string& link, const Address& address);

  LinkCounters Counters(const std::string& link) const;

  // Attaches an XDP program that lets everything pass, until the result is
  // closed.
  UniqueFd AttachXdpPass(const std::string& link) const;

  // Turns the features of a device on or off: those whose name contains one of
  // the given words. The names are the kernel's ("rx-gro"), and not those that
  // `ethtool -k` prints.
  void SetFeatures(const std::string& link,
                   const std::vector<std::string>& words, bool on) const;
  // Each packet of this device is one on the wire: no offloads, no GRO.
  void SetRealPackets(const std::string& link) const;

 private:
  class Request;
  // Sends, and returns 0 or a negative errno; the reply's first message, if
  // there is one, is left in reply.
  std::vector<char> AskAbout(const std::string& link) const;  // RTM_GETLINK
  int Transact(const Request& request, std::vector<char>* reply) const;
  void Do(const Request& request, const std::string& what) const;
  bool IsLocal(const Address& address) const;  // an IPv6 address that receives

  UniqueFd namespace_;
  UniqueFd netlink_;
};

// Lets this process make BPF programs and maps: before 5.11 they count as locked
// memory, all of a user's together. What it runs later has to see to it itself.
class UnlimitedLockedMemory {
 public:
  UnlimitedLockedMemory();
  ~UnlimitedLockedMemory() { setrlimit(RLIMIT_MEMLOCK, &before_); }
  UnlimitedLockedMemory(const UnlimitedLockedMemory&) = delete;
  UnlimitedLockedMemory& operator=(const UnlimitedLockedMemory&) = delete;

 private:
  rlimit before_;
};

// A small BPF program of the test's own.
UniqueFd LoadProgram(uint32_t type, uint32_t attach_type,
                     const bpf_insn* program, uint32_t count);

// True if this kernel's version is at least major.minor.
bool KernelAtLeast(int major, int minor);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_TESTING_NET_NAMESPACE_H_
