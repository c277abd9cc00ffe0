// SPDX-License-Identifier: BSD-3-Clause
// Memory for samples that is reused by later reads. A read allocates nothing unless it is
// the largest so far. The memory keeps the size of the largest read: about 300 bytes a
// series.
//
//   SampleBuffer::Lease samples(&buffer);
//   const absl::Status read = meter.ReadHost(samples.get());
//
// Threads: any. No thread waits: if another thread has the memory, a thread gets its own.

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

    // The result of an earlier read, or empty.
    std::vector<Sample>* get() const { return samples_; }

   private:
    const std::unique_lock<std::mutex> lock_;
    std::vector<Sample> own_;
    std::vector<Sample>* const samples_;
  };

 private:
  std::mutex mutex_;
  std::vector<Sample> samples_;  // belongs to the holder of the mutex
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_PUBLISH_SAMPLE_BUFFER_H_
