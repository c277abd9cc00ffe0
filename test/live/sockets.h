// SPDX-License-Identifier: BSD-3-Clause
// Calls on sockets for the processes of the tests: a call that fails ends the
// process, and one that waits has a limit.

#ifndef NETMETER_TEST_LIVE_SOCKETS_H_
#define NETMETER_TEST_LIVE_SOCKETS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "lib/testing/net_namespace.h"

namespace netmeter {
namespace internal {

int OpenSocket(int family, int type, int protocol = 0);
void SetOption(int fd, int level, int name, int value);
void SetOption(int fd, int level, int name, const std::string& value);
int Bind(int fd, const Address& address, int port = 0);  // returns the port
int PortOf(int fd);
void Connect(int fd, const Address& address, int port);
// A datagram socket receives what comes to a group by this link.
void JoinGroup(int fd, const Address& group, const std::string& link);
// It sends to groups of that family by this link.
void SendToGroupsBy(int fd, int family, const std::string& link);
// connect(2) to an address at which nothing listens.
void BeRefused(int fd, const Address& address, int port);
// A ping socket, and one exchange of an echo request with this payload.
int OpenPing(const Address& to);
void Ping(int fd, size_t bytes, int sequence = 0);
// A new socket that is connected.
int Connected(const Address& to, int port, int type = SOCK_STREAM);
// A new TCP socket that listens, also where connections of others are in TIME_WAIT.
int Listen(const Address& address, int port, int backlog);
void Abort(int fd);  // close(2) that sends a RST
// Sends a command through the control channel (abi.h). Returns 0 or an errno.
int Control(int fd, int name, const std::string& value);
void Register(const std::string& service);  // the calling process
void WaitReadable(int fd);
int Accept(int listener);
void SendAll(int fd, uint64_t bytes);
void SendText(int fd, const std::string& text);
void SendTo(int fd, const std::string& data, const Address& to, int port);
uint64_t ReceiveExactly(int fd, uint64_t bytes);
uint64_t ReceiveUntilEnd(int fd);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_SOCKETS_H_
