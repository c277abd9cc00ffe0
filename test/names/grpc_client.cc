// SPDX-License-Identifier: BSD-3-Clause
// gRPC C++ as Magma's services use it: one channel for each cloud service, told
// apart by grpc.default_authority. And the cloud, which echoes.
//
//   grpc_client HOST:PORT AUTHORITY=BYTES...
//   grpc_client serve HOST:PORT

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>

namespace {

class Echo : public grpc::CallbackGenericService {
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartRead(&message_); }
    void OnReadDone(bool ok) override {
      if (ok)
        StartWrite(&message_);
      else
        Finish(grpc::Status::OK);
    }
    void OnWriteDone(bool ok) override {
      if (ok)
        StartRead(&message_);
      else
        Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer message_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    return new Reactor;
  }
};

int Serve(const std::string& address) {
  Echo echo;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(&echo);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  server->Wait();
  return 0;
}

bool Call(const std::string& target, const std::string& authority,
          size_t bytes) {
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, authority);
  const auto channel = grpc::CreateCustomChannel(
      target, grpc::InsecureChannelCredentials(), arguments);
  grpc::GenericStub stub(channel);
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    const grpc::Slice slice(std::string(bytes, 'x'));
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(20));
    stub.UnaryCall(&context, "/test.Names/Echo", {}, &request, &response,
                   [&](const grpc::Status& status) { done.set_value(status); });
    const grpc::Status status = done.get_future().get();
    if (!status.ok() || response.Length() != bytes) {
      std::fprintf(stderr, "grpc_client: %s: %d %s, %zu bytes\n",
                   authority.c_str(), status.error_code(),
                   status.error_message().c_str(), response.Length());
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "serve") return Serve(argv[2]);
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos ||
        !Call(argv[1], argument.substr(0, equals),
              std::strtoul(argument.c_str() + equals + 1, nullptr, 10)))
      return 1;
  }
  return 0;
}
