// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/grpc_session.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace netmeter {
namespace internal {

std::string GrpcPrefix(size_t message_bytes, bool compressed) {
  std::string prefix(1, compressed ? '\1' : '\0');
  for (const int shift : {24, 16, 8, 0}) {
    prefix.push_back(static_cast<char>(message_bytes >> shift));
  }
  return prefix;
}

std::string PercentEncode(absl::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte >= 0x20 && byte <= 0x7e && c != '%') {
      result.push_back(c);
    } else {
      result.push_back('%');
      result.push_back(kHex[byte >> 4]);
      result.push_back(kHex[byte & 15]);
    }
  }
  return result;
}

bool ParseGrpcTimeout(absl::string_view text,
                      std::chrono::steady_clock::duration* timeout) {
  constexpr size_t kMaxDigits = 8;
  if (text.size() < 2 || text.size() > kMaxDigits + 1) return false;
  int64_t value = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
    value = 10 * value + (c - '0');
  }
  // 99,999,999 hours in nanoseconds exceed 64 bits, so a day is the maximum.
  using std::chrono::nanoseconds;
  constexpr int64_t kDayNs = int64_t{24} * 3600 * 1000000000;
  int64_t unit_ns;
  switch (text.back()) {
    case 'H':
      unit_ns = int64_t{3600} * 1000000000;
      break;
    case 'M':
      unit_ns = int64_t{60} * 1000000000;
      break;
    case 'S':
      unit_ns = 1000000000;
      break;
    case 'm':
      unit_ns = 1000000;
      break;
    case 'u':
      unit_ns = 1000;
      break;
    case 'n':
      unit_ns = 1;
      break;
    default:
      return false;
  }
  *timeout = nanoseconds(std::min(value, kDayNs / unit_ns) * unit_ns);
  return true;
}

bool IsGrpcContentType(absl::string_view text) {
  // "application/grpc", "application/grpc+proto", "application/grpc;x=y".
  return absl::ConsumePrefix(&text, "application/grpc") &&
         (text.empty() || text[0] == '+' || text[0] == ';');
}

bool IsAcceptedGrpcEncoding(absl::string_view name) {
  return name == "identity" || name == "deflate" || name == "gzip";
}

bool AcceptsGrpcGzip(absl::string_view text) {
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    if (absl::StripAsciiWhitespace(name) == "gzip") return true;
  }
  return false;
}

GrpcRequestReader::Result GrpcRequestReader::Read(absl::string_view bytes) {
  while (!bytes.empty()) {
    if (prefix_size_ == sizeof(prefix_)) {
      if (message_left_ == 0) return Result::kTooMany;
      const size_t step = std::min(message_left_, bytes.size());
      message_left_ -= step;
      bytes.remove_prefix(step);
      continue;
    }
    prefix_[prefix_size_++] = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    if (prefix_size_ == sizeof(prefix_)) {
      const Result result = ReadPrefix();
      if (result != Result::kComplete) return result;
    }
  }
  return prefix_size_ == sizeof(prefix_) && message_left_ == 0
             ? Result::kComplete
             : Result::kIncomplete;
}

// kComplete if the prefix is valid.
GrpcRequestReader::Result GrpcRequestReader::ReadPrefix() {
  if (prefix_[0] > 1) return Result::kBadFlag;
  if (prefix_[0] == 1 && !compressed_allowed_) return Result::kCompressed;
  for (size_t i = 1; i < sizeof(prefix_); ++i) {
    message_left_ = message_left_ << 8 | prefix_[i];
  }
  return message_left_ > kMaxMessageBytes ? Result::kTooLong
                                          : Result::kComplete;
}

namespace {

// nghttp2's limits for one connection. Its defaults are larger, as they are for servers
// of many streams.
constexpr size_t kMaxOutboundAcks = 1000;
constexpr size_t kMaxSettings = 32;
constexpr size_t kMaxContinuations = 8;
// A client resets the streams of calls that it gives up. The most at once, and in a
// second.
constexpr uint64_t kResetBurst = 200;
constexpr uint64_t kResetsPerSecond = 20;

// A header block may decompress to many times its size. Beyond this limit it is an
// attack, not a mistake, and the connection ends.
constexpr size_t kAbsurdHeaderBytes = 4 * GrpcSession::kMaxHeaderBytes;

// RFC 9113, 6.5.2: the size of a field beyond its name and value.
constexpr size_t kHeaderOverheadBytes = 32;

constexpr size_t kMaxPathBytes = 256;  // repeated in a status

nghttp2_nv Field(absl::string_view name, absl::string_view value) {
  // nghttp2 copies both, and takes pointers that are not const.
  const auto bytes = [](absl::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

absl::string_view View(const uint8_t* bytes, size_t size) {
  return absl::string_view(reinterpret_cast<const char*>(bytes), size);
}

// Calls a method of the session. No exception may pass through nghttp2, which is C.
template <typename Function>
auto WithoutThrowing(void* session, const Function& call) noexcept
    -> decltype(call(static_cast<GrpcSession*>(session))) {
  try {
    return call(static_cast<GrpcSession*>(session));
  } catch (const std::exception&) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
}

}  // namespace

constexpr uint32_t GrpcSession::kMaxCalls;
constexpr size_t GrpcSession::kMaxHeldReplies;
constexpr size_t GrpcSession::kMaxOutputBytes;
constexpr size_t GrpcSession::kMaxHeaderBytes;
constexpr std::chrono::seconds GrpcSession::kCallTimeout;
constexpr std::chrono::seconds GrpcSession::kDeadlineGrace;
constexpr std::chrono::seconds GrpcSession::kIdleTimeout;

std::unique_ptr<GrpcSession> GrpcSession::Create(const GrpcService* service) {
  std::unique_ptr<GrpcSession> session(new GrpcSession(service));
  if (!session->Start()) return nullptr;
  return session;
}

GrpcSession::~GrpcSession() { nghttp2_session_del(session_); }

bool GrpcSession::Start() {
  // Made once. If there is no memory for it, the next connection tries again.
  static nghttp2_session_callbacks* callbacks = nullptr;
  if (callbacks == nullptr) callbacks = Callbacks();
  nghttp2_option* option = nullptr;
  if (callbacks == nullptr || nghttp2_option_new(&option) != 0) return false;
  nghttp2_option_set_max_outbound_ack(option, kMaxOutboundAcks);
  nghttp2_option_set_max_settings(option, kMaxSettings);
  nghttp2_option_set_max_continuations(option, kMaxContinuations);
  nghttp2_option_set_stream_reset_rate_limit(option, kResetBurst,
                                             kResetsPerSecond);
  // Closed streams are not kept: they would only serve priorities.
  nghttp2_option_set_no_closed_streams(option, 1);
  const int created =
      nghttp2_session_server_new2(&session_, callbacks, this, option);
  nghttp2_option_del(option);
  if (created != 0) return false;
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMaxCalls},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHeaderBytes},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  };
  return nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings,
                                 sizeof(settings) / sizeof(settings[0])) == 0;
}

// Each callback calls the method of its session.
nghttp2_session_callbacks* GrpcSession::Callbacks() {
  nghttp2_session_callbacks* callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) return nullptr;
  nghttp2_session_callbacks_set_on_begin_headers_callback(
      callbacks,
      [](nghttp2_session*, const nghttp2_frame* frame, void* session) {
        return WithoutThrowing(session, [&](GrpcSession* self) {
          return self->OnBeginHeaders(*frame);
        });
      });
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame,
                    const uint8_t* name, size_t name_size, const uint8_t* value,
                    size_t value_size, uint8_t, void* session) {
        return WithoutThrowing(session, [&](GrpcSession* self) {
          return self->OnHeader(*frame, View(name, name_size),
                                View(value, value_size));
        });
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      callbacks,
      [](nghttp2_session*, const nghttp2_frame* frame, void* session) {
        return WithoutThrowing(
            session, [&](GrpcSession* self) { return self->OnFrame(*frame); });
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks, [](nghttp2_session*, uint8_t, int32_t stream,
                    const uint8_t* bytes, size_t size, void* session) {
        return WithoutThrowing(session, [&](GrpcSession* self) {
          return self->OnData(stream, View(bytes, size));
        });
      });
  nghttp2_session_callbacks_set_on_frame_send_callback(
      callbacks,
      [](nghttp2_session*, const nghttp2_frame* frame, void* session) {
        return WithoutThrowing(session, [&](GrpcSession* self) {
          return self->OnFrameSent(*frame);
        });
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(
      callbacks, [](nghttp2_session*, int32_t stream, uint32_t, void* session) {
        return WithoutThrowing(session, [&](GrpcSession* self) {
          return self->OnStreamClose(stream);
        });
      });
  nghttp2_session_callbacks_set_send_data_callback(
      callbacks, [](nghttp2_session*, nghttp2_frame* frame, const uint8_t* head,
                    size_t length, nghttp2_data_source*, void* session) {
        return WithoutThrowing(session, [&](GrpcSession* self) {
          return self->OnSendData(*frame, head, length);
        });
      });
  return callbacks;
}

bool GrpcSession::Receive(absl::string_view bytes) {
  return nghttp2_session_mem_recv(
             session_, reinterpret_cast<const uint8_t*>(bytes.data()),
             bytes.size()) >= 0;
}

bool GrpcSession::FillOutput() {
  while (!output_full()) {
    ResumePostponed();
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &bytes);
    if (size < 0) return false;
    if (size > 0) {
      output_.Append(View(bytes, static_cast<size_t>(size)));
    } else if (!reply_released_) {
      break;
    }
  }
  return true;
}

bool GrpcSession::finished() const {
  return output_.empty() && !nghttp2_session_want_read(session_) &&
         !nghttp2_session_want_write(session_);
}

bool GrpcSession::HoldsReply() const {
  return output_.holds_reply() ||
         std::any_of(calls_.begin(), calls_.end(), [](const auto& call) {
           return call.second.reply != nullptr;
         });
}

// A call without an answer has had no effect, so its client may repeat it on another
// connection. gRPC's channels do so by themselves for streams beyond the last one that
// GOAWAY names.
void GrpcSession::GoAway() {
  int32_t last = nghttp2_session_get_last_proc_stream_id(session_);
  for (const auto& call : calls_) {
    if (call.second.offered == 0) {
      last = std::max(0, call.first - 2);
      break;
    }
  }
  nghttp2_session_terminate_session2(session_, last, NGHTTP2_NO_ERROR);
}

// --- the request ------------------------------------------------------------

int GrpcSession::OnBeginHeaders(const nghttp2_frame& frame) {
  if (frame.hd.type != NGHTTP2_HEADERS ||
      frame.headers.cat != NGHTTP2_HCAT_REQUEST) {
    return 0;
  }
  Call& call = calls_[frame.hd.stream_id];
  call.progress_at = Clock::now();
  ++calls_begun_;
  return 0;
}

int GrpcSession::OnHeader(const nghttp2_frame& frame, absl::string_view name,
                          absl::string_view value) {
  const auto found = calls_.find(frame.hd.stream_id);
  if (found == calls_.end()) return 0;
  Call& call = found->second;
  call.header_bytes += name.size() + value.size() + kHeaderOverheadBytes;
  if (call.header_bytes > kAbsurdHeaderBytes) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  if (frame.headers.cat != NGHTTP2_HCAT_REQUEST) return 0;  // trailers
  if (name == ":method") {
    call.post = value == "POST";
  } else if (name == ":path") {
    call.path = std::string(value.substr(0, kMaxPathBytes));
  } else if (name == "content-type") {
    call.content_type = IsGrpcContentType(value);
  } else if (name == "te") {
    call.te = absl::StrContains(value, "trailers");
  } else if (name == "grpc-encoding") {
    call.encoding = IsAcceptedGrpcEncoding(value);
    call.request.set_encoding(value);
  } else if (name == "grpc-accept-encoding") {
    call.gzip = call.gzip || AcceptsGrpcGzip(value);
  } else if (name == "grpc-timeout") {
    Clock::duration timeout;
    call.timeout = ParseGrpcTimeout(value, &timeout);
    if (call.timeout) call.times_out_at = Clock::now() + timeout;
  }
  return 0;
}

int GrpcSession::OnFrame(const nghttp2_frame& frame) {
  if (frame.hd.type != NGHTTP2_HEADERS && frame.hd.type != NGHTTP2_DATA) {
    return 0;
  }
  const auto found = calls_.find(frame.hd.stream_id);
  if (found == calls_.end()) return 0;
  Call* const call = &found->second;
  if (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) call->request_ended = true;
  if (frame.hd.type == NGHTTP2_HEADERS &&
      frame.headers.cat == NGHTTP2_HCAT_REQUEST &&
      RejectHead(found->first, call)) {
    return 0;
  }
  if (call->request_ended && !call->answered &&
      !RejectBody(found->first, call)) {
    SendReply(found->first, call);
  }
  return 0;
}

int GrpcSession::OnData(int32_t stream, absl::string_view bytes) {
  const auto found = calls_.find(stream);
  if (found == calls_.end() || found->second.answered) return 0;
  Call* const call = &found->second;
  call->progress_at = Clock::now();
  call->body = call->request.Read(bytes);
  if (call->body != GrpcRequestReader::Result::kIncomplete &&
      call->body != GrpcRequestReader::Result::kComplete) {
    RejectBody(stream, call);
  }
  return 0;
}

bool GrpcSession::RejectHead(int32_t stream, Call* call) {
  if (call->header_bytes > kMaxHeaderBytes) {
    Reject(
        stream, call, GrpcCode::kResourceExhausted,
        absl::StrCat("the headers have more than ", kMaxHeaderBytes, " bytes"));
  } else if (!call->post) {
    Reject(stream, call, GrpcCode::kInternal, "the method is not POST", "405");
  } else if (!call->content_type) {
    Reject(stream, call, GrpcCode::kInvalidArgument,
           "the content-type is not application/grpc", "415");
  } else if (!call->te) {
    Reject(stream, call, GrpcCode::kInternal, "\"te: trailers\" is missing");
  } else if (!call->timeout) {
    Reject(stream, call, GrpcCode::kInternal, "grpc-timeout is malformed");
  } else if (!call->encoding) {
    Reject(stream, call, GrpcCode::kUnimplemented,
           absl::StrCat("unsupported grpc-encoding; supported are ",
                        kGrpcAcceptEncoding));
  } else {
    absl::string_view method = call->path;
    if (!absl::ConsumePrefix(&method, service_->path)) {
      Reject(stream, call, GrpcCode::kUnimplemented,
             absl::StrCat("there is no ", call->path));
      return true;
    }
    const auto known = service_->methods.find(std::string(method));
    if (known == service_->methods.end()) {
      Reject(stream, call, GrpcCode::kUnimplemented,
             absl::StrCat(method, " is not implemented"));
      return true;
    }
    call->kind = known->second;
    return false;
  }
  return true;
}

bool GrpcSession::RejectBody(int32_t stream, Call* call) {
  using Result = GrpcRequestReader::Result;
  switch (call->body) {
    case Result::kComplete:
      return false;
    case Result::kIncomplete:
      Reject(stream, call, GrpcCode::kInternal,
             "the request ends before its message does");
      break;
    case Result::kTooMany:
      Reject(stream, call, GrpcCode::kUnimplemented,
             "the request has more than one message");
      break;
    case Result::kTooLong:
      Reject(stream, call, GrpcCode::kResourceExhausted,
             absl::StrCat("the message has more than ",
                          GrpcRequestReader::kMaxMessageBytes, " bytes"));
      break;
    case Result::kCompressed:
      Reject(stream, call, GrpcCode::kInternal,
             "the message is compressed, and grpc-encoding does not say how");
      break;
    case Result::kBadFlag:
      Reject(stream, call, GrpcCode::kInternal,
             "the message's first byte is neither 0 nor 1");
      break;
  }
  return true;
}

// --- the reply --------------------------------------------------------------

void GrpcSession::Reject(int32_t stream, Call* call, GrpcCode code,
                         absl::string_view message, const char* http_status) {
  call->answered = true;
  const std::string status = absl::StrCat(static_cast<int>(code));
  const std::string text = PercentEncode(message);
  const nghttp2_nv fields[] = {
      Field(":status", http_status),
      Field("content-type", "application/grpc"),
      Field("grpc-accept-encoding", kGrpcAcceptEncoding),
      Field("grpc-status", status),
      Field("grpc-message", text),
  };
  // Fails only if there is no memory; then the call ends at its deadline.
  nghttp2_submit_response(session_, stream, fields, std::size(fields), nullptr);
}

void GrpcSession::SendReply(int32_t stream, Call* call) {
  if (call->times_out_at <= Clock::now()) {
    Reject(stream, call, GrpcCode::kDeadlineExceeded,
           "the deadline has passed");
    return;
  }
  call->answered = true;
  const nghttp2_nv fields[] = {
      Field(":status", "200"),
      Field("content-type", "application/grpc"),
      Field("grpc-accept-encoding", kGrpcAcceptEncoding),
      // Applies to messages whose prefix has the flag for compression.
      Field("grpc-encoding", "gzip"),
  };
  nghttp2_data_provider provider = {};
  provider.read_callback = [](nghttp2_session*, int32_t id, uint8_t*,
                              size_t length, uint32_t* flags,
                              nghttp2_data_source*, void* session) {
    return WithoutThrowing(session, [&](GrpcSession* self) {
      return self->OnReadReply(id, length, flags);
    });
  };
  nghttp2_submit_response(session_, stream, fields,
                          std::size(fields) - (call->gzip ? 0 : 1), &provider);
}

// Returns how much of the reply goes into the next DATA frame, at most `length` bytes.
// nghttp2 asks when the peer's windows have room. OnSendData() takes the bytes.
ssize_t GrpcSession::OnReadReply(int32_t stream, size_t length,
                                 uint32_t* flags) {
  Call& call = calls_.at(stream);
  if (call.reply == nullptr) {
    SharedReply reply;
    try {
      reply = service_->replies->Get(call.kind, call.gzip);
    } catch (const std::bad_alloc&) {
      *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
      SendStatus(stream, GrpcCode::kResourceExhausted, "out of memory");
      return 0;
    }
    if (HoldsTooManyWith(reply)) {
      call.postponed = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    call.reply = std::move(reply);
    call.reply_bytes = kGrpcPrefixBytes + call.reply->bytes().size();
  }
  const size_t size = std::min(length, call.reply_bytes - call.offered);
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (call.offered + size == call.reply_bytes) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    SendStatus(stream, GrpcCode::kOk, "");
  }
  return static_cast<ssize_t>(size);
}

int GrpcSession::OnSendData(const nghttp2_frame& frame, const uint8_t* head,
                            size_t length) {
  constexpr size_t kFrameHeadBytes = 9;
  if (output_full()) return NGHTTP2_ERR_WOULDBLOCK;
  Call& call = calls_.at(frame.hd.stream_id);
  std::string own(reinterpret_cast<const char*>(head), kFrameHeadBytes);
  size_t left = length;
  if (call.offered < kGrpcPrefixBytes) {
    const std::string prefix =
        GrpcPrefix(call.reply_bytes - kGrpcPrefixBytes, call.reply->gzipped())
            .substr(call.offered, std::min(length, kGrpcPrefixBytes));
    own += prefix;
    call.offered += prefix.size();
    left -= prefix.size();
  }
  output_.Append(own);
  if (left > 0) {
    output_.Append(call.reply, call.offered - kGrpcPrefixBytes, left);
    call.offered += left;
  }
  call.progress_at = Clock::now();
  if (call.offered == call.reply_bytes) {
    call.reply.reset();
    reply_released_ = true;
  }
  return 0;
}

void GrpcSession::SendStatus(int32_t stream, GrpcCode code,
                             absl::string_view message) {
  const std::string status = absl::StrCat(static_cast<int>(code));
  const std::string text = PercentEncode(message);
  const nghttp2_nv fields[] = {
      Field("grpc-status", status),
      Field("grpc-message", text),
  };
  nghttp2_submit_trailer(session_, stream, fields,
                         message.empty() ? 1 : std::size(fields));
}

// RFC 9113, 8.1: a server that answers before the request ends resets the stream
// without an error, because it does not need the rest of the request.
int GrpcSession::OnFrameSent(const nghttp2_frame& frame) {
  if (frame.hd.type != NGHTTP2_HEADERS ||
      !(frame.hd.flags & NGHTTP2_FLAG_END_STREAM)) {
    return 0;
  }
  const auto found = calls_.find(frame.hd.stream_id);
  if (found == calls_.end() || found->second.request_ended) return 0;
  return nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, found->first,
                                   NGHTTP2_NO_ERROR);
}

int GrpcSession::OnStreamClose(int32_t stream) {
  calls_.erase(stream);
  reply_released_ = true;
  idle_since_ = Clock::now();
  return 0;
}

// --- limits -----------------------------------------------------------------

// Whether the calls would hold more than kMaxHeldReplies different replies. A reply
// that several calls share counts once.
bool GrpcSession::HoldsTooManyWith(const SharedReply& reply) const {
  std::set<const Reply*> held;
  for (const auto& call : calls_) held.insert(call.second.reply.get());
  held.erase(nullptr);
  return held.count(reply.get()) == 0 && held.size() >= kMaxHeldReplies;
}

void GrpcSession::ResumePostponed() {
  if (!reply_released_) return;
  reply_released_ = false;
  for (auto& call : calls_) {
    if (!call.second.postponed) continue;
    call.second.postponed = false;
    nghttp2_session_resume_data(session_, call.first);
  }
}

// A reply that has begun can only end by a reset, which a client reports as a cancelled
// call. Clients enforce their own deadlines; this one is for those that do not.
GrpcSession::Clock::time_point GrpcSession::DeadlineOf(const Call& call) {
  Clock::time_point deadline = call.times_out_at;
  if (call.answered && deadline < Clock::time_point::max() - kDeadlineGrace) {
    deadline += kDeadlineGrace;
  }
  return std::min(deadline, call.progress_at + kCallTimeout);
}

GrpcSession::Clock::time_point GrpcSession::Deadline() const {
  if (calls_.empty()) return idle_since_ + kIdleTimeout;
  Clock::time_point first = Clock::time_point::max();
  for (const auto& call : calls_) {
    first = std::min(first, DeadlineOf(call.second));
  }
  return first;
}

bool GrpcSession::OnDeadline() {
  const Clock::time_point now = Clock::now();
  if (calls_.empty()) return now < idle_since_ + kIdleTimeout;
  for (auto& call : calls_) {
    if (DeadlineOf(call.second) <= now) EndCall(call.first, &call.second);
  }
  return true;
}

// A reply that has begun cannot be replaced by a status, so the stream is reset.
void GrpcSession::EndCall(int32_t stream, Call* call) {
  if (call->answered) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream,
                              NGHTTP2_CANCEL);
  } else {
    Reject(stream, call, GrpcCode::kDeadlineExceeded,
           "the deadline has passed");
  }
  // Without a deadline until nghttp2 closes the stream.
  call->times_out_at = Clock::time_point::max();
  call->progress_at = Clock::now();
}

}  // namespace internal
}  // namespace netmeter
