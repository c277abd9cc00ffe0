#include <arpa/inet.h>

#include <iostream>

#include "netmeter/meter.h"

// The service's own work, unchanged. Here, a datagram of five bytes.
void Work() {
  sockaddr_in to = {AF_INET, htons(9), {inet_addr("192.0.2.1")}, {}};
  sendto(socket(AF_INET, SOCK_DGRAM, 0), "hello", 5, 0,
         reinterpret_cast<sockaddr*>(&to), sizeof(to));
}

void Print(const netmeter::UplinkCounts& one, const std::string& what) {
  std::cout << what << " " << one.interface_bytes << " bytes: local "
            << one.local_bytes << ", forwarded " << one.forwarded_bytes
            << ", layer-2 headers " << one.layer2_header_bytes << ", unnamed "
            << one.unnamed_bytes << "\n";
}

int main() {
  netmeter::MeterOptions options;
  options.service = "my-service";
  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) return (std::cerr << meter.status() << "\n", 1);
  Work();
  auto uplinks = (*meter)->ReadUplinks();
  auto own = (*meter)->ReadService();
  if (!uplinks.ok()) return (std::cerr << uplinks.status() << "\n", 1);
  if (!own.ok()) return (std::cerr << own.status() << "\n", 1);
  for (const netmeter::Uplink& uplink : *uplinks) {
    Print(uplink.tx, uplink.name + " sent");
    Print(uplink.rx, uplink.name + " received");
  }
  uint64_t mine = 0, all = 0;
  for (const netmeter::Sample& sample : *own)
    if (sample.uplink == "satellite") mine += sample.tx_bytes + sample.rx_bytes;
  for (const netmeter::Uplink& uplink : *uplinks)
    if (uplink.name == "satellite")
      all = uplink.tx.interface_bytes - uplink.tx.layer2_header_bytes +
            uplink.rx.interface_bytes - uplink.rx.layer2_header_bytes;
  std::cout << "my share of the satellite: " << mine << " of " << all << "\n";
}
