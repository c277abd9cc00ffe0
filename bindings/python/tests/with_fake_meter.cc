// SPDX-License-Identifier: BSD-3-Clause
// with_fake_meter DIRECTORY FILLERS COMMAND...: runs COMMAND in a mount namespace in
// which the existing DIRECTORY is the pin directory of a meter that no program
// updates. Needs root. The series, each summed over two CPUs:
//
//   service "mme" -> "streamer"  tcp, direct, registered: all counters differ
//   service "mme" -> "streamer"  udp, proxy: 1 of each
//   service "a\xff" -> ""        tcp, direct: tx_payload_bytes is 2^64 - 1
//   binary "curl"                tcp, direct: tx_payload_bytes is 2^53 - 1
//   unattributed                 icmp, direct
//   FILLERS services with names and destinations of 64 bytes

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "lib/testing/fake_meter.h"
#include "netmeter/abi.h"

namespace {

using netmeter::internal::FakeMeter;

class Filler {
 public:
  explicit Filler(FakeMeter* meter) : meter_(meter) {}

  nm_u16 AddName(nm_u8 kind, const std::string& name) {
    meter_->SetName(next_name_, kind, name);
    return static_cast<nm_u16>(next_name_++);
  }

  // The cells of both CPUs; the first one's counters are 1 to 7.
  nm_cell* AddSeries(nm_u8 kind, nm_u16 service, nm_u16 destination,
                     nm_u8 transport, nm_u8 path) {
    for (nm_u32 cpu = 0; cpu < 2; ++cpu) {
      nm_cell* cell = meter_->cell(next_slot_, cpu);
      cell->service = service;
      cell->destination = destination;
      cell->transport = transport;
      cell->path = path;
      cell->kind = kind;
    }
    nm_cell* cell = meter_->cell(next_slot_++, 0);
    cell->tx_bytes = 1;
    cell->rx_bytes = 2;
    cell->tx_packets = 3;
    cell->rx_packets = 4;
    cell->tx_payload_bytes = 5;
    cell->rx_payload_bytes = 6;
    cell->tx_retransmit_bytes = 7;
    meter_->stats()->slots_allocated++;
    meter_->stats()->series_used++;
    return cell;
  }

 private:
  FakeMeter* const meter_;
  nm_u32 next_name_ = NM_NAME_FIRST;
  nm_u32 next_slot_ = NM_SLOT_FIRST;
};

int Fail(const std::string& error) {
  fprintf(stderr, "with_fake_meter: %s\n", error.c_str());
  return 125;
}

std::string Padded(const char* prefix, unsigned number) {
  char text[NM_NAME_BYTES + 1];
  snprintf(text, sizeof(text), "%s-%0*u", prefix,
           static_cast<int>(NM_NAME_BYTES - strlen(prefix) - 1), number);
  return text;
}

void FillConnections(nm_tcp* tcp) {
  tcp->opened = 1;
  tcp->accepted = 2;
  tcp->closed = 3;
  tcp->failed = 4;
  tcp->rtt_us = 1500500;
  tcp->resets_sent = 6;
  tcp->resets_received = 7;
  tcp->timeouts = 8;
  tcp->retransmitted_segments = 9;
  for (nm_u64 i = 0; i < NM_RTT_BUCKETS; ++i) tcp->rtt_buckets[i] = i;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return Fail("usage: DIRECTORY FILLERS COMMAND...");
  const unsigned fillers = static_cast<unsigned>(atoi(argv[2]));
  std::string error = netmeter::internal::MountBpffs(argv[1]);
  if (!error.empty()) return Fail(error);

  FakeMeter::Options options;
  options.max_series = fillers + 64;
  options.max_names = 2 * fillers + 64;
  FakeMeter meter(options);
  if (!meter.error().empty()) return Fail(meter.error());
  strcpy(meter.info()->version, "1.2.3");
  strcpy(meter.info()->kernel, "6.1.0-test");
  strcpy(meter.info()->cgroup, "/caf\xc3\xa9/\xff");
  meter.info()->config_hash = 0x0123456789abcdef;
  meter.info()->created_ns = 1600000000000000001;
  meter.info()->loaded_ns = 1700000000000000001;
  meter.stats()->names_used = 5;
  meter.stats()->series_full = 11;
  meter.stats()->names_full = 12;
  meter.stats()->processes_full = 13;
  meter.stats()->storage_failed_packets = 14;
  meter.stats()->storage_failed_sockets = 18;
  meter.stats()->header_errors = 15;
  meter.stats()->names_over_quota = 16;
  meter.stats()->series_over_quota = 17;
  meter.stats()->series_evicted = 19;
  meter.stats()->names_evicted = 20;

  Filler filler(&meter);
  const nm_u16 mme = filler.AddName(NM_KIND_SERVICE, "mme");
  const nm_u16 streamer = filler.AddName(NM_KIND_DESTINATION, "streamer");
  const nm_u16 broken = filler.AddName(NM_KIND_SERVICE, "a\xff");
  const nm_u16 curl = filler.AddName(NM_KIND_BINARY, "curl");

  nm_cell* cell = filler.AddSeries(NM_KIND_SERVICE, mme, streamer,
                                   NM_TRANSPORT_TCP, NM_PATH_DIRECT);
  cell->flags = NM_FLAG_REGISTERED;
  FillConnections(meter.tcp(NM_SLOT_FIRST));
  nm_cell* other = cell + 1;  // of the second CPU
  other->tx_bytes = 1000;
  other->rx_bytes = 2000;
  other->tx_packets = 10;
  other->rx_packets = 20;
  other->tx_payload_bytes = 600;
  other->rx_payload_bytes = 1200;
  other->tx_retransmit_bytes = 70;
  cell = filler.AddSeries(NM_KIND_SERVICE, mme, streamer, NM_TRANSPORT_UDP,
                          NM_PATH_PROXY);
  cell->tx_bytes = cell->rx_bytes = cell->tx_packets = cell->rx_packets =
      cell->tx_payload_bytes = cell->rx_payload_bytes =
          cell->tx_retransmit_bytes = 1;
  cell = filler.AddSeries(NM_KIND_SERVICE, broken, NM_NAME_EMPTY,
                          NM_TRANSPORT_TCP, NM_PATH_DIRECT);
  cell->tx_payload_bytes = ~nm_u64{0};
  cell = filler.AddSeries(NM_KIND_BINARY, curl, NM_NAME_EMPTY, NM_TRANSPORT_TCP,
                          NM_PATH_DIRECT);
  cell->tx_payload_bytes = (nm_u64{1} << 53) - 1;
  filler.AddSeries(NM_KIND_UNATTRIBUTED, NM_NAME_UNATTRIBUTED, NM_NAME_EMPTY,
                   NM_TRANSPORT_ICMP, NM_PATH_DIRECT);
  for (unsigned i = 0; i < fillers; ++i) {
    filler.AddSeries(
        NM_KIND_SERVICE, filler.AddName(NM_KIND_SERVICE, Padded("service", i)),
        filler.AddName(NM_KIND_DESTINATION, Padded("destination", i)),
        NM_TRANSPORT_TCP, NM_PATH_DIRECT);
  }
  error = meter.Freeze();
  if (error.empty()) error = meter.Pin(argv[1]);
  if (!error.empty()) return Fail(error);
  execvp(argv[3], argv + 3);
  return Fail(std::string(argv[3]) + ": " + strerror(errno));
}
