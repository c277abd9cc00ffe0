// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/workload.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "test/benchmark/harness.h"
#include "test/program/programs.h"

namespace netmeter {
namespace internal {
namespace {

constexpr uint16_t kPort = 4000;
constexpr size_t kMessage = 64;

// The number of operations between two looks at the clock.
constexpr int kBatch = 16;

void SendMessage(const UniqueFd& fd) {
  static const char message[kMessage] = {};
  if (send(fd.get(), message, kMessage, MSG_NOSIGNAL) != kMessage) {
    DieWithErrno("send");
  }
}

void ReceiveMessage(const UniqueFd& fd) {
  char message[kMessage];
  if (recv(fd.get(), message, kMessage, MSG_WAITALL) != kMessage) {
    DieWithErrno("receive");
  }
}

// What is done in batches by one thread.
class Batches : public Workload {
 public:
  using Workload::Workload;

  double Run(double seconds) override {
    double result = 0;
    // A thread of its own: only that is pinned, and not what comes after.
    std::thread worker([&] {
      PinToCpu(AllowedCpus().front());
      const double start = NowNs();
      double now = start;
      uint64_t operations = 0;
      while (now - start < seconds * 1e9) {
        operations += static_cast<uint64_t>(RunBatch());
        now = NowNs();
      }
      operations_ += operations;
      result = static_cast<double>(operations) / (now - start) * 1e9;
    });
    worker.join();
    return result;
  }
};

// Batches over one TCP connection.
class OneConnection : public Batches {
 public:
  using Batches::Batches;

  void Open(TestNetwork* network, const Place& place) override {
    const UniqueFd listener = network->Listen(place, kPort);
    client_ = network->Connect(place, SOCK_STREAM, kPort);
    server_ = Accept(listener);
  }
  void Close() override {
    client_ = UniqueFd();
    server_ = UniqueFd();
  }

 protected:
  UniqueFd client_, server_;
};

class TcpRequests : public OneConnection {
 public:
  TcpRequests() : OneConnection("tcp_rr", "trips/s") {}

 private:
  int RunBatch() override {
    for (int i = 0; i < kBatch; ++i) {
      SendMessage(client_);
      ReceiveMessage(server_);
      SendMessage(server_);
      ReceiveMessage(client_);
    }
    return kBatch;
  }
};

class SmallUdp : public Batches {
 public:
  explicit SmallUdp(int flows)
      : Batches("udp_" + std::to_string(flows), "packets/s"), flows_(flows) {}

  void Open(TestNetwork* network, const Place& place) override {
    for (int i = 0; i < flows_; ++i) {
      const auto own = static_cast<uint16_t>(kPort + 1000 + i);
      const auto port = static_cast<uint16_t>(kPort + i);
      receivers_.push_back(network->BindUdp(place, port, own));
      senders_.push_back(network->Connect(place, SOCK_DGRAM, port, own));
    }
  }
  void Close() override {
    senders_.clear();
    receivers_.clear();
    next_ = 0;
  }

 private:
  int RunBatch() override {
    const size_t first = next_;
    for (int i = 0; i < kBatch; ++i) {
      SendMessage(senders_[(first + i) % senders_.size()]);
    }
    for (int i = 0; i < kBatch; ++i) {
      ReceiveMessage(receivers_[(first + i) % receivers_.size()]);
    }
    next_ = (first + kBatch) % senders_.size();
    return kBatch;
  }

  const int flows_;
  std::vector<UniqueFd> senders_, receivers_;
  size_t next_ = 0;
};

class Churn : public Batches {
 public:
  Churn() : Batches("churn", "connections/s") {}

  void Open(TestNetwork* network, const Place& place) override {
    network_ = network;
    place_ = &place;
    for (int i = 0; i < kListeners; ++i) {
      listeners_.push_back(
          network->Listen(place, static_cast<uint16_t>(kPort + i)));
    }
  }
  void Close() override { listeners_.clear(); }

 private:
  // More than one, so that a client's port is free again when it is due.
  static constexpr int kListeners = 8;

  int RunBatch() override {
    for (int i = 0; i < kListeners; ++i) {
      UniqueFd client = network_->Connect(*place_, SOCK_STREAM,
                                          static_cast<uint16_t>(kPort + i));
      const UniqueFd server = Accept(listeners_[static_cast<size_t>(i)]);
      SendMessage(client);
      ReceiveMessage(server);
      SendMessage(server);
      ReceiveMessage(client);
    }
    return kListeners;
  }

  TestNetwork* network_ = nullptr;
  const Place* place_ = nullptr;
  std::vector<UniqueFd> listeners_;
};

class Download : public OneConnection {
 public:
  Download() : OneConnection("download", "MB/s") {}

 private:
  static constexpr size_t kMegabyte = 1000000;

  int RunBatch() override {
    for (size_t sent = 0, received = 0; received < kMegabyte;) {
      const ssize_t now_sent = send(server_.get(), bytes_,
                                    std::min(sizeof(bytes_), kMegabyte - sent),
                                    MSG_DONTWAIT | MSG_NOSIGNAL);
      if (now_sent < 0 && errno != EAGAIN) DieWithErrno("send");
      sent += static_cast<size_t>(std::max<ssize_t>(now_sent, 0));
      const ssize_t now_received =
          recv(client_.get(), bytes_, sizeof(bytes_), MSG_DONTWAIT);
      if (now_received < 0 && errno != EAGAIN) DieWithErrno("receive");
      received += static_cast<size_t>(std::max<ssize_t>(now_received, 0));
    }
    return 1;
  }

  char bytes_[64 << 10] = {};
};

}  // namespace

std::unique_ptr<Workload> MakeTcpRequests() {
  return std::make_unique<TcpRequests>();
}
std::unique_ptr<Workload> MakeSmallUdp(int flows) {
  return std::make_unique<SmallUdp>(flows);
}
std::unique_ptr<Workload> MakeChurn() { return std::make_unique<Churn>(); }
std::unique_ptr<Workload> MakeDownload() {
  return std::make_unique<Download>();
}

}  // namespace internal
}  // namespace netmeter
