// SPDX-License-Identifier: BSD-3-Clause
// A gateway service in small: uploads to the cloud, downloads from it, reports
// by UDP, then publishes what that cost on its own /metrics until SIGTERM.
//
//   gateway_service --cloud 10.0.0.2:9000
//   curl http://127.0.0.1:9091/metrics
//
// What libnetmeter needs of a service is in main(): Meter::Open() with a name,
// and one collectable for the Exposer that the service has anyway. Without a
// loaded meter the service works all the same, and netmeter_up is 0.
//
// The other end is cloud_stub.py; demo.sh starts both.

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "netmeter/meter.h"
#include "netmeter/prometheus.h"
#include "prometheus/exposer.h"

namespace {

constexpr int kTimeoutSeconds = 10;  // of each read and write

// A socket that is connected to the cloud, and named after the cloud service
// that it talks to.
class Connection {
 public:
  Connection(int type, const sockaddr_in& cloud, const std::string& destination)
      : fd_(socket(AF_INET, type | SOCK_CLOEXEC, 0)) {
    const timeval timeout = {kTimeoutSeconds, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    // Before connect(), so that the handshake is counted there, too. No matter
    // if it fails: the traffic is counted without a destination then.
    netmeter::TagSocket(fd_, destination).IgnoreError();
    errno = 0;
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&cloud),
                         sizeof(cloud)) == 0;
  }
  ~Connection() {
    if (fd_ >= 0) close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }

  bool Send(const char* data, size_t size) {
    while (size > 0) {
      const ssize_t sent = send(fd_, data, size, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data += sent;
      size -= static_cast<size_t>(sent);
    }
    return true;
  }

  // One read: how many bytes, 0 at the end of the stream, -1 for an error.
  ssize_t Receive() { return recv(fd_, buffer_, sizeof(buffer_), 0); }

 private:
  const int fd_;
  bool connected_ = false;
  char buffer_[64 * 1024];
};

// The three transfers wait until the cloud has closed, or answered: whoever
// closes a TCP connection first leaves it in TIME_WAIT, where packets have no
// socket any more that they could be counted for.

bool Upload(const sockaddr_in& cloud, uint64_t bytes) {
  Connection connection(SOCK_STREAM, cloud, "metricsd");
  const std::string header = "UP " + std::to_string(bytes) + "\n";
  const std::string block(64 * 1024, 'u');
  if (!connection.connected()) return false;
  if (!connection.Send(header.data(), header.size())) return false;
  while (bytes > 0) {
    const size_t size = std::min<uint64_t>(bytes, block.size());
    if (!connection.Send(block.data(), size)) return false;
    bytes -= size;
  }
  return connection.Receive() == 0;
}

bool Download(const sockaddr_in& cloud, uint64_t bytes) {
  Connection connection(SOCK_STREAM, cloud, "streamer");
  const std::string header = "DOWN " + std::to_string(bytes) + "\n";
  if (!connection.connected()) return false;
  if (!connection.Send(header.data(), header.size())) return false;
  ssize_t size;
  while ((size = connection.Receive()) > 0) {
    if (static_cast<uint64_t>(size) > bytes) return false;
    bytes -= static_cast<uint64_t>(size);
  }
  return size == 0 && bytes == 0;
}

// Datagrams of 1000 bytes, each of which the cloud sends back.
bool Report(const sockaddr_in& cloud, int datagrams) {
  Connection connection(SOCK_DGRAM, cloud, "checkin");
  const std::string datagram(1000, 'd');
  if (!connection.connected()) return false;
  for (; datagrams > 0; --datagrams) {
    if (!connection.Send(datagram.data(), datagram.size())) return false;
    if (connection.Receive() != static_cast<ssize_t>(datagram.size())) {
      return false;
    }
  }
  return true;
}

bool ParseAddress(const std::string& text, sockaddr_in* address) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  const unsigned long port = strtoul(text.c_str() + colon + 1, nullptr, 10);
  *address = {};
  address->sin_family = AF_INET;
  address->sin_port = htons(static_cast<uint16_t>(port));
  return port > 0 && port < 65536 &&
         inet_pton(AF_INET, text.substr(0, colon).c_str(),
                   &address->sin_addr) == 1;
}

std::string Reason() {
  return errno != 0 ? strerror(errno) : "not what the cloud should answer";
}

int Fail(const std::string& what) {
  std::cerr << "gateway_service: " << what << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  netmeter::MeterOptions options;
  options.service = "subscriberdb";
  options.wait_for_loader = true;
  std::string cloud_text;
  std::string listen = "127.0.0.1:9091";
  uint64_t upload = 1000000;
  uint64_t download = 1000000;
  int datagrams = 100;

  CLI::App app("A gateway service in small, metered by libnetmeter.",
               "gateway_service");
  app.add_option("--name", options.service, "Name of the service")
      ->capture_default_str();
  app.add_option("--cloud", cloud_text, "Where cloud_stub.py listens, IP:PORT")
      ->required();
  app.add_option("--upload", upload, "Bytes to send by TCP")
      ->capture_default_str();
  app.add_option("--download", download, "Bytes to receive by TCP")
      ->capture_default_str();
  app.add_option("--datagrams", datagrams, "UDP datagrams to send")
      ->capture_default_str();
  app.add_option("--listen", listen, "Where to publish /metrics, IP:PORT")
      ->capture_default_str();
  app.add_option("--pin-dir", options.pin_dir, "Of netmeter-loader")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  sockaddr_in cloud;
  if (!ParseAddress(cloud_text, &cloud)) return Fail("--cloud is no IP:PORT");

  // For sigwait() below; the Exposer's threads inherit it.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);

  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) return Fail(std::string(meter.status().message()));
  const auto metrics = std::make_shared<netmeter::PrometheusCollectable>(
      std::move(*meter), netmeter::PrometheusCollectable::Scope::kService);
  std::unique_ptr<prometheus::Exposer> exposer;
  try {
    exposer = std::make_unique<prometheus::Exposer>(listen);
    exposer->RegisterCollectable(metrics);
  } catch (const std::exception& error) {
    return Fail("cannot listen on " + listen + ": " + error.what());
  }

  if (!Upload(cloud, upload)) return Fail("upload: " + Reason());
  if (!Download(cloud, download)) return Fail("download: " + Reason());
  if (!Report(cloud, datagrams)) return Fail("datagrams: " + Reason());
  std::cout << "transfers done, metrics on http://" << listen << "/metrics"
            << std::endl;

  int signal_number;
  sigwait(&stop, &signal_number);
  return 0;
}
