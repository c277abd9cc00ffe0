// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/clients/clients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kKey[] = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=";

class ClientsTest : public ::testing::Test {
 protected:
  // A file with this text.
  std::string File(const std::string& text) {
    const std::string path = absl::StrCat(::testing::TempDir(), "/names",
                                          options_.name_files.size());
    std::ofstream(path) << text;
    options_.name_files.push_back(path);
    return path;
  }

  // The name by these files.
  std::string NameOf(const std::string& identity) {
    const auto clients = Clients::Read(options_);
    EXPECT_TRUE(clients.ok()) << clients.status();
    return clients.ok() ? clients->NameOf(identity) : "";
  }

  ClientOptions options_;
};

TEST_F(ClientsTest, ALeaseOfDnsmasqNamesItsAddressAndItsDevice) {
  File(
      "1795950000 02:00:00:00:03:02 10.77.3.2 phone 01:02:00:00:00:03:02\n"
      "0 02:00:00:00:03:03 10.77.3.3 * *\n"
      "duid 00:01:00:01:2c:aa:bb:cc:02:00:00:00:03:01\n"
      "1795950000 3221225474 fd77:3:0::2 tablet 00:01:00:01:2c\n");
  EXPECT_EQ(NameOf("10.77.3.2"), "phone");
  EXPECT_EQ(NameOf("02:00:00:00:03:02"), "phone");
  EXPECT_EQ(NameOf("10.77.3.3"), "");
  EXPECT_EQ(NameOf("02:00:00:00:03:03"), "");
  EXPECT_EQ(NameOf("fd77:3::2"), "tablet");
}

// The kernel forgets a neighbour after some minutes, and a lease lasts hours.
TEST_F(ClientsTest, ALeaseAlsoHasTheMacAddress) {
  File("1795950000 02:00:00:00:03:02 203.0.113.9 * *\n");
  options_.identities = "mac,address";
  const auto clients = Clients::Read(options_);
  ASSERT_TRUE(clients.ok()) << clients.status();
  EXPECT_EQ(clients->IdentityOf("203.0.113.9", "br0"), "02:00:00:00:03:02");
  EXPECT_EQ(clients->IdentityOf("203.0.113.8", "br0"), "203.0.113.8");
  EXPECT_EQ(clients->IdentityOf("02:00:00:00:03:02", ""), "02:00:00:00:03:02");
  options_.identities = "address,mac";
  EXPECT_EQ(Clients::Read(options_)->IdentityOf("203.0.113.9", "br0"),
            "203.0.113.9");
}

TEST_F(ClientsTest, EthersNamesADeviceDirectlyOrByItsAddress) {
  File(
      "# devices\n"
      "2:0:0:0:3:A printer  # of the office\n"
      "02:00:00:00:03:0b 10.77.3.11\n\n");
  File("10.77.3.11 camera camera.lan\n10.77.3.12\tcafe\r\n");
  EXPECT_EQ(NameOf("02:00:00:00:03:0a"), "printer");
  EXPECT_EQ(NameOf("02:00:00:00:03:0b"), "camera");
  EXPECT_EQ(NameOf("10.77.3.11"), "camera");
  // It was the address ::ffff:cafe.
  EXPECT_EQ(NameOf("10.77.3.12"), "cafe");
}

TEST_F(ClientsTest, AFileOfAddressesNamesTheDeviceThatHasOne) {
  File("1795950000 02:00:00:00:03:02 10.77.3.2 * *\n");
  File("10.77.3.2 phone\n");
  EXPECT_EQ(NameOf("02:00:00:00:03:02"), "phone");
}

TEST_F(ClientsTest, AWireGuardPeerHasItsKey) {
  File(absl::StrCat(kKey, " annas-laptop\n"));
  EXPECT_EQ(NameOf(kKey), "annas-laptop");
}

TEST_F(ClientsTest, TheFirstFileWins) {
  File("10.77.3.2 phone\n");
  File("10.77.3.2 tablet\n10.77.3.3 camera\n");
  EXPECT_EQ(NameOf("10.77.3.2"), "phone");
  EXPECT_EQ(NameOf("10.77.3.3"), "camera");
}

TEST_F(ClientsTest, ALineOfNoFormatIsAnErrorWithItsNumber) {
  for (const char* line :
       {"phone 10.77.3.2", "10.77.3.2", "02:00:00:00:03 phone",
        "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8yk== short",
        "1795950000 02:00:00:00:03:02 phone 10.77.3.2 *", "10.77.3 phone"}) {
    options_.name_files.clear();
    const std::string path = File(absl::StrCat("\n10.77.3.2 a\n", line, "\n"));
    const auto clients = Clients::Read(options_);
    ASSERT_FALSE(clients.ok()) << line;
    EXPECT_TRUE(absl::IsInvalidArgument(clients.status()));
    EXPECT_THAT(std::string(clients.status().message()),
                HasSubstr(absl::StrCat(path, ":3: expected a lease")));
  }
}

TEST_F(ClientsTest, AMissingFileIsAnError) {
  options_.name_files = {"/nonexistent/leases"};
  const auto clients = Clients::Read(options_);
  EXPECT_TRUE(absl::IsNotFound(clients.status()));
  EXPECT_THAT(std::string(clients.status().message()),
              EndsWith("/nonexistent/leases: No such file or directory"));
}

// A FIFO would block, /dev/zero has no end, and a directory looked like an empty file.
TEST_F(ClientsTest, WhatIsNoRegularFileIsAnError) {
  for (const char* path : {"/", "/dev/zero"}) {
    options_.name_files = {path};
    EXPECT_EQ(Clients::Read(options_).status(),
              absl::InvalidArgumentError(
                  absl::StrCat(path, ": expected a file of 16 MiB at most")));
  }
}

TEST_F(ClientsTest, WithoutOptionsAnAddressIsItsIdentity) {
  EXPECT_FALSE(options_.any());
  EXPECT_EQ(Clients().IdentityOf("10.77.3.2", "br0"), "10.77.3.2");
  EXPECT_EQ(Clients().NameOf("10.77.3.2"), "");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
