// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/exporter/listen_address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

TEST(ListenAddress, IsNumericWithAPort) {
  for (const char* text : {"127.0.0.1:9384", "127.8.9.1:0", "localhost:1",
                           "[::1]:65535", "[::ffff:127.0.0.1]:1"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_TRUE(address->loopback) << text;
  }
  for (const char* text :
       {"0.0.0.0:9384", "192.0.2.1:1", "[::]:1", "[2001:db8::1]:1",
        "[::ffff:192.0.2.1]:1", "128.0.0.1:1"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_FALSE(address->loopback) << text;
  }
  for (const char* text :
       {"", ":", "9384", ":9384", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
        "127.0.0.1:-1", "::1:9384", "[::1]", "[::1:9384", "[127.0.0.1]:1",
        "127.1:1", "example.org:80", "127.0.0.1:1x"}) {
    EXPECT_EQ(ParseListenAddress(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

// What one peer may keep of the kernel's memory, and that replies leave at once.
TEST(ListenAddress, AcceptedSocketsInheritTheOptions) {
  const auto listener = Listen(*ParseListenAddress("127.0.0.1:0"));
  ASSERT_TRUE(listener.ok());
  const auto address = ParseListenAddress(NameOf(*listener));
  ASSERT_TRUE(address.ok());
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(),
                    reinterpret_cast<const sockaddr*>(&address->storage),
                    address->length),
            0);
  const UniqueFd accepted(accept4(listener->get(), nullptr, nullptr, 0));
  ASSERT_TRUE(accepted.ok());
  const auto option = [&](int level, int name) {
    int value = -1;
    socklen_t length = sizeof(value);
    getsockopt(accepted.get(), level, name, &value, &length);
    return value;
  };
  EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(SOL_SOCKET, SO_SNDBUF), 2 * 128 * 1024);
  EXPECT_EQ(option(SOL_SOCKET, SO_RCVBUF), 2 * 32 * 1024);
}

TEST(ListenAddress, AUnixSocketIsOfItsGroupAndReplacesOnlyAStaleOne) {
  char directory[] = "/tmp/netmeter-test-XXXXXX";  // a path of up to 107 bytes
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/metrics.sock";
  const std::string group = std::to_string(getegid());
  const auto address = ParseUnixAddress("unix:" + path, group);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_TRUE(address->loopback);
  auto listener = Listen(*address);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(NameOf(*listener), "unix:" + path + ":");
  struct stat file;
  ASSERT_EQ(lstat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode, S_IFSOCK | 0660u);
  EXPECT_EQ(file.st_gid, getegid());
  EXPECT_EQ(Listen(*address).status().message(),
            "listen: Address already in use (another program listens there)");
  // A process that was killed leaves its file.
  listener = UniqueFd();
  const auto second = Listen(*address);
  EXPECT_TRUE(second.ok()) << second.status();
  unlink(path.c_str());
  std::ofstream(path) << "precious";
  EXPECT_EQ(Listen(*address).status().message(),
            "listen: this file is not a socket");
  unlink(path.c_str());
  rmdir(directory);

  EXPECT_EQ(ParseUnixAddress("unix:" + path, "nosuchgroup").status().code(),
            absl::StatusCode::kNotFound);
  for (const std::string& text :
       {std::string("unix:"), std::string("unix:relative"),
        "unix:/" + std::string(107, 'x')}) {
    EXPECT_EQ(ParseUnixAddress(text, group).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
