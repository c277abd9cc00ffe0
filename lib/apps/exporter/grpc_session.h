// SPDX-License-Identifier: BSD-3-Clause
// One gRPC connection, as bytes in and bytes out: nghttp2 speaks HTTP/2, and the calls
// of one service are on top. The socket is in grpc_peer.h.
//
//   std::unique_ptr<GrpcSession> session = GrpcSession::Create(&service);
//   if (!session->Receive(bytes) || !session->FillOutput()) Close();
//   Send(session->mutable_output());
//
// A call. The request's HEADERS name the method. DATA carries one message, whose bytes
// mean nothing. The end of the request starts the answer. The reply's HEADERS leave at
// once. The reply itself is fetched from the cache when the peer's flow-control windows
// allow its first byte to be sent: a peer that opens calls and gives them no window
// holds no memory of the server. From then on the call shares the reply's bytes with
// all others that send it, and nghttp2's DATA are references to these bytes in
// output(). The status follows in trailers. A call that fails before the reply has its
// status in HEADERS.
//
// Limits of a session: kMaxCalls at once; kMaxHeldReplies different replies that these
// calls hold (further ones wait for the first); kMaxOutputBytes that wait for the
// socket (then the caller stops reading, too); kMaxHeaderBytes in a request's fields;
// and nghttp2's limits on waiting acknowledgements, CONTINUATION frames, settings and
// stream resets. Exceeding one of nghttp2's limits ends the connection. A call without
// progress ends after kCallTimeout, a connection without calls after kIdleTimeout.
//
// Threads: one.

#ifndef NETMETER_LIB_APPS_EXPORTER_GRPC_SESSION_H_
#define NETMETER_LIB_APPS_EXPORTER_GRPC_SESSION_H_

#include <nghttp2/nghttp2.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/apps/exporter/output_queue.h"
#include "lib/apps/exporter/reply_cache.h"
#include "lib/apps/exporter/server.h"

namespace netmeter {
namespace internal {

// The part of gRPC on top of HTTP/2 that a server of unary methods without arguments
// needs (gRPC's doc/PROTOCOL-HTTP2.md).
//
// Threads: any.

// gRPC's doc/statuscodes.md.
enum class GrpcCode {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
};

// A message on the wire is a flag for compression, its length in four bytes, and the
// message.
constexpr size_t kGrpcPrefixBytes = 5;
std::string GrpcPrefix(size_t message_bytes, bool compressed);

// The value of grpc-message: %XX for a percent sign and for bytes other than printable
// ASCII.
std::string PercentEncode(absl::string_view text);

// Parses the value of grpc-timeout, such as "30S" or "1500m". Returns false if it is
// malformed.
bool ParseGrpcTimeout(absl::string_view text,
                      std::chrono::steady_clock::duration* timeout);

// Whether this is the content-type of a gRPC request.
bool IsGrpcContentType(absl::string_view text);

// The value of grpc-accept-encoding in replies. Each is easy to accept, because the
// bytes of a request are not read.
constexpr char kGrpcAcceptEncoding[] = "identity,deflate,gzip";
bool IsAcceptedGrpcEncoding(absl::string_view name);

// Whether a client that sends this grpc-accept-encoding takes gzip in replies.
bool AcceptsGrpcGzip(absl::string_view text);

// Reads the body of a request, which has to be one message. Keeps none of it: the
// message is a Void, whose bytes mean nothing.
class GrpcRequestReader {
 public:
  // Requests are empty, so this is generous.
  static constexpr size_t kMaxMessageBytes = 64 * 1024;

  enum class Result {
    kIncomplete,
    kComplete,
    kTooMany,     // more than one message
    kTooLong,     // the message, or its declared length
    kCompressed,  // but `encoding` does not name the format
    kBadFlag,
  };

  // The value of grpc-encoding; "identity" if it is missing.
  void set_encoding(absl::string_view encoding) {
    compressed_allowed_ = encoding != "identity";
  }

  // Takes bytes of the body. A result other than kIncomplete and kComplete is final.
  Result Read(absl::string_view bytes);

 private:
  Result ReadPrefix();

  bool compressed_allowed_ = false;
  uint8_t prefix_[kGrpcPrefixBytes] = {};
  size_t prefix_size_ = 0;
  size_t message_left_ = 0;
};

class GrpcSession {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr uint32_t kMaxCalls = 16;
  static constexpr size_t kMaxHeldReplies = 4;
  static constexpr size_t kMaxOutputBytes = 64 * 1024;
  static constexpr size_t kMaxHeaderBytes = 16 * 1024;
  static constexpr std::chrono::seconds kCallTimeout{30};
  // How long a reply that has begun may go on after its deadline.
  static constexpr std::chrono::seconds kDeadlineGrace{1};
  static constexpr std::chrono::seconds kIdleTimeout{600};

  // Null if there is no memory. `service` must outlive the session.
  static std::unique_ptr<GrpcSession> Create(const GrpcService* service);
  ~GrpcSession();
  GrpcSession(const GrpcSession&) = delete;
  GrpcSession& operator=(const GrpcSession&) = delete;

  // Takes what the peer sent, from HTTP/2's preface on. Returns false if the
  // connection is over; what is in output() may still be sent.
  bool Receive(absl::string_view bytes);

  // Moves bytes to output() until it is full or flow control forbids more. Returns
  // false if the connection is over.
  bool FillOutput();
  OutputQueue* mutable_output() { return &output_; }
  const OutputQueue& output() const { return output_; }
  bool output_full() const { return output_.memory() >= kMaxOutputBytes; }

  // Whether both sides have sent everything.
  bool finished() const;

  // When the first call, or the idle connection, times out.
  Clock::time_point Deadline() const;
  // Ends the calls that have timed out. Returns false if the connection has.
  bool OnDeadline();

  // Tells the peer that no further call will be answered.
  void GoAway();

  uint64_t calls_begun() const { return calls_begun_; }
  bool HoldsReply() const;

 private:
  struct Call {
    // From the request's fields.
    size_t header_bytes = 0;
    bool post = false;
    bool content_type = false;
    bool te = false;
    bool encoding = true;  // the encoding is accepted
    bool timeout = true;   // the timeout is missing or valid
    bool gzip = false;     // accepted in the reply
    std::string path;
    Clock::time_point times_out_at = Clock::time_point::max();

    // From the request's body.
    GrpcRequestReader request;
    GrpcRequestReader::Result body = GrpcRequestReader::Result::kIncomplete;
    bool request_ended = false;

    // The reply.
    bool answered = false;  // HEADERS are on their way
    int kind = -1;
    SharedReply reply;  // from its first byte in output() to its last
    size_t reply_bytes = 0;
    size_t offered = 0;  // bytes of prefix and reply
    bool postponed = false;
    Clock::time_point progress_at;
  };

  explicit GrpcSession(const GrpcService* service) : service_(service) {}
  bool Start();
  static nghttp2_session_callbacks* Callbacks();

  // nghttp2's callbacks; each returns 0 or an error of nghttp2's. May throw.
  int OnBeginHeaders(const nghttp2_frame& frame);
  int OnHeader(const nghttp2_frame& frame, absl::string_view name,
               absl::string_view value);
  int OnFrame(const nghttp2_frame& frame);
  int OnData(int32_t stream, absl::string_view bytes);
  int OnFrameSent(const nghttp2_frame& frame);
  int OnStreamClose(int32_t stream);
  ssize_t OnReadReply(int32_t stream, size_t length, uint32_t* flags);
  int OnSendData(const nghttp2_frame& frame, const uint8_t* head,
                 size_t length);

  // End a call if its head is wrong, at once, or its body. Return whether they did.
  bool RejectHead(int32_t stream, Call* call);
  bool RejectBody(int32_t stream, Call* call);
  void Reject(int32_t stream, Call* call, GrpcCode code,
              absl::string_view message, const char* http_status = "200");
  void SendReply(int32_t stream, Call* call);
  void SendStatus(int32_t stream, GrpcCode code, absl::string_view message);
  bool HoldsTooManyWith(const SharedReply& reply) const;
  void ResumePostponed();
  static Clock::time_point DeadlineOf(const Call& call);
  void EndCall(int32_t stream, Call* call);

  const GrpcService* const service_;
  nghttp2_session* session_ = nullptr;
  OutputQueue output_;
  std::map<int32_t, Call> calls_;  // by stream
  uint64_t calls_begun_ = 0;
  Clock::time_point idle_since_ = Clock::now();
  bool reply_released_ = false;  // since the last ResumePostponed()
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_EXPORTER_GRPC_SESSION_H_
