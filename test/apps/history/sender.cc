// SPDX-License-Identifier: BSD-3-Clause
// sender ADDRESS FILE: sends datagrams to ADDRESS without end, each of 1000 bytes on the
// network layer, and says how many bytes that is.
//
// Before it sends some, it prints "@@sending N": what it will have sent then. After
// them FILE has what it has sent. So at any moment the true count is N at most, and what
// FILE has at least.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <string>

namespace {

constexpr int kBatch = 20;
constexpr useconds_t kPause = 50000;
constexpr uint64_t kWireBytes = 1000;
constexpr size_t kHeaders = 20 + 8;  // IP, UDP

bool WriteCount(const std::string& file, uint64_t count) {
  const std::string next = file + ".next";
  FILE* const out = fopen(next.c_str(), "w");
  if (out == nullptr) return false;
  fprintf(out, "%" PRIu64 "\n", count);
  return fclose(out) == 0 && rename(next.c_str(), file.c_str()) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
    fprintf(stderr, "sender: ADDRESS FILE\n");
    return 2;
  }
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const std::string payload(kWireBytes - kHeaders, 'x');
  for (uint64_t sent = 0;; usleep(kPause)) {
    printf("@@sending %" PRIu64 "\n", sent + kBatch * kWireBytes);
    fflush(stdout);
    for (int i = 0; i < kBatch; ++i) {
      if (sendto(fd, payload.data(), payload.size(), 0,
                 reinterpret_cast<const sockaddr*>(&to), sizeof(to)) < 0) {
        perror("sender");
        return 1;
      }
    }
    sent += kBatch * kWireBytes;
    if (!WriteCount(argv[2], sent)) {
      perror("sender");
      return 1;
    }
  }
}
