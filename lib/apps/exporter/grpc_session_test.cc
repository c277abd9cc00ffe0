// SPDX-License-Identifier: BSD-3-Clause
// Tests GrpcSession with nghttp2's client, and with frames written by hand if a client
// would never send them. //lib/apps/exporter and //test/apps/metrics test the program
// with clients of gRPC itself.
#include "lib/apps/exporter/grpc_session.h"

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/apps/exporter/reply_cache.h"

namespace netmeter {
namespace internal {
namespace {

using Result = GrpcRequestReader::Result;

TEST(GrpcProtocol, APrefixIsAFlagAndALength) {
  EXPECT_EQ(GrpcPrefix(0, false), std::string("\0\0\0\0\0", 5));
  EXPECT_EQ(GrpcPrefix(0x12345678, true), std::string("\1\x12\x34\x56\x78", 5));
}

TEST(GrpcProtocol, MessagesOfAStatusAreAscii) {
  EXPECT_EQ(PercentEncode("GetX is not implemented"),
            "GetX is not implemented");
  EXPECT_EQ(PercentEncode("100%\n\xc3\xa9~\x7f"), "100%25%0A%C3%A9~%7F");
  EXPECT_EQ(PercentEncode(""), "");
}

TEST(GrpcProtocol, TimeoutsHaveAUnit) {
  std::chrono::steady_clock::duration timeout;
  const auto ns = [&](const char* text) {
    EXPECT_TRUE(ParseGrpcTimeout(text, &timeout)) << text;
    return std::chrono::nanoseconds(timeout).count();
  };
  EXPECT_EQ(ns("1H"), 3600000000000);
  EXPECT_EQ(ns("2M"), 120000000000);
  EXPECT_EQ(ns("30S"), 30000000000);
  EXPECT_EQ(ns("1500m"), 1500000000);
  EXPECT_EQ(ns("7u"), 7000);
  EXPECT_EQ(ns("0n"), 0);
  EXPECT_EQ(ns("99999999n"), 99999999);
  EXPECT_EQ(ns("99999999H"), 24 * 3600000000000);  // a day is enough
  for (const char* text : {"", "S", "1", "1s", "-1S", "1.5S", "123456789S",
                           " 1S", "1S ", "0x1S"}) {
    EXPECT_FALSE(ParseGrpcTimeout(text, &timeout)) << text;
  }
}

TEST(GrpcProtocol, ContentTypesAreThoseOfGrpc) {
  for (const char* text : {"application/grpc", "application/grpc+proto",
                           "application/grpc;charset=utf-8"}) {
    EXPECT_TRUE(IsGrpcContentType(text)) << text;
  }
  for (const char* text : {"", "application/json", "application/grpc-web",
                           "application/grp", "text/plain"}) {
    EXPECT_FALSE(IsGrpcContentType(text)) << text;
  }
}

// Whether it comes at once or byte by byte.
Result Read(const std::string& body, const char* encoding = "identity") {
  GrpcRequestReader whole, pieces;
  whole.set_encoding(encoding);
  pieces.set_encoding(encoding);
  const Result result = whole.Read(body);
  Result last = Result::kIncomplete;
  for (const char c : body) {
    last = pieces.Read(absl::string_view(&c, 1));
    if (last != Result::kIncomplete && last != Result::kComplete) break;
  }
  EXPECT_EQ(last, result);
  return result;
}

TEST(GrpcRequestReader, WantsOneMessage) {
  const std::string empty(5, '\0');
  EXPECT_EQ(Read(""), Result::kIncomplete);
  EXPECT_EQ(Read(empty.substr(1)), Result::kIncomplete);
  EXPECT_EQ(Read(empty), Result::kComplete);
  EXPECT_EQ(Read(empty + "x"), Result::kTooMany);
  EXPECT_EQ(Read(empty + empty), Result::kTooMany);
  const std::string three("\0\0\0\0\3", 5);
  EXPECT_EQ(Read(three + "12"), Result::kIncomplete);
  EXPECT_EQ(Read(three + "123"), Result::kComplete);
  EXPECT_EQ(Read(three + "1234"), Result::kTooMany);
}

TEST(GrpcRequestReader, RefusesALongMessageByItsPrefix) {
  EXPECT_EQ(Read(std::string("\0\0\1\0\0", 5)), Result::kIncomplete);
  EXPECT_EQ(Read(std::string("\0\0\1\0\1", 5)), Result::kTooLong);
  EXPECT_EQ(Read(std::string("\0\xff\xff\xff\xff", 5)), Result::kTooLong);
}

TEST(GrpcRequestReader, TakesCompressedMessagesWhereTheEncodingSaysHow) {
  const std::string compressed("\1\0\0\0\2zz", 7);
  EXPECT_EQ(Read(compressed, "gzip"), Result::kComplete);
  EXPECT_EQ(Read(compressed, "identity"), Result::kCompressed);
  EXPECT_EQ(Read(std::string("\2\0\0\0\0", 5), "gzip"), Result::kBadFlag);
}

}  // namespace

namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum FrameType {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

// RFC 9113, 4.1.
std::string Frame(int type, int flags, uint32_t stream,
                  const std::string& payload) {
  std::string bytes;
  for (const int shift : {16, 8, 0}) {
    bytes.push_back(static_cast<char>(payload.size() >> shift));
  }
  bytes.push_back(static_cast<char>(type));
  bytes.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) {
    bytes.push_back(static_cast<char>(stream >> shift));
  }
  return bytes + payload;
}

// A literal without indexing (RFC 7541, 6.2.2).
std::string Literal(const std::string& name, const std::string& value) {
  std::string bytes(1, '\0');
  for (const std::string& text : {name, value}) {
    bytes.push_back(static_cast<char>(text.size()));
    bytes += text;
  }
  return bytes;
}

// A whole call of /s/Reply.
std::string RawCall(uint32_t stream) {
  return Frame(kHeaders, 4, stream,
               "\x83\x86" + Literal(":path", "/s/Reply") +
                   Literal(":authority", "localhost") +
                   Literal("content-type", "application/grpc") +
                   Literal("te", "trailers")) +
         Frame(kData, 1, stream, std::string(5, '\0'));
}

// What a client has of one of its calls.
struct Received {
  std::map<std::string, std::string> fields;  // of heads and trailers
  std::string body;
  bool closed = false;
  uint32_t error = 0;  // of RST_STREAM

  std::string status() const {
    const auto found = fields.find("grpc-status");
    return found == fields.end() ? "" : found->second;
  }
  std::string message() const {
    const auto found = fields.find("grpc-message");
    return found == fields.end() ? "" : found->second;
  }
};

// nghttp2's client.
class Client {
 public:
  explicit Client(bool takes_data = true) {
    nghttp2_session_callbacks* callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks,
        [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
           size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
           void* client) {
          static_cast<Client*>(client)
              ->calls_[frame->hd.stream_id]
              .fields[std::string(name, name + name_size)] =
              std::string(value, value + value_size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks, [](nghttp2_session*, uint8_t, int32_t stream,
                      const uint8_t* bytes, size_t size, void* client) {
          static_cast<Client*>(client)->calls_[stream].body.append(
              bytes, bytes + size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        callbacks,
        [](nghttp2_session*, int32_t stream, uint32_t error, void* client) {
          Received& call = static_cast<Client*>(client)->calls_[stream];
          call.closed = true;
          call.error = error;
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks,
        [](nghttp2_session*, const nghttp2_frame* frame, void* client) {
          if (frame->hd.type == kGoAway) {
            static_cast<Client*>(client)->last_stream_ =
                frame->goaway.last_stream_id;
          }
          return 0;
        });
    nghttp2_option* option;
    nghttp2_option_new(&option);
    if (!takes_data) nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_session_client_new2(&session_, callbacks, this, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session_, 0, nullptr, 0);
  }
  ~Client() { nghttp2_session_del(session_); }

  static Fields Request(const std::string& path) {
    return {{":method", "POST"},
            {":scheme", "http"},
            {":path", path},
            {":authority", "localhost"},
            {"content-type", "application/grpc"},
            {"te", "trailers"}};
  }

  // Begins a call whose body is `body`; its end is left out with `open`.
  int32_t Call(const Fields& fields,
               const std::string& body = std::string(5, '\0'),
               bool open = false) {
    std::vector<nghttp2_nv> values;
    for (const auto& field : fields) {
      const auto bytes = [](const std::string& text) {
        return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
      };
      values.push_back({bytes(field.first), bytes(field.second),
                        field.first.size(), field.second.size(), 0});
    }
    nghttp2_data_provider provider = {};
    auto* source = new Source{body, open};
    sources_.emplace_back(source);
    provider.source.ptr = source;
    provider.read_callback = [](nghttp2_session*, int32_t, uint8_t* to,
                                size_t length, uint32_t* flags,
                                nghttp2_data_source* from, void*) -> ssize_t {
      auto* rest = static_cast<Source*>(from->ptr);
      const size_t size = std::min(length, rest->bytes.size());
      if (size == 0 && rest->open) return NGHTTP2_ERR_DEFERRED;
      rest->bytes.copy(reinterpret_cast<char*>(to), size);
      rest->bytes.erase(0, size);
      if (rest->bytes.empty() && !rest->open) *flags |= NGHTTP2_DATA_FLAG_EOF;
      return static_cast<ssize_t>(size);
    };
    return nghttp2_submit_request(session_, nullptr, values.data(),
                                  values.size(), &provider, nullptr);
  }
  int32_t Call(const std::string& path) { return Call(Request(path)); }

  // Carries bytes both ways, until there are none. Returns false if the server
  // ended the connection.
  bool Exchange(GrpcSession* server) {
    while (true) {
      std::string sent;
      const uint8_t* bytes;
      ssize_t size;
      while ((size = nghttp2_session_mem_send(session_, &bytes)) > 0) {
        sent.append(bytes, bytes + size);
      }
      if (!server->Receive(sent) || !server->FillOutput()) return false;
      const std::string received = server->output().ToString();
      server->mutable_output()->Clear();
      if (sent.empty() && received.empty()) return !server->finished();
      EXPECT_EQ(nghttp2_session_mem_recv(
                    session_, reinterpret_cast<const uint8_t*>(received.data()),
                    received.size()),
                static_cast<ssize_t>(received.size()));
    }
  }

  // Gives room for this number of further bytes; 0 is the connection.
  void Consume(int32_t stream, int32_t bytes) {
    nghttp2_submit_window_update(session_, 0, stream, bytes);
  }
  nghttp2_session* session() { return session_; }
  const Received& operator[](int32_t stream) { return calls_[stream]; }
  int32_t last_stream() const { return last_stream_; }

 private:
  struct Source {
    std::string bytes;
    bool open;
  };

  nghttp2_session* session_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::map<int32_t, Received> calls_;
  int32_t last_stream_ = -1;  // of GOAWAY
};

class GrpcSessionTest : public testing::Test {
 protected:
  void SetUp() override { Start(ReplyCache::Options()); }

  void Start(const ReplyCache::Options& options) {
    replies_ = std::make_unique<ReplyCache>(options);
    service_.replies = replies_.get();
    service_.path = "/s/";
    service_.methods["Reply"] = replies_->Add([this] {
      ++made_;
      if (no_memory_) throw std::bad_alloc();
      return reply_;
    });
    session_ = GrpcSession::Create(&service_);
    ASSERT_NE(session_, nullptr);
  }

  // Feeds frames by hand, and throws the output away.
  bool Feed(const std::string& bytes) {
    for (size_t i = 0; i < bytes.size(); i += 4096) {
      if (!session_->Receive(absl::string_view(bytes).substr(i, 4096)) ||
          !session_->FillOutput()) {
        return false;
      }
      sent_ += session_->output().size();
      session_->mutable_output()->Clear();
      if (session_->finished()) return false;
    }
    return true;
  }

  std::string reply_ = "the reply";
  bool no_memory_ = false;
  int made_ = 0;
  size_t sent_ = 0;
  std::unique_ptr<ReplyCache> replies_;
  GrpcService service_;
  std::unique_ptr<GrpcSession> session_;
};

TEST_F(GrpcSessionTest, ACallHasItsReplyAndItsStatus) {
  Client client;
  const int32_t id = client.Call("/s/Reply");
  ASSERT_TRUE(client.Exchange(session_.get()));
  const Received& call = client[id];
  EXPECT_EQ(call.fields.at(":status"), "200");
  EXPECT_EQ(call.fields.at("content-type"), "application/grpc");
  EXPECT_EQ(call.fields.at("grpc-accept-encoding"), "identity,deflate,gzip");
  EXPECT_EQ(call.body, std::string("\0\0\0\0\x09", 5) + "the reply");
  EXPECT_EQ(call.status(), "0");
  EXPECT_TRUE(call.closed);
  EXPECT_EQ(call.error, 0u);
  EXPECT_FALSE(session_->HoldsReply());
}

TEST_F(GrpcSessionTest, AReplyIsCompressedForAClientThatTakesGzip) {
  const struct {
    std::string reply, accepts;
    bool gzip;
  } kCalls[] = {
      {std::string(100000, 'x'), "identity, deflate, gzip", true},
      {std::string(100000, 'x'), "identity,deflate,gzip", true},
      {std::string(100000, 'x'), "identity,deflate", false},
      {"short", "identity, deflate, gzip", false},
  };
  for (const auto& one : kCalls) {
    Start(ReplyCache::Options());
    reply_ = one.reply;
    Client client;
    Fields fields = Client::Request("/s/Reply");
    fields.push_back({"grpc-accept-encoding", one.accepts});
    const int32_t id = client.Call(fields);
    ASSERT_TRUE(client.Exchange(session_.get()));
    const std::string message = one.gzip ? Gzip(reply_) : reply_;
    EXPECT_EQ(client[id].body, GrpcPrefix(message.size(), one.gzip) + message);
    if (one.gzip) {
      EXPECT_EQ(client[id].fields.at("grpc-encoding"), "gzip");
    }
    EXPECT_EQ(client[id].status(), "0");
  }
}

TEST_F(GrpcSessionTest, WhatItDoesNotAnswerHasAStatusThatSaysWhy) {
  const Fields good = Client::Request("/s/Reply");
  const auto with = [&good](const std::string& name, const std::string& value) {
    Fields fields = good;
    for (auto& field : fields) {
      if (field.first == name) {
        field.second = value;
        return fields;
      }
    }
    fields.emplace_back(name, value);
    return fields;
  };
  Fields without_te = good;
  without_te.pop_back();
  const std::string empty(5, '\0');
  struct Case {
    Fields fields;
    std::string body;
    const char* http_status;
    const char* status;
    const char* message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {with(":path", "/s/Other"), empty, "200", "12",
            "Other is not implemented"},
           {with(":path", "/s/Re%\xc3\xa9"), empty, "200", "12",
            "Re%25%C3%A9 is not implemented"},
           {with(":path", "/t/Reply"), empty, "200", "12",
            "there is no /t/Reply"},
           {with(":method", "GET"), empty, "405", "13",
            "the method is not POST"},
           {with("content-type", "application/json"), empty, "415", "3",
            "the content-type is not application/grpc"},
           {without_te, empty, "200", "13", "\"te: trailers\" is missing"},
           {with("grpc-timeout", "soon"), empty, "200", "13",
            "grpc-timeout is malformed"},
           {with("grpc-timeout", "0n"), empty, "200", "4",
            "the deadline has passed"},
           {with("grpc-encoding", "snappy"), empty, "200", "12",
            "unsupported grpc-encoding; supported are "
            "identity,deflate,gzip"},
           {with("x", std::string(17000, 'x')), empty, "200", "8",
            "the headers have more than 16384 bytes"},
           {good, "", "200", "13", "the request ends before its message does"},
           {good, empty + empty, "200", "12",
            "the request has more than one message"},
           {good, std::string("\0\0\2\0\0", 5), "200", "8",
            "the message has more than 65536 bytes"},
           {good, std::string("\1\0\0\0\0", 5), "200", "13",
            "the message is compressed, and grpc-encoding does not say how"},
           {good, std::string("\7\0\0\0\0", 5), "200", "13",
            "the message's first byte is neither 0 nor 1"},
       }) {
    Start(ReplyCache::Options());
    Client client;
    const int32_t id = client.Call(c.fields, c.body);
    const int32_t next = client.Call("/s/Reply");
    ASSERT_TRUE(client.Exchange(session_.get())) << c.message;
    EXPECT_EQ(client[id].fields.at(":status"), c.http_status) << c.message;
    EXPECT_EQ(client[id].status(), c.status) << c.message;
    EXPECT_EQ(client[id].message(), c.message);
    EXPECT_EQ(client[id].body, "");
    EXPECT_TRUE(client[id].closed) << c.message;
    // The connection goes on.
    EXPECT_EQ(client[next].status(), "0") << c.message;
  }
}

// RFC 9113, 8.1.
TEST_F(GrpcSessionTest, AnAnswerBeforeTheEndOfTheRequestResetsTheRest) {
  Client client;
  const int32_t id = client.Call(Client::Request("/s/Other"), "", true);
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[id].status(), "12");
  EXPECT_TRUE(client[id].closed);
  EXPECT_EQ(client[id].error, static_cast<uint32_t>(NGHTTP2_NO_ERROR));
}

TEST_F(GrpcSessionTest, WithoutMemoryForItsReplyOneCallFails) {
  Client client;
  no_memory_ = true;
  const int32_t id = client.Call("/s/Reply");
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[id].status(), "8");
  EXPECT_EQ(client[id].message(), "out of memory");
  no_memory_ = false;
  const int32_t next = client.Call("/s/Reply");
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[next].status(), "0");
}

TEST_F(GrpcSessionTest, ACallWhoseDeadlinePassesEnds) {
  Client client;
  Fields fields = Client::Request("/s/Reply");
  fields.emplace_back("grpc-timeout", "20m");
  const int32_t id = client.Call(fields, "", true);  // sends no message
  const auto begin = GrpcSession::Clock::now();
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_LE(session_->Deadline(), begin + std::chrono::seconds(1));
  while (GrpcSession::Clock::now() < session_->Deadline()) {
  }
  EXPECT_TRUE(session_->OnDeadline());
  EXPECT_GT(session_->Deadline(), GrpcSession::Clock::now());
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[id].status(), "4");
  EXPECT_TRUE(client[id].closed);
}

// The session reset the stream at once, before grpcio had noticed that the
// deadline had passed: it said "cancelled" (1), where others say
// DEADLINE_EXCEEDED (4).
TEST_F(GrpcSessionTest, AReplyUnderWayLeavesTheDeadlineToItsClient) {
  reply_ = std::string(200000, 'x');
  Client client(false);
  Fields fields = Client::Request("/s/Reply");
  fields.emplace_back("grpc-timeout", "20m");
  const auto begin = GrpcSession::Clock::now();
  const int32_t id = client.Call(fields, std::string(5, '\0'));
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[id].body.size(), 65535u);
  const auto deadline = begin + std::chrono::milliseconds(20);
  EXPECT_GE(session_->Deadline(), deadline + GrpcSession::kDeadlineGrace);
  while (GrpcSession::Clock::now() <= deadline) {
  }
  EXPECT_TRUE(session_->OnDeadline());
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_FALSE(client[id].closed);
  while (GrpcSession::Clock::now() < session_->Deadline()) {
  }
  EXPECT_TRUE(session_->OnDeadline());
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_TRUE(client[id].closed);
  EXPECT_EQ(client[id].error, static_cast<uint32_t>(NGHTTP2_CANCEL));
}

TEST_F(GrpcSessionTest, RepliesAreSentAsTheWindowsAllow) {
  reply_ = std::string(200000, 'x');
  Client client(false);
  const int32_t id = client.Call("/s/Reply");
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[id].body.size(), 65535u);  // the first window
  EXPECT_TRUE(session_->HoldsReply());
  client.Consume(0, 100000);
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[id].body.size(), 65535u);
  client.Consume(id, 50000);
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[id].body.size(), 65535u + 50000u);
  client.Consume(0, 1000000);
  client.Consume(id, 1000000);
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[id].body, GrpcPrefix(reply_.size(), false) + reply_);
  EXPECT_EQ(client[id].status(), "0");
  EXPECT_FALSE(session_->HoldsReply());
}

// Each open call held a reply of 4 MB.
TEST_F(GrpcSessionTest, CallsWithoutAWindowHoldNothing) {
  Client client(false);
  const nghttp2_settings_entry zero = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
  nghttp2_submit_settings(client.session(), 0, &zero, 1);
  for (int i = 0; i < 16; ++i) client.Call("/s/Reply");
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_FALSE(session_->HoldsReply());
  EXPECT_EQ(made_, 0);
  client.Consume(7, 100);
  ASSERT_TRUE(client.Exchange(session_.get()));
  EXPECT_EQ(client[7].status(), "0");
}

TEST_F(GrpcSessionTest, CallsHoldFewDifferentReplies) {
  ReplyCache::Options options;
  options.lifetime = options.long_lifetime = std::chrono::milliseconds(0);
  options.lifetime_per_making = 0;
  Start(options);
  reply_ = std::string(1000000, 'x');
  Client client(false);
  client.Consume(0, 1 << 30);
  std::vector<int32_t> ids;
  for (int i = 0; i < 16; ++i) {
    ids.push_back(client.Call("/s/Reply"));
    ASSERT_TRUE(client.Exchange(session_.get()));
    EXPECT_LE(replies_->bytes(),
              (GrpcSession::kMaxHeldReplies + 1) * reply_.size());
  }
  // A client that takes its replies gets the waiting ones, too.
  for (const int32_t id : ids) {
    client.Consume(id, 1 << 30);
    ASSERT_TRUE(client.Exchange(session_.get()));
  }
  for (const int32_t id : ids) EXPECT_EQ(client[id].status(), "0") << id;
}

TEST_F(GrpcSessionTest, CallsThatWereNotAnsweredMayBeMadeElsewhere) {
  Client client(false);
  const int32_t answered = client.Call("/s/Reply");
  ASSERT_TRUE(client.Exchange(session_.get()));
  const int32_t open = client.Call(Client::Request("/s/Reply"), "", true);
  ASSERT_TRUE(client.Exchange(session_.get()));
  session_->GoAway();
  EXPECT_FALSE(client.Exchange(session_.get()));
  EXPECT_EQ(client[answered].status(), "0");
  EXPECT_LT(client.last_stream(), open);
  EXPECT_GE(client.last_stream(), answered);
}

// --- peers that mean ill ------------------------------------------------------

// CVE-2023-44487.
TEST_F(GrpcSessionTest, RapidResetEndsTheConnection) {
  ASSERT_TRUE(Feed(kPreface + Frame(kSettings, 0, 0, "")));
  int calls = 0;
  for (uint32_t id = 1; calls < 10000; id += 2, ++calls) {
    if (!Feed(RawCall(id) +
              Frame(kRstStream, 0, id, std::string("\0\0\0\x8", 4)))) {
      break;
    }
  }
  // Each call was answered, and its stream closed, before its reset came.
  EXPECT_LE(calls, 300);
  Start(ReplyCache::Options());
  ASSERT_TRUE(Feed(kPreface + Frame(kSettings, 0, 0, "")));
  calls = 0;
  for (uint32_t id = 1; calls < 10000; id += 2, ++calls) {
    if (!Feed(Frame(kHeaders, 4, id,
                    "\x83\x86" + Literal(":path", "/s/Reply") +
                        Literal(":authority", "localhost") +
                        Literal("content-type", "application/grpc") +
                        Literal("te", "trailers")) +
              Frame(kRstStream, 0, id, std::string("\0\0\0\x8", 4)))) {
      break;
    }
  }
  EXPECT_LE(calls, 300);
}

// CVE-2023-33953, CVE-2024-28182.
TEST_F(GrpcSessionTest, AHeaderBlockWithoutAnEndEndsTheConnection) {
  ASSERT_TRUE(Feed(kPreface + Frame(kSettings, 0, 0, "") +
                   Frame(kHeaders, 0, 1, "\x83\x86")));
  int frames = 0;
  while (frames < 1000 && Feed(Frame(kContinuation, 0, 1, Literal("x", "y")))) {
    ++frames;
  }
  EXPECT_LE(frames, 8);
}

// A field of 4000 bytes that the table holds costs one byte to repeat.
TEST_F(GrpcSessionTest, AHeaderBlockThatDecompressesToMuchEndsTheConnection) {
  std::string block = "\x83\x86" + std::string("\x40\x01x\x7f\xa1\x1e", 6) +
                      std::string(4000, 'x');
  block += std::string(8000, '\xbe');  // 32 MB
  EXPECT_FALSE(Feed(kPreface + Frame(kSettings, 0, 0, "") +
                    Frame(kHeaders, 4, 1, block)));
}

TEST_F(GrpcSessionTest, WindowsThatOverflowEndCallOrConnection) {
  const std::string most("\x7f\xff\xff\xff", 4);
  ASSERT_TRUE(Feed(kPreface + Frame(kSettings, 0, 0, "")));
  EXPECT_FALSE(Feed(Frame(kWindowUpdate, 0, 0, most) +
                    Frame(kWindowUpdate, 0, 0, most)));
  Start(ReplyCache::Options());
  reply_ = std::string(1000000, 'x');
  ASSERT_TRUE(Feed(kPreface + Frame(kSettings, 0, 0, "") + RawCall(1)));
  EXPECT_TRUE(session_->HoldsReply());
  EXPECT_TRUE(Feed(Frame(kWindowUpdate, 0, 1, most) +
                   Frame(kWindowUpdate, 0, 1, most)));
  EXPECT_FALSE(session_->HoldsReply());
}

TEST_F(GrpcSessionTest, WhatHttp2ForbidsEndsTheConnection) {
  const std::string start = kPreface + Frame(kSettings, 0, 0, "");
  for (const std::string& frames : {
           std::string("\xff\xff\xff\x04\0\0\0\0\0", 9),  // SETTINGS of 16 MiB
           std::string("\xff\xff\xff\x00\0\0\0\0\x01", 9),  // DATA of 16 MiB
           Frame(kSettings, 0, 1, ""), Frame(kSettings, 1, 0, "x"),
           Frame(kSettings, 0, 0, std::string("\0\4\xff\xff\xff\xff", 6)),
           Frame(kSettings, 0, 0, std::string("\0\5\0\0\0\1", 6)),
           Frame(kPing, 0, 0, "short"),
           Frame(kWindowUpdate, 0, 0, std::string(4, '\0')),
           Frame(kData, 0, 0, "x"), Frame(kData, 0, 1, "x"),
           Frame(kHeaders, 4, 2, "\x83\x86"),
           Frame(kHeaders, 4, 1, std::string(1, '\xff')),
           Frame(kContinuation, 4, 1, "\x83"), Frame(kGoAway, 0, 0, "short"),
           Frame(5, 4, 1, std::string("\0\0\0\2\x83", 5)),  // PUSH_PROMISE
       }) {
    Start(ReplyCache::Options());
    EXPECT_FALSE(Feed(start + frames)) << int{frames[3]};
  }
  Start(ReplyCache::Options());
  EXPECT_FALSE(Feed(kPreface + RawCall(1)));  // no SETTINGS
}

TEST_F(GrpcSessionTest, OutputStopsWhereItsRoomEnds) {
  // One reply serves all calls, even if a busy machine takes a second for them.
  ReplyCache::Options options;
  options.lifetime = std::chrono::hours(1);
  Start(options);
  reply_ = std::string(10000000, 'x');
  const std::string most("\x7f\xff\xff\xff", 4);
  std::string start =
      kPreface + Frame(kSettings, 0, 0, std::string("\0\4", 2) + most) +
      Frame(kWindowUpdate, 0, 0, std::string("\x7f\xff\0\0", 4));
  for (uint32_t id = 1; id < 32; id += 2) start += RawCall(id);
  ASSERT_TRUE(session_->Receive(start));
  size_t sent = 0;
  while (true) {
    ASSERT_TRUE(session_->FillOutput());
    const size_t size = session_->output().size();
    EXPECT_LE(size, GrpcSession::kMaxOutputBytes + 16384 + 9);
    if (size == 0) break;
    sent += size;
    session_->mutable_output()->Clear();
  }
  EXPECT_GT(sent, 16 * reply_.size());
  EXPECT_EQ(made_, 1);
}

// A peer that reads nothing, and gives each of its calls a byte at a time, made
// the account of 64 KiB of output cost a megabyte.
TEST_F(GrpcSessionTest, OutputOfTinyPiecesStopsEarlier) {
  reply_ = std::string(100000, 'x');
  std::string start =
      kPreface + Frame(kSettings, 0, 0, std::string("\0\4\0\0\0\0", 6));
  for (uint32_t id = 1; id < 32; id += 2) start += RawCall(id);
  ASSERT_TRUE(session_->Receive(start) && session_->FillOutput());
  int rounds = 0;
  for (; rounds < 1000 && !session_->output_full(); ++rounds) {
    std::string windows;
    for (uint32_t id = 1; id < 32; id += 2) {
      windows += Frame(kWindowUpdate, 0, id, std::string("\0\0\0\1", 4));
    }
    ASSERT_TRUE(session_->Receive(windows) && session_->FillOutput());
  }
  EXPECT_GT(rounds, 10);
  EXPECT_TRUE(session_->output_full());
  EXPECT_LE(session_->output().size(), GrpcSession::kMaxOutputBytes / 4);
}

}  // namespace

}  // namespace internal
}  // namespace netmeter
