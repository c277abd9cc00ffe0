// SPDX-License-Identifier: BSD-3-Clause
// Makes IPFIX messages (RFC 7011) of flow records, by libfixbuf.
//
//   auto messages = Messages::Make({.domain = 7}, [](auto message, size_t) {
//     send(socket, message.data(), message.size(), 0);
//   });
//   absl::Status status = (*messages)->Add(record);
//   (*messages)->Flush();
//
// A flow record gives two data records, one for each direction, because few collectors
// read the biflows of RFC 5103. docs/connections.md has the table of elements.
//
// libfixbuf only encodes: its own sockets block without a limit.
//
// Threads: one. glib ends the process if memory runs out.

#ifndef NETMETER_LIB_APPS_IPFIX_MESSAGES_H_
#define NETMETER_LIB_APPS_IPFIX_MESSAGES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netmeter/connections.h"

struct _GError;  // of glib

namespace netmeter {
namespace internal {

struct MessageOptions {
  uint32_t domain = 0;  // the observation domain
  uint32_t enterprise =
      32473;  // of our elements: the one of RFC 5612, for documents
  // How often the templates are sent again. 0: once, as a TCP connection needs it.
  std::chrono::seconds repeat{0};
};

// A transport session: a TCP connection, or all datagrams to a collector.
class Messages {
 public:
  // Gets each message, and the number of its data records.
  using Take = std::function<void(absl::string_view message, size_t records)>;

  static absl::StatusOr<std::unique_ptr<Messages>> Make(
      const MessageOptions& options, Take take);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // Adds a data record for each direction that has packets. Internal if libfixbuf fails.
  absl::Status Add(const FlowRecord& record);

  // Completes the message that Add() began. Internal as for Add().
  absl::Status Flush();

 private:
  struct Fixbuf;

  Messages(const MessageOptions& options, Take take);
  absl::Status Init(const MessageOptions& options);
  absl::Status Append(const std::function<bool(_GError** error)>& append);
  absl::Status AddTemplatesIfDue();
  absl::Status AddDirection(const FlowRecord& record, bool tx);

  static constexpr size_t kMessageHeader = 16;

  const std::chrono::seconds repeat_;
  const Take take_;
  const std::unique_ptr<Fixbuf> fixbuf_;
  std::chrono::steady_clock::time_point
      templates_due_;             // at once, in the beginning
  bool empty_ = true;             // the message
  size_t used_ = kMessageHeader;  // of its bytes, at most
  size_t records_ = 0;            // data records in it
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_IPFIX_MESSAGES_H_
