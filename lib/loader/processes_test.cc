// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

// The bug: all programs that a dynamic loader was told to run were the loader.
TEST(IdentifyProcessTest, ADynamicLoaderHasTheNameOfItsProgram) {
  const std::string loader = "ld-linux-x86-64.so.2";
  EXPECT_EQ(Identify(loader, {"/lib64/" + loader, "/opt/a/frpc", "-c", "x"}),
            "binary:frpc");
  EXPECT_EQ(Identify(loader, {loader, "--inhibit-cache", "--library-path", "/x",
                              "--argv0", "y", "/usr/bin/mme"}),
            "service:mme");
  EXPECT_EQ(Identify(loader, {loader, "/usr/bin/python3", "-m",
                              "magma.subscriberdb.main"}),
            "service:subscriberdb");
  EXPECT_EQ(Identify("ld-musl-aarch64.so.1", {"ld", "frpc"}), "binary:frpc");
  EXPECT_EQ(Identify("ld.so", {"ld.so", "./frpc"}), "binary:frpc");
  EXPECT_EQ(Identify(loader, {loader, "--help"}), "binary:" + loader);
  // The bug: conf.d was the program.
  const std::string musl = "ld-musl-x86_64.so.1";
  EXPECT_EQ(Identify(musl, {musl, "--library-path=/x", "/opt/frpc", "conf.d"}),
            "binary:frpc");
  EXPECT_EQ(Identify(musl, {musl, "--argv0=x", "--", "/opt/frpc", "conf.d"}),
            "binary:frpc");
  EXPECT_EQ(Identify("ldapsearch", {"ldapsearch", "x"}), "binary:ldapsearch");
}

TEST(IdentifyProcessTest, OtherCommandLinesAreNot) {
  EXPECT_EQ(Identify("foo", {"foo", "bar", "magma.sessiond"}), "binary:foo");
  EXPECT_EQ(Identify("foo", {"foo", "-m", "magma.state.main"}), "binary:foo");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"python3", "-m"},
           {"python3", "-c", "-m", "magma.state.main"},
           {"python3", "-", "-m", "magma.state.main"},
           {"python3"},
           {""},
           {}}) {
    EXPECT_EQ(Identify("python3", arguments), "binary:python3");
  }
}

// The bug: each of them was called python3.
TEST(IdentifyProcessTest, ModulesAndScriptsArePrograms) {
  const std::string many(65, 'a');
  const std::vector<std::pair<std::vector<std::string>, std::string>> names = {
      {{"-m", "http.server"}, "http.server"},
      {{"-m", "subscriberdb.main"}, "subscriberdb.main"},
      {{"-m", "magma.state"}, "magma.state"},
      {{"-m", "magma..main"}, "magma..main"},
      {{"-m", "magma.state.mainly"}, "magma.state.mainly"},
      {{"-mmagma.a.b.main"}, "magma.a.b.main"},
      {{"-m", "magma." + many + ".main"}, "magma." + many.substr(7)},
      {{"-u", "/usr/lib/x/y.py", "-m", "magma.state.main"}, "y"},
      {{"y.py"}, "y"},
      {{"/usr/bin/y"}, "y"},
      {{".py"}, ".py"},
      {{"/x/" + many + ".py"}, many.substr(1)},
      {{"-W", "-m", "magma.state.main"}, "magma.state.main"},
      {{"/opt/unknown/main.py"}, "unknown"},
      {{"/main.py"}, "main"},
      {{"/opt/" + std::string(5000, 'a') + "/main.py"}, "main"},
      {{"main.py"}, "main"},
      {{"./main.py"}, "main"},
      {{"../main.py"}, "main"},
      {{"."}, "python3"},
      {{"app/.."}, "python3"},
      {{"/opt/subscriberdb/main.pyc"}, "main.pyc"},
      {{"/opt/xsubscriberdb/main.py"}, "xsubscriberdb"}};
  for (const auto& name : names) {
    std::vector<std::string> arguments = {"python3"};
    arguments.insert(arguments.end(), name.first.begin(), name.first.end());
    EXPECT_EQ(Identify("python3", arguments), "binary:" + name.second);
  }
  EXPECT_EQ(Identify("python3", {"python3", "/usr/bin/mme.py"}), "service:mme");
}

// The bug: the file was y.py if it was executed itself, and y if Python got it.
TEST(IdentifyProcessTest, AScriptHasOneNameHoweverItIsRun) {
  for (const auto& [path, name] :
       std::vector<std::pair<std::string, std::string>>{
           {"/opt/x/y.py", "binary:y"},
           {"/opt/x/main.py", "binary:x"},
           {"./main.py", "binary:main"},
           {"/opt/x/a-long-name-of-a-script.py",
            "binary:a-long-name-of-a-script"},
           {"/opt/x/mme.py", "service:mme"},
           {"/opt/x/.py", "binary:.py"}}) {
    const std::string base = path.substr(path.rfind('/') + 1);
    for (const std::string& executed : {base, std::string("python3")}) {
      EXPECT_EQ(Identify(executed, {"/usr/bin/python3", path, "-v"}), name);
      EXPECT_EQ(Identify(executed, {"/usr/bin/python3", "-u", path}), name);
    }
  }
  EXPECT_EQ(Identify("y.sh", {"/bin/sh", "/opt/x/y.sh"}), "binary:y.sh");
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

// The bug: with names_from without service_list, this process was python3, and the
// service if it started after the load.
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

std::string Described(const std::string& cgroup) {
  const CgroupName named = CgroupNameOf(cgroup);
  return named.unit.empty() ? "|" + named.container
                            : NameOfUnit(named) + "|" + named.container;
}

TEST(CgroupPlaceTest, UnitsAreTheInnermost) {
  const std::string id(64, 'a'), other(64, 'b');
  EXPECT_EQ(Described("/"), "|");
  EXPECT_EQ(Described("/init.scope"), "|");
  EXPECT_EQ(Described("/user.slice/user-0.slice/session-1.scope"), "|");
  EXPECT_EQ(Described("/system.slice/ssh.service"), "ssh.service|");
  EXPECT_EQ(Described("/a.service/b@c.service/x/y"), "b@c.service|");
  EXPECT_EQ(Described("/system.slice/docker-" + id + ".scope"),
            "|aaaaaaaaaaaa");
  EXPECT_EQ(Described("/docker/" + id + "/system.slice/in.service"),
            "aaaaaaaaaaaa/in.service|aaaaaaaaaaaa");
  EXPECT_EQ(Described("/lxc.payload.c1/system.slice/in.service"),
            "c1/in.service|c1");
  EXPECT_EQ(Described("/m.slice/systemd-nspawn@c2.service/payload/in.service"),
            "c2/in.service|c2");
  EXPECT_EQ(Described("/m.slice/systemd-nspawn@c2.service/supervisor"),
            "systemd-nspawn@c2.service|");
  EXPECT_EQ(Described("/machine.slice/machine-c3.scope/payload/init.scope"),
            "|c3");
  EXPECT_EQ(Described("/lxc.payload.c1/ssh@1-10.0.0.1:22-[::1]:5.service"),
            "c1/ssh@.service|c1");
  EXPECT_EQ(Described("/a@7-fe80::1:22-fe80::2:9.service"), "a@.service|");
  for (const char* peer : {"812-0", "2:1024-3:99", "::1:22-::1:9", "unknown"}) {
    EXPECT_EQ(Described(absl::StrCat("/a@7-", peer, ".service")),
              "a@.service|");
  }
  // No connection: a cluster of PostgreSQL.
  for (const char* unit : {"postgresql@15-main.service", "pg@15-db.service"}) {
    EXPECT_EQ(Described(absl::StrCat("/", unit)), absl::StrCat(unit, "|"));
  }
  EXPECT_EQ(Described("/web.service/libpod-payload-" + id),
            "web.service|aaaaaaaaaaaa");
  EXPECT_EQ(Described("/docker/" + other + "/docker/" + id), "|aaaaaaaaaaaa");
  EXPECT_EQ(Described("/docker/" + id.substr(1)), "|");
  EXPECT_EQ(Described("/docker/" + id.substr(1) + "g"), "|");
  EXPECT_EQ(Described("/docker/x" + id), "|");
  EXPECT_EQ(Described("/.service"), "|");
  // As the kernel part, which looks at eight levels.
  EXPECT_EQ(Described("/a.service/1/2/3/4/5/6/7"), "a.service|");
  EXPECT_EQ(Described("/a.service/1/2/3/4/5/6/7/8"), "|");
}

TEST(CgroupPlaceTest, TheLongestPatternNamesAUnitsService) {
  const std::map<std::string, std::string> units = {
      {"magma@*.service", "$1"},
      {"magma@mme.service", "core"},
      {"magma@mme*.service", "mmes"},
      {"*.service", "rest"}};
  EXPECT_EQ(ServiceOfUnit(units, "magma@state.service"), "state");
  EXPECT_EQ(ServiceOfUnit(units, "magma@mme.service"), "core");
  EXPECT_EQ(ServiceOfUnit(units, "magma@mme2.service"), "mmes");
  EXPECT_EQ(ServiceOfUnit(units, "magma@.service"), "magma@.service");
  EXPECT_EQ(ServiceOfUnit(units, "ssh.service"), "rest");
  EXPECT_EQ(ServiceOfUnit({{"a.service", "b"}}, "aa.service"), "");
}

// "a.*.service" took "a.service", whose first bytes are its own.
TEST(CgroupPlaceTest, APatternTakesNoPartOfTheUnitsSuffix) {
  EXPECT_EQ(ServiceOfUnit({{"a.*.service", "$1"}}, "a.service"), "");
  EXPECT_EQ(ServiceOfUnit({{"a.*.service", "b"}}, "a.service"), "");
  EXPECT_EQ(
      ServiceOfUnit({{"a.*.service", "b"}, {"*.service", "$1"}}, "a.service"),
      "a");
  EXPECT_EQ(ServiceOfUnit({{"a.*.service", "$1"}}, "a.x.service"), "x");
}

TEST(MayBeServiceTest, OneIdDecidesAndRootMayBeAnyService) {
  const Registrants registrants = {{"mme", {NM_REGISTRANT_UID, 7}},
                                   {"state", {NM_REGISTRANT_GID, 8}}};
  EXPECT_TRUE(MayBeService(registrants, "mme", {7, 9}));
  EXPECT_FALSE(MayBeService(registrants, "mme", {8, 7}));
  EXPECT_TRUE(MayBeService(registrants, "state", {9, 8}));
  EXPECT_FALSE(MayBeService(registrants, "state", {8, 9}));
  for (const char* const service : {"mme", "state", "other"}) {
    EXPECT_TRUE(MayBeService(registrants, service, {0, 9}));
  }
  EXPECT_TRUE(MayBeService(registrants, "other", {9, 9}));
}

TEST(RealIdsTest, AreThoseOfTheProcess) {
  const std::optional<RealIds> own = RealIdsOf(static_cast<uint32_t>(getpid()));
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->uid, getuid());
  EXPECT_EQ(own->gid, getgid());
  EXPECT_FALSE(RealIdsOf(1u << 30).has_value());  // above pid_max
}

TEST(NameOfRunningTest, IsWhatWasExecuted) {
  // The interpreter is called by the name that it was started by.
  EXPECT_EQ(NameOfRunning("python3", "/usr/bin/python3", "/usr/bin/python3.11"),
            "python3");
  EXPECT_EQ(NameOfRunning("sshd", "sshd: root [priv]", "/usr/sbin/sshd"),
            "sshd");
  // comm holds 15 bytes.
  EXPECT_EQ(NameOfRunning("envoy_controlle", "envoy_controller",
                          "/usr/bin/envoy_controller"),
            "envoy_controller");
  // A main thread that renamed itself: never that name.
  EXPECT_EQ(NameOfRunning("worker-7", "", "/usr/bin/redis-server"),
            "redis-server");
  // It executed /proc/self/exe.
  EXPECT_EQ(NameOfRunning("exe", "zygote", "/opt/chromium"), "chromium");
  EXPECT_EQ(NameOfRunning("", "", "/usr/bin/x"), "x");
  EXPECT_EQ(NameOfRunning("", "", ""), "");
}

// They had their interpreter's name if they ran before the load.
TEST(NameOfRunningTest, ScriptsKeepTheirs) {
  const auto argv = [](const std::vector<std::string>& arguments) {
    return absl::StrJoin(arguments, std::string(1, '\0')) + '\0';
  };
  const std::string bash = "/usr/bin/bash";
  const std::string path = "/opt/a-rather-long-name.sh";
  EXPECT_EQ(NameOfRunning("a-rather-long-n", argv({"/bin/bash", path}), bash),
            "a-rather-long-name.sh");
  EXPECT_EQ(NameOfRunning("a-rather-long-n",
                          argv({"/bin/bash", "-u", path, "x"}), bash),
            "a-rather-long-name.sh");
  EXPECT_EQ(NameOfRunning("bash", argv({"bash", path}), bash), "bash");
  // A main thread that took the name of an argument is no script.
  EXPECT_EQ(
      NameOfRunning("x", argv({"/usr/bin/daemon", "x"}), "/usr/bin/daemon"),
      "daemon");
  EXPECT_EQ(NameOfRunning("x", argv({"d", "-a", "-b", "/x"}), "/usr/bin/d"),
            "d");
}

TEST(NameOfRunningTest, DescriptorsHaveTheNameOfTheirFile) {
  const std::string argument = "/proc/self/fd/3";
  EXPECT_EQ(NameOfRunning("3", argument, "/usr/bin/redis-server"),
            "redis-server");
  // Linux 6.14 and newer.
  EXPECT_EQ(
      NameOfRunning("a-rather-long-n", argument, "/usr/bin/a-rather-long-name"),
      "a-rather-long-name");
  EXPECT_EQ(NameOfRunning("3", argument, "/memfd:a/b"), "memfd:a/b");
  EXPECT_EQ(NameOfRunning("memfd:runc_clon", "runc",
                          "/memfd:runc_cloned:/proc/self/exe"),
            "memfd:runc_cloned:/proc/self/exe");
  // An executable of that name.
  EXPECT_EQ(NameOfRunning("3", "3", "/usr/bin/3"), "3");
}

TEST(RunningProcessesTest, HoldsThisOne) {
  bool found = false;
  const std::vector<RunningProcess> processes = RunningProcesses();
  if (processes.empty()) return;  // in a PID namespace: documented
  for (const RunningProcess& process : processes) {
    if (process.tgid == static_cast<uint32_t>(getpid())) {
      found = true;
      EXPECT_EQ(process.name, "processes_test");
    }
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
