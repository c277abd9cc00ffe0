// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/ipfix/collector.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <iostream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

constexpr timeval kMaxWait = {1, 0};
constexpr std::chrono::seconds kRetry(1);
// Over UDP, a kernel without a listener answers once in a second at most.
constexpr std::chrono::seconds kQuiet(3);

// UDP has no flow control, and thousands of flows may end at once. A pause after a
// burst, which takes a third of a socket's default buffer, lets the collector read.
constexpr unsigned kBurst = 32;
constexpr useconds_t kPauseUs = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<Collector>> Collector::Make(
    const std::string& address, Protocol protocol) {
  const size_t colon = address.rfind(':');
  absl::string_view host = absl::string_view(address).substr(0, colon);
  std::string port;
  if (colon != std::string::npos) port = address.substr(colon + 1);
  const bool brackets =
      absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  uint32_t number;
  if (host.empty() || !absl::SimpleAtoi(port, &number) || number == 0 ||
      number > UINT16_MAX ||
      brackets != (host.find(':') != absl::string_view::npos)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected HOST:PORT or [IPV6]:PORT, not '", address, "'"));
  }
  return std::unique_ptr<Collector>(
      new Collector(address, std::string(host), port, protocol));
}

Collector::Collector(std::string name, std::string host, std::string port,
                     Protocol protocol)
    : name_(std::move(name)),
      host_(std::move(host)),
      port_(std::move(port)),
      protocol_(protocol) {}

absl::Status Collector::Resolve() {
  addrinfo wanted = {};
  wanted.ai_socktype = protocol_ == kUdp ? SOCK_DGRAM : SOCK_STREAM;
  addrinfo* found = nullptr;
  const int looked_up =
      getaddrinfo(host_.c_str(), port_.c_str(), &wanted, &found);
  if (looked_up != 0) {
    return absl::UnavailableError(
        absl::StrCat(name_, ": ", gai_strerror(looked_up)));
  }
  addresses_.reset(found);
  return absl::OkStatus();
}

absl::Status Collector::TryToConnect() {
  int error = 0;
  for (const addrinfo* one = addresses_.get(); one != nullptr;
       one = one->ai_next) {
    UniqueFd fd(socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, 0));
    // Also limits connect(2).
    if (!fd.ok() ||
        setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kMaxWait,
                   sizeof(kMaxWait)) != 0 ||
        connect(fd.get(), one->ai_addr, one->ai_addrlen) != 0) {
      error = errno == EINPROGRESS ? ETIMEDOUT : errno;
      continue;
    }
    socket_ = std::move(fd);
    break;
  }
  if (!socket_.ok()) return absl::UnavailableError(strerror(error));
  return absl::OkStatus();
}

// 0, or the errno of what has happened since the last message: over UDP, a refused one;
// over TCP, the connection's end. A collector never sends.
int Collector::PendingError() const {
  char byte;
  const ssize_t length = recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
  if (length == 0 && protocol_ == kTcp) return EPIPE;
  return length < 0 && errno != EAGAIN && errno != EINTR ? errno : 0;
}

void Collector::Check() {
  const int error = socket_.ok() ? PendingError() : 0;
  if (error != 0) Failed(strerror(error));
}

bool Collector::Connect() {
  Check();
  if (socket_.ok() || Clock::now() < next_try_) return false;
  const absl::Status status = TryToConnect();
  next_try_ = Clock::now() + kRetry;
  if (!status.ok()) Failed(status.message());
  return status.ok();
}

void Collector::Send(absl::string_view message, size_t records) {
  if (!socket_.ok()) {
    not_sent_ += records;
    return;
  }
  ssize_t sent;
  do {
    sent = send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != static_cast<ssize_t>(message.size())) {
    not_sent_ += records;
    // Time is up, perhaps within the message.
    Failed(strerror(sent >= 0 || errno == EAGAIN ? ETIMEDOUT : errno));
    return;
  }
  last_records_ = records;
  if (protocol_ == kUdp && ++messages_ % kBurst == 0) usleep(kPauseUs);
  if (failing_ && Clock::now() - last_failure_ > kQuiet) {
    failing_ = false;
    std::cerr << absl::StrCat("netmeter-ipfix: ", ToTerminal(name_),
                              ": it works again; ", not_sent_,
                              " data records were not sent\n");
  }
}

void Collector::Failed(absl::string_view why) {
  // At least the last message did not arrive. How many more is not known.
  if (socket_.ok()) not_sent_ += std::exchange(last_records_, 0);
  socket_ = UniqueFd();
  last_failure_ = Clock::now();
  if (std::exchange(failing_, true)) return;
  std::cerr << absl::StrCat("netmeter-ipfix: ", ToTerminal(name_), ": ", why,
                            " (trying again; records are lost meanwhile)\n");
}

}  // namespace internal
}  // namespace netmeter
