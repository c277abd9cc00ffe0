// SPDX-License-Identifier: BSD-3-Clause
// Runs in a process with its own generated code for the same packages, like a service of
// Magma.
#include "netmeter/grpc.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service303.grpc.pb.h"

namespace netmeter {
namespace {

using ::testing::HasSubstr;

using magma::orc8r::MetricsContainer;
using magma::orc8r::MetricsController;
using Stub = magma::orc8r::Service303::Stub;
using magma::orc8r::Void;

std::shared_ptr<const Meter> MeterWithoutLoader() {
  MeterOptions options;
  options.pin_dir = testing::TempDir() + "/no-meter-here";
  options.wait_for_loader = true;
  auto meter = Meter::Open(options);
  EXPECT_TRUE(meter.ok()) << meter.status();
  return std::move(*meter);
}

Service303Options Options() {
  Service303Options options;
  options.name = "subscriberdb";
  options.version = "1.9.0";
  return options;
}

// The host's own service; remembers its callers.
class HostService : public MetricsController::Service {
 public:
  grpc::Status Collect(grpc::ServerContext* context, const MetricsContainer*,
                       Void*) override {
    peers_.push_back(context->peer());
    return grpc::Status::OK;
  }
  const std::vector<std::string>& peers() const { return peers_; }

 private:
  std::vector<std::string> peers_;
};

class Service303Test : public testing::Test {
 protected:
  void Start(std::shared_ptr<const Meter> meter) {
    service_ = std::make_unique<Service303>(std::move(meter), Options());
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&host_service_);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = magma::orc8r::Service303::NewStub(Channel());
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown();
  }
  std::string Target() const { return "127.0.0.1:" + std::to_string(port_); }
  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel(Target(), grpc::InsecureChannelCredentials());
  }

  HostService host_service_;
  std::unique_ptr<Service303> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Stub> stub_;
  int port_ = 0;
};

TEST_F(Service303Test, GetMetricsIsWhatAProto2ReaderNeeds) {
  for (const bool null : {false, true}) {
    Start(null ? nullptr : MeterWithoutLoader());
    grpc::ClientContext context;
    MetricsContainer container;
    const grpc::Status status = stub_->GetMetrics(&context, Void(), &container);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(container.family_size(), 1);
    EXPECT_EQ(container.family(0).name(), "netmeter_up");
    EXPECT_TRUE(container.family(0).has_type());
    ASSERT_EQ(container.family(0).metric_size(), 1);
    EXPECT_TRUE(container.family(0).metric(0).gauge().has_value());
    EXPECT_GT(container.family(0).metric(0).timestamp_ms(), 1600000000000);
    server_->Shutdown();
    server_.reset();
  }
}

// Not time(2): it reads the clock of the last tick, milliseconds late. In one run of
// thousands it was a second behind the answer.
int64_t UnixSeconds() {
  using std::chrono::seconds;
  using std::chrono::system_clock;
  return std::chrono::duration_cast<seconds>(
             system_clock::now().time_since_epoch())
      .count();
}

TEST_F(Service303Test, GetServiceInfoSaysWhoIsThereAndHowTheMeterIs) {
  const int64_t before = UnixSeconds();
  Start(MeterWithoutLoader());
  grpc::ClientContext context;
  magma::orc8r::ServiceInfo info;
  ASSERT_TRUE(stub_->GetServiceInfo(&context, Void(), &info).ok());
  EXPECT_EQ(info.name(), "subscriberdb");
  EXPECT_EQ(info.version(), "1.9.0");
  // Comparisons with EXPECT_EQ would take references. The generated code, which is C++14,
  // defines these constants, and then this file would define them, too.
  EXPECT_TRUE(info.state() == magma::orc8r::ServiceInfo::ALIVE);
  EXPECT_TRUE(info.health() == magma::orc8r::ServiceInfo::APP_HEALTHY);
  const auto start = static_cast<int64_t>(info.start_time_secs());
  EXPECT_GE(start, before);
  EXPECT_LE(start, UnixSeconds());
  ASSERT_EQ(info.status().meta().count("netmeter"), 1u);
  EXPECT_THAT(info.status().meta().at("netmeter"),
              HasSubstr("waiting for a meter"));
}

TEST_F(Service303Test, TheRestIsUnimplementedByName) {
  Start(nullptr);
  const auto expect = [](const grpc::Status& status, const char* name) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_EQ(status.error_message(),
              std::string(name) + " is not implemented");
  };
  Void none;
  {
    grpc::ClientContext context;
    expect(stub_->StopService(&context, Void(), &none), "StopService");
  }
  {
    grpc::ClientContext context;
    expect(stub_->SetLogLevel(&context, magma::orc8r::LogLevelMessage(), &none),
           "SetLogLevel");
  }
  {
    grpc::ClientContext context;
    expect(
        stub_->SetLogVerbosity(&context, magma::orc8r::LogVerbosity(), &none),
        "SetLogVerbosity");
  }
}

// The bug: magmad's state reporter logged an error at each check-in.
TEST_F(Service303Test, AnswersWhatMagmaAsksOfEveryService) {
  Start(nullptr);
  grpc::ClientContext context, other;
  magma::orc8r::GetOperationalStatesResponse states;
  const grpc::Status status =
      stub_->GetOperationalStates(&context, Void(), &states);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(states.states_size(), 0);
  magma::orc8r::ReloadConfigResponse reload;
  EXPECT_TRUE(stub_->ReloadServiceConfig(&other, Void(), &reload).ok());
  EXPECT_TRUE(reload.result() ==
              magma::orc8r::ReloadConfigResponse::RELOAD_UNSUPPORTED);
}

TEST(Service303, StopServiceCallsWhatTheHostGave) {
  std::atomic<int> stops{0};
  Service303Options options;
  options.stop = [&stops] { ++stops; };
  Service303 service(nullptr, options);
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto stub = magma::orc8r::Service303::NewStub(
      server->InProcessChannel(grpc::ChannelArguments()));
  grpc::ClientContext context;
  Void none;
  EXPECT_TRUE(stub->StopService(&context, Void(), &none).ok());
  EXPECT_EQ(stops, 1);
  server->Shutdown();
}

TEST(Service303, ServesBesideAnAsynchronousAndAGenericService) {
  MetricsController::AsyncService host;
  grpc::AsyncGenericService generic;
  Service303 service(nullptr, Options());
  grpc::ServerBuilder builder;
  builder.RegisterService(&host);
  builder.RegisterAsyncGenericService(&generic);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::ServerCompletionQueue> queue =
      builder.AddCompletionQueue();
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  auto stub = magma::orc8r::Service303::NewStub(
      server->InProcessChannel(grpc::ChannelArguments()));
  grpc::ClientContext context, other;
  MetricsContainer container;
  EXPECT_TRUE(stub->GetMetrics(&context, Void(), &container).ok());
  Void none;
  EXPECT_EQ(stub->StopService(&other, Void(), &none).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  server->Shutdown();
  queue->Shutdown();
  void* tag;
  bool ok;
  while (queue->Next(&tag, &ok)) {
  }
}

class ChannelTagTest : public Service303Test {
 protected:
  // The address from which a new channel with this tag called.
  std::string PeerOf(const std::string& tag) {
    grpc::ChannelArguments arguments;
    EXPECT_EQ(SetChannelTag(tag, &arguments), !tag.empty());
    channels_.push_back(grpc::CreateCustomChannel(
        Target(), grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    Void none;
    const grpc::Status status =
        MetricsController::NewStub(channels_.back())
            ->Collect(&context, MetricsContainer(), &none);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return host_service_.peers().empty() ? "" : host_service_.peers().back();
  }

  std::vector<std::shared_ptr<grpc::Channel>> channels_;
};

// gRPC lets channels with equal arguments share their connections.
TEST_F(ChannelTagTest, ChannelsShareAConnectionOnlyIfTheirTagsAreEqual) {
  Start(nullptr);
  const std::string streamer = PeerOf("streamer");
  const std::string state = PeerOf("state");
  const std::string none = PeerOf("");
  EXPECT_NE(streamer, state);
  EXPECT_NE(streamer, none);
  EXPECT_NE(state, none);
  EXPECT_EQ(PeerOf("streamer"), streamer);
  EXPECT_EQ(PeerOf("state"), state);
}

TEST(ChannelTag, ArgumentsCanBeCopiedChangedAndDropped) {
  grpc::ChannelArguments arguments;
  EXPECT_TRUE(SetChannelTag("streamer", &arguments));
  EXPECT_TRUE(SetChannelTag("state", &arguments));
  grpc::ChannelArguments copy = arguments;
  grpc::ChannelArguments other;
  copy = other;
  EXPECT_TRUE(SetChannelTag("x", &copy));
}

TEST(ChannelTag, RefusesWhatIsNoName) {
  grpc::ChannelArguments arguments;
  EXPECT_FALSE(SetChannelTag("", &arguments));
  EXPECT_FALSE(SetChannelTag(std::string(65, 'x'), &arguments));
  EXPECT_FALSE(SetChannelTag(absl::string_view("a\0b", 3), &arguments));
}

}  // namespace
}  // namespace netmeter
