// SPDX-License-Identifier: BSD-3-Clause
#include "lib/publish/sample_buffer.h"

#include <gtest/gtest.h>

namespace netmeter {
namespace internal {
namespace {

TEST(SampleBuffer, KeepsItsMemory) {
  SampleBuffer buffer;
  const Sample* first = nullptr;
  {
    const SampleBuffer::Lease samples(&buffer);
    samples.get()->resize(100);
    first = samples.get()->data();
  }
  const SampleBuffer::Lease samples(&buffer);
  EXPECT_EQ(samples.get()->data(), first);
  EXPECT_EQ(samples.get()->size(), 100u);
}

// Two scrapes at once: neither waits, and neither writes the samples of the other.
TEST(SampleBuffer, GivesOthersTheirOwn) {
  SampleBuffer buffer;
  const SampleBuffer::Lease one(&buffer);
  one.get()->resize(100);
  const SampleBuffer::Lease other(&buffer);
  EXPECT_NE(one.get(), other.get());
  EXPECT_TRUE(other.get()->empty());
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
