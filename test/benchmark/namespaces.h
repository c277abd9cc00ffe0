// SPDX-License-Identifier: BSD-3-Clause
// Network namespaces and sockets in them, for benchmarks: whatever fails here
// ends the process with a message.
//
//   const UniqueFd here = ThisNetwork();
//   const UniqueFd there = NewNetwork();  // the thread is in it
//   EnterNetwork(here);
//   Shell("ip link set nm1 netns " + PathOf(there));
//
// Threads: a namespace is entered by the calling thread alone.

#ifndef NETMETER_TEST_BENCHMARK_NAMESPACES_H_
#define NETMETER_TEST_BENCHMARK_NAMESPACES_H_

#include <netinet/in.h>

#include <cstdint>
#include <string>

#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {

// Runs a command line.
void Shell(const std::string& command);

UniqueFd ThisNetwork();
UniqueFd NewNetwork();
void EnterNetwork(const UniqueFd& network);
// A name for it that other programs understand, while this process lives.
std::string PathOf(const UniqueFd& network);

// An address of IPv4.
sockaddr_in At(const std::string& address, uint16_t port);

void Bind(const UniqueFd& fd, const sockaddr_in& address);
void Connect(const UniqueFd& fd, const sockaddr_in& address);
void SetOn(const UniqueFd& fd, int level, int option);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_NAMESPACES_H_
