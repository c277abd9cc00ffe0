// The TCP health of this process's own connections, without root and without a meter:
//
//   bazel run //examples:connections -- 192.0.2.1 443
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdlib>
#include <iostream>

#include "netmeter/connections.h"

int main(int argc, char** argv) {
  // The service's own work: here, one connection.
  sockaddr_in to = {AF_INET, {}, {}, {}};
  if (argc == 3) {
    to.sin_port = htons(static_cast<uint16_t>(atoi(argv[2])));
    inet_pton(AF_INET, argv[1], &to.sin_addr);
  }
  const int peer = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(peer, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    std::cerr << "usage: connections ADDRESS PORT of somebody who answers\n";
    return 1;
  }
  const auto connections = netmeter::ReadOwnConnections();
  if (!connections.ok()) {
    std::cerr << connections.status() << "\n";
    return 1;
  }
  for (const netmeter::Connection& c : *connections) {
    std::cout << c.state << " " << c.remote_address << ":" << c.remote_port
              << " rtt " << c.rtt_us << " us, retransmitted segments "
              << c.retransmitted_segments << ", held back by the receiver "
              << c.limited_by_receiver_us << " us\n";
  }
}
