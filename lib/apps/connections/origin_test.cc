// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/origin.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

TEST(Origin, LabelsAreTextsInAnyCharacters) {
  const auto origin =
      Origin::Make({"site=ulm \"1\"", "a=b=c", "empty=", "bad=\xff"});
  ASSERT_TRUE(origin.ok()) << origin.status();
  const auto json =
      nlohmann::json::parse("{\"first\":0" + origin->json() + "}");
  EXPECT_NE(json["host"], "");
  EXPECT_EQ(json["labels"], (nlohmann::json{{"site", "ulm \"1\""},
                                            {"a", "b=c"},
                                            {"empty", ""},
                                            {"bad", "\\xff"}}));
}

TEST(Origin, WithoutLabelsThereIsTheHostAlone) {
  const auto origin = Origin::Make({});
  ASSERT_TRUE(origin.ok()) << origin.status();
  EXPECT_EQ(origin->json().find("labels"), std::string::npos);
  EXPECT_NE(origin->protobuf(), "");
}

TEST(Origin, WrongLabelsAreNamed) {
  const std::vector<std::string> wrong = {"", "site", "=ulm"};
  for (const std::string& label : wrong) {
    EXPECT_EQ(Origin::Make({label}).status().message(),
              "--label: expected KEY=VALUE, not '" + label + "'");
  }
  EXPECT_EQ(Origin::Make({"a=1", "a=2"}).status().message(),
            "--label: 'a' is given twice");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
