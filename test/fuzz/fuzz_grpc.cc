// SPDX-License-Identifier: BSD-3-Clause
// lib/apps/exporter/grpc_session.h: an input that begins with "P" is what a client
// sends. Any other is a list of frames, which are valid more often: each is two
// bytes that choose type, flags and stream, one for the length, and the payload.
// The first byte says how the stream is cut, and how fast its output is taken.
//
// What goes out has to be valid frames, with one head, one reply and one status
// at most per call; and however many calls a peer makes, the replies that its
// session holds are few.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "lib/apps/exporter/grpc_session.h"
#include "test/fuzz/check.h"

namespace netmeter {
namespace fuzz {
namespace {

using internal::GrpcService;
using internal::GrpcSession;
using internal::ReplyCache;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kReplyBytes = 40000;

enum FrameType : uint8_t { kData = 0, kHeaders = 1, kRstStream = 3 };
constexpr uint8_t kEndStream = 1;

// A reply as it is on the wire, with gRPC's prefix. Noise: gzip makes it no smaller, so
// it is the same for a client that takes gzip.
const std::string& Expected() {
  static const std::string expected = [] {
    const auto prefix = internal::GrpcPrefix(kReplyBytes, false);
    std::string bytes(prefix.begin(), prefix.end());
    uint32_t noise = 1;
    for (size_t i = 0; i < kReplyBytes; ++i) {
      noise = noise * 1664525 + 1013904223;
      bytes.push_back(static_cast<char>(noise >> 24));
    }
    return bytes;
  }();
  return expected;
}

std::string MakeReply() { return Expected().substr(5); }

void AppendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                 std::string_view payload, std::string* to) {
  for (const int shift : {16, 8, 0}) {
    to->push_back(static_cast<char>(payload.size() >> shift));
  }
  to->push_back(static_cast<char>(type));
  to->push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) {
    to->push_back(static_cast<char>(stream >> shift));
  }
  to->append(payload);
}

// RFC 7541: :method POST, :scheme http, and literals without indexing.
std::string Request(std::string_view method) {
  std::string block = "\x83\x86";
  const auto literal = [&block](std::string_view name, std::string_view value) {
    block.push_back('\0');
    block.push_back(static_cast<char>(name.size()));
    block.append(name);
    block.push_back(static_cast<char>(value.size()));
    block.append(value);
  };
  literal(":path", "/s/" + std::string(method));
  literal(":authority", "localhost");
  literal("content-type", "application/grpc");
  literal("te", "trailers");
  return block;
}

// The frames that an input describes.
std::string FramesOf(std::string_view input) {
  std::string stream = kPreface;
  AppendFrame(4, 0, 0, "", &stream);  // SETTINGS
  while (input.size() >= 3) {
    const uint8_t type = static_cast<uint8_t>(input[0]) & 15;
    const uint8_t flags = static_cast<uint8_t>(input[0]) >> 4 |
                          (static_cast<uint8_t>(input[1]) & 0x20);
    const uint32_t id = static_cast<uint8_t>(input[1]) & 31;
    const size_t size =
        std::min<size_t>(static_cast<uint8_t>(input[2]), input.size() - 3);
    const std::string_view payload = input.substr(3, size);
    input.remove_prefix(3 + size);
    if (type == 15) {  // a call, with its message
      AppendFrame(kHeaders, 4, id, Request(size % 2 ? "Reply" : "None"),
                  &stream);
      AppendFrame(kData, kEndStream, id, std::string(5, '\0'), &stream);
    } else if (type == 14) {  // WINDOW_UPDATE, a large one
      AppendFrame(8, 0, id, std::string("\0\1\0\0", 4), &stream);
    } else {
      AppendFrame(type, flags, id, payload, &stream);
    }
  }
  return stream;
}

// Reads what the session sends.
class Client {
 public:
  void Read(const std::string& bytes) {
    received_ += bytes;
    while (received_.size() >= 9) {
      const auto at = [this](size_t i) {
        return static_cast<uint8_t>(received_[i]);
      };
      const size_t size = static_cast<size_t>(at(0)) << 16 | at(1) << 8 | at(2);
      FUZZ_CHECK(size <= 16384);
      if (received_.size() < 9 + size) return;
      const uint32_t stream =
          static_cast<uint32_t>(at(5)) << 24 | at(6) << 16 | at(7) << 8 | at(8);
      FUZZ_CHECK(stream == 0 || stream % 2 == 1);
      ReadFrame(at(3), at(4), stream, received_.substr(9, size));
      received_.erase(0, 9 + size);
    }
  }

 private:
  struct Call {
    size_t received = 0;
    int heads = 0;
    bool ended = false;
  };

  void ReadFrame(uint8_t type, uint8_t flags, uint32_t stream,
                 const std::string& payload) {
    if (type != kData && type != kHeaders) return;
    Call& call = calls_[stream];
    FUZZ_CHECK(!call.ended);
    if (type == kHeaders) {
      FUZZ_CHECK(++call.heads <= 2);
      // Trailers end the stream, and come after all of the reply or none.
      FUZZ_CHECK(call.heads == 1 || (flags & kEndStream));
      FUZZ_CHECK(call.received == 0 || call.received == 5 + kReplyBytes);
    } else {
      FUZZ_CHECK(call.heads == 1);
      FUZZ_CHECK(payload.size() <= Expected().size() - call.received);
      FUZZ_CHECK(memcmp(payload.data(), Expected().data() + call.received,
                        payload.size()) == 0);
      call.received += payload.size();
    }
    call.ended = flags & kEndStream;
  }

  std::string received_;
  std::map<uint32_t, Call> calls_;
};

void Run(std::string_view stream, uint8_t options) {
  ReplyCache::Options cache_options;
  // Each call has a reply of its own.
  cache_options.lifetime = cache_options.long_lifetime =
      std::chrono::milliseconds(0);
  cache_options.lifetime_per_making = 0;
  ReplyCache replies(cache_options);
  GrpcService service;
  service.replies = &replies;
  service.path = "/s/";
  service.methods["Reply"] = replies.Add(MakeReply);
  const auto session = GrpcSession::Create(&service);
  FUZZ_CHECK(session != nullptr);

  const size_t chunk = size_t{1} << (options & 15);
  const int turns_per_drain = 1 + (options >> 4);
  Client client;
  bool alive = true;
  for (int turn = 0; alive && !stream.empty(); ++turn) {
    if (!session->output_full()) {
      const size_t size = std::min(chunk, stream.size());
      alive = session->Receive({stream.data(), size});
      stream.remove_prefix(size);
    }
    alive = alive && session->FillOutput();
    FUZZ_CHECK(session->output().size() <=
               GrpcSession::kMaxOutputBytes + 9 + 16384);
    // Those of the calls, of the output and of the cache.
    FUZZ_CHECK(replies.bytes() <=
               (GrpcSession::kMaxHeldReplies + 4) * kReplyBytes);
    if (turn % turns_per_drain == 0 || session->output_full()) {
      client.Read(session->output().ToString());
      session->mutable_output()->Clear();
    }
  }
  session->GoAway();
  session->FillOutput();
  client.Read(session->output().ToString());
}

}  // namespace
}  // namespace fuzz
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using netmeter::fuzz::FramesOf;
  using netmeter::fuzz::Run;
  if (size < 1) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input[0] == 'P') {
    Run(input, 12);
  } else {
    Run(FramesOf(input.substr(1)), data[0]);
  }
  return 0;
}
