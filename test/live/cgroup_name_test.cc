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
  void SetUp() override {
    LiveTest::SetUp();
    World::CleanLab().Configure(LinkSetup());
  }

  // Runs an actor of this name; it executes in `cgroup`, below the meter's. `user`
  // is its real user id.
  void Act(const std::string& cgroup, const std::string& name, int datagrams,
           uid_t user = 0, MeteredCgroup* meter = meter_) {
    const std::string path = CopyOfActor(name);
    const std::string below = MakeCgroup(cgroup, meter);
    Child child(meter->cgroup(), World::CleanLab().client, [&](Child::Parent&) {
      Move(below);
      Check(setresuid(user, 0, 0), "setresuid");
      ExecActor(path, {Udp(datagrams)});
    });
    child.Join();
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

  int64_t Payload(Kind kind, const std::string& name) {
    return meter_->TotalOf(kind, name).tx_payload;
  }

  static MeteredCgroup* meter_;
};
MeteredCgroup* PlaceTest::meter_ = nullptr;

TEST_F(PlaceTest, AUnitIsNamedWithItsInstance) {
  Act("system.slice/nm-web@a.service", "nm-web-a", 1);
  Act("system.slice/nm-web@b.service", "nm-web-b", 2);
  // Delegated: the innermost unit counts, at any depth.
  Act("system.slice/nm-web@b.service/workers/1", "nm-web-b", 4);
  EXPECT_EQ(Payload(Kind::kUnit, "nm-web@a.service"), 100);
  EXPECT_EQ(Payload(Kind::kUnit, "nm-web@b.service"), 600);
}

// The bug: a unit with a name of 127 bytes or more had none. Its first bytes are
// shown, as of any long name.
TEST_F(PlaceTest, AUnitHasANameOfAnyLength) {
  for (const size_t length : {126, 127, 134, 135, 136, 255}) {
    std::string unit = "nm-" + std::to_string(length) + "@";
    unit.append(length - unit.size() - strlen(".service"), 'x');
    unit += ".service";
    const std::string program = "nm-long-" + std::to_string(length);
    Act("system.slice/" + unit, program, 1);
    EXPECT_EQ(Payload(Kind::kUnit, unit.substr(0, NM_NAME_BYTES)), 100);
  }
}

TEST_F(PlaceTest, AUnitOfTheConfigurationIsAService) {
  Act("system.slice/nm-magma@mobilityd.service", "nm-mobilityd", 3);
  Act("system.slice/nm-exact.service", "nm-exact", 5);
  Act("system.slice/nm-exact.services", "nm-none", 6);
  Act("system.slice/nm-magma@.service", "nm-template", 7);
  EXPECT_EQ(Payload(Kind::kService, "mobilityd"), 300);
  EXPECT_EQ(Payload(Kind::kService, "nm-renamed"), 500);
  EXPECT_EQ(Payload(Kind::kBinary, "nm-none"), 600);
  EXPECT_EQ(Payload(Kind::kService, "nm-magma@.service"), 700);
}

// The bug: "nm-dot.*.service" took nm-dot.service, whose first bytes are its own.
TEST_F(PlaceTest, APatternTakesNoPartOfTheUnitsSuffix) {
  Act("system.slice/nm-dot.service", "nm-dotted", 3);
  Act("system.slice/nm-dot.inner.service", "nm-dotted", 5);
  Act("system.slice/nm-lone.service", "nm-alone", 6);
  Act("system.slice/nm-lone.b.service", "nm-alone-b", 7);
  EXPECT_EQ(Payload(Kind::kService, "nm-shorter"), 300);
  EXPECT_EQ(Payload(Kind::kService, "inner"), 500);
  EXPECT_EQ(Payload(Kind::kUnit, "nm-lone.service"), 600);
  EXPECT_EQ(Payload(Kind::kService, "nm-fixed"), 700);
}

TEST_F(PlaceTest, ContainersOfOneImageStayApart) {
  // With the network of the host, and the same executable.
  Act("system.slice/docker-" + Id('a') + ".scope", "nm-image", 10);
  Act("docker/" + Id('b'), "nm-image2", 90);
  Act("machine.slice/libpod-" + Id('c') + ".scope/container", "nm-image3", 1);
  Act("kubepods/pod1/cri-containerd-" + Id('d') + ".scope", "nm-image4", 2);
  Act("kubepods/pod1/crio-" + Id('e'), "nm-image5", 4);
  // A unit of systemd in a container is the container's.
  Act("docker/" + Id('f') + "/system.slice/nm-inner.service", "nm-image6", 8);
  EXPECT_EQ(Payload(Kind::kContainer, "aaaaaaaaaaaa"), 1000);
  EXPECT_EQ(Payload(Kind::kContainer, "bbbbbbbbbbbb"), 9000);
  EXPECT_EQ(Payload(Kind::kContainer, "cccccccccccc"), 100);
  EXPECT_EQ(Payload(Kind::kContainer, "dddddddddddd"), 200);
  EXPECT_EQ(Payload(Kind::kContainer, "eeeeeeeeeeee"), 400);
  EXPECT_EQ(Payload(Kind::kContainer, "ffffffffffff"), 800);
  // Digits alone make no container.
  Act("docker/" + std::string(63, 'a'), "nm-short", 1);
  Act("docker/" + std::string(63, 'a') + "g", "nm-no-digit", 1);
  Act("docker/x" + Id('a'), "nm-no-dash", 1);
  for (const char* name : {"nm-short", "nm-no-digit", "nm-no-dash"}) {
    EXPECT_EQ(Payload(Kind::kBinary, name), 100) << name;
  }
}

// The bug: a process in a unit that is the service of another user was the unit,
// whatever came before that in names_from: here its container.
TEST_F(PlaceTest, AUnitThatMayNotBeTheServiceIsOneOfTheOthers) {
  const std::string container = "nm-kept.service/docker-" + Id('2') + ".scope";
  Act("nm-kept.service", "nm-kept", 1, 4711);
  Act("nm-kept.service", "nm-kept-unit", 2, 4712);
  Act(container, "nm-kept-container", 5, 4712);
  EXPECT_EQ(Payload(Kind::kService, "nm-keeper"), 100);
  EXPECT_EQ(Payload(Kind::kUnit, "nm-kept.service"), 200);
  EXPECT_EQ(Payload(Kind::kContainer, "222222222222"), 500);
}

// The bug: a hundred strangers made a hundred names, although a peer adds none.
TEST_F(PlaceTest, AConnectionIsNoInstance) {
  Act("system.slice/nm-ssh@3-10.0.0.1:22-10.0.0.9:4242.service", "nm-ssh", 1);
  Act("system.slice/"
      "nm-ssh@12-2001:db8:1:2:3:4:5:6:22-2001:db8:6:5:4:3:2:1:51515"
      ".service",
      "nm-ssh", 2);
  Act("system.slice/nm-ssh@7.service", "nm-ssh7", 4);
  Act("system.slice/nm-ssh@x-1.service", "nm-sshx", 8);
  Act("system.slice/nm-pg@15-main.service", "nm-pg", 16);
  EXPECT_EQ(Payload(Kind::kUnit, "nm-ssh@.service"), 300);
  EXPECT_EQ(Payload(Kind::kUnit, "nm-ssh@7.service"), 400);
  EXPECT_EQ(Payload(Kind::kUnit, "nm-ssh@x-1.service"), 800);
  EXPECT_EQ(Payload(Kind::kUnit, "nm-pg@15-main.service"), 1600);
}

// The bug: the web servers of the host and of all containers were nginx.service.
TEST_F(PlaceTest, AUnitInAContainerHasTheContainersName) {
  const struct {
    const char* cgroup;
    const char* name;
  } kCases[] = {
      {"", "nm-in.service"},
      {"lxc.payload.c1/", "c1/nm-in.service"},
      {"machine.slice/systemd-nspawn@c2.service/payload/", "c2/nm-in.service"},
      {"machine.slice/machine-c3.scope/payload/", "c3/nm-in.service"},
      {"docker-9999999999999999999999999999999999999999999999999999999999999999"
       ".scope/",
       "999999999999/nm-in.service"},
  };
  MeteredCgroup meter("units",
                      "names_from: [registration, unit, container, "
                      "executable]\nunits: {\"nm-magma@*.service\": \"$1\"}\n");
  int datagrams = 0;
  for (const auto& one : kCases) {
    Act(std::string(one.cgroup) + "system.slice/nm-in.service", "nm-in",
        ++datagrams, 0, &meter);
  }
  Act("machine.slice/systemd-nspawn@c2.service/payload/init.scope", "nm-init",
      10, 0, &meter);
  Act("machine.slice/systemd-nspawn@c2.service/supervisor", "nm-init", 20, 0,
      &meter);
  Act("lxc.payload.c1/nm-magma@x.service", "nm-x", 30, 0, &meter);
  datagrams = 0;
  for (const auto& one : kCases) {
    EXPECT_EQ(meter.TotalOf(Kind::kUnit, one.name).tx_payload,
              100 * ++datagrams)
        << one.name;
  }
  EXPECT_EQ(meter.TotalOf(Kind::kContainer, "c2").tx_payload, 1000);
  EXPECT_EQ(meter.TotalOf(Kind::kUnit, "systemd-nspawn@c2.service").tx_payload,
            2000);
  // A name of the configuration is for units of the host.
  EXPECT_EQ(meter.TotalOf(Kind::kUnit, "c1/nm-magma@x.service").tx_payload,
            3000);
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
  Act(container, "nm-main", 1);
  Act(container, "nm-exec", 2);  // docker exec
  EXPECT_EQ(Payload(Kind::kContainer, "111111111111"), 300);
}

TEST_F(PlaceTest, AProcessThatIsMovedKeepsItsNameUntilItsNextExec) {
  const std::string first = MakeCgroup("nm-first.service");
  const std::string second = MakeCgroup("nm-second.service");
  const std::string path = CopyOfActor("nm-moves");
  Child child(meter_->cgroup(), World::CleanLab().client, [&](Child::Parent&) {
    Move(first);
    ExecActor(path,
              {Udp(1), "cgroup=" + second, Udp(2), "exec=" + path, Udp(4)});
  });
  child.Join();
  EXPECT_EQ(Payload(Kind::kUnit, "nm-first.service"), 300);
  EXPECT_EQ(Payload(Kind::kUnit, "nm-second.service"), 400);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
