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

#include <cstddef>
#include <cstdint>
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
      // Looking at it costs one of the 16, where it stands apart or not.
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
