// SPDX-License-Identifier: BSD-3-Clause
// The name of a process by its cgroup: its unit or its container.

#include <string.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "netmeter/abi.h"
#include "test/live/actor.h"
#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

constexpr char kConfig[] =
    "names_from: [registration, command_line, service_list, container, unit,\n"
    "             executable]\n"
    "services: [nm-listed]\n"
    "units:\n"
    "  \"nm-magma@*.service\": \"$1\"\n"
    "  nm-exact.service: nm-renamed\n"
    "  nm-dot*.service: nm-shorter\n"
    "  nm-dot.*.service: \"$1\"\n"
    "  nm-lone.*.service: nm-fixed\n"
    "  nm-kept.service: nm-keeper\n"
    "register_by: {nm-keeper: \"uid:4711\"}\n";

std::string Id(char digit) { return std::string(64, digit); }

class PlaceTest : public LiveTest {
 protected:
  static void SetUpTestSuite() {
    meter_ = new MeteredCgroup("cgroup_names", kConfig);
  }
  static void TearDownTestSuite() {
    delete meter_;
    meter_ = nullptr;
  }
  // Runs an actor of this name; it executes in `cgroup`, below the meter's. `user`
  // is its real user id.
  void Act(const std::string& cgroup, const std::string& name, int datagrams,
           uid_t user = 0, MeteredCgroup* meter = meter_) {
    const std::string path = CopyOfActor(name);
    const std::string below = MakeCgroup(cgroup, meter);
    RunChild(meter->cgroup(), lab().client, [&] {
      Move(below);
      Check(setresuid(user, 0, 0), "setresuid");
      ExecActor(path, {Udp(datagrams)});
    });
  }

  static std::string Udp(int datagrams) {
    return "udp=10.77.3.2/9000/" + std::to_string(datagrams) + "/100";
  }

  std::string MakeCgroup(const std::string& cgroup,
                         MeteredCgroup* meter = meter_) {
    std::string path = meter->cgroup()->path();
    for (size_t at = 0; at != std::string::npos;) {
      const size_t end = cgroup.find('/', at);
      path += "/" + cgroup.substr(at, end - at);
      if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
        DieWithErrno("mkdir");
      at = end == std::string::npos ? end : end + 1;
    }
    return path;
  }

  static void Move(const std::string& cgroup) {
    std::ofstream file(cgroup + "/cgroup.procs");
    file << 0 << std::flush;
    if (!file.good()) DieWithErrno("move to " + cgroup);
  }

  // A process in this cgroup has this name; in `name`, "" is its executable's.
  struct Case {
    std::string cgroup;
    Kind kind;
    std::string name;
    uid_t user = 0;
  };

  // Runs a program for each case.
  void ExpectNames(const std::vector<Case>& cases,
                   MeteredCgroup* meter = meter_) {
    for (const Case& one : cases) {
      SCOPED_TRACE(one.cgroup);
      const std::string executable = "nm-place-" + std::to_string(++programs_);
      const std::string name = one.name.empty() ? executable : one.name;
      const Totals before = meter->TotalOf(one.kind, name);
      Act(one.cgroup, executable, 3, one.user, meter);
      EXPECT_EQ((meter->TotalOf(one.kind, name) - before).tx_payload, 300)
          << name;
    }
  }

  static int programs_;
  static MeteredCgroup* meter_;
};
MeteredCgroup* PlaceTest::meter_ = nullptr;
int PlaceTest::programs_ = 0;

TEST_F(PlaceTest, AUnitIsNamedWithItsInstance) {
  ExpectNames({
      {"system.slice/nm-web@a.service", Kind::kUnit, "nm-web@a.service"},
      {"system.slice/nm-web@b.service", Kind::kUnit, "nm-web@b.service"},
      // Delegated: the innermost unit counts, at any depth.
      {"system.slice/nm-web@b.service/workers/1", Kind::kUnit,
       "nm-web@b.service"},
  });
}

// The bug: a unit with a name of 127 bytes or more had none. Its first bytes are
// shown, as of any long name.
TEST_F(PlaceTest, AUnitHasANameOfAnyLength) {
  for (const size_t length : {126, 127, 134, 135, 136, 255}) {
    std::string unit = "nm-" + std::to_string(length) + "@";
    unit.append(length - unit.size() - strlen(".service"), 'x');
    unit += ".service";
    ExpectNames(
        {{"system.slice/" + unit, Kind::kUnit, unit.substr(0, NM_NAME_BYTES)}});
  }
}

TEST_F(PlaceTest, AUnitOfTheConfigurationIsAService) {
  ExpectNames({
      {"system.slice/nm-magma@mobilityd.service", Kind::kService, "mobilityd"},
      {"system.slice/nm-exact.service", Kind::kService, "nm-renamed"},
      {"system.slice/nm-exact.services", Kind::kBinary, ""},
      // podman run --cgroups=split
      {"system.slice/nm-exact.service/libpod-payload-" + Id('3'),
       Kind::kService, "nm-renamed"},
      {"system.slice/nm-magma@.service", Kind::kService, "nm-magma@.service"},
  });
}

// The bug: "nm-dot.*.service" took nm-dot.service, whose first bytes are its own.
TEST_F(PlaceTest, APatternTakesNoPartOfTheUnitsSuffix) {
  ExpectNames({
      {"system.slice/nm-dot.service", Kind::kService, "nm-shorter"},
      {"system.slice/nm-dot.inner.service", Kind::kService, "inner"},
      {"system.slice/nm-lone.service", Kind::kUnit, "nm-lone.service"},
      {"system.slice/nm-lone.b.service", Kind::kService, "nm-fixed"},
  });
}

TEST_F(PlaceTest, ContainersOfOneImageStayApart) {
  ExpectNames({
      {"system.slice/docker-" + Id('a') + ".scope", Kind::kContainer,
       "aaaaaaaaaaaa"},
      {"docker/" + Id('b'), Kind::kContainer, "bbbbbbbbbbbb"},
      {"machine.slice/libpod-" + Id('c') + ".scope/container", Kind::kContainer,
       "cccccccccccc"},
      {"kubepods/pod1/cri-containerd-" + Id('d') + ".scope", Kind::kContainer,
       "dddddddddddd"},
      {"kubepods/pod1/crio-" + Id('e'), Kind::kContainer, "eeeeeeeeeeee"},
      // A unit of systemd in a container is the container's.
      {"docker/" + Id('f') + "/system.slice/nm-inner.service", Kind::kContainer,
       "ffffffffffff"},
      // Digits alone make no container.
      {"docker/" + std::string(63, 'a'), Kind::kBinary, ""},
      {"docker/" + std::string(63, 'a') + "g", Kind::kBinary, ""},
      {"docker/x" + Id('a'), Kind::kBinary, ""},
  });
}

// The bug: a process in a unit that is the service of another user was the unit,
// whatever came before that in names_from: here its container.
TEST_F(PlaceTest, AUnitThatMayNotBeTheServiceIsOneOfTheOthers) {
  ExpectNames({
      {"nm-kept.service", Kind::kService, "nm-keeper", 4711},
      {"nm-kept.service", Kind::kUnit, "nm-kept.service", 4712},
      {"nm-kept.service/docker-" + Id('2') + ".scope", Kind::kContainer,
       "222222222222", 4712},
  });
}

// The bug: a hundred strangers made a hundred names, although a peer adds none.
TEST_F(PlaceTest, AConnectionIsNoInstance) {
  const std::string slice = "system.slice/";
  const std::string peers[] = {
      "3-10.0.0.1:22-10.0.0.9:4242",
      "12-2001:db8:1:2:3:4:5:6:22-2001:db8:6:5:4:3:2:1:51515"};
  ExpectNames({
      {slice + "nm-ssh@" + peers[0] + ".service", Kind::kUnit,
       "nm-ssh@.service"},
      {slice + "nm-ssh@" + peers[1] + ".service", Kind::kUnit,
       "nm-ssh@.service"},
      {slice + "nm-ssh@7.service", Kind::kUnit, "nm-ssh@7.service"},
      {slice + "nm-ssh@x-1.service", Kind::kUnit, "nm-ssh@x-1.service"},
      {slice + "nm-pg@15-main.service", Kind::kUnit, "nm-pg@15-main.service"},
  });
}

// The bug: the web servers of the host and of all containers were nginx.service.
TEST_F(PlaceTest, AUnitInAContainerHasTheContainersName) {
  MeteredCgroup meter("units",
                      "names_from: [registration, unit, container, "
                      "executable]\nunits: {\"nm-magma@*.service\": \"$1\"}\n");
  const std::string unit = "system.slice/nm-in.service";
  const std::string c2 = "machine.slice/systemd-nspawn@c2.service/";
  ExpectNames(
      {
          {unit, Kind::kUnit, "nm-in.service"},
          {"lxc.payload.c1/" + unit, Kind::kUnit, "c1/nm-in.service"},
          {c2 + "payload/" + unit, Kind::kUnit, "c2/nm-in.service"},
          {"machine.slice/machine-c3.scope/payload/" + unit, Kind::kUnit,
           "c3/nm-in.service"},
          {"docker-" + Id('9') + ".scope/" + unit, Kind::kUnit,
           "999999999999/nm-in.service"},
          {c2 + "payload/init.scope", Kind::kContainer, "c2"},
          {c2 + "supervisor", Kind::kUnit, "systemd-nspawn@c2.service"},
          // A name of the configuration is for units of the host.
          {"lxc.payload.c1/nm-magma@x.service", Kind::kUnit,
           "c1/nm-magma@x.service"},
      },
      &meter);
}

TEST_F(PlaceTest, AProcessIsItsUserIfNothingBefore) {
  MeteredCgroup meter("users",
                      "names_from: [registration, service_list, user, "
                      "executable]\nservices: [nm-listed]\n");
  for (const uid_t user : {0u, 7u, 1000u, 4294967294u}) {
    Act("user.slice", "nm-shell", 1, user, &meter);
    Act("user.slice", "nm-listed", 1, user, &meter);
    EXPECT_EQ(meter.TotalOf(Kind::kUser, std::to_string(user)).tx_payload, 100);
  }
  EXPECT_EQ(meter.TotalOf(Kind::kService, "nm-listed").tx_payload, 400);
}

TEST_F(PlaceTest, AnExecInARunningContainerIsTheContainers) {
  const std::string container = "docker-" + Id('1') + ".scope";
  ExpectNames({{container, Kind::kContainer, "111111111111"},
               {container, Kind::kContainer, "111111111111"}});  // docker exec
}

TEST_F(PlaceTest, AProcessThatIsMovedKeepsItsNameUntilItsNextExec) {
  const std::string first = MakeCgroup("nm-first.service");
  const std::string second = MakeCgroup("nm-second.service");
  const std::string path = CopyOfActor("nm-moves");
  RunChild(meter_->cgroup(), lab().client, [&] {
    Move(first);
    ExecActor(path,
              {Udp(1), "cgroup=" + second, Udp(2), "exec=" + path, Udp(4)});
  });
  EXPECT_EQ(meter_->TotalOf(Kind::kUnit, "nm-first.service").tx_payload, 300);
  EXPECT_EQ(meter_->TotalOf(Kind::kUnit, "nm-second.service").tx_payload, 400);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
