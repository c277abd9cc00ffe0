// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/sends.h"

#include <fcntl.h>
#include <linux/errqueue.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test/live/sockets.h"

namespace netmeter {
namespace internal {
namespace {

// How many of the sends the kernel has finished, by its notices.
uint32_t ZeroCopiesDone(int fd) {
  uint32_t done = 0;
  for (;;) {
    char control[256];
    msghdr message = {};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(fd, &message, MSG_ERRQUEUE) < 0) return done;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr) continue;
    const auto* notice =
        reinterpret_cast<const sock_extended_err*>(CMSG_DATA(header));
    if (notice->ee_origin == SO_EE_ORIGIN_ZEROCOPY)
      done += notice->ee_data - notice->ee_info + 1;
  }
}

}  // namespace

UniqueFd FileOf(uint64_t bytes) {
  UniqueFd file(Check(memfd_create("accuracy", MFD_CLOEXEC), "memfd_create"));
  const std::string data(bytes, 'x');
  if (write(file.get(), data.data(), data.size()) !=
      static_cast<ssize_t>(bytes))
    DieWithErrno("write");
  Check(lseek(file.get(), 0, SEEK_SET), "lseek");
  return file;
}

void SendZeroCopy(int fd, uint64_t bytes) {
  SetOption(fd, SOL_SOCKET, SO_ZEROCOPY, 1);
  const std::vector<char> data(bytes, 'x');
  uint32_t sends = 0, done = 0;
  for (uint64_t sent = 0; sent < bytes; ++sends)
    sent += Check(send(fd, &data[sent], std::min<uint64_t>(bytes - sent, 50000),
                       MSG_ZEROCOPY),
                  "send");
  for (int i = 0; done < sends && i < kTimeoutMs; ++i) {
    done += ZeroCopiesDone(fd);
    usleep(1000);
  }
  if (done != sends) DieWithErrno("MSG_ZEROCOPY was not finished");
}

void SendByFile(int fd, uint64_t bytes) {
  const UniqueFd file = FileOf(bytes);
  while (bytes > 0)
    bytes -= Check(sendfile(fd, file.get(), nullptr, bytes), "sendfile");
}

void SendBySplice(int fd, uint64_t bytes) {
  const UniqueFd file = FileOf(bytes);
  int ends[2];
  Check(pipe2(ends, O_CLOEXEC), "pipe");
  while (bytes > 0) {
    ssize_t left = Check(
        splice(file.get(), nullptr, ends[1], nullptr, bytes, SPLICE_F_MOVE),
        "splice");
    bytes -= left;
    while (left > 0)
      left -= Check(splice(ends[0], nullptr, fd, nullptr, left,
                           SPLICE_F_MOVE | (bytes > 0 ? SPLICE_F_MORE : 0)),
                    "splice");
  }
}

}  // namespace internal
}  // namespace netmeter
