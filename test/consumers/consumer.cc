// SPDX-License-Identifier: BSD-3-Clause
// consumer PIN-DIR: the same as consumer.c in C++, by meter.h and connections.h. C++14,
// and neither exceptions nor RTTI. The program has an abseil of its own, and uses it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "netmeter/connections.h"
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

bool FindsItsConnection() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to = {};
  socklen_t size = sizeof(to);
  auto* const address = reinterpret_cast<sockaddr*>(&to);
  if (listen(listener, 1) != 0 || getsockname(listener, address, &size) != 0) {
    return false;
  }
  to.sin_addr.s_addr = inet_addr("127.0.0.1");
  if (connect(client, address, sizeof(to)) != 0 ||
      send(client, "hello", 5, 0) != 5) {
    return false;
  }
  const auto own = netmeter::ReadOwnConnections();
  const auto one = netmeter::ReadConnection(client);
  if (!own.ok() || !one.ok()) return false;
  int found = 0;
  for (const netmeter::Connection& connection : *own) {
    if (connection.cookie == one->cookie && connection.state == "ESTABLISHED" &&
        connection.remote_address == "127.0.0.1" &&
        connection.sent_bytes == 5) {
      ++found;
    }
  }
  return found == 1 && close(client) == 0 && close(listener) == 0;
}

// record "flow", service "mme", tx_bytes 300
bool DecodesFlows() {
  netmeter::FlowDecoder decoder;
  netmeter::FlowRecord record;
  return decoder
             .Append(
                 "\x0f\x0a\x04"
                 "flow\x72\x03mme\xf0\x01\xac\x02")
             .ok() &&
         decoder.Next(&record).value_or(false) && record.service == "mme" &&
         record.tx_bytes == 300 && !decoder.Next(&record).value_or(true) &&
         decoder.Append("\x01\x02").ok() &&
         decoder.Next(&record).status().code() == absl::StatusCode::kDataLoss;
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
  if (!FindsItsConnection() || !DecodesFlows()) return 4;
  const absl::StatusOr<std::string> text = Run(argv[1]);
  if (!text.ok()) {
    printf("%d: %s\n", static_cast<int>(text.status().code()),
           std::string(text.status().message()).c_str());
    return text.status().GetPayload("consumer").has_value() ? 2 : 3;
  }
  printf("%s", text->c_str());
  return 0;
}
