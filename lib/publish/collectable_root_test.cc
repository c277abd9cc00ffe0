// SPDX-License-Identifier: BSD-3-Clause
// Tests the collectable on real maps, which the test makes itself. Needs root and bpf(2),
// but neither loader nor programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <prometheus/text_serializer.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/testing/bpffs_fixture.h"
#include "lib/testing/failing_new.h"
#include "lib/testing/fake_meter.h"
#include "netmeter/meter.h"
#include "netmeter/prometheus.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class CollectableRootTest : public BpffsTest {
 protected:
  // Service "mme" is registered, and service "state" is not.
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(BpffsTest::SetUp());
    fake_ = std::make_unique<FakeMeter>(FakeMeter::Options());
    ASSERT_EQ(fake_->error(), "");
    fake_->SetName(3, NM_KIND_SERVICE, "mme");
    fake_->SetName(4, NM_KIND_SERVICE, "state");
    for (uint32_t i = 0; i < 2; ++i) {
      nm_cell* cell = fake_->cell(NM_SLOT_FIRST + i, 0);
      cell->service = static_cast<nm_u16>(3 + i);
      cell->kind = NM_KIND_SERVICE;
      cell->transport = NM_TRANSPORT_TCP;
      cell->flags = i == 0 ? NM_FLAG_REGISTERED : 0;
      cell->tx_payload_bytes = 100 + i;
    }
    fake_->stats()->slots_allocated = 2;
    fake_->stats()->series_used = 2;
    ASSERT_EQ(fake_->Pin(pin_dir_), "");
    MeterOptions options;
    options.pin_dir = pin_dir_;
    auto meter = Meter::Open(options);
    ASSERT_TRUE(meter.ok()) << meter.status();
    meter_ = std::move(*meter);
  }

  std::string Text(Scope scope) const {
    PublishOptions options;
    options.scope = scope;
    return prometheus::TextSerializer().Serialize(
        PrometheusCollectable(meter_, options).Collect());
  }

  std::unique_ptr<FakeMeter> fake_;
  std::shared_ptr<const Meter> meter_;
};

TEST_F(CollectableRootTest, UnregisteredIsTheHostWithoutWhatServicesPublish) {
  EXPECT_THAT(Text(Scope::kHost), HasSubstr("service_name=\"mme\""));
  EXPECT_THAT(Text(Scope::kHost), HasSubstr("service_name=\"state\""));
  EXPECT_THAT(Text(Scope::kUnregistered), Not(HasSubstr("mme")));
  EXPECT_THAT(Text(Scope::kUnregistered),
              HasSubstr("service_name=\"state\",dest_service=\"\"} 101\n"));
  EXPECT_THAT(Text(Scope::kUnregistered), HasSubstr("\nnetmeter_series 2\n"));
  EXPECT_THAT(Text(Scope::kUnregistered),
              HasSubstr("\nnetmeter_omitted_services 1\n"));
  EXPECT_THAT(Text(Scope::kHost), Not(HasSubstr("netmeter_omitted_services")));
}

// The sanitizers make system calls of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The kernel kills the process at any system call except exit(2) and clock_gettime(2),
// which some clocks need.
bool ForbidSystemCalls() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(CollectableRootTest, WithoutUplinksItMakesNoSystemCall) {
  PublishOptions options;
  options.scope = Scope::kHost;
  const PrometheusCollectable collectable(meter_, options);
  collectable.Collect();  // lets malloc take the memory it needs
  const pid_t child = fork();
  if (child == 0) {
    if (!ForbidSystemCalls()) _exit(2);
    const bool ok = collectable.Collect().size() > 1;
    syscall(SYS_exit, ok ? 0 : 1);  // _exit() calls exit_group(2)
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

// The bug: std::bad_alloc reached prometheus-cpp's threads, which do not catch it.
TEST_F(CollectableRootTest, WithoutMemoryItIsDownAndThrowsNothing) {
  PublishOptions options;
  options.scope = Scope::kHost;
  const PrometheusCollectable collectable(meter_, options);
  const size_t families = collectable.Collect().size();
  for (const bool and_after : {false, true}) {
    int n = 0;
    for (bool failed = true; failed; ++n) {
      FailNew fail(n, and_after);
      const auto result = collectable.Collect();
      failed = fail.Failed();
      if (!failed) {
        EXPECT_THAT(result, SizeIs(families));
      } else if (and_after) {
        EXPECT_THAT(result, SizeIs(0));
      } else {
        ASSERT_THAT(result, SizeIs(1)) << n;
        EXPECT_EQ(result[0].name, "netmeter_up");
        EXPECT_EQ(result[0].metric[0].gauge.value, 0);
      }
    }
    EXPECT_GT(n, 50);
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
