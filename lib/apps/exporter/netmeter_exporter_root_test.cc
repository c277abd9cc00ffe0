// SPDX-License-Identifier: BSD-3-Clause
// The program `netmeter-exporter` with maps that this test makes itself: needs
// root and bpf(2), but neither loader nor programs.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lib/apps/exporter/exporter_process.h"
#include "lib/testing/fake_meter.h"
#include "lib/testing/run_shell.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

using magma::orc8r::MetricsContainer;
using magma::orc8r::Void;

constexpr uint32_t kFull = 4096;

// The page, once it has the text: a reply is kept for some time.
std::string PageWith(const ExporterProcess& exporter, const std::string& text) {
  std::string page;
  for (int i = 0; i < 300; ++i) {
    page = exporter.Get("/metrics");
    if (page.find(text) != std::string::npos) break;
    usleep(100000);
  }
  return page;
}

grpc::Status GetMetrics(magma::orc8r::Service303::Stub* stub,
                        MetricsContainer* container) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(30));
  return stub->GetMetrics(&context, Void(), container);
}

// As MakeMeter() names the i-th series.
std::string LongName(char kind, int i) {
  std::string name = kind + std::to_string(i);
  name.resize(NM_NAME_BYTES, 'x');
  return name;
}

// `count` calls of GetMetrics in the bytes of HTTP/2, by a peer that gives the
// replies no more room than it must.
std::string RawCalls(int count) {
  std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const auto frame = [&bytes](char type, char flags, uint32_t stream,
                              const std::string& payload) {
    for (const int shift : {16, 8, 0}) {
      bytes.push_back(static_cast<char>(payload.size() >> shift));
    }
    bytes.push_back(type);
    bytes.push_back(flags);
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<char>(stream >> shift));
    }
    bytes += payload;
  };
  const auto text = [](const std::string& s) {
    return std::string(1, static_cast<char>(s.size())) + s;
  };
  frame(4, 0, 0, "");  // SETTINGS
  // RFC 7541: :method POST, :scheme http, and literals without indexing.
  const std::string headers =
      "\x83\x86\x04" + text("/magma.orc8r.Service303/GetMetrics") + "\x01" +
      text("localhost") + std::string(1, '\0') + text("content-type") +
      text("application/grpc") + std::string(1, '\0') + text("te") +
      text("trailers");
  for (int i = 0; i < count; ++i) {
    const uint32_t stream = 1 + 2 * static_cast<uint32_t>(i);
    frame(1, 4, stream, headers);               // HEADERS, END_HEADERS
    frame(0, 1, stream, std::string(5, '\0'));  // DATA, END_STREAM: Void
  }
  return bytes;
}

class ExporterRootTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/netmeter-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    pin_dir_ = name;
    ASSERT_EQ(MountBpffs(pin_dir_), "");
  }
  void TearDown() override {
    EXPECT_EQ(umount2(pin_dir_.c_str(), MNT_DETACH), 0);
    EXPECT_EQ(rmdir(pin_dir_.c_str()), 0);
  }

  // A meter with `series` series of services of the longest names.
  static std::unique_ptr<FakeMeter> MakeMeter(uint32_t series) {
    FakeMeter::Options options;
    options.max_series = kFull + NM_SLOT_FIRST;
    options.max_names = 2 * kFull + 8;
    auto meter = std::make_unique<FakeMeter>(options);
    EXPECT_EQ(meter->error(), "");
    for (uint32_t i = 0; i < series; ++i) {
      std::string name = "s" + std::to_string(i);
      name.resize(NM_NAME_BYTES, 'x');
      meter->SetName(3 + 2 * i, NM_KIND_SERVICE, name);
      name[0] = 'd';
      meter->SetName(4 + 2 * i, NM_KIND_DESTINATION, name);
      nm_cell* cell = meter->cell(NM_SLOT_FIRST + i, 0);
      cell->destination = static_cast<nm_u16>(4 + 2 * i);
      cell->kind = NM_KIND_SERVICE;
      cell->transport = NM_TRANSPORT_TCP;
      cell->tx_payload_bytes = i + 1;
      cell->service = static_cast<nm_u16>(3 + 2 * i);
    }
    meter->stats()->slots_allocated = series;
    meter->stats()->series_used = series;
    return meter;
  }

  std::string pin_dir_;
};

// By default everything is published: a registered service that publishes
// nothing was in no metric at all.
TEST_F(ExporterRootTest, OmitsRegisteredServicesOnlyIfToldToAndSaysSo) {
  const auto meter = MakeMeter(2);
  meter->cell(NM_SLOT_FIRST, 0)->flags = NM_FLAG_REGISTERED;
  ASSERT_EQ(meter->Pin(pin_dir_), "");
  ExporterProcess exporter(
      {"--omit-registered", "--families", "default", "--pin-dir", pin_dir_});
  const std::string text = exporter.Get("/metrics");
  EXPECT_THAT(text, HasSubstr("\nnetmeter_up 1\n"));
  EXPECT_THAT(text, HasSubstr("magma_bytes_sent_total{service_name=\"" +
                              LongName('s', 1) + "\",dest_service=\"" +
                              LongName('d', 1) + "\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr(LongName('s', 0))));
  EXPECT_THAT(text, HasSubstr("\nnetmeter_series 2\n"));
  EXPECT_THAT(text, HasSubstr("\nnetmeter_omitted_services 1\n"));
  MetricsContainer container;
  ASSERT_TRUE(GetMetrics(exporter.Stub().get(), &container).ok());
  EXPECT_THAT(container.DebugString(), HasSubstr(LongName('s', 1)));
  EXPECT_THAT(container.DebugString(), Not(HasSubstr(LongName('s', 0))));
  EXPECT_THAT(container.DebugString(), HasSubstr("netmeter_omitted_services"));

  ExporterProcess all({"--pin-dir", pin_dir_});
  EXPECT_THAT(all.Get("/metrics"), HasSubstr(LongName('s', 0)));
  EXPECT_THAT(all.Get("/metrics"), HasSubstr(LongName('s', 1)));
  EXPECT_THAT(all.Get("/metrics"), Not(HasSubstr("netmeter_omitted_services")));
}

TEST_F(ExporterRootTest, PublishesTheFamiliesThatAreChosen) {
  const auto meter = MakeMeter(2);
  ASSERT_EQ(meter->Pin(pin_dir_), "");
  ExporterProcess exporter(
      {"--families", "kernsnoopd,netmeter_series", "--service303-families",
       "kernsnoopd,netmeter_series", "--pin-dir", pin_dir_});
  MetricsContainer container;
  ASSERT_TRUE(GetMetrics(exporter.Stub().get(), &container).ok());
  std::vector<std::string> names;
  for (const auto& family : container.family()) names.push_back(family.name());
  EXPECT_THAT(names, ElementsAre("netmeter_up", "magma_bytes_sent_total",
                                 "netmeter_series"));
  const std::string text = exporter.Get("/metrics");
  EXPECT_THAT(text, HasSubstr("\nmagma_bytes_sent_total{"));
  EXPECT_THAT(text, Not(HasSubstr("netmeter_wire")));
}

// What a fleet is planned by: the same replies as those that are served.
TEST_F(ExporterRootTest, EstimatesWhatTheProfilesOfAFleetCost) {
  const auto meter = MakeMeter(20);
  ASSERT_EQ(meter->Pin(pin_dir_), "");
  const ShellResult run = RunShell(
      "lib/apps/exporter/netmeter-exporter --estimate --pin-dir " + pin_dir_);
  ASSERT_EQ(run.exit_status, 0) << run.output;
  // The status was 1 then, without a word.
  EXPECT_EQ(
      RunShell("lib/apps/exporter/netmeter-exporter --estimate 2>&1 >/dev/full "
               "--pin-dir " +
               pin_dir_)
          .output,
      "netmeter-exporter: write to standard output: No space left on "
      "device\n");
  ExporterProcess exporter({"--families", "all", "--pin-dir", pin_dir_});
  const std::string page = exporter.Get("/metrics");
  const std::string text = page.substr(page.find("\r\n\r\n") + 4);
  std::istringstream lines(text);
  int samples = 0;
  for (std::string line; std::getline(lines, line);) samples += line[0] != '#';
  std::istringstream row(run.output.substr(run.output.find("\nfull ")));
  std::string name, families, unit;
  int every = 0, estimated_samples = 0;
  double per_second = 0, megabytes = 0;
  size_t bytes = 0, gzip = 0;
  row >> name >> families >> every >> unit >> estimated_samples >> per_second >>
      bytes >> gzip >> megabytes;
  EXPECT_EQ(name + families, "fullall") << run.output;
  EXPECT_EQ(every, 15);
  EXPECT_EQ(estimated_samples, samples);
  EXPECT_GT(samples, 20 * 10);
  EXPECT_NEAR(per_second, samples / 15.0, 0.01);
  EXPECT_EQ(bytes, text.size());
  const std::string compressed =
      exporter.Get("/metrics", "*/*\r\nAccept-Encoding: gzip");
  EXPECT_THAT(compressed, HasSubstr("\r\nContent-Encoding: gzip\r\n"));
  EXPECT_THAT(compressed, HasSubstr("\r\nVary: Accept, Accept-Encoding\r\n"));
  EXPECT_EQ(gzip, compressed.size() - compressed.find("\r\n\r\n") - 4);
  EXPECT_LT(gzip, bytes / 4);
  EXPECT_NEAR(megabytes, 86400 / 15 * 1e-6 * gzip, 0.05);  // one decimal
  // Nothing was on a link, and what is 0 is left out.
  EXPECT_THAT(run.output, HasSubstr("\nsatellite  bill        240 s "));
}

TEST_F(ExporterRootTest, WaitsForTheMeterAndFollowsItsUpgradeAndUnload) {
  ExporterProcess exporter({"--pin-dir", pin_dir_});
  EXPECT_THAT(exporter.Get("/metrics"), EndsWith("\nnetmeter_up 0\n"));
  auto meter = MakeMeter(1);
  ASSERT_EQ(meter->Pin(pin_dir_), "");
  EXPECT_THAT(PageWith(exporter, "\nnetmeter_up 1\n"),
              HasSubstr("\nnetmeter_up 1\n"));
  auto upgraded = MakeMeter(2);
  ASSERT_EQ(upgraded->Pin(pin_dir_), "");
  meter->info()->closed = 1;
  EXPECT_THAT(PageWith(exporter, "\nnetmeter_series 2\n"),
              HasSubstr("\nnetmeter_series 2\n"));
  upgraded->info()->closed = 1;
  EXPECT_THAT(PageWith(exporter, "\nnetmeter_up 0\n"),
              EndsWith("\nnetmeter_up 0\n"));
  EXPECT_EQ(exporter.Stop(), 0);
}

// By default every local user can read the port.
TEST_F(ExporterRootTest, OnlyRootAndItsGroupReadAUnixSocket) {
  const auto meter = MakeMeter(1);
  ASSERT_EQ(meter->Pin(pin_dir_), "");
  const ShellResult result = RunShell(R"(
      dir=$(mktemp -d) && chmod 755 $dir
      lib/apps/exporter/netmeter-exporter --pin-dir )" +
                                      pin_dir_ + R"( --socket-group 54321 \
          --listen unix:$dir/metrics.sock 2>$dir/log & pid=$!
      until grep -q serving $dir/log; do kill -0 $pid || break; sleep 0.05; done
      sed "s,$dir,DIR," $dir/log
      stat --format='%A %G' $dir/metrics.sock
      get="curl -sS --unix-socket $dir/metrics.sock http://localhost/metrics"
      user="setpriv --reuid=65534 --regid=65534"
      $get | grep '^netmeter_up'
      $user --groups=54321 $get | grep '^netmeter_up'
      $user --clear-groups $get -v 2>&1 | grep -o 'Permission denied' | head -1
      ss -Hltnp | grep -c pid=$pid,
      kill $pid; wait $pid; echo $?
      rm -r $dir)");
  EXPECT_EQ(result.output,
            "netmeter-exporter: serving http://unix:DIR/metrics.sock:/metrics\n"
            "srw-rw---- UNKNOWN\n"
            "netmeter_up 1\n"
            "netmeter_up 1\n"
            "Permission denied\n"
            "0\n"
            "0\n");
}

TEST_F(ExporterRootTest, PeersThatTakeNoReplyCostBoundedMemory) {
  const auto meter = MakeMeter(kFull);
  ASSERT_EQ(meter->Pin(pin_dir_), "");
  ExporterProcess exporter({"--pin-dir", pin_dir_});
  const auto stub = exporter.Stub();
  MetricsContainer container;
  ASSERT_TRUE(GetMetrics(stub.get(), &container).ok());
  exporter.Get("/metrics");
  const long before = exporter.MemoryKib();
  std::vector<UniqueFd> peers;
  for (int i = 0; i < 6; ++i) {
    // 96 replies of 4 MB. No client reads more than 64 KiB of its reply.
    peers.push_back(
        ExporterProcess::Connect(exporter.grpc_port(), RawCalls(16)));
    // And 24 of 8 MB.
    for (int j = 0; j < 4; ++j) {
      peers.push_back(ExporterProcess::Connect(
          exporter.http_port(), "GET /metrics HTTP/1.0\r\n\r\n"));
    }
    const grpc::Status status = GetMetrics(stub.get(), &container);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_GT(exporter.Get("/metrics").size(), 1000000u);
  }
  for (int i = 0; i < 30; ++i) {
    const grpc::Status status = GetMetrics(stub.get(), &container);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  const long after = exporter.MemoryKib();
  printf("memory: %ld KiB before, %ld KiB with 120 replies not taken\n", before,
         after);
  EXPECT_LT(after, before + 256 * 1024);
  EXPECT_EQ(exporter.Stop(), 0);
}

TEST_F(ExporterRootTest, MetricsPassPromtool) {
  const auto meter = MakeMeter(50);
  meter->SetName(500, NM_KIND_BINARY, "a\xff\"\\\n");
  nm_cell* cell = meter->cell(NM_SLOT_FIRST + 50, 0);
  cell->kind = NM_KIND_BINARY;
  cell->service = 500;
  meter->stats()->slots_allocated = 51;
  ASSERT_EQ(meter->Pin(pin_dir_), "");
  ExporterProcess exporter({"--families", "all", "--pin-dir", pin_dir_});
  const std::string reply = exporter.Get("/metrics");
  const std::string file = testing::TempDir() + "/metrics.txt";
  FILE* out = fopen(file.c_str(), "w");
  ASSERT_NE(out, nullptr);
  fputs(reply.c_str() + reply.find("\r\n\r\n") + 4, out);
  fclose(out);
  EXPECT_EQ(system(("promtool check metrics < " + file + " >&2").c_str()), 0);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
