// SPDX-License-Identifier: BSD-3-Clause
// Memory for samples that outlives a read, for who reads again and again: where
// it has had room for as much before, a read into it allocates nothing. It stays
// as large as the largest read was: about 300 bytes a series.
//
//   SampleBuffer::Lease samples(&buffer);
//   const absl::Status read = meter.ReadHost(samples.get());
//
// Threads: any. Nobody waits: who comes while another thread has the memory gets
// some of his own.

#ifndef NETMETER_LIB_PUBLISH_SAMPLE_BUFFER_H_
#define NETMETER_LIB_PUBLISH_SAMPLE_BUFFER_H_

#include <mutex>
#include <vector>

#include "netmeter/sample.h"

namespace netmeter {
namespace internal {

class SampleBuffer {
 public:
  class Lease {
   public:
    explicit Lease(SampleBuffer* buffer)
        : lock_(buffer->mutex_, std::try_to_lock),
          samples_(lock_.owns_lock() ? &buffer->samples_ : &own_) {}

    // What an earlier read left there, or nothing.
    std::vector<Sample>* get() const { return samples_; }

   private:
    const std::unique_lock<std::mutex> lock_;
    std::vector<Sample> own_;
    std::vector<Sample>* const samples_;
  };

 private:
  std::mutex mutex_;
  std::vector<Sample> samples_;  // of who has the mutex
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_SAMPLE_BUFFER_H_
