// SPDX-License-Identifier: BSD-3-Clause
// MagmaMetrics and DeltaVisitor (magma.h) over the C API, for the reason at the top of
// meter_inline.h. They need no protobuf, because the C API returns the container as
// bytes.

#ifndef NETMETER_MAGMA_INLINE_H_
#define NETMETER_MAGMA_INLINE_H_

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "netmeter/magma.h"
#include "netmeter/magma_c.h"
#include "netmeter/publish_inline.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN
namespace internal {

inline netmeter_magma_options MagmaOptionsOfC(const MagmaOptions& options) {
  netmeter_magma_options given = NETMETER_MAGMA_OPTIONS_INIT;
  given.max_bytes = options.max_bytes == 0 ? 1 : options.max_bytes;
  given.without_timestamps = options.timestamps ? 0 : 1;
  return given;
}

// Returns an empty string if memory runs out.
inline std::string CopyBytes(const char* bytes, size_t length) {
#ifdef __cpp_exceptions
  try {
    return std::string(bytes, length);
  } catch (const std::exception&) {
    return std::string();
  }
#else
  return std::string(bytes, length);
#endif
}

// A C callback that calls the program's callback. It keeps the error or exception of
// the program until the library's frames have returned.
class DeltaTaker {
 public:
  explicit DeltaTaker(const DeltaVisitor::Callback& callback)
      : callback_(callback) {}

  static int Take(const netmeter_metric* delta, void* context) {
    auto* const taker = static_cast<DeltaTaker*>(context);
#ifdef __cpp_exceptions
    try {
      taker->status_ = taker->TakeOne(*delta);
    } catch (...) {
      taker->thrown_ = std::current_exception();
      return NETMETER_INTERNAL;
    }
#else
    taker->status_ = taker->TakeOne(*delta);
#endif
    return taker->status_.ok() ? NETMETER_OK : NETMETER_INTERNAL;
  }

  // Turns the result of netmeter_visit() into that of Visit().
  absl::Status Finish(int code, const netmeter_error& error) {
#ifdef __cpp_exceptions
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
#endif
    return status_.ok() ? StatusOf(code, error) : status_;
  }

 private:
  absl::Status TakeOne(const netmeter_metric& from) {
    Delta delta;
    const absl::Status copied = OutOfMemoryAsStatus([&] {
      delta.labels.reserve(from.label_count);
      for (size_t i = 0; i < from.label_count; ++i) {
        delta.labels.push_back({from.label_names[i], from.label_values[i]});
      }
      return absl::OkStatus();
    });
    if (!copied.ok()) return copied;
    delta.name = from.family;
    delta.value = from.value;
    return callback_(delta);
  }

  const DeltaVisitor::Callback& callback_;
  absl::Status status_;
#ifdef __cpp_exceptions
  std::exception_ptr thrown_;
#endif
};

}  // namespace internal

class MagmaMetrics::Impl {
 public:
  Impl(std::shared_ptr<const Meter> meter, const MagmaOptions& options)
      : publisher_(std::move(meter), internal::OptionsOfC(options)),
        magma_(internal::MagmaOptionsOfC(options)) {}

  // Without the meter the result is netmeter_up 0. Empty if memory ran out.
  std::string Serialize(bool with_meter) const {
    const internal::MetricsLease metrics(publisher_.spare());
    const char* bytes = nullptr;
    size_t length = 0;
    if (metrics.get() == nullptr ||
        netmeter_serialize_metrics(
            with_meter ? publisher_.meter() : nullptr, &publisher_.options(),
            &magma_, metrics.get(), &bytes, &length, nullptr) != NETMETER_OK) {
      return std::string();
    }
    return internal::CopyBytes(bytes, length);
  }

 private:
  const internal::Publisher publisher_;
  const netmeter_magma_options magma_;
};

inline MagmaMetrics::MagmaMetrics(std::shared_ptr<const Meter> meter,
                                  const MagmaOptions& options)
    : impl_(std::make_shared<const Impl>(std::move(meter), options)) {}

inline std::string MagmaMetrics::Serialize() const {
  // Memory may still suffice for netmeter_up 0.
  std::string bytes = impl_->Serialize(true);
  if (bytes.empty()) bytes = impl_->Serialize(false);
  return bytes;
}

class DeltaVisitor::Impl {
 public:
  Impl(std::shared_ptr<const Meter> meter, const MagmaOptions& options)
      : meter_(std::move(meter)) {
    const netmeter_publish_options given = internal::OptionsOfC(options);
    code_ = netmeter_visitor_new(internal::MeterAccess::Get(meter_.get()),
                                 &given, &visitor_, &error_);
  }
  ~Impl() { netmeter_visitor_free(visitor_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Visit(const Callback& callback) {
    if (code_ != NETMETER_OK) return internal::StatusOf(code_, error_);
    if (!callback) {
      return absl::InvalidArgumentError("no callback to visit with");
    }
    internal::DeltaTaker taker(callback);
    netmeter_error error;
    const int code =
        netmeter_visit(visitor_, &internal::DeltaTaker::Take, &taker, &error);
    return taker.Finish(code, error);
  }

 private:
  const std::shared_ptr<const Meter> meter_;
  netmeter_visitor* visitor_ = nullptr;
  netmeter_error error_;
  int code_;
};

inline DeltaVisitor::DeltaVisitor(std::shared_ptr<const Meter> meter,
                                  const MagmaOptions& options)
    : impl_(new Impl(std::move(meter), options)) {}

inline DeltaVisitor::~DeltaVisitor() = default;

inline absl::Status DeltaVisitor::Visit(const Callback& callback) {
  return impl_->Visit(callback);
}

NETMETER_NAMESPACE_END
}  // namespace netmeter

#endif  // NETMETER_MAGMA_INLINE_H_
