// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/process_identity.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace netmeter {
namespace internal {
namespace {

const std::map<std::string, std::string>& Services() {
  static const auto* const services = new std::map<std::string, std::string>{
      {"mme", "mme"},
      {"oai_mme", "mme"},
      {"agw_of", "mme"},
      {"sessiond", "sessiond"},
      {"subscriberdb", "subscriberdb"},
      {"envoy_controller", "envoy_controller"}};
  return *services;
}

// "service:<name>" or "binary:<name>"
std::string Identify(const std::string& executable,
                     const std::vector<std::string>& arguments,
                     bool lists = true) {
  std::string argv;
  for (const std::string& argument : arguments) {
    argv += argument;
    argv.push_back('\0');
  }
  Identity identity = IdentifyProcess(
      executable, argv,
      lists ? Services() : std::map<std::string, std::string>(), Services());
  return (identity.service ? "service:" : "binary:") + identity.name;
}

TEST(IdentifyProcessTest, PythonModulesOfMagmaAreServices) {
  EXPECT_EQ(Identify("python3", {"python3", "-m", "magma.subscriberdb.main"}),
            "service:subscriberdb");
  EXPECT_EQ(Identify("python3", {"python3", "-u", "-m", "magma.state.main"}),
            "service:state");
  EXPECT_EQ(Identify("python3.11",
                     {"/usr/bin/python3.11", "-um", "magma.state.main", "-x"}),
            "service:state");
  EXPECT_EQ(Identify("python3", {"python3", "-mmagma.state.main"}),
            "service:state");
  EXPECT_EQ(Identify("python3", {"python3", "-W", "ignore", "-X", "dev",
                                 "-Werror", "-Xdev", "--check-hash-based-pycs",
                                 "always", "-m", "magma.state.main"}),
            "service:state");
  EXPECT_EQ(Identify("python3", {"python3", "-m",
                                 "magma." + std::string(64, 'a') + ".main"}),
            "service:" + std::string(64, 'a'));
}

TEST(IdentifyProcessTest, OtherCommandLinesAreNot) {
  EXPECT_EQ(Identify("foo", {"foo", "bar", "magma.sessiond"}), "binary:foo");
  EXPECT_EQ(Identify("foo", {"foo", "-m", "magma.state.main"}), "binary:foo");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"python3", "-m", "subscriberdb.main"},
           {"python3", "-m", "magma.state"},
           {"python3", "-m", "magma..main"},
           {"python3", "-m", "magma.state.mainly"},
           {"python3", "-m", "magma.a.b.main"},
           {"python3", "-m", "magma." + std::string(65, 'a') + ".main"},
           {"python3", "-m"},
           {"python3", "-c", "-m", "magma.state.main"},
           {"python3", "-", "-m", "magma.state.main"},
           {"python3", "x.py", "-m", "magma.state.main"},
           {"python3", "-W", "-m", "magma.state.main"},
           {"python3", "/opt/unknown/main.py"},
           {"python3", "/main.py"},
           {"python3", "main.py"},
           {"python3", "/opt/subscriberdb/main.pyc"},
           {"python3", "/opt/xsubscriberdb/main.py"},
           {"python3", "/opt/" + std::string(5000, 'a') + "/main.py"},
           {"python3"},
           {""},
           {}}) {
    EXPECT_EQ(Identify("python3", arguments), "binary:python3");
  }
}

TEST(IdentifyProcessTest, ScriptsOfConfiguredServicesAreServices) {
  EXPECT_EQ(Identify("python3",
                     {"/usr/bin/python3", "/opt/x/subscriberdb/main.py", "-v"}),
            "service:subscriberdb");
  EXPECT_EQ(Identify("python3", {"python3", "-B", "subscriberdb/main.py"}),
            "service:subscriberdb");
  EXPECT_EQ(
      Identify("main.py", {"/usr/bin/python3", "/opt/x/subscriberdb/main.py"}),
      "service:subscriberdb");
  EXPECT_EQ(Identify("python3", {"python3", "/" + std::string(3000, 'a') +
                                                "/subscriberdb/main.py"}),
            "service:subscriberdb");
}

// The bug: names_from without service_list made python3 of it here, and the service
// where the process came after the meter.
TEST(IdentifyProcessTest, WhatAScriptNamesNeedsNoListOfExecutables) {
  EXPECT_EQ(Identify("python3", {"python3", "/opt/sessiond/main.py"},
                     /*lists=*/false),
            "service:sessiond");
  EXPECT_EQ(Identify("sessiond", {"sessiond"}, /*lists=*/false),
            "binary:sessiond");
}

TEST(IdentifyProcessTest, BinariesAndAliases) {
  EXPECT_EQ(Identify("mme", {"/usr/local/bin/mme", "-c", "x"}), "service:mme");
  EXPECT_EQ(Identify("oai_mme", {"/usr/local/bin/oai_mme"}), "service:mme");
  EXPECT_EQ(Identify("envoy_controller", {"envoy_controller"}),
            "service:envoy_controller");
  EXPECT_EQ(Identify("nghttpx", {"nghttpx"}), "binary:nghttpx");
  EXPECT_EQ(Identify("x\xff", {"x\xff"}), "binary:x\xff");
}

TEST(IdentifyProcessTest, UnterminatedArgumentsAreNoService) {
  EXPECT_EQ(IdentifyProcess("python3", "python3", Services(), Services()).name,
            "python3");
  EXPECT_EQ(
      IdentifyProcess("python3",
                      absl::string_view("python3\0-m\0magma.state.main", 27),
                      Services(), Services())
          .name,
      "python3");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
