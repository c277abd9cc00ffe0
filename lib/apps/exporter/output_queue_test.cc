// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/output_queue.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

SharedReply MakeReply(const std::string& bytes) {
  return std::make_shared<const Reply>(bytes, false,
                                       std::make_shared<size_t>(0));
}

class OutputQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    ours_ = UniqueFd(fds[0]);
    peer_ = UniqueFd(fds[1]);
  }

  std::string Receive() {
    std::string all;
    char buffer[65536];
    ssize_t count;
    while ((count = recv(peer_.get(), buffer, sizeof(buffer), 0)) > 0) {
      all.append(buffer, static_cast<size_t>(count));
    }
    return all;
  }

  UniqueFd ours_;
  UniqueFd peer_;
  OutputQueue queue_;
};

TEST_F(OutputQueueTest, SendsItsOwnBytesAndThoseOfRepliesInOrder) {
  const SharedReply reply = MakeReply("0123456789");
  queue_.Append("head ");
  queue_.Append(reply, 2, 3);
  queue_.Append(" and ");
  queue_.Append("tail ");
  queue_.Append(reply, 0, 10);
  queue_.Append("");
  queue_.Append(reply, 5, 0);
  EXPECT_EQ(queue_.ToString(), "head 234 and tail 0123456789");
  EXPECT_EQ(queue_.size(), 28u);
  EXPECT_TRUE(queue_.holds_reply());
  EXPECT_EQ(reply.use_count(), 3);
  size_t sent = 0;
  EXPECT_EQ(queue_.Send(ours_.get(), 1000, &sent), OutputQueue::Sent::kAll);
  EXPECT_EQ(sent, 28u);
  EXPECT_EQ(Receive(), "head 234 and tail 0123456789");
  EXPECT_TRUE(queue_.empty());
  EXPECT_FALSE(queue_.holds_reply());
  EXPECT_EQ(reply.use_count(), 1);
}

TEST_F(OutputQueueTest, SendsUpToALimitAndUntilTheSocketIsFull) {
  std::string large;
  for (int i = 0; i < 1000000; ++i) large.push_back(static_cast<char>(i * 7));
  queue_.Append("head");
  queue_.Append(MakeReply(large), 0, large.size());
  size_t sent = 0;
  EXPECT_EQ(queue_.Send(ours_.get(), 1000, &sent), OutputQueue::Sent::kSome);
  EXPECT_EQ(sent, 1000u);
  EXPECT_EQ(queue_.Send(ours_.get(), 1 << 30, &sent),
            OutputQueue::Sent::kBlocked);
  std::string received = Receive();
  EXPECT_EQ(received.size(), sent);
  while (!queue_.empty()) {
    queue_.Send(ours_.get(), 1 << 30, &sent);
    received += Receive();
  }
  EXPECT_EQ(received, "head" + large);
}

TEST_F(OutputQueueTest, FailsWhereThePeerIsGone) {
  queue_.Append("x");
  peer_ = UniqueFd();
  size_t sent = 0;
  EXPECT_EQ(queue_.Send(ours_.get(), 1000, &sent), OutputQueue::Sent::kFailed);
}

// 64 KiB of frames with a byte of a reply each took a megabyte.
TEST_F(OutputQueueTest, MemoryCountsThePiecesToo) {
  const SharedReply reply = MakeReply("0123456789");
  for (int i = 0; i < 1000; ++i) {
    queue_.Append("frame");
    queue_.Append(reply, 3, 1);
  }
  EXPECT_EQ(queue_.size(), 6000u);
  EXPECT_GE(queue_.memory(), 2000 * sizeof(SharedReply) + 6000);
  queue_.Clear();
  EXPECT_EQ(queue_.memory(), 0u);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
