// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/exporter_process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace netmeter {
namespace internal {
namespace {

constexpr char kProgram[] = "lib/apps/exporter/netmeter-exporter";
constexpr int kTimeoutSeconds = 30;

int PortAfter(const std::string& text, const std::string& marker) {
  const size_t found = text.find(marker);
  if (found == std::string::npos) return 0;
  return atoi(text.c_str() + found + marker.size());
}

}  // namespace

ExporterProcess::ExporterProcess(const std::vector<std::string>& arguments,
                                 const std::string& service303) {
  constexpr char kFamilies[] = "--service303-families";
  std::vector<std::string> all = {kProgram, "--listen", "127.0.0.1:0",
                                  "--service303", service303};
  // The families of /metrics, unless a test passes others; the default has only two.
  if (std::find(arguments.begin(), arguments.end(), kFamilies) ==
      arguments.end()) {
    all.insert(all.end(), {kFamilies, "default"});
  }
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(&argument[0]);
  argv.push_back(nullptr);
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  stderr_ = UniqueFd(fds[0]);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(fds[1], STDERR_FILENO);
    execv(kProgram, argv.data());
    _exit(127);
  }
  close(fds[1]);
  // Until it prints that it serves, or exits.
  char buffer[4096];
  ssize_t count;
  while ((http_port_ == 0 || grpc_port_ == 0 || output_.back() != '\n') &&
         (count = read(fds[0], buffer, sizeof(buffer))) > 0) {
    output_.append(buffer, static_cast<size_t>(count));
    http_port_ = PortAfter(output_, "http://127.0.0.1:");
    for (const char* address : {"127.0.0.1:", "0.0.0.0:"}) {
      grpc_port_ =
          std::max(grpc_port_,
                   PortAfter(output_, std::string("Service303 at ") + address));
    }
  }
  EXPECT_NE(http_port_, 0) << output_;
  EXPECT_NE(grpc_port_, 0) << output_;
}

ExporterProcess::~ExporterProcess() {
  if (pid_ > 0) Stop();
}

UniqueFd ExporterProcess::Connect(int port, const std::string& send_this) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout = {kTimeoutSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  // This also limits connect(2), which the kernel would retry for two minutes.
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)),
            0)
      << strerror(errno);
  // The peer may reject the request before it has all of it.
  size_t sent = 0;
  while (sent < send_this.size()) {
    const ssize_t count = send(fd.get(), send_this.data() + sent,
                               send_this.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) break;
    sent += static_cast<size_t>(count);
  }
  return fd;
}

std::string ExporterProcess::ReadAll(const UniqueFd& fd) {
  std::string all;
  char buffer[65536];
  while (true) {
    const ssize_t count = recv(fd.get(), buffer, sizeof(buffer), 0);
    if (count == 0 || (count < 0 && errno == ECONNRESET)) return all;
    if (count < 0) return all + "(timeout)";
    all.append(buffer, static_cast<size_t>(count));
  }
}

std::string ExporterProcess::Get(const std::string& path,
                                 const std::string& accept) const {
  return ReadAll(Connect(http_port_, "GET " + path +
                                         " HTTP/1.1\r\nHost: localhost\r\n"
                                         "Connection: close\r\n"
                                         "Accept: " +
                                         accept + "\r\n\r\n"));
}

std::shared_ptr<grpc::Channel> ExporterProcess::Channel() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(grpc_port_),
                                   grpc::InsecureChannelCredentials(),
                                   arguments);
}

std::unique_ptr<magma::orc8r::Service303::Stub> ExporterProcess::Stub() const {
  return magma::orc8r::Service303::NewStub(Channel());
}

long ExporterProcess::MemoryKib() const { return KibOf("VmRSS:"); }

long ExporterProcess::KibOf(const std::string& field) const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  std::string word;
  while (status >> word) {
    if (word != field) continue;
    long kib;
    status >> kib;
    return kib;
  }
  return -1;
}

int ExporterProcess::Stop() {
  const pid_t pid = pid_;
  pid_ = -1;
  kill(pid, SIGTERM);
  for (int i = 0; i < 1000; ++i) {
    int status;
    if (waitpid(pid, &status, WNOHANG) == pid) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    usleep(10000);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return -1;
}

}  // namespace internal
}  // namespace netmeter
