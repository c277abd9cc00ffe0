// SPDX-License-Identifier: BSD-3-Clause
// Meter (meter.h) over the C API (netmeter.h), for programs that link an installed
// libnetmeter. All of it is inline, so the program's own compiler builds it with the
// program's standard, options and abseil, and only plain C calls cross between program
// and library.
//
// Rows are a netmeter_samples. A read of samples fills a netmeter_samples first, which is
// then copied. Both reuse their memory. The Meter keeps one netmeter_samples; a second
// thread that reads samples at the same time makes another one.
//
// Compiles without exceptions and without RTTI, and lets no exception out.

#ifndef NETMETER_METER_INLINE_H_
#define NETMETER_METER_INLINE_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "netmeter/meter.h"
#include "netmeter/netmeter.h"
#include "netmeter/status_inline.h"

namespace netmeter {
NETMETER_NAMESPACE_BEGIN
namespace internal {

inline void AssignText(const char* text, size_t length, std::string* to) {
  if (to->compare(0, std::string::npos, text, length) != 0) {
    to->assign(text, length);
  }
}

// Every library of 1.x fills these members. One that is added later is there only if
// from.size reaches its end.
inline void AssignSample(const netmeter_sample& from, Sample* to) {
  to->kind = static_cast<Kind>(from.kind);
  AssignText(from.name, from.name_length, &to->name);
  AssignText(from.destination, from.destination_length, &to->destination);
  to->transport = static_cast<Transport>(from.transport);
  to->path = static_cast<Path>(from.path);
  AssignText(from.uplink, from.uplink_length, &to->uplink);
  to->registered = from.registered != 0;
  to->tx_bytes = from.tx_bytes;
  to->rx_bytes = from.rx_bytes;
  to->tx_packets = from.tx_packets;
  to->rx_packets = from.rx_packets;
  to->tx_payload_bytes = from.tx_payload_bytes;
  to->rx_payload_bytes = from.rx_payload_bytes;
  to->tx_retransmit_bytes = from.tx_retransmit_bytes;
  to->tcp.known = from.tcp_known != 0;
  to->tcp.opened = from.tcp_opened;
  to->tcp.accepted = from.tcp_accepted;
  to->tcp.closed = from.tcp_closed;
  to->tcp.failed = from.tcp_failed;
  std::copy(from.tcp_rtt_buckets, from.tcp_rtt_buckets + NETMETER_RTT_BUCKETS,
            to->tcp.rtt_buckets.begin());
  to->tcp.rtt_us = from.tcp_rtt_us;
  to->tcp.resets_sent = from.tcp_resets_sent;
  to->tcp.resets_received = from.tcp_resets_received;
  to->tcp.timeouts = from.tcp_timeouts;
  to->tcp.retransmitted_segments = from.tcp_retransmitted_segments;
}

inline absl::Status AssignSamples(const netmeter_samples& from,
                                  std::vector<Sample>* to) {
  const absl::Status status = OutOfMemoryAsStatus([&] {
    const size_t count = netmeter_samples_count(&from);
    to->resize(count);
    for (size_t i = 0; i < count; ++i) {
      AssignSample(*netmeter_samples_get(&from, i), &(*to)[i]);
    }
    return absl::OkStatus();
  });
  if (!status.ok()) to->clear();
  return status;
}

inline Health HealthOf(const netmeter_health& from) {
  Health to;
  to.version = from.version;
  to.abi = from.abi;
  to.kernel = from.kernel;
  to.cgroup = from.cgroup;
  to.start_time_ns = from.start_time_ns;
  to.load_time_ns = from.load_time_ns;
  to.series = from.series;
  to.max_series = from.max_series;
  to.names = from.names;
  to.max_names = from.max_names;
  to.evicted_series = from.evicted_series;
  to.evicted_names = from.evicted_names;
  for (uint32_t i = 0; i < from.misattributed_count; ++i) {
    const netmeter_misattribution& row = from.misattributed[i];
    to.misattributed.push_back({row.unit, row.reason, row.count});
  }
  return to;
}

inline UplinkCounts UplinkCountsOf(const netmeter_uplink_counts& from) {
  UplinkCounts to;
  to.interface_bytes = from.interface_bytes;
  to.interface_packets = from.interface_packets;
  to.local_bytes = from.local_bytes;
  to.local_packets = from.local_packets;
  to.forwarded_bytes = from.forwarded_bytes;
  to.forwarded_packets = from.forwarded_packets;
  to.layer2_header_bytes = from.layer2_header_bytes;
  to.unnamed_bytes = from.unnamed_bytes;
  to.unnamed_packets = from.unnamed_packets;
  return to;
}

inline Uplink UplinkOf(const netmeter_uplink& from) {
  Uplink to;
  to.name = from.name;
  to.is_paid = from.is_paid != 0;
  to.leads_to_clients = from.leads_to_clients != 0;
  to.tx = UplinkCountsOf(*from.tx);
  to.rx = UplinkCountsOf(*from.rx);
  for (size_t i = 0; i < from.interface_count; ++i) {
    const netmeter_uplink_interface& one = *from.interfaces[i];
    UplinkInterface interface;
    interface.name = one.name;
    interface.index = one.index;
    interface.tx_bytes = one.tx_bytes;
    interface.rx_bytes = one.rx_bytes;
    interface.tx_packets = one.tx_packets;
    interface.rx_packets = one.rx_packets;
    interface.tx_header_bytes = one.tx_header_bytes;
    interface.rx_header_bytes = one.rx_header_bytes;
    interface.has_left = one.has_left != 0;
    interface.not_counted = one.not_counted;
    to.interfaces.push_back(std::move(interface));
  }
  for (size_t i = 0; i < from.forwarded_count; ++i) {
    const netmeter_forwarded& one = *from.forwarded[i];
    to.forwarded.push_back({one.interface_name, one.client, one.tx_bytes,
                            one.rx_bytes, one.tx_packets, one.rx_packets});
  }
  to.unknown = from.unknown;
  to.forwarded_unknown = from.forwarded_unknown;
  to.forwarded_began_later = from.forwarded_began_later != 0;
  return to;
}

}  // namespace internal

class Rows::Impl {
 public:
  Impl() : samples_(netmeter_samples_new()) {}
  ~Impl() { netmeter_samples_free(samples_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  netmeter_samples* samples() const { return samples_; }  // null: no memory

 private:
  netmeter_samples* const samples_;
};

inline Rows::Rows() = default;
inline Rows::~Rows() = default;

inline size_t Rows::size() const {
  return impl_ == nullptr ? 0 : netmeter_samples_count(impl_->samples());
}

inline const netmeter_sample& Rows::operator[](size_t index) const {
  return *netmeter_samples_get(impl_->samples(), index);
}

class Meter::Impl {
 public:
  Impl() = default;
  ~Impl() {
    netmeter_samples_free(spare_.load());
    netmeter_close(meter_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Open(const MeterOptions& options) {
    netmeter_options given = NETMETER_OPTIONS_INIT;
    given.pin_dir = options.pin_dir.c_str();
    if (!options.service.empty()) {
      given.service = options.service.data();
      given.service_length = options.service.size();
    }
    given.wait_for_loader = options.wait_for_loader ? 1 : 0;
    netmeter_error error;
    const int code = netmeter_open(&given, &meter_, &error);
    return internal::StatusOf(code, error);
  }

  netmeter_meter* meter() const { return meter_; }

  // Reads into samples or rows. If service.data() is null, reads the registered service.
  template <typename To>
  absl::Status ReadService(absl::string_view service, To* to) {
    return Read(to, [&](netmeter_samples* buffer, netmeter_error* error) {
      return netmeter_read_service(meter_, service.data(), service.size(),
                                   buffer, error);
    });
  }
  template <typename To>
  absl::Status ReadHost(To* to) {
    return Read(to, [&](netmeter_samples* buffer, netmeter_error* error) {
      return netmeter_read_host(meter_, buffer, error);
    });
  }

 private:
  template <typename Function>
  absl::Status Read(Rows* rows, const Function& read) {
    if (rows->impl_ == nullptr) {
      rows->impl_.reset(new (std::nothrow) Rows::Impl);
    }
    if (rows->impl_ == nullptr || rows->impl_->samples() == nullptr) {
      rows->impl_.reset();
      return absl::Status(absl::StatusCode::kResourceExhausted, "");
    }
    netmeter_error error;
    const int code = read(rows->impl_->samples(), &error);
    return internal::StatusOf(code, error);
  }

  template <typename Function>
  absl::Status Read(std::vector<Sample>* samples, const Function& read) {
    netmeter_samples* buffer = spare_.exchange(nullptr);
    if (buffer == nullptr) buffer = netmeter_samples_new();
    if (buffer == nullptr) {
      return absl::Status(absl::StatusCode::kResourceExhausted, "");
    }
    netmeter_error error;
    const int code = read(buffer, &error);
    const absl::Status status = code == NETMETER_OK
                                    ? internal::AssignSamples(*buffer, samples)
                                    : internal::StatusOf(code, error);
    netmeter_samples_free(spare_.exchange(buffer));
    return status;
  }

  netmeter_meter* meter_ = nullptr;
  std::atomic<netmeter_samples*> spare_{nullptr};
};

namespace internal {

// For prometheus.h, magma.h and grpc.h. Null for null.
class MeterAccess {
 public:
  static netmeter_meter* Get(const Meter* meter) {
    return meter == nullptr ? nullptr : meter->impl_->meter();
  }
};

}  // namespace internal

inline Meter::Meter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
inline Meter::~Meter() = default;

inline absl::StatusOr<std::unique_ptr<Meter>> Meter::Open(
    const MeterOptions& options) {
  return internal::OutOfMemoryAsStatus(
      [&]() -> absl::StatusOr<std::unique_ptr<Meter>> {
        if (options.pin_dir.find('\0') != std::string::npos) {
          return absl::InvalidArgumentError("pin_dir contains a NUL");
        }
        std::unique_ptr<Impl> impl(new Impl);
        const absl::Status status = impl->Open(options);
        if (!status.ok()) return status;
        return std::unique_ptr<Meter>(new Meter(std::move(impl)));
      });
}

inline absl::Status Meter::Register(absl::string_view service) {
  netmeter_error error;
  const int code =
      netmeter_register(impl_->meter(), service.data(), service.size(), &error);
  return internal::StatusOf(code, error);
}

inline absl::Status Meter::ReadService(std::vector<Sample>* samples) const {
  return impl_->ReadService(absl::string_view(), samples);
}

inline absl::Status Meter::ReadService(Rows* rows) const {
  return impl_->ReadService(absl::string_view(), rows);
}

inline absl::Status Meter::ReadService(absl::string_view service,
                                       std::vector<Sample>* samples) const {
  // An empty name matches no service, but a null pointer would mean the registered one.
  if (service.data() == nullptr) service = absl::string_view("", 0);
  return impl_->ReadService(service, samples);
}

inline absl::Status Meter::ReadService(absl::string_view service,
                                       Rows* rows) const {
  if (service.data() == nullptr) service = absl::string_view("", 0);
  return impl_->ReadService(service, rows);
}

inline absl::Status Meter::ReadHost(std::vector<Sample>* samples) const {
  return impl_->ReadHost(samples);
}

inline absl::Status Meter::ReadHost(Rows* rows) const {
  return impl_->ReadHost(rows);
}

inline absl::StatusOr<std::vector<Sample>> Meter::ReadService() const {
  std::vector<Sample> samples;
  const absl::Status status = ReadService(&samples);
  if (!status.ok()) return status;
  return samples;
}

inline absl::StatusOr<std::vector<Sample>> Meter::ReadService(
    absl::string_view service) const {
  std::vector<Sample> samples;
  const absl::Status status = ReadService(service, &samples);
  if (!status.ok()) return status;
  return samples;
}

inline absl::StatusOr<std::vector<Sample>> Meter::ReadHost() const {
  std::vector<Sample> samples;
  const absl::Status status = ReadHost(&samples);
  if (!status.ok()) return status;
  return samples;
}

inline absl::StatusOr<Health> Meter::ReadHealth() const {
  return internal::OutOfMemoryAsStatus([&]() -> absl::StatusOr<Health> {
    netmeter_health health;
    health.size = sizeof(health);
    netmeter_error error;
    const int code = netmeter_read_health(impl_->meter(), &health, &error);
    if (code != NETMETER_OK) return internal::StatusOf(code, error);
    return internal::HealthOf(health);
  });
}

inline absl::StatusOr<std::vector<Uplink>> Meter::ReadUplinks() const {
  return internal::OutOfMemoryAsStatus(
      [&]() -> absl::StatusOr<std::vector<Uplink>> {
        const std::unique_ptr<netmeter_uplinks, void (*)(netmeter_uplinks*)>
            buffer(netmeter_uplinks_new(), netmeter_uplinks_free);
        netmeter_error error;
        if (buffer == nullptr) {
          return absl::Status(absl::StatusCode::kResourceExhausted, "");
        }
        const int code =
            netmeter_read_uplinks(impl_->meter(), buffer.get(), &error);
        if (code != NETMETER_OK) return internal::StatusOf(code, error);
        std::vector<Uplink> uplinks;
        for (size_t i = 0; i < netmeter_uplinks_count(buffer.get()); ++i) {
          uplinks.push_back(
              internal::UplinkOf(*netmeter_uplinks_get(buffer.get(), i)));
        }
        return uplinks;
      });
}

inline absl::Status RegisterProcess(absl::string_view service) {
  netmeter_error error;
  const int code =
      netmeter_register_process(service.data(), service.size(), &error);
  return internal::StatusOf(code, error);
}

inline absl::Status TagSocket(int fd, absl::string_view destination) {
  netmeter_error error;
  const int code =
      netmeter_tag_socket(fd, destination.data(), destination.size(), &error);
  return internal::StatusOf(code, error);
}

inline absl::Status SetSocketService(int fd, absl::string_view service) {
  netmeter_error error;
  const int code =
      netmeter_set_socket_service(fd, service.data(), service.size(), &error);
  return internal::StatusOf(code, error);
}

NETMETER_NAMESPACE_END
}  // namespace netmeter

#endif  // NETMETER_METER_INLINE_H_
