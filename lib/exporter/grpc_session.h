// SPDX-License-Identifier: BSD-3-Clause
// One connection of gRPC, as bytes in and bytes out: HTTP/2 by nghttp2, and the
// calls of one service on top. It knows no socket (grpc_peer.h does).
//
//   std::unique_ptr<GrpcSession> session = GrpcSession::Create(&service);
//   if (!session->Receive(bytes) || !session->FillOutput()) Close();
//   Send(session->mutable_output());
//
// How a call goes. HEADERS of the request name the method; DATA carries one
// message, which means nothing; its end makes us answer. HEADERS of the reply
// leave at once. The reply itself is fetched from the cache at the moment when
// the peer's flow-control windows allow its first byte to be sent: a peer that
// opens calls and gives them no window holds no memory of ours. From there on
// the call shares the reply's bytes with all others that send it, and what
// nghttp2 calls DATA are references to these bytes in output(). The status
// follows in trailers. A call that fails before has its status in the HEADERS.
//
// What bounds a session: kMaxCalls at once, kMaxHeldReplies different replies
// that these hold (further ones wait for the first), kMaxOutputBytes that wait
// for the socket (then the caller stops reading, too), kMaxHeaderBytes of a
// request's fields; nghttp2's own limits of acknowledgements that wait, of
// CONTINUATION frames, of settings, and of streams that are reset. Who exceeds
// one of nghttp2's ends the connection. A call without progress ends after
// kCallTimeout, a connection without calls after kIdleTimeout.
//
// Threads: one.

#ifndef NETMETER_LIB_EXPORTER_GRPC_SESSION_H_
#define NETMETER_LIB_EXPORTER_GRPC_SESSION_H_

#include <nghttp2/nghttp2.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/exporter/output_queue.h"
#include "lib/exporter/reply_cache.h"

namespace netmeter {
namespace internal {

// What gRPC adds to HTTP/2, as far as a server of unary methods without
// arguments needs it (gRPC's doc/PROTOCOL-HTTP2.md).
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

// A message in the wire format: whether it is compressed, its length in four
// bytes, and the message.
constexpr size_t kGrpcPrefixBytes = 5;
std::string GrpcPrefix(size_t message_bytes, bool compressed);

// The value of grpc-message: all but printable ASCII becomes %XX, and % too.
std::string PercentEncode(absl::string_view text);

// The value of grpc-timeout, such as "30S" or "1500m". Returns false if it is
// none.
bool ParseGrpcTimeout(absl::string_view text,
                      std::chrono::steady_clock::duration* timeout);

// Whether a request with this content-type is one of gRPC.
bool IsGrpcContentType(absl::string_view text);

// What we say that we accept in requests, as a value of grpc-accept-encoding.
// All of it is easy: nobody looks at a request's bytes.
constexpr char kGrpcAcceptEncoding[] = "identity,deflate,gzip";
bool IsAcceptedGrpcEncoding(absl::string_view name);

// Whether a client that sends this grpc-accept-encoding takes gzip in replies.
bool AcceptsGrpcGzip(absl::string_view text);

// Reads the body of a request, which has to be one message. Keeps nothing of it:
// the message is a Void, whose bytes mean nothing.
class GrpcRequestReader {
 public:
  // Requests are empty, so even this is much.
  static constexpr size_t kMaxMessageBytes = 64 * 1024;

  enum class Result {
    kIncomplete,
    kComplete,
    kTooMany,     // more than one message
    kTooLong,     // the message, or what it says about its length
    kCompressed,  // which `encoding` does not tell how
    kBadFlag,
  };

  // The value of grpc-encoding; "identity" where there is none.
  void set_encoding(absl::string_view encoding) {
    compressed_allowed_ = encoding != "identity";
  }

  // Takes bytes of the body. What is neither kIncomplete nor kComplete is final.
  Result Read(absl::string_view bytes);

 private:
  Result ReadPrefix();

  bool compressed_allowed_ = false;
  uint8_t prefix_[kGrpcPrefixBytes] = {};
  size_t prefix_size_ = 0;
  size_t message_left_ = 0;
};

// The methods that are answered, all by replies of a cache.
struct GrpcService {
  ReplyCache* replies = nullptr;
  std::string path;                    // such as "/magma.orc8r.Service303/"
  std::map<std::string, int> methods;  // by name: the kind of reply
};

class GrpcSession {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr uint32_t kMaxCalls = 16;
  static constexpr size_t kMaxHeldReplies = 4;
  static constexpr size_t kMaxOutputBytes = 64 * 1024;
  static constexpr size_t kMaxHeaderBytes = 16 * 1024;
  static constexpr std::chrono::seconds kCallTimeout{30};
  // How long after its deadline a reply that is under way may still go on.
  static constexpr std::chrono::seconds kDeadlineGrace{1};
  static constexpr std::chrono::seconds kIdleTimeout{600};

  // Null without memory. `service` must outlive the session.
  static std::unique_ptr<GrpcSession> Create(const GrpcService* service);
  ~GrpcSession();
  GrpcSession(const GrpcSession&) = delete;
  GrpcSession& operator=(const GrpcSession&) = delete;

  // Takes what the peer sent, from HTTP/2's preface on. Returns false if the
  // connection is over; what is in output() may still be sent.
  bool Receive(absl::string_view bytes);

  // Moves what there is to send to output(), until that is full or flow control
  // forbids more. Returns false if the connection is over.
  bool FillOutput();
  OutputQueue* mutable_output() { return &output_; }
  const OutputQueue& output() const { return output_; }
  bool output_full() const { return output_.memory() >= kMaxOutputBytes; }

  // Whether both sides have said all.
  bool finished() const;

  // When the first call, or the idle connection, has had its time.
  Clock::time_point Deadline() const;
  // Ends the calls that have had their time. Returns false if the connection
  // has.
  bool OnDeadline();

  // Tells the peer that no further call will be answered.
  void GoAway();

  uint64_t calls_begun() const { return calls_begun_; }
  bool HoldsReply() const;

 private:
  struct Call {
    // Of the request's fields.
    size_t header_bytes = 0;
    bool post = false;
    bool content_type = false;
    bool te = false;
    bool encoding = true;  // one that is accepted
    bool timeout = true;   // none, or a valid one
    bool gzip = false;     // taken in the reply
    std::string path;
    Clock::time_point times_out_at = Clock::time_point::max();

    // Of the request's body.
    GrpcRequestReader request;
    GrpcRequestReader::Result body = GrpcRequestReader::Result::kIncomplete;
    bool request_ended = false;

    // Of the reply.
    bool answered = false;  // HEADERS are on their way
    int kind = -1;
    SharedReply reply;  // from its first byte in output() to its last
    size_t reply_bytes = 0;
    size_t offered = 0;  // of prefix and reply
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

  // What is wrong with a call's head, which ends it at once, and with its body.
  // Both return whether it was ended.
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

#endif  // NETMETER_LIB_EXPORTER_GRPC_SESSION_H_
