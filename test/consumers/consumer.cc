// SPDX-License-Identifier: BSD-3-Clause
// consumer PIN-DIR: the same as consumer.c in C++, by meter.h. C++14, and neither
// exceptions nor RTTI. The program has an abseil of its own, and uses it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "netmeter/meter.h"

namespace {

absl::Status SendDatagram() {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  const absl::Status status = netmeter::TagSocket(fd, "streamer");
  if (!status.ok()) return status;
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = inet_addr("10.88.0.2");
  if (sendto(fd, "hello", 5, 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)) !=
      5) {
    return absl::InternalError("sendto");
  }
  return absl::OkStatus();
}

// In lines, as a status with a payload: the parts of a Status that versions of
// abseil keep differently.
absl::StatusOr<std::string> Run(const std::string& pin_dir) {
  netmeter::MeterOptions options;
  options.pin_dir = pin_dir;
  options.service = "consumer";
  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) {
    absl::Status status = meter.status();
    status.SetPayload("consumer", absl::Cord("no meter"));
    return status;
  }
  const absl::Status sent = SendDatagram();
  if (!sent.ok()) return sent;
  std::vector<netmeter::Sample> samples;
  const absl::Status status = (*meter)->ReadService(&samples);
  if (!status.ok()) return status;
  std::string text;
  for (const netmeter::Sample& sample : samples) {
    absl::StrAppend(&text, sample.name, " ", sample.destination, " ",
                    netmeter::TransportName(sample.transport), " ",
                    sample.tx_bytes, "\n");
  }
  const auto health = (*meter)->ReadHealth();
  if (!health.ok()) return health.status();
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  const absl::StatusOr<std::string> text = Run(argv[1]);
  if (!text.ok()) {
    printf("%d: %s\n", static_cast<int>(text.status().code()),
           std::string(text.status().message()).c_str());
    return text.status().GetPayload("consumer").has_value() ? 2 : 3;
  }
  printf("%s", text->c_str());
  return 0;
}
