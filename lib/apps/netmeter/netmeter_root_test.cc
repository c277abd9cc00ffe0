// SPDX-License-Identifier: BSD-3-Clause
// `netmeter list` on real maps, which this test makes itself: needs root and
// bpf(2), but neither loader nor programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lib/testing/bpffs_fixture.h"
#include "lib/testing/fake_meter.h"
#include "lib/testing/run_shell.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;

class NetmeterListTest : public BpffsTest {
 protected:
  // Output of the shell's `netmeter list --pin-dir ... ` + rest.
  std::string List(const std::string& rest, int exit_status = 0) {
    const ShellResult result = RunShell(
        "lib/apps/netmeter/netmeter list --pin-dir " + pin_dir_ + " " + rest);
    EXPECT_EQ(result.exit_status, exit_status) << result.output;
    return result.output;
  }
};

TEST_F(NetmeterListTest, PrintsTheSeriesByTrafficAsTableAndAsJson) {
  FakeMeter meter((FakeMeter::Options()));
  ASSERT_EQ(meter.error(), "");
  meter.SetName(3, NM_KIND_SERVICE, "mme\x1b[2J");
  meter.SetName(4, NM_KIND_BINARY, "curl\xff");
  for (uint32_t i = 0; i < 2; ++i) {
    nm_cell* cell = meter.cell(NM_SLOT_FIRST + i, 0);
    cell->service = static_cast<nm_u16>(3 + i);
    cell->kind = i == 0 ? NM_KIND_SERVICE : NM_KIND_BINARY;
    cell->transport = NM_TRANSPORT_TCP;
    cell->tx_bytes = i == 0 ? 1536 : ~0ULL;
  }
  meter.stats()->slots_allocated = 2;
  ASSERT_EQ(meter.Freeze(), "");
  ASSERT_EQ(meter.Pin(pin_dir_), "");

  const std::string table = List("");
  EXPECT_THAT(table, HasSubstr("1.5 KiB"));
  EXPECT_THAT(List("--units decimal"), HasSubstr("1.5 kB"));
  EXPECT_THAT(table, HasSubstr("mme\\x1b[2J"));
  EXPECT_LT(table.find("curl\\xff"), table.find("mme"));

  const auto json = nlohmann::json::parse(List("--json"));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["kind"], "binary");
  EXPECT_EQ(json[0]["name"], "curl\\xff");
  EXPECT_EQ(json[0]["tx_bytes"].get<uint64_t>(), ~uint64_t{0});
  EXPECT_EQ(json[1]["name"], "mme\x1b[2J");
  EXPECT_EQ(json[1].size(), 15u);

  // A filter that fits nothing is no error (docs/operations.md).
  for (const char* filter :
       {"--service none", "--destination none", "--kind container"}) {
    SCOPED_TRACE(filter);
    EXPECT_THAT(List(filter), HasSubstr("(no such series)\n"));
    EXPECT_EQ(List(std::string(filter) + " --json"), "[]\n");
  }

  // Except an uplink, of which the configuration has all.
  EXPECT_EQ(List("--uplink none 2>&1", 1),
            "netmeter: no uplink 'none'; there is no uplink\n");

  EXPECT_EQ(List("2>&1 >/dev/full", 1),
            "netmeter: write to standard output: No space left on device\n");
  EXPECT_EQ(List("2>&1 >&-", 1), "");
}

TEST_F(NetmeterListTest, WithoutTrafficPrintsTheHeaderAndAHint) {
  FakeMeter meter((FakeMeter::Options()));
  ASSERT_EQ(meter.error(), "");
  ASSERT_EQ(meter.Freeze(), "");
  ASSERT_EQ(meter.Pin(pin_dir_), "");
  EXPECT_THAT(List(""), HasSubstr("DESTINATION"));
  EXPECT_THAT(List(""), HasSubstr("nothing counted yet"));
  EXPECT_EQ(List("--json"), "[]\n");
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
