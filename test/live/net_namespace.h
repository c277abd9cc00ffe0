// SPDX-License-Identifier: BSD-3-Clause
// A network namespace without a name: held by a descriptor, so nothing is left
// when the process ends. Links, addresses and counters by netlink, offloads by
// ethtool's ioctl. Thus the test needs none of their tools in the guests of the
// kernel matrix.
//
//   NetNamespace a, b;
//   a.AddVeth({"a0", MacAddress(1)}, b, {"b0", MacAddress(2)});
//   a.SetMtu("a0", 9000);
//   a.AddAddress("a0", Address("10.0.0.1"), 24);
//
// Any method may be called from any namespace, by one thread at a time.

#ifndef NETMETER_TEST_LIVE_NET_NAMESPACE_H_
#define NETMETER_TEST_LIVE_NET_NAMESPACE_H_

#include <linux/bpf.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "test/live/check.h"

namespace netmeter {
namespace internal {

// An IPv4 or IPv6 address.
class Address {
 public:
  Address() = default;
  explicit Address(const std::string& text);

  int family() const { return family_; }
  size_t size() const { return family_ == AF_INET ? 4 : 16; }
  const uint8_t* data() const { return bytes_.data(); }

  // ::ffff:a.b.c.d of an IPv4 address.
  Address Mapped() const;

  sockaddr_storage WithPort(int port) const;
  static socklen_t Length(const sockaddr_storage& address);

 private:
  int family_ = AF_UNSPEC;
  std::array<uint8_t, 16> bytes_{};
};

using Mac = std::array<uint8_t, 6>;
Mac MacAddress(uint8_t last);

struct LinkEnd {
  std::string name;
  Mac mac;
};

struct LinkCounters {
  uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, tx_dropped;

  bool operator==(const LinkCounters& o) const {
    return rx_packets == o.rx_packets && tx_packets == o.tx_packets &&
           rx_bytes == o.rx_bytes && tx_bytes == o.tx_bytes;
  }
};

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

  void AddVeth(const LinkEnd& here, const NetNamespace& peer,
               const LinkEnd& there);
  int Index(const std::string& link) const;
  void SetUp(const std::string& link);
  void SetMtu(const std::string& link, uint32_t mtu);
  // Limits the segments that TCP puts into one GSO packet.
  void SetGsoMaxSegments(const std::string& link, uint32_t segments);
  // Limits the bytes of a GSO packet; false if the kernel refuses the limit.
  bool SetGsoMaxSize(const std::string& link, uint32_t bytes);
  void AddAddress(const std::string& link, const Address& address, int prefix);
  void AddRoute(const Address& network, int prefix, const Address& gateway);
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

 private:
  class Request;
  // Sends, and returns 0 or a negative errno; the reply's first message, if
  // there is one, is left in reply.
  int Transact(const Request& request, std::vector<char>* reply) const;
  void Do(const Request& request, const std::string& what) const;

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

#endif  // NETMETER_TEST_LIVE_NET_NAMESPACE_H_
