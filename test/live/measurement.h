// SPDX-License-Identifier: BSD-3-Clause
// Compares what a meter and a link count, to the byte, and names what is
// between the two.
//
//   Measurement measurement(meter, lab.ClientReference());
//   ... traffic ...
//   measurement.ExpectExact(sent, received);

#ifndef NETMETER_TEST_LIVE_MEASUREMENT_H_
#define NETMETER_TEST_LIVE_MEASUREMENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "netmeter/meter.h"
#include "test/live/lab.h"
#include "test/live/sniffer.h"

namespace netmeter {
namespace internal {

// What of one packet the link saw and a hook did not. It is negative if a hook
// saw what the link did not, and nothing if it has no name.
struct Remainder {
  const char* name = nullptr;
  int64_t bytes = 0;
  int64_t packets = 0;
};
using Classify = std::function<Remainder(const Packet&)>;

// ARP, neighbour discovery and the like of the routers.
Remainder Everywhere(const Packet& packet);
// The whole packet, under a name.
Remainder Whole(const char* name, const Packet& packet);

Totals Sum(const Totals& a, const Totals& b);

// Whose bytes, and where to.
struct Owner {
  Kind kind;
  std::string name;
  std::string destination;

  bool operator<(const Owner& o) const {
    return std::tie(kind, name, destination) <
           std::tie(o.kind, o.name, o.destination);
  }
};

// The comparison of one case.
class Measurement {
 public:
  Measurement(const MeteredCgroup& meter, const Reference& reference);
  ~Measurement();  // writes the rows and keeps the line for the table

  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  // Waits until the link is quiet. classify says which packets no hook sees;
  // those of Everywhere() and FindLatePackets() are always among them.
  void Finish(const Classify& classify = nullptr);

  // A remainder that the test counted by other means, if the link has no packet of that
  // kind. After Finish(). Like Remainder, it is negative if the hook saw what the link
  // did not.
  void Explain(const std::string& name, const Totals& part);

  // Bytes and packets, each direction: seen by the meter == on the link, less
  // the layer-2 headers and the remainder. One packet that the kernel itself gave
  // to the hook twice becomes part of the remainder here.
  void ExpectBalance();

  // Payload to the byte, and the retransmissions that follow from it: TCP
  // payload on the link that is more than tcp_sent (default: sent).
  void ExpectPayload(int64_t sent, int64_t received, int64_t tcp_sent = -1);
  void ExpectPayloadOnly(int64_t sent, int64_t received);

  // Finish(), ExpectBalance() and ExpectPayload().
  void ExpectExact(int64_t sent, int64_t received,
                   const Classify& classify = nullptr);

  // Each byte in both directions has this owner, and there were some.
  void ExpectOwner(const Owner& owner) const;
  Totals Of(const Owner& owner) const;
  // What each has counted meanwhile. If an idle series was evicted, it is less than 0,
  // and `evicted` has counted it.
  using Owners = std::map<Owner, Totals>;
  const Owners& owners() const { return owners_; }

  // What is wrong with the capture, which names the packets of the remainder; ""
  // if it has every packet that the interface counted. Without all of them nothing
  // can be said of the meter: this is an error of its own. After Finish().
  const std::string& capture_error() const { return capture_error_; }

  const Totals& seen() const { return seen_; }
  // Wire bytes and packets of the link, less headers and remainder; payload
  // of TCP.
  const Totals& link() const { return link_; }
  // All packets, a line each, with the name of those of the remainder; the first line
  // has what the meter saw. After Finish().
  void WritePackets(const std::string& path) const;
  const std::map<std::string, Totals>& remainder() const { return remainder_; }
  // Whether there was a packet like this. After Finish().
  bool Any(const std::function<bool(const Packet&)>& like) const;
  // Packets of a remainder, both directions.
  int64_t RemainderPackets(const std::string& name) const;

  // The table of all measurements.
  static void PrintTable();

  // From now on each measurement adds two rows to this file, one a direction,
  // as lines of JSON; test/accuracy/report.py says what is in them.
  static void WriteRowsTo(const std::string& path);

  // The row of a test that cannot run here. The probe says what was tried, and
  // what the kernel answered.
  static void NotOnThisKernel(const std::string& probe);

 private:
  void ExplainSecondPass();
  void ExplainLate();
  void PrintPackets(
      const std::function<bool(const Packet&)>& like = nullptr) const;
  void PrintPacket(size_t i, FILE* file) const;
  void WriteRow(bool sent, bool failed) const;
  LinkCounters Counters() const;
  void CheckCapture(uint32_t drops, const Totals& counted,
                    const Totals& sniffed);
  Owners ReadOwners() const;

  const MeteredCgroup& meter_;
  const Reference reference_;
  Owners before_, owners_;
  LinkCounters counters_before_;
  std::unique_ptr<Sniffer> sniffer_;
  std::vector<Packet> packets_;
  std::vector<const char*> names_;  // of each packet, by Finish()
  bool finished_ = false;
  std::string capture_error_;
  Totals seen_, link_;
  int64_t sent_ = -1, received_ = -1;
  std::map<std::string, Totals> remainder_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_MEASUREMENT_H_
