// SPDX-License-Identifier: BSD-3-Clause
// What `netmeter cost --all` says of programs, beside bpftool(8) and beside a
// program whose runs are known.

#include "lib/apps/netmeter/cost/host_cost.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/base/cgroup.h"
#include "lib/base/kernel_object.h"
#include "lib/base/unique_fd.h"
#include "lib/testing/bpffs_fixture.h"
#include "lib/testing/fake_meter.h"
#include "lib/testing/run_shell.h"

namespace netmeter {
namespace internal {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kName[] = "nm_cost_test";

class HostCostTest : public BpffsTest {
 protected:
  void SetUp() override {
    BpffsTest::SetUp();
    map_ = UniqueFd(
        bpf_map_create(BPF_MAP_TYPE_ARRAY, kName, 4, 8, 1000, nullptr));
    ASSERT_TRUE(map_.ok());
    // return skb->len; the map is only bound to it.
    const bpf_insn code[] = {
        {BPF_LDX | BPF_MEM | BPF_W, BPF_REG_0, BPF_REG_1, 0, 0},
        {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
    program_ = UniqueFd(bpf_prog_load(BPF_PROG_TYPE_SOCKET_FILTER, kName, "GPL",
                                      code, 2, nullptr));
    ASSERT_TRUE(program_.ok());
    ASSERT_EQ(bpf_prog_bind_map(program_.get(), map_.get(), nullptr), 0);
    bpf_prog_info info = {};
    uint32_t size = sizeof(info);
    ASSERT_EQ(bpf_obj_get_info_by_fd(program_.get(), &info, &size), 0);
    id_ = info.id;
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
    sender_ = UniqueFd(pair[0]);
    receiver_ = UniqueFd(pair[1]);
    const int fd = program_.get();
    ASSERT_EQ(
        setsockopt(receiver_.get(), SOL_SOCKET, SO_ATTACH_BPF, &fd, sizeof(fd)),
        0);
  }

  // One run of the program each.
  void Send(int times) {
    char byte;
    for (int i = 0; i < times; i++) {
      ASSERT_EQ(send(sender_.get(), "x", 1, 0), 1);
      ASSERT_EQ(recv(receiver_.get(), &byte, 1, 0), 1);
    }
  }

  HostCost Read() {
    auto cost = ReadHostCost();
    EXPECT_TRUE(cost.ok()) << cost.status();
    return cost.ok() ? *cost : HostCost();
  }
  const HostProgram& Ours(const HostCost& cost) {
    for (const HostProgram& program : cost.programs) {
      if (program.id == id_) return program;
    }
    ADD_FAILURE() << "not found";
    static const HostProgram* const kNone = new HostProgram();
    return *kNone;
  }

  UniqueFd map_, program_, sender_, receiver_;
  uint32_t id_ = 0;
};

Json Bpftool(const std::string& arguments) {
  const ShellResult result = RunShell("bpftool --json " + arguments);
  EXPECT_EQ(result.exit_status, 0) << arguments;
  return Json::parse(result.output);
}

std::string StatsEnabled() {
  std::ifstream file("/proc/sys/kernel/bpf_stats_enabled");
  std::string value;
  file >> value;
  return value;
}

TEST_F(HostCostTest, RunsAreCountedToTheLastOne) {
  const UniqueFd stats(bpf_enable_stats(BPF_STATS_RUN_TIME));
  ASSERT_TRUE(stats.ok());
  Send(10);
  const HostCost before = Read();
  Send(1234);
  const HostCost after = Read();
  EXPECT_EQ(Ours(after).runs, 1244u);
  const HostCost cost = CostBetween(before, after, 1);
  EXPECT_EQ(Ours(cost).runs, 1234u);
  EXPECT_GT(Ours(cost).run_ns, 0u);
  // And bpftool's number.
  const Json theirs = Bpftool("prog show id " + std::to_string(id_));
  EXPECT_EQ(theirs["run_cnt"], 1244);
  EXPECT_EQ(theirs["run_time_ns"], Ours(after).run_ns);
  // The most expensive first.
  for (size_t i = 1; i < cost.programs.size(); i++) {
    EXPECT_GE(cost.programs[i - 1].run_ns, cost.programs[i].run_ns);
  }
}

// The table said "(attached)" even for a program that a pin in another mount namespace
// held.
TEST_F(HostCostTest, WhatHoldsAProgramIsNotGuessed) {
  HostCost cost;
  cost.programs.resize(1);
  const std::string table =
      HostCostTable(cost, HostCostView(), SizeUnits::kBinary, 0);
  EXPECT_NE(table.find("(not found)"), std::string::npos) << table;
}

TEST_F(HostCostTest, AttachmentsAreTheHookAndThePlace) {
  const auto load = [](bpf_prog_type type, bpf_attach_type attach, int result) {
    const bpf_insn code[] = {
        {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, result},
        {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
    LIBBPF_OPTS(bpf_prog_load_opts, options);
    options.expected_attach_type = attach;
    UniqueFd fd(bpf_prog_load(type, kName, "GPL", code, 2, &options));
    EXPECT_TRUE(fd.ok());
    return fd;
  };
  const auto attachments = [this](const UniqueFd& fd) {
    bpf_prog_info info = {};
    EXPECT_TRUE(GetInfo(fd.get(), &info));
    for (const HostProgram& program : Read().programs) {
      if (program.id == info.id) return program.attachments;
    }
    return std::vector<std::string>();
  };
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  constexpr int kLoopback = 1;
  const UniqueFd filter = load(BPF_PROG_TYPE_SCHED_CLS, bpf_attach_type(), -1);
  for (const auto point : {BPF_TC_INGRESS, BPF_TC_EGRESS}) {
    LIBBPF_OPTS(bpf_tc_hook, hook);
    hook.ifindex = kLoopback;
    hook.attach_point = point;
    bpf_tc_hook_create(&hook);
    LIBBPF_OPTS(bpf_tc_opts, options);
    options.prog_fd = filter.get();
    ASSERT_EQ(bpf_tc_attach(&hook, &options), 0);
  }
  EXPECT_THAT(attachments(filter),
              ElementsAre("tc egress lo", "tc ingress lo"));

  const UniqueFd xdp = load(BPF_PROG_TYPE_XDP, BPF_XDP, XDP_PASS);
  ASSERT_EQ(bpf_xdp_attach(kLoopback, xdp.get(), 0, nullptr), 0);
  EXPECT_THAT(attachments(xdp), ElementsAre("xdp lo"));

  const UniqueFd raw = load(BPF_PROG_TYPE_RAW_TRACEPOINT, bpf_attach_type(), 0);
  const UniqueFd link(bpf_raw_tracepoint_open("sched_process_exit", raw.get()));
  ASSERT_TRUE(link.ok());
  EXPECT_THAT(attachments(raw),
              ElementsAre("raw_tracepoint sched_process_exit"));

  // As systemd attaches, without a link, and with one.
  const absl::StatusOr<std::string> root = FindCgroupRoot();
  ASSERT_TRUE(root.ok());
  const std::string name = "/netmeter-cost-" + std::to_string(getpid());
  ASSERT_EQ(mkdir((*root + name).c_str(), 0755), 0);
  UniqueFd cgroup(open((*root + name).c_str(), O_RDONLY | O_CLOEXEC));
  for (const bool by_link : {false, true}) {
    const UniqueFd program =
        load(BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, 1);
    const UniqueFd attached(
        by_link ? bpf_link_create(program.get(), cgroup.get(),
                                  BPF_CGROUP_INET_EGRESS, nullptr)
                : bpf_prog_attach(program.get(), cgroup.get(),
                                  BPF_CGROUP_INET_EGRESS, BPF_F_ALLOW_MULTI));
    EXPECT_THAT(attachments(program),
                ElementsAre("cgroup_inet_egress " + name));
  }
  EXPECT_EQ(rmdir((*root + name).c_str()), 0);
}

// The kernel measures the first program of a chain only.
TEST_F(HostCostTest, ProgramsWithTailCallsAreMarked) {
  EXPECT_FALSE(Ours(Read()).tail_calls);
  const UniqueFd array(
      bpf_map_create(BPF_MAP_TYPE_PROG_ARRAY, "chain", 4, 4, 1, nullptr));
  ASSERT_EQ(bpf_prog_bind_map(program_.get(), array.get(), nullptr), 0);
  const HostCost cost = Read();
  EXPECT_TRUE(Ours(cost).tail_calls);
  const std::string table =
      HostCostTable(cost, HostCostView(), SizeUnits::kBinary, 0);
  EXPECT_THAT(table, testing::HasSubstr("nm_cost_test* "));
  EXPECT_THAT(table, testing::HasSubstr("\n* has the time of the programs"));
}

TEST_F(HostCostTest, AViewFiltersSortsAndLimits) {
  HostCost cost;
  cost.seconds = 1;
  for (uint32_t id = 1; id <= 4; id++) {
    HostProgram program;
    program.id = id;
    program.name = "p" + std::to_string(id);
    program.runs = program.run_ns = id == 3 ? 0 : id * 1000000;
    program.total_run_ns = 1000 * program.run_ns;
    program.attachments = {id == 1 ? "xdp eth0" : "xdp lo"};
    program.maps = {id};
    cost.maps[id].bytes = 1024;
    cost.programs.push_back(program);
  }
  HostCostView view;
  view.filter = "xdp lo";
  view.sort = "total";
  view.most = 2;
  view.columns = {"name", "runs", "total", "maps"};
  cost = Select(cost, view);
  EXPECT_EQ(HostCostTable(cost, view, SizeUnits::kBinary, 0),
            "NAME     RUNS/S  SINCE LOAD     MAPS\n"
            "p4    4000000.0       4.0 s  1.0 KiB\n"
            "p2    2000000.0       2.0 s  1.0 KiB\n"
            "all   6000000.0       6.0 s  3.0 KiB\n");
  const Json json = Json::parse(HostCostJson(cost, view));
  EXPECT_EQ(json["programs"].size(), 2u);
  EXPECT_EQ(json["programs"][0]["total_run_ns"], 4000000000);
  view.sort = "name";
  EXPECT_EQ(Select(cost, view).programs[0].name, "p2");
}

TEST_F(HostCostTest, ItsProgramAndMapAreThoseOfBpftool) {
  const HostCost cost = Read();
  const HostProgram& program = Ours(cost);
  const Json theirs = Bpftool("prog show id " + std::to_string(id_));
  EXPECT_EQ(program.name, kName);
  EXPECT_EQ(program.name, theirs["name"]);
  EXPECT_EQ(program.type, theirs["type"]);
  EXPECT_EQ(program.jited_bytes, theirs.value("bytes_jited", 0u));
  EXPECT_EQ(program.maps, theirs["map_ids"].get<std::vector<uint32_t>>());
  ASSERT_EQ(program.maps.size(), 1u);
  const Json map = Bpftool("map show id " + std::to_string(program.maps[0]));
  const auto ours = cost.maps.find(program.maps[0]);
  ASSERT_NE(ours, cost.maps.end());
  EXPECT_EQ(ours->second.name, kName);
  EXPECT_EQ(ours->second.type, map["type"]);
  EXPECT_EQ(ours->second.bytes, map["bytes_memlock"]);
}

// Held by this process, which does not count itself; by another; by a pin.
TEST_F(HostCostTest, HoldersAreProcessesAndPins) {
  EXPECT_THAT(Ours(Read()).processes, IsEmpty());
  EXPECT_THAT(Ours(Read()).pins, IsEmpty());
  const std::string pin = pin_dir_ + "/cost";
  ASSERT_EQ(bpf_obj_pin(program_.get(), pin.c_str()), 0);
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  std::string name;
  std::ifstream comm("/proc/self/comm");
  std::getline(comm, name);
  const HostCost cost = Read();
  EXPECT_THAT(Ours(cost).processes,
              ElementsAre(std::to_string(child) + "/" + name));
  EXPECT_THAT(Ours(cost).pins, ElementsAre(pin));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// /proc/self/mountinfo has a space as \\040. What is pinned below it had no holder.
TEST_F(HostCostTest, PinsAreFoundBelowAnyMountPoint) {
  const std::string point = pin_dir_ + "x my\tpins\\040";
  ASSERT_EQ(mkdir(point.c_str(), 0700), 0);
  ASSERT_EQ(MountBpffs(point), "");
  const std::string folder = point + "/below";
  EXPECT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string pin = folder + "/cost";
  EXPECT_EQ(bpf_obj_pin(program_.get(), pin.c_str()), 0);
  EXPECT_THAT(Ours(Read()).pins, ElementsAre(pin));
  EXPECT_EQ(umount2(point.c_str(), MNT_DETACH), 0);
  EXPECT_EQ(rmdir(point.c_str()), 0);
}

TEST_F(HostCostTest, TheProgramPrintsItAndTheKernelMeasuresNoLonger) {
  const std::string before = StatsEnabled();
  Send(10);
  EXPECT_EQ(Ours(Read()).runs, 0u);
  const ShellResult json =
      RunShell("lib/apps/netmeter/netmeter cost --all --seconds 1 --json");
  ASSERT_EQ(json.exit_status, 0);
  const Json cost = Json::parse(json.output);
  bool found = false;
  for (const Json& program : cost["programs"]) {
    if (program["id"] != id_) continue;
    found = true;
    EXPECT_EQ(program["name"], kName);
    EXPECT_EQ(program["type"], "socket_filter");
    EXPECT_EQ(program["processes"].size(), 1u);  // we
    EXPECT_GE(program["map_bytes"], 8000);
  }
  EXPECT_TRUE(found);
  EXPECT_GE(cost["seconds"], 1.0);
  const ShellResult table =
      RunShell("lib/apps/netmeter/netmeter cost --all --seconds 1");
  EXPECT_THAT(table.output, testing::HasSubstr(kName));
  EXPECT_THAT(table.output, testing::HasSubstr("HELD BY"));
  const std::string metrics =
      RunShell("lib/apps/netmeter/netmeter cost --all --prometheus --filter " +
               std::string(kName))
          .output;
  EXPECT_THAT(metrics,
              testing::HasSubstr(
                  "\nnetmeter_host_bpf_runs_total{id=\"" + std::to_string(id_) +
                  "\",program=\"nm_cost_test\",type=\"socket_filter\"} "));
  // Killed in the middle of it. Without --foreground timeout(1) kills itself, too, and
  // may be gone first.
  EXPECT_EQ(RunShell("timeout --foreground -s KILL 0.5 "
                     "lib/apps/netmeter/netmeter cost --all "
                     "--live --json > /dev/null 2>&1; echo $?")
                .output,
            "137\n");
  Send(10);
  EXPECT_EQ(Ours(Read()).runs, 0u) << "the kernel goes on measuring";
  EXPECT_EQ(StatsEnabled(), before);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
