// SPDX-License-Identifier: BSD-3-Clause
// What the parsers of bpf/ ought to say, written a second time: with the whole
// input in memory, where those read byte by byte and keep nothing. The two ways
// of writing it have little in common, so a mistake in one of them shows as a
// difference on some input, which the fuzzer looks for.
//
//   Expected e = ReferenceH2(bytes);
//   e.result, e.name, e.huffman   as of struct nm_naming after these bytes
//
// Threads: any.

#ifndef NETMETER_TEST_FUZZ_REFERENCE_H_
#define NETMETER_TEST_FUZZ_REFERENCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/internal.h"

namespace netmeter {
namespace fuzz {

struct Expected {
  int result = NM_NAMING_MORE;
  std::string name;
  bool huffman = false;
  bool limit = false;  // FAILED by a limit of ours, not by what was read
};

// Reads one thing after another; `out` once there were too few bytes.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  bool out() const { return out_; }
  bool done() const { return bytes_.empty(); }
  std::string_view Take(size_t size) {
    if (size > bytes_.size()) out_ = true;
    if (out_) return {};
    std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  uint32_t Number(size_t size) {
    uint32_t number = 0;
    for (char c : Take(size)) number = number << 8 | static_cast<uint8_t>(c);
    return number;
  }

 private:
  std::string_view bytes_;
  bool out_ = false;
};

inline Expected NotNamed(bool limit = false) {
  Expected expected;
  expected.result = NM_NAMING_FAILED;
  expected.limit = limit;
  return expected;
}

// The rest of an integer with a full prefix, at most `most` bytes of it; false
// if it has more. RFC 7541 section 5.1.
inline bool HpackInteger(Cursor* block, uint64_t* value, int most) {
  for (int i = 0;; i++) {
    if (block->done()) {
      block->Take(1);
      return true;
    }
    if (i == most) return false;
    const uint32_t c = block->Number(1);
    *value += static_cast<uint64_t>(c & 0x7f) << (7 * i);
    if (!(c & 0x80)) return true;
  }
}

// The first :authority that stands as a literal in a header block. `over`:
// that was all of it.
inline Expected ReferenceHpack(std::string_view bytes, bool over) {
  Cursor block(bytes);
  while (!block.done()) {
    const uint32_t first = block.Number(1);
    const bool literal = (first & 0xc0) == 0x40 || (first & 0xe0) == 0;
    const uint32_t mask = first & 0x80   ? 0x7f
                          : first & 0x40 ? 0x3f
                          : first & 0x20 ? 0x1f
                                         : 0x0f;
    uint64_t index = first & mask;
    if (index == mask && !HpackInteger(&block, &index, 5)) {
      return NotNamed(true);
    }
    if (block.out()) break;
    if (!literal) continue;
    bool authority = index == 1, cut = false;
    for (int value = index != 0; value < 2 && !cut; value++) {
      const uint32_t head = block.Number(1);
      uint64_t length = head & 0x7f;
      if (length == 0x7f && !HpackInteger(&block, &length, 3)) {
        return NotNamed(true);
      }
      const std::string_view text = block.Take(length);
      cut = block.out();
      if (cut) break;
      const bool huffman = head & 0x80;
      if (!value) {
        authority =
            text ==
            (huffman ? std::string_view("\xb8\x3b\x53\x39\xec\x32\x7d\x7f", 8)
                     : std::string_view(":authority"));
      } else if (authority) {
        if (text.empty()) return NotNamed();
        if (huffman && text.size() > NM_NAME_BYTES) return NotNamed(true);
        Expected found;
        found.result = NM_NAMING_FOUND;
        found.name = std::string(text.substr(0, NM_NAME_BYTES));
        found.huffman = huffman;
        return found;
      }
    }
    if (cut) break;
  }
  return over ? NotNamed() : Expected();
}

// A connection's first bytes. RFC 9113 sections 3.4, 4.1, 6.2, 6.10.
inline Expected ReferenceH2(std::string_view bytes) {
  constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  if (bytes.substr(0, 24) != kPreface.substr(0, bytes.size())) {
    return NotNamed();
  }
  if (bytes.size() < 24) return Expected();
  std::string block;
  bool in_block = false, priority = false, over = false;
  size_t at = 24;
  while (bytes.size() - at >= 9) {
    Cursor header(bytes.substr(at, 9));
    size_t length = header.Number(3);
    const uint32_t type = header.Number(1), flags = header.Number(1);
    at += 9;
    over = in_block != (type == 9);
    if (over) break;
    size_t padding = 0;
    if (type == 1) {
      in_block = true;
      priority = flags & 0x20;
      over = !length && (flags & 0x28);
      if (over) break;
      if (flags & 0x8) {
        if (at == bytes.size()) break;
        padding = static_cast<uint8_t>(bytes[at++]);
        over = padding > --length;
        if (over) break;
      }
      length -= padding;
    }
    const std::string_view payload = bytes.substr(at, length);
    at += payload.size();
    if (in_block) block += payload;
    if (payload.size() < length) break;
    over = in_block && (flags & 0x4);
    if (over || bytes.size() - at < padding) break;
    at += padding;
  }
  if (!in_block) return over ? NotNamed() : Expected();
  if (priority) {
    if (block.size() < 5) return over ? NotNamed() : Expected();
    block.erase(0, 5);
  }
  return ReferenceHpack(block, over);
}

// RFC 8446 sections 5.1 and 4.1.2, RFC 6066 section 3.
inline Expected ReferenceTls(std::string_view bytes) {
  std::string handshake;
  bool over = false;
  while (!bytes.empty()) {
    over = bytes[0] != 22 || (bytes.size() > 1 && bytes[1] != 3);
    if (over || bytes.size() < 5) break;
    Cursor header(bytes.substr(3, 2));
    const size_t length = header.Number(2);
    over = length == 0 || length > 16384;
    if (over) break;
    handshake += bytes.substr(5, length);
    bytes.remove_prefix(bytes.size() - 5 < length ? bytes.size() : 5 + length);
  }
  const Expected ran_out = over ? NotNamed() : Expected();
  if (handshake.size() < 4) return ran_out;
  Cursor start(handshake);
  const uint32_t type = start.Number(1);
  const size_t size = start.Number(3);
  if (type != 1 || size == 0 || size > 65536) return NotNamed();
  const std::string_view body = std::string_view(handshake).substr(4, size);
  const Expected ends = body.size() == size ? NotNamed() : ran_out;

  Cursor hello(body);
  hello.Take(2 + 32);
  hello.Take(hello.Number(1));
  hello.Take(hello.Number(2));
  hello.Take(hello.Number(1));
  size_t left = hello.Number(2);
  if (hello.out()) return ends;
  if (!left) return NotNamed();
  for (;;) {
    const uint32_t extension = hello.Number(2);
    const size_t length = hello.Number(2);
    if (hello.out()) return ends;
    if (extension == 0) {
      hello.Take(2);
      const uint32_t name_type = hello.Number(1);
      const size_t name_length = hello.Number(2);
      if (hello.out()) return ends;
      if (name_type != 0 || name_length == 0 || name_length + 5 > length) {
        return NotNamed();
      }
      const std::string_view name = hello.Take(name_length);
      if (hello.out()) return ends;
      Expected found;
      found.result = NM_NAMING_FOUND;
      found.name = std::string(name.substr(0, NM_NAME_BYTES));
      return found;
    }
    if (length + 4 >= left) return NotNamed();
    left -= length + 4;
    hello.Take(length);
  }
}

inline bool IsToken(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
         (c >= 'a' && c <= 'z') ||
         (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != nullptr);
}

inline bool IsControl(char c) {
  return static_cast<uint8_t>(c) < 0x20 || c == 0x7f;
}

inline Expected Named(std::string_view name) {
  if (name.empty()) return NotNamed();
  Expected found;
  found.result = NM_NAMING_FOUND;
  found.name = std::string(name.substr(0, NM_NAME_BYTES));
  return found;
}

// The authority that `rest` begins with, up to what ends it; RFC 3986 section
// 3.2.
inline Expected ReferenceAuthority(std::string_view rest) {
  const size_t end = rest.find_first_of("/?# ");
  std::string_view authority = rest.substr(0, end);
  if (std::any_of(authority.begin(), authority.end(), IsControl)) {
    return NotNamed();
  }
  if (end == std::string_view::npos) return Expected();
  const size_t at = authority.rfind('@');
  if (at != std::string_view::npos) authority.remove_prefix(at + 1);
  return Named(authority);
}

// The field lines of a request, up to Host; RFC 9112 section 5.
inline Expected ReferenceFields(std::string_view fields) {
  for (;;) {
    size_t end = fields.find('\n');
    const bool whole = end != std::string_view::npos;
    const std::string_view line = fields.substr(0, end);
    if (whole || !line.empty()) {
      const bool folded = !line.empty() && (line[0] == ' ' || line[0] == '\t');
      const size_t colon = line.find(':');
      const std::string_view name = line.substr(0, colon);
      if (!folded) {
        if (!std::all_of(name.begin(), name.end(), IsToken)) return NotNamed();
        if (name.empty() && (whole || !line.empty())) return NotNamed();
        if (colon == std::string_view::npos && whole) return NotNamed();
        std::string lower(name);
        for (char& c : lower) {
          if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
        }
        if (colon != std::string_view::npos && lower == "host") {
          std::string_view value = line.substr(colon + 1);
          // The first CR ends the line, whatever follows.
          const size_t cr = value.find('\r');
          const bool over = whole || cr != std::string_view::npos;
          value = value.substr(0, cr);
          while (!value.empty() && (value[0] == ' ' || value[0] == '\t')) {
            value.remove_prefix(1);
          }
          std::string_view host = value;
          while (!host.empty() && (host.back() == ' ' || host.back() == '\t')) {
            host.remove_suffix(1);
          }
          for (char c : host) {
            if (c == ' ' || IsControl(c) || strchr("/?#@", c) != nullptr) {
              return NotNamed();
            }
          }
          return over ? Named(host) : Expected();
        }
      }
    }
    if (!whole) return Expected();
    fields.remove_prefix(end + 1);
  }
}

// A connection's first bytes, of HTTP/1. RFC 9112 sections 3 and 5.
inline Expected ReferenceHttp(std::string_view bytes) {
  constexpr size_t kMost = 32;  // of a method, and of a scheme
  const std::string_view method = bytes.substr(0, bytes.find(' '));
  if (!std::all_of(method.begin(), method.end(), IsToken)) return NotNamed();
  if (method.size() > kMost) return NotNamed(true);
  if (method.size() == bytes.size()) return Expected();
  if (method.empty()) return NotNamed();
  std::string_view target = bytes.substr(method.size() + 1);
  if (method == "CONNECT") return ReferenceAuthority(target);
  if (target.empty()) return Expected();
  if (target[0] != '/' && target[0] != '*') {
    const std::string_view scheme = target.substr(0, target.find(':'));
    if (!std::all_of(scheme.begin(), scheme.end(), IsToken)) return NotNamed();
    if (scheme.size() > kMost) return NotNamed(true);
    if (scheme.empty()) return NotNamed();
    constexpr std::string_view kSlashes = "://";
    const std::string_view behind =
        target.substr(scheme.size(), kSlashes.size());
    if (behind != kSlashes.substr(0, behind.size())) return NotNamed();
    if (behind.size() < kSlashes.size()) return Expected();
    return ReferenceAuthority(target.substr(scheme.size() + kSlashes.size()));
  }
  const size_t space = target.find(' ');
  const std::string_view path = target.substr(0, space);
  if (std::any_of(path.begin(), path.end(), IsControl)) return NotNamed();
  if (space == std::string_view::npos) return Expected();
  std::string_view version = target.substr(space + 1);
  for (const char* part : {"HTTP/1.", "0123456789", "\r\n"}) {
    const std::string_view expected = part;
    if (version.empty()) return Expected();
    if (expected[0] == 'H') {
      const std::string_view read = version.substr(0, expected.size());
      if (read != expected.substr(0, read.size())) return NotNamed();
      if (read.size() < expected.size()) return Expected();
      version.remove_prefix(read.size());
    } else if (expected[0] == '0') {
      if (expected.find(version[0]) == expected.npos) return NotNamed();
      version.remove_prefix(1);
    } else {
      if (version[0] == '\r') version.remove_prefix(1);
      if (version.empty()) return Expected();
      if (version[0] != '\n') return NotNamed();
      version.remove_prefix(1);
    }
  }
  return ReferenceFields(version);
}

// As enum nm_inferred and NM_INFER_ARGUMENTS of command_line.bpf.h, which not
// every includer of this wants.
constexpr int kNothing = 0, kModule = 1, kScript = 2;
constexpr size_t kArguments = 16;

struct ExpectedService {
  int how = kNothing;
  std::string name;
};

inline ExpectedService ReferenceModule(std::string_view module) {
  constexpr std::string_view kHead = "magma.", kTail = ".main";
  ExpectedService service;
  if (module.size() <= kHead.size() + kTail.size() ||
      module.substr(0, kHead.size()) != kHead ||
      module.substr(module.size() - kTail.size()) != kTail) {
    return service;
  }
  const std::string_view name =
      module.substr(kHead.size(), module.size() - kHead.size() - kTail.size());
  if (name.size() <= NM_NAME_BYTES &&
      name.find('.') == std::string_view::npos) {
    service.how = kModule;
    service.name = std::string(name);
  }
  return service;
}

inline ExpectedService ReferenceScript(std::string_view path) {
  constexpr std::string_view kTail = "/main.py";
  ExpectedService service;
  if (path.size() < kTail.size() ||
      path.substr(path.size() - kTail.size()) != kTail) {
    return service;
  }
  path.remove_suffix(kTail.size());
  const size_t slash = path.rfind('/');
  if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
  if (path == "." || path == "..") return service;
  if (!path.empty() && path.size() <= NM_NAME_BYTES) {
    service.how = kScript;
    service.name = std::string(path);
  }
  return service;
}

// `arguments`: argv, each with its NUL; what follows the last NUL is no
// string.
inline ExpectedService ReferencePython(std::string_view arguments) {
  constexpr size_t kLongest = 5079;  // 40 reads of 127 bytes, less one
  std::vector<std::string_view> list;
  for (size_t at = 0, end;
       (end = arguments.find('\0', at)) != std::string_view::npos;
       at = end + 1) {
    if (end - at > kLongest) break;
    list.push_back(arguments.substr(at, end - at));
  }
  size_t budget = kArguments;
  for (size_t i = 1; i < list.size() && i < budget; i++) {
    const std::string_view argument = list[i];
    if (argument.empty() || argument[0] != '-') {
      return ReferenceScript(argument);
    }
    if (argument == "-") return {};
    if (argument[1] == '-') {
      // The value of --check-hash-based-pycs is the next argument.
      if (argument.size() > 2 && argument[2] == 'c') {
        i++;
      }
      continue;
    }
    const size_t option = argument.substr(0, 18).find_first_of("cmWX", 1);
    if (option == std::string_view::npos) continue;
    const std::string_view value = argument.substr(option + 1);
    if (argument[option] == 'c') return {};
    if (argument[option] == 'm') {
      // Reading it costs one of the 16, whether it stands apart or not.
      if (i + 1 >= budget) return {};
      if (!value.empty()) return ReferenceModule(value);
      return i + 1 < list.size() ? ReferenceModule(list[i + 1])
                                 : ExpectedService();
    }
    if (value.empty()) i++;
  }
  return {};
}

}  // namespace fuzz
}  // namespace netmeter

#endif  // NETMETER_TEST_FUZZ_REFERENCE_H_
