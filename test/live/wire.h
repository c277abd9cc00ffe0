// SPDX-License-Identifier: BSD-3-Clause
// A bad wire: a network namespace with two interfaces, and a thread that carries the
// frames from one to the other, but drops, doubles or delays every n-th frame with data.
// The wire treats the same frames so in every run. It replaces netem, which some of the
// tested kernels lack.

#ifndef NETMETER_TEST_LIVE_WIRE_H_
#define NETMETER_TEST_LIVE_WIRE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lib/testing/net_namespace.h"

namespace netmeter {
namespace internal {

// What happens in one direction, to every n-th frame; 0 is never. Only frames
// with more than 200 bytes count, so handshakes and pure acknowledgements pass.
struct Impairment {
  uint32_t drop_every = 0;
  uint32_t duplicate_every = 0;
  uint32_t delay_every = 0;  // after the next five frames, or 10 ms
};

class Wire {
 public:
  Wire(const NetNamespace& where, const std::string& left,
       const std::string& right);
  ~Wire();

  void Impair(const Impairment& to_the_right, const Impairment& to_the_left);

  // How many frames were dropped, doubled or delayed since Impair().
  uint64_t impaired() const { return impaired_; }

 private:
  using Frame = std::vector<uint8_t>;
  struct Direction {
    int from = -1;
    int to = -1;
    uint32_t seen = 0;
    Impairment impairment;
    std::deque<Frame> delayed;
    uint32_t behind = 0;
  };

  void Loop();
  void Carry(Direction* direction, const Frame& frame);
  void SendDelayed(Direction* direction);

  UniqueFd left_;
  UniqueFd right_;
  std::mutex mutex_;
  Direction directions_[2];
  std::atomic<uint64_t> impaired_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_WIRE_H_
