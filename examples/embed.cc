#include <arpa/inet.h>

#include <iostream>

#include "netmeter/meter.h"

// The service's own work, unchanged. Here, a datagram of five bytes.
void Work() {
  sockaddr_in to = {AF_INET, htons(9), {inet_addr("192.0.2.1")}, {}};
  sendto(socket(AF_INET, SOCK_DGRAM, 0), "hello", 5, 0,
         reinterpret_cast<sockaddr*>(&to), sizeof(to));
}

int Fail(const absl::Status& status) {
  std::cerr << status << "\n";
  return 1;
}

int main() {
  netmeter::MeterOptions options;
  options.service = "my-service";
  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) return Fail(meter.status());
  Work();
  auto series = (*meter)->ReadService();
  if (!series.ok()) return Fail(series.status());
  for (const netmeter::Sample& s : *series) {
    std::cout << s.name << ", " << TransportName(s.transport) << ": sent "
              << s.tx_bytes << " bytes, received " << s.rx_bytes << "\n";
  }
}
