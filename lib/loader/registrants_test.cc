// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/registrants.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace netmeter {
namespace internal {
namespace {

TEST(RegistrantsTest, UsersAndGroupsAreFoundByNameAndNumber) {
  const absl::StatusOr<Registrants> found =
      FindRegistrants({{"a", "uid:root"},
                       {"b", "uid:1234"},
                       {"c", "group:root"},
                       {"d", "group:4294967294"},
                       {"e", "anyone"}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(TextOf(*found), "a=1:0\nb=1:1234\nc=2:0\nd=2:4294967294\n");
}

TEST(RegistrantsTest, WhatIsMissingIsNamed) {
  EXPECT_EQ(FindRegistrants({{"mme", "uid:no-such-user"}}).status().message(),
            "register_by: mme: no user no-such-user");
  EXPECT_EQ(
      FindRegistrants({{"mme", "group:no-such-group"}}).status().message(),
      "register_by: mme: no group no-such-group");
  EXPECT_EQ(FindRegistrants({{"mme", "uid:4294967295"}}).status().message(),
            "register_by: mme: no user 4294967295");
}

TEST(RegistrantsTest, OtherFormsAreRefused) {
  for (const char* const text :
       {"", "uid", "uid:", "group:", "user:root", "uid:a b", "everyone", "0"}) {
    EXPECT_EQ(CheckRegisterBy({{"mme", text}}).message(),
              std::string("register_by: mme: '") + text +
                  "': expected uid:USER, group:GROUP or anyone");
  }
}

TEST(RegistrantsTest, OneIdDecidesAndRootMayBeAnyService) {
  const Registrants registrants = {{"mme", {NM_REGISTRANT_UID, 7}},
                                   {"state", {NM_REGISTRANT_GID, 8}}};
  EXPECT_TRUE(MayBeService(registrants, "mme", 7, 9));
  EXPECT_FALSE(MayBeService(registrants, "mme", 8, 7));
  EXPECT_TRUE(MayBeService(registrants, "state", 9, 8));
  EXPECT_FALSE(MayBeService(registrants, "state", 8, 9));
  for (const char* const service : {"mme", "state", "other"}) {
    EXPECT_TRUE(MayBeService(registrants, service, 0, 9));
  }
  EXPECT_TRUE(MayBeService(registrants, "other", 9, 9));
}

TEST(RegistrantsTest, OfAProcessTheRealIdsCount) {
  const auto own = static_cast<uint32_t>(getpid());
  EXPECT_TRUE(MayProcessBeService({{"mme", {NM_REGISTRANT_UID, getuid()}}},
                                  "mme", own));
  EXPECT_TRUE(MayProcessBeService({{"mme", {NM_REGISTRANT_GID, getgid()}}},
                                  "mme", own));
  EXPECT_EQ(MayProcessBeService({{"mme", {NM_REGISTRANT_UID, getuid() + 1}}},
                                "mme", own),
            getuid() == 0);
  // Above /proc/sys/kernel/pid_max.
  EXPECT_FALSE(
      MayProcessBeService({{"mme", {NM_REGISTRANT_UID, 0}}}, "mme", 1u << 30));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
