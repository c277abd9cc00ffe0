// SPDX-License-Identifier: BSD-3-Clause
// The C API over the C++ library. This file only converts the types of arguments and
// results. No exception leaves it: code that allocates is inside of WithoutThrowing(),
// and other code cannot throw.
//
// A netmeter_samples is a Rows of meter.h: neither copies a string.
#include <cstddef>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/misattributions.h"
#include "lib/base/no_throw.h"
#include "lib/base/sized.h"
#include "lib/base/version.h"
#include "lib/capi/handles.h"
#include "lib/reader/control.h"
#include "netmeter/meter.h"
#include "netmeter/netmeter.h"

struct netmeter_samples {
  netmeter::Rows found;
};

namespace netmeter {
namespace {

using internal::CopyText;
using internal::WithoutThrowing;

// Enumerators have equal values in both APIs.
static_assert(static_cast<int>(Kind::kService) == NETMETER_KIND_SERVICE &&
                  static_cast<int>(Kind::kBinary) == NETMETER_KIND_BINARY &&
                  static_cast<int>(Kind::kUnattributed) ==
                      NETMETER_KIND_UNATTRIBUTED &&
                  static_cast<int>(Kind::kOverflow) == NETMETER_KIND_OVERFLOW &&
                  static_cast<int>(Kind::kPending) == NETMETER_KIND_PENDING &&
                  static_cast<int>(Kind::kUnit) == NETMETER_KIND_UNIT &&
                  static_cast<int>(Kind::kContainer) ==
                      NETMETER_KIND_CONTAINER &&
                  static_cast<int>(Kind::kEvicted) == NETMETER_KIND_EVICTED &&
                  static_cast<int>(Kind::kUser) == NETMETER_KIND_USER,
              "netmeter_kind is Kind");
static_assert(static_cast<int>(Transport::kOther) == NETMETER_TRANSPORT_OTHER &&
                  static_cast<int>(Transport::kTcp) == NETMETER_TRANSPORT_TCP &&
                  static_cast<int>(Transport::kUdp) == NETMETER_TRANSPORT_UDP &&
                  static_cast<int>(Transport::kSctp) ==
                      NETMETER_TRANSPORT_SCTP &&
                  static_cast<int>(Transport::kIcmp) == NETMETER_TRANSPORT_ICMP,
              "netmeter_transport is Transport");
static_assert(static_cast<int>(Path::kDirect) == NETMETER_PATH_DIRECT &&
                  static_cast<int>(Path::kProxy) == NETMETER_PATH_PROXY,
              "netmeter_path is Path");
static_assert(NETMETER_INVALID_ARGUMENT ==
                      static_cast<int>(absl::StatusCode::kInvalidArgument) &&
                  NETMETER_NOT_FOUND ==
                      static_cast<int>(absl::StatusCode::kNotFound) &&
                  NETMETER_PERMISSION_DENIED ==
                      static_cast<int>(absl::StatusCode::kPermissionDenied) &&
                  NETMETER_RESOURCE_EXHAUSTED ==
                      static_cast<int>(absl::StatusCode::kResourceExhausted) &&
                  NETMETER_FAILED_PRECONDITION ==
                      static_cast<int>(absl::StatusCode::kFailedPrecondition) &&
                  NETMETER_UNIMPLEMENTED ==
                      static_cast<int>(absl::StatusCode::kUnimplemented) &&
                  NETMETER_INTERNAL ==
                      static_cast<int>(absl::StatusCode::kInternal) &&
                  NETMETER_UNAVAILABLE ==
                      static_cast<int>(absl::StatusCode::kUnavailable),
              "netmeter_code is absl's");
static_assert(NETMETER_RTT_BUCKETS ==
                  std::tuple_size<decltype(TcpConnections::rtt_buckets)>::value,
              "as many buckets");
static_assert(std::size(internal::kMisattributions) <=
                  NETMETER_MAX_MISATTRIBUTIONS,
              "room for each row");

// The structs of version 1.0 of the ABI: none may get shorter, or move a member.
static_assert(sizeof(netmeter_error) == 1024, "ABI");
static_assert(sizeof(void*) != 8 || (sizeof(netmeter_options) == 40 &&
                                     sizeof(netmeter_sample) == 272 &&
                                     sizeof(netmeter_health) == 816),
              "a struct grew: WHAT_TO_DO of lib/capi/abi_test.py says "
              "whether it may; if so, correct its size here");

// The sizes of the structs in a program of version 1.0. They stay when members are added.
constexpr size_t kOptionsOfVersion1 =
    offsetof(netmeter_options, reserved) + sizeof(netmeter_options::reserved);
constexpr size_t kHealthOfVersion1 = offsetof(netmeter_health, misattributed) +
                                     sizeof(netmeter_health::misattributed);
static_assert(sizeof(void*) != 8 ||
                  (kOptionsOfVersion1 == 40 && kHealthOfVersion1 == 816),
              "ABI");

absl::Status FillHealth(const Health& from, netmeter_health* to) {
  netmeter_health all = {};
  CopyText(from.version, all.version);
  CopyText(from.abi, all.abi);
  CopyText(from.kernel, all.kernel);
  CopyText(from.cgroup, all.cgroup);
  all.start_time_ns = from.start_time_ns;
  all.load_time_ns = from.load_time_ns;
  all.series = from.series;
  all.max_series = from.max_series;
  all.names = from.names;
  all.max_names = from.max_names;
  all.evicted_series = from.evicted_series;
  all.evicted_names = from.evicted_names;
  for (const Misattribution& row : from.misattributed) {
    all.misattributed[all.misattributed_count++] = {row.unit, row.reason,
                                                    row.count};
  }
  return internal::FillSized(all, kHealthOfVersion1, to)
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   "netmeter_health.size is not sizeof(struct "
                   "netmeter_health)");
}

absl::Status Open(const netmeter_options* given, netmeter_meter** meter) {
  if (meter == nullptr) return absl::InvalidArgumentError("meter is NULL");
  MeterOptions options;
  if (given != nullptr) {
    netmeter_options all = {};
    if (!internal::TakeSized(given, kOptionsOfVersion1, &all)) {
      return absl::InvalidArgumentError(
          "netmeter_options.size is not sizeof(struct netmeter_options)");
    }
    if (all.pin_dir != nullptr) options.pin_dir = all.pin_dir;
    if (all.service != nullptr) {
      // A service name that is given but empty is an error.
      const absl::string_view service =
          internal::Name(all.service, all.service_length);
      const absl::Status valid = internal::CheckName("service name", service);
      if (!valid.ok()) return valid;
      options.service = std::string(service);
    }
    options.wait_for_loader = all.wait_for_loader != 0;
  }
  auto opened = Meter::Open(options);
  if (!opened.ok()) return opened.status();
  *meter = new netmeter_meter{*std::move(opened)};
  return absl::OkStatus();
}

absl::Status NoMeterGiven() {
  return absl::InvalidArgumentError("meter is NULL");
}

absl::Status NoSamplesGiven() {
  return absl::InvalidArgumentError("samples is NULL");
}

}  // namespace
}  // namespace netmeter

using netmeter::NoMeterGiven;
using netmeter::NoSamplesGiven;
using netmeter::internal::CheckLength;
using netmeter::internal::Name;
using netmeter::internal::Return;
using netmeter::internal::WithoutThrowing;

const char* netmeter_version(void) { return netmeter::internal::kVersion; }

int netmeter_register_process(const char* service, size_t length,
                              netmeter_error* error) {
  return Return(netmeter::RegisterProcess(Name(service, length)), error);
}

int netmeter_tag_socket(int fd, const char* destination, size_t length,
                        netmeter_error* error) {
  return Return(netmeter::TagSocket(fd, Name(destination, length)), error);
}

int netmeter_set_socket_service(int fd, const char* service, size_t length,
                                netmeter_error* error) {
  return Return(netmeter::SetSocketService(fd, Name(service, length)), error);
}

int netmeter_open(const netmeter_options* options, netmeter_meter** meter,
                  netmeter_error* error) {
  return Return(WithoutThrowing([&] { return netmeter::Open(options, meter); }),
                error);
}

void netmeter_close(netmeter_meter* meter) { delete meter; }

int netmeter_register(netmeter_meter* meter, const char* service, size_t length,
                      netmeter_error* error) {
  return Return(WithoutThrowing([&] {
                  if (meter == nullptr) return NoMeterGiven();
                  return meter->meter->Register(Name(service, length));
                }),
                error);
}

const char* netmeter_kind_name(int kind) {
  return netmeter::KindName(static_cast<netmeter::Kind>(kind));
}

const char* netmeter_transport_name(int transport) {
  return netmeter::TransportName(static_cast<netmeter::Transport>(transport));
}

const char* netmeter_path_name(int path) {
  return netmeter::PathName(static_cast<netmeter::Path>(path));
}

netmeter_samples* netmeter_samples_new(void) {
  return new (std::nothrow) netmeter_samples;
}

void netmeter_samples_free(netmeter_samples* samples) { delete samples; }

size_t netmeter_samples_count(const netmeter_samples* samples) {
  return samples == nullptr ? 0 : samples->found.size();
}

const netmeter_sample* netmeter_samples_get(const netmeter_samples* samples,
                                            size_t index) {
  if (index >= netmeter_samples_count(samples)) return nullptr;
  return &samples->found[index];
}

int netmeter_read_service(netmeter_meter* meter, const char* service,
                          size_t length, netmeter_samples* samples,
                          netmeter_error* error) {
  return Return(WithoutThrowing([&] {
                  if (meter == nullptr) return NoMeterGiven();
                  if (service != nullptr) {
                    const absl::Status valid = CheckLength(length);
                    if (!valid.ok()) return valid;
                  }
                  if (samples == nullptr) return NoSamplesGiven();
                  return service == nullptr
                             ? meter->meter->ReadService(&samples->found)
                             : meter->meter->ReadService(Name(service, length),
                                                         &samples->found);
                }),
                error);
}

int netmeter_read_host(netmeter_meter* meter, netmeter_samples* samples,
                       netmeter_error* error) {
  return Return(WithoutThrowing([&] {
                  if (meter == nullptr) return NoMeterGiven();
                  if (samples == nullptr) return NoSamplesGiven();
                  return meter->meter->ReadHost(&samples->found);
                }),
                error);
}

int netmeter_read_health(netmeter_meter* meter, netmeter_health* health,
                         netmeter_error* error) {
  return Return(WithoutThrowing([&] {
                  if (meter == nullptr) return NoMeterGiven();
                  if (health == nullptr) {
                    return absl::InvalidArgumentError("health is NULL");
                  }
                  const auto read = meter->meter->ReadHealth();
                  if (!read.ok()) return read.status();
                  return netmeter::FillHealth(*read, health);
                }),
                error);
}
