// SPDX-License-Identifier: BSD-3-Clause
// netmeter-exporter as a child process, for tests.
//
//   ExporterProcess exporter({"--pin-dir", dir});
//   EXPECT_THAT(exporter.Get("/metrics"), HasSubstr("netmeter_up 1"));
//   EXPECT_EQ(exporter.Stop(), 0);
//
// Threads: any may call Get() and Connect(); one calls the rest.

#ifndef NETMETER_LIB_APPS_EXPORTER_EXPORTER_PROCESS_H_
#define NETMETER_LIB_APPS_EXPORTER_EXPORTER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/base/unique_fd.h"
#include "service303.grpc.pb.h"

namespace netmeter {
namespace internal {

class ExporterProcess {
 public:
  // Starts the exporter on free ports of 127.0.0.1, with the families `default` on
  // both, and waits until it serves. `arguments` come last.
  explicit ExporterProcess(const std::vector<std::string>& arguments,
                           const std::string& service303 = "127.0.0.1:0");
  ~ExporterProcess();

  // The ports; 0 if the exporter has not printed one.
  int http_port() const { return http_port_; }
  int grpc_port() const { return grpc_port_; }
  pid_t pid() const { return pid_; }
  // Its output on stderr so far.
  const std::string& output() const { return output_; }

  // Connects and sends; each step, and each read, waits 30 seconds at most.
  static UniqueFd Connect(int port, const std::string& send_this);
  // Reads until the peer closes; "(timeout)" at the end if it does not.
  static std::string ReadAll(const UniqueFd& fd);

  // The whole reply to a GET request.
  std::string Get(const std::string& path,
                  const std::string& accept = "*/*") const;

  // Each has its own connection and gRPC's defaults, as magmad has.
  std::shared_ptr<grpc::Channel> Channel() const;
  std::unique_ptr<magma::orc8r::Service303::Stub> Stub() const;

  // Resident memory in KiB.
  long MemoryKib() const;

  // Sends SIGTERM. Returns the exit status, or -1 after 10 seconds.
  int Stop();

 private:
  long KibOf(const std::string& field) const;

  pid_t pid_ = -1;
  UniqueFd stderr_;
  std::string output_;
  int http_port_ = 0;
  int grpc_port_ = 0;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_EXPORTER_PROCESS_H_
