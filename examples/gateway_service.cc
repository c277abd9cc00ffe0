// SPDX-License-Identifier: BSD-3-Clause
// A small gateway service. It calls cloud services by gRPC through the gateway's
// proxy, checks in by UDP, then publishes its traffic on its own /metrics until
// SIGTERM.
//
//   gateway_service --proxy 127.0.0.1:8443 --cloud 10.0.0.2:9000
//   curl http://127.0.0.1:9091/metrics
//
// main() has the code for libnetmeter: Meter::Open() with a name, and a collectable
// for the service's existing Exposer. The gRPC calls need no code, because the kernel
// reads their cloud service in :authority. The datagrams do not name a destination,
// so their socket has a tag. Without a loaded meter the service works as before, and
// netmeter_up is 0.
//
// The other end is cloud_stub.py; demo.sh starts both.

#include <arpa/inet.h>
#include <errno.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "netmeter/meter.h"
#include "netmeter/prometheus.h"
#include "prometheus/exposer.h"

namespace {

constexpr int kTimeoutSeconds = 10;  // of each call, read and write
constexpr uint64_t kMessageBytes = 1 << 20;

// A cloud service, reached through the proxy: a channel of its own, on which
// every request asks for SERVICE-controller.magma.test.
class CloudService {
 public:
  CloudService(const std::string& proxy, const std::string& service)
      : stub_(grpc::CreateCustomChannel(
            proxy, grpc::InsecureChannelCredentials(), Arguments(service))) {}

  // Sends this number of bytes, by a generic stub instead of generated code.
  grpc::Status Upload(uint64_t bytes) {
    grpc::Status status;
    for (; status.ok() && bytes > 0; bytes -= std::min(bytes, kMessageBytes)) {
      status = Call("/cloud.Stub/Upload",
                    std::string(std::min(bytes, kMessageBytes), 'u'), 0);
    }
    return status;
  }

  // Requests this number of bytes.
  grpc::Status Download(uint64_t bytes) {
    grpc::Status status;
    for (; status.ok() && bytes > 0; bytes -= std::min(bytes, kMessageBytes)) {
      const uint64_t size = std::min(bytes, kMessageBytes);
      status = Call("/cloud.Stub/Download", std::to_string(size), size);
    }
    return status;
  }

 private:
  static grpc::ChannelArguments Arguments(const std::string& service) {
    grpc::ChannelArguments arguments;
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY,
                        service + "-controller.magma.test");
    return arguments;
  }

  grpc::Status Call(const std::string& method, const std::string& message,
                    uint64_t answer_bytes) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(kTimeoutSeconds));
    const grpc::Slice slice(message);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer answer;
    std::promise<grpc::Status> done;
    stub_.UnaryCall(
        &context, method, {}, &request, &answer,
        [&](const grpc::Status& status) { done.set_value(status); });
    const grpc::Status status = done.get_future().get();
    if (status.ok() && answer.Length() != answer_bytes) {
      return grpc::Status(grpc::StatusCode::INTERNAL,
                          std::to_string(answer.Length()) + " bytes came");
    }
    return status;
  }

  grpc::GenericStub stub_;
};

// Sends datagrams of 1000 bytes and receives each of them back from the cloud.
bool CheckIn(const sockaddr_in& cloud, int datagrams) {
  char datagram[1000] = {};
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const timeval timeout = {kTimeoutSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  // If tagging fails, the traffic is counted without a destination.
  netmeter::TagSocket(fd, "checkin").IgnoreError();
  errno = 0;
  bool good = connect(fd, reinterpret_cast<const sockaddr*>(&cloud),
                      sizeof(cloud)) == 0;
  for (; good && datagrams > 0; --datagrams) {
    good = send(fd, datagram, sizeof(datagram), 0) == sizeof(datagram) &&
           recv(fd, datagram, sizeof(datagram), 0) == sizeof(datagram);
  }
  const int saved = errno;
  if (fd >= 0) close(fd);
  errno = saved;
  return good;
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

int Fail(const std::string& what) {
  std::cerr << "gateway_service: " << what << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  netmeter::MeterOptions options;
  options.service = "subscriberdb";
  options.wait_for_loader = true;
  std::string proxy, cloud_text;
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
  app.add_option("--proxy", proxy,
                 "The proxy to the cloud's gRPC services, IP:PORT; no calls "
                 "without");
  app.add_option("--upload", upload, "Bytes to send to the cloud's metricsd")
      ->capture_default_str();
  app.add_option("--download", download,
                 "Bytes to receive from the cloud's streamer")
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

  // For sigwait() below; all other threads inherit it.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);

  auto meter = netmeter::Meter::Open(options);
  if (!meter.ok()) return Fail(std::string(meter.status().message()));
  const auto metrics = std::make_shared<netmeter::PrometheusCollectable>(
      std::move(*meter), netmeter::PublishOptions());
  std::unique_ptr<prometheus::Exposer> exposer;
  try {
    exposer = std::make_unique<prometheus::Exposer>(listen);
    exposer->RegisterCollectable(metrics);
  } catch (const std::exception& error) {
    return Fail("cannot listen on " + listen + ": " + error.what());
  }

  CloudService metricsd(proxy, "metricsd"), streamer(proxy, "streamer");
  if (!proxy.empty()) {
    grpc::Status status = metricsd.Upload(upload);
    if (!status.ok()) return Fail("metricsd: " + status.error_message());
    status = streamer.Download(download);
    if (!status.ok()) return Fail("streamer: " + status.error_message());
  }
  if (!CheckIn(cloud, datagrams)) {
    return Fail(std::string("check in: ") + strerror(errno));
  }
  std::cout << "transfers done, metrics on http://" << listen << "/metrics"
            << std::endl;

  int signal_number;
  sigwait(&stop, &signal_number);
  return 0;
}
