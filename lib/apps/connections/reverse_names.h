// SPDX-License-Identifier: BSD-3-Clause
// Names of addresses by the host's resolver (getnameinfo(3): DNS, /etc/hosts and so on).
// Threads of its own ask it, and each address once.
//
//   ReverseNames names;
//   names.Find(address);   // "": asks
//   names.Wait(std::chrono::seconds(2));
//   names.Find(address);   // "edge-17.example.net"
//
// Threads: any.

#ifndef NETMETER_LIB_APPS_CONNECTIONS_REVERSE_NAMES_H_
#define NETMETER_LIB_APPS_CONNECTIONS_REVERSE_NAMES_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace netmeter {
namespace internal {

class ReverseNames {
 public:
  // AF_INET or AF_INET6, and the address as in struct DiagSocket.
  using Address = std::pair<uint8_t, std::array<uint8_t, 16>>;

  // `lookup` returns "" for an address without a name. It may block, and run in several
  // threads.
  explicit ReverseNames(
      std::function<std::string(const Address&)> lookup = AskResolver);
  // Leaves a thread that waits for an answer alone: it ends after that.
  ~ReverseNames();
  ReverseNames(const ReverseNames&) = delete;
  ReverseNames& operator=(const ReverseNames&) = delete;

  // Never blocks. "" while the answer is awaited, for an address without a name, and for
  // a new address after 65,536 others.
  std::string Find(const Address& address);

  // Returns when all answers are there, or after this time.
  void Wait(std::chrono::milliseconds most);

 private:
  struct State;
  static std::string AskResolver(const Address& address);
  static void Work(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CONNECTIONS_REVERSE_NAMES_H_
