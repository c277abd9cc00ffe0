// SPDX-License-Identifier: BSD-3-Clause
#include "lib/tools/container_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class ContainerNamesTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(state_); }
  void TearDown() override { std::filesystem::remove_all(state_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = state_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  static std::string Id(char digit) { return std::string(64, digit); }
  void WriteDocker(char digit, const std::string& text) {
    Write("docker/containers/" + Id(digit) + "/config.v2.json", text);
  }

  const std::string state_ = ::testing::TempDir() + "/state";
};

TEST_F(ContainerNamesTest, WithoutARuntimeThereAreNone) {
  EXPECT_THAT(ReadContainerNames(state_), IsEmpty());
  EXPECT_THAT(ReadContainerNames(state_ + "/none"), IsEmpty());
}

TEST_F(ContainerNamesTest, DockersAreRead) {
  WriteDocker('a', R"({"ID":"x","Config":{"Image":"nginx"},"Name":"/web"})");
  WriteDocker('b', R"({"Name":"plain"})");
  EXPECT_THAT(
      ReadContainerNames(state_),
      ElementsAre(Pair("aaaaaaaaaaaa", "web"), Pair("bbbbbbbbbbbb", "plain")));
}

TEST_F(ContainerNamesTest, PodmansAreRead) {
  // As Podman 4.3 writes them.
  Write(
      "containers/storage/overlay-containers/containers.json",
      R"([{"id":")" + Id('c') +
          R"(","names":["db","other"],"image":"7614ae9453d1","layer":"f1",)"
          R"("metadata":"{\"name\":\"db\"}","created":"2026-01-01T00:00:00Z"},)"
          R"({"id":")" +
          Id('d') + R"("}])");
  EXPECT_THAT(ReadContainerNames(state_),
              ElementsAre(Pair("cccccccccccc", "db")));
}

TEST_F(ContainerNamesTest, WhatMakesNoSenseHasNoName) {
  WriteDocker('1', "");
  WriteDocker('2', "{\"Name\":");
  WriteDocker('3', R"({"Name":7})");
  WriteDocker('4', R"(["/web"])");
  WriteDocker('5', R"({"Name":""})");
  WriteDocker('6', std::string(100000, '['));
  Write("docker/containers/short/config.v2.json", R"({"Name":"/web"})");
  Write("docker/containers/" + Id('7'), "no directory");
  std::filesystem::create_directories(state_ + "/docker/containers/" + Id('8') +
                                      "/config.v2.json");
  std::filesystem::create_directories(state_ + "/docker/containers/" + Id('9'));
  ASSERT_EQ(
      mkfifo((state_ + "/docker/containers/" + Id('9') + "/config.v2.json")
                 .c_str(),
             0600),
      0);
  Write("containers/storage/overlay-containers/containers.json",
        R"([7,{"id":7,"names":["x"]},{"id":"short","names":["x"]},)"
        R"({"id":")" +
            Id('a') + R"(","names":"x"},{"id":")" + Id('b') +
            R"(","names":[7]}])");
  Write("containers/storage/vfs-containers/containers.json", "{}");
  EXPECT_THAT(ReadContainerNames(state_), IsEmpty());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
