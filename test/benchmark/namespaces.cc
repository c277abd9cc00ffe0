// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/namespaces.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test/benchmark/harness.h"
#include "test/program/sandbox.h"

namespace netmeter {
namespace internal {

void Shell(const std::string& command) {
  std::string error;
  if (!RunCommand(command, &error)) Die(error);
}

UniqueFd ThisNetwork() {
  // Of the thread: /proc/self is the first one of the process.
  return UniqueFd(Check(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC),
                        "network namespace"));
}

UniqueFd NewNetwork() {
  Check(unshare(CLONE_NEWNET), "new network namespace");
  return ThisNetwork();
}

void EnterNetwork(const UniqueFd& network) {
  Check(setns(network.get(), CLONE_NEWNET), "enter a network namespace");
}

std::string PathOf(const UniqueFd& network) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" +
         std::to_string(network.get());
}

sockaddr_in At(const std::string& address, uint16_t port) {
  sockaddr_in result = {};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  inet_pton(AF_INET, address.c_str(), &result.sin_addr);
  return result;
}

void Bind(const UniqueFd& fd, const sockaddr_in& address) {
  Check(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
             sizeof(address)),
        "bind");
}

void Connect(const UniqueFd& fd, const sockaddr_in& address) {
  Check(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)),
        "connect");
}

void SetOn(const UniqueFd& fd, int level, int option) {
  const int on = 1;
  Check(setsockopt(fd.get(), level, option, &on, sizeof(on)), "setsockopt");
}

}  // namespace internal
}  // namespace netmeter
