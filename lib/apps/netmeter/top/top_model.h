// SPDX-License-Identifier: BSD-3-Clause
// The data of `netmeter top`: rates between readings of the meter, by service and
// uplink, and by destination, with the last minute of each.
//
//   TopModel model;
//   model.Update(*meter->ReadHost(), 0);
//   ... a second later ...
//   model.Update(*meter->ReadHost(), 1.0);
//   for (const TopRow& row : model.Services({})) ...
//
// Independent of kernel and terminal. Threads: one at a time.

#ifndef NETMETER_LIB_APPS_NETMETER_TOP_TOP_MODEL_H_
#define NETMETER_LIB_APPS_NETMETER_TOP_TOP_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "lib/apps/clients/clients.h"
#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

constexpr size_t kTopHistory = 60;  // readings

struct TopRow {
  Kind kind = Kind::kUnattributed;
  Path path = Path::kDirect;
  std::string name;
  std::string uplink;       // "": none
  std::string destination;  // set by Destinations() only
  std::string client_name;  // likewise; "": none
  double tx_rate = 0;       // bytes a second, on the wire
  double rx_rate = 0;
  double retransmit_rate = 0;
  double rtt_us = -1;  // mean of round trips since the last reading; -1: none
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  uint64_t connections = 0;  // open TCP connections
  // Its part of the traffic of All() since the last reading, 0..1; -1 for a row that is
  // not in it.
  double share = -1;
  // Bytes a second in both directions, the newest last.
  std::array<double, kTopHistory> history = {};

  double rate() const { return tx_rate + rx_rate; }
};

enum class TopSort {
  kRate,
  kTotal,
  kRetransmissions,
  kRtt,
  kConnections,
  kName
};
constexpr int kTopSorts = 6;
const char* TopSortName(TopSort sort);

class TopModel {
 public:
  // Adds a reading that came `seconds` after the last one. The first reading yields no
  // rates. Forgets series that are missing from this reading. `paid`: the uplinks that
  // are summed; empty: all of path direct. `clients`: those of forwarded traffic.
  void Update(const std::vector<Sample>& samples, double seconds,
              const std::set<std::string>& paid = {}, Clients clients = {});

  // A row for each kind, name, path and uplink.
  std::vector<TopRow> Services(TopSort sort) const;

  // The destinations of a row of Services(). The addresses of one client are one row,
  // whose rate is the sum of theirs, whenever they became addresses of this client.
  std::vector<TopRow> Destinations(const TopRow& service, TopSort sort) const;

  // Whether the last reading has uplinks.
  bool has_uplinks() const { return has_uplinks_; }

  // The sum over the paid uplinks, or else over path direct.
  TopRow All() const;
  const std::set<std::string>& paid() const { return paid_; }
  // Uplinks that have rows, but are not in All(); "no uplink" and "(proxy)" for others.
  const std::set<std::string>& not_summed() const { return not_summed_; }

 private:
  using Key = std::tuple<Kind, std::string, Path, std::string, std::string>;
  struct Totals {
    uint64_t tx = 0, rx = 0, retransmit = 0, rtt_us = 0, rtt_count = 0;
    uint64_t connections = 0;
  };
  struct Entry {
    TopRow row;
    Totals now, before;
    uint64_t rtt_us_delta = 0, rtt_count_delta = 0;
    bool seen = false;
  };

  static void AddTo(const Sample& sample, Totals* totals);
  static void UpdateEntry(double seconds, Entry* entry);
  static void Add(const Entry& entry, TopRow* row, uint64_t* rtt_us,
                  uint64_t* rtt_count);
  void Sort(TopSort sort, std::vector<TopRow>* rows) const;

  std::map<Key, Entry> entries_;
  bool first_ = true;
  bool has_uplinks_ = false;
  bool IsSummed(const TopRow& row) const;
  std::set<std::string> paid_, not_summed_;
  Clients clients_;
  double summed_rate_ = 0;
};

// A character for each value: eight levels of blocks or of ASCII, a blank for 0.
std::string Sparkline(const std::array<double, kTopHistory>& history,
                      size_t width, bool utf8);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_TOP_TOP_MODEL_H_
