// SPDX-License-Identifier: BSD-3-Clause
// Builds the first bytes of connections part by part, for the tests of wire_name.bpf.h,
// and for the benchmark of reading them.
//
//   Record(Hello(Sni("www.example.com")))
//   kPreface + Frame(1, NM_H2_FLAG_END_HEADERS, "\x41" + String("www.example.com"))
//
// Threads: any.

#ifndef NETMETER_BPF_FIRST_BYTES_TESTING_H_
#define NETMETER_BPF_FIRST_BYTES_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace netmeter {
namespace internal {

// In network byte order.
inline std::string Number(size_t value, int bytes) {
  std::string text;
  while (bytes--) text.push_back(static_cast<char>(value >> (8 * bytes)));
  return text;
}

// --- TLS ---------------------------------------------------------------------

// A record (RFC 8446, 5.1) of a handshake.
inline std::string Record(const std::string& payload) {
  return "\x16\3" + Number(1, 1) + Number(payload.size(), 2) + payload;
}

// The payload in several records, each of at most `bytes`.
inline std::string Records(const std::string& payload, size_t bytes) {
  std::string records;
  for (size_t at = 0; at < payload.size(); at += bytes) {
    records += Record(payload.substr(at, bytes));
  }
  return records;
}

inline std::string Extension(uint16_t type, const std::string& content) {
  return Number(type, 2) + Number(content.size(), 2) + content;
}

inline std::string Sni(const std::string& name) {
  return Extension(0, Number(name.size() + 3, 2) + Number(0, 1) +
                          Number(name.size(), 2) + name);
}

// The handshake message (RFC 8446, 4.1.2). `extensions` includes its length, or is empty.
inline std::string Message(const std::string& extensions, size_t session = 32,
                           size_t ciphers = 16) {
  const std::string body = "\3\3" + std::string(32, 'r') + Number(session, 1) +
                           std::string(session, 's') + Number(2 * ciphers, 2) +
                           std::string(2 * ciphers, '\x13') + Number(1, 1) +
                           Number(0, 1) + extensions;
  return Number(1, 1) + Number(body.size(), 3) + body;
}

inline std::string Hello(const std::string& extensions, size_t session = 32,
                         size_t ciphers = 16) {
  return Message(Number(extensions.size(), 2) + extensions, session, ciphers);
}

// --- HTTP/2 ------------------------------------------------------------------

constexpr char kPreface[] =
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";  // RFC 9113, 3.4

inline std::string Frame(uint8_t type, uint8_t flags,
                         const std::string& payload) {
  return Number(payload.size(), 3) + Number(type, 1) + Number(flags, 1) +
         Number(1, 4) + payload;
}

// An integer after `first`, which has the bits before it (RFC 7541 section 5.1).
inline std::string Integer(uint8_t first, int prefix, size_t value) {
  const size_t mask = (1u << prefix) - 1;
  if (value < mask) return Number(first | value, 1);
  std::string text = Number(first | mask, 1);
  for (value -= mask; value >= 128; value >>= 7) {
    text += Number((value & 127) | 128, 1);
  }
  return text + Number(value, 1);
}

inline std::string String(const std::string& text) {
  return Integer(0, 7, text.size()) + text;
}

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_BPF_FIRST_BYTES_TESTING_H_
