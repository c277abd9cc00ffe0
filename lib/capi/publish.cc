// SPDX-License-Identifier: BSD-3-Clause
// The C API for publishing. As in capi.cc, this file only converts the types of arguments
// and results.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/base/no_throw.h"
#include "lib/base/sized.h"
#include "lib/capi/handles.h"
#include "lib/publish/container.h"
#include "lib/publish/families.h"
#include "lib/publish/sample_buffer.h"
#include "lib/publish/service_info.h"
#include "netmeter/magma.h"
#include "netmeter/magma_c.h"
#include "netmeter/publish.h"
#include "netmeter/publish_c.h"

struct netmeter_metrics {
  netmeter::internal::SampleBuffer buffer;
  // The rows point to texts in `families`, and to these arrays.
  std::vector<netmeter::internal::Family> families;
  std::vector<const char*> label_names;
  std::vector<const char*> label_values;
  double bucket_bounds[NETMETER_RTT_BUCKETS];
  std::vector<netmeter_metric> rows;
  std::string bytes;
};

struct netmeter_visitor {
  explicit netmeter_visitor(std::shared_ptr<const netmeter::Meter> meter,
                            const netmeter::MagmaOptions& options)
      : visitor(std::move(meter), options) {}
  netmeter::DeltaVisitor visitor;
};

namespace netmeter {
namespace {

using internal::Family;
using internal::FamilySetAccess;
using internal::FamilyType;
using internal::Label;
using internal::Metric;

static_assert(static_cast<int>(Scope::kService) == NETMETER_SCOPE_SERVICE &&
                  static_cast<int>(Scope::kHost) == NETMETER_SCOPE_HOST &&
                  static_cast<int>(Scope::kUnregistered) ==
                      NETMETER_SCOPE_UNREGISTERED,
              "netmeter_scope is Scope");
static_assert(static_cast<int>(FamilyType::kCounter) == NETMETER_TYPE_COUNTER &&
                  static_cast<int>(FamilyType::kGauge) == NETMETER_TYPE_GAUGE &&
                  static_cast<int>(FamilyType::kHistogram) ==
                      NETMETER_TYPE_HISTOGRAM,
              "netmeter_type is FamilyType");

// The sizes in version 1.0. They stay when members are added.
constexpr size_t kOptionsOfVersion1 =
    offsetof(netmeter_publish_options, reserved) +
    sizeof(netmeter_publish_options::reserved);
constexpr size_t kMagmaOptionsOfVersion1 =
    offsetof(netmeter_magma_options, reserved) +
    sizeof(netmeter_magma_options::reserved);
static_assert(sizeof(void*) != 8 ||
                  (kOptionsOfVersion1 == 32 && kMagmaOptionsOfVersion1 == 24 &&
                   sizeof(netmeter_metric) == 96),
              "a struct grew: WHAT_TO_DO of lib/capi/abi_test.py says "
              "whether it may; if so, correct its size here");

absl::Status TakeOptions(const netmeter_publish_options* given,
                         PublishOptions* options) {
  if (given == nullptr) return absl::OkStatus();
  netmeter_publish_options all = {};
  if (!internal::TakeSized(given, kOptionsOfVersion1, &all)) {
    return absl::InvalidArgumentError(
        "netmeter_publish_options.size is not sizeof(struct "
        "netmeter_publish_options)");
  }
  if (all.scope < NETMETER_SCOPE_SERVICE ||
      all.scope > NETMETER_SCOPE_UNREGISTERED) {
    return absl::InvalidArgumentError(
        "netmeter_publish_options.scope is no netmeter_scope");
  }
  options->scope = static_cast<Scope>(all.scope);
  if (all.families != 0) {
    if (!FamilySetAccess::IsSet(all.families)) {
      return absl::InvalidArgumentError(
          "netmeter_publish_options.families is not from "
          "netmeter_parse_families()");
    }
    options->families = FamilySetAccess::Of(all.families);
  }
  options->omit_zeros = all.omit_zeros != 0;
  options->names_without_total = all.names_without_total != 0;
  return absl::OkStatus();
}

absl::Status TakeMagmaOptions(const netmeter_magma_options* given,
                              MagmaOptions* options) {
  if (given == nullptr) return absl::OkStatus();
  netmeter_magma_options all = {};
  if (!internal::TakeSized(given, kMagmaOptionsOfVersion1, &all)) {
    return absl::InvalidArgumentError(
        "netmeter_magma_options.size is not sizeof(struct "
        "netmeter_magma_options)");
  }
  options->timestamps = all.without_timestamps == 0;
  if (all.max_bytes != 0) options->max_bytes = all.max_bytes;
  return absl::OkStatus();
}

const Meter* MeterOf(const netmeter_meter* meter) {
  return meter == nullptr ? nullptr : meter->meter.get();
}

// Reserves the memory for AddRow(), so that pointers in the rows stay valid.
void MakeRoom(netmeter_metrics* metrics) {
  size_t rows = 0, labels = 0;
  for (const Family& family : metrics->families) {
    rows += family.metrics.size();
    for (const Metric& metric : family.metrics) labels += metric.labels.size();
  }
  metrics->rows.reserve(rows);
  metrics->label_names.reserve(labels);
  metrics->label_values.reserve(labels);
}

void AddRow(const Family& family, const Metric& metric,
            netmeter_metrics* metrics) {
  netmeter_metric row = {};
  row.size = sizeof(row);
  row.family = family.name;
  row.help = family.help;
  row.label_names = metrics->label_names.data() + metrics->label_names.size();
  row.label_values =
      metrics->label_values.data() + metrics->label_values.size();
  row.label_count = metric.labels.size();
  for (const Label& label : metric.labels) {
    metrics->label_names.push_back(label.name);
    metrics->label_values.push_back(label.value.c_str());
  }
  row.bucket_bounds = metrics->bucket_bounds;
  row.bucket_counts = metric.buckets.data();
  row.bucket_count = metric.buckets.size();
  if (family.type == FamilyType::kHistogram) {
    row.sum = static_cast<double>(metric.value) / 1e6;
  } else {
    row.value = metric.value;
  }
  row.type = static_cast<int32_t>(family.type);
  metrics->rows.push_back(row);
}

void Clear(netmeter_metrics* metrics) {
  metrics->rows.clear();
  metrics->label_names.clear();
  metrics->label_values.clear();
}

absl::Status MakeRows(std::vector<Family> families, netmeter_metrics* metrics) {
  Clear(metrics);
  metrics->families = std::move(families);
  const absl::Status status = internal::WithoutThrowing([&] {
    MakeRoom(metrics);
    for (const Family& family : metrics->families) {
      for (const Metric& metric : family.metrics) {
        AddRow(family, metric, metrics);
      }
    }
    return absl::OkStatus();
  });
  if (!status.ok()) Clear(metrics);
  return status;
}

absl::Status ReadMetrics(const Meter* meter,
                         const netmeter_publish_options* given,
                         netmeter_metrics* metrics) {
  if (metrics == nullptr) {
    return absl::InvalidArgumentError("metrics is NULL");
  }
  PublishOptions options;
  const absl::Status taken = TakeOptions(given, &options);
  if (!taken.ok()) return taken;
  const absl::Status made =
      MakeRows(internal::Collect(meter, options, &metrics->buffer), metrics);
  if (made.ok() && !metrics->rows.empty()) return made;
  return MakeRows(internal::FamiliesOfError(), metrics);
}

// Sets *bytes and *length to the result of `make`. An empty result means that there was
// no memory.
template <typename Make>
absl::Status Serialize(netmeter_metrics* metrics, const char** bytes,
                       size_t* length, const Make& make) {
  if (metrics == nullptr || bytes == nullptr || length == nullptr) {
    return absl::InvalidArgumentError("metrics, bytes or length is NULL");
  }
  std::string made = make();
  if (made.empty()) return internal::OutOfMemory();
  metrics->bytes = std::move(made);
  *bytes = metrics->bytes.data();
  *length = metrics->bytes.size();
  return absl::OkStatus();
}

// Passes one delta to the C callback. Allocates nothing, because a failure here would
// look like one of the callback. *code is the result of take().
absl::Status Take(const Delta& delta,
                  int (*take)(const netmeter_metric* delta, void* context),
                  void* context, int* code) {
  constexpr size_t kMostLabels = 16;
  const char* names[kMostLabels];
  const char* values[kMostLabels];
  if (delta.labels.size() > kMostLabels) {
    return absl::InternalError("a metric has more labels than we know");
  }
  netmeter_metric row = {};
  row.size = sizeof(row);
  row.family = delta.name;
  row.help = "";
  row.label_names = names;
  row.label_values = values;
  for (const Delta::Label& label : delta.labels) {
    names[row.label_count] = label.name;
    values[row.label_count++] = label.value.c_str();
  }
  row.value = delta.value;
  row.type = NETMETER_TYPE_COUNTER;
  *code = take(&row, context);
  return internal::StatusOfTaken(*code);
}

}  // namespace
}  // namespace netmeter

using netmeter::MeterOf;
using netmeter::internal::CheckLength;
using netmeter::internal::FamilySetAccess;
using netmeter::internal::Name;
using netmeter::internal::Return;
using netmeter::internal::WithoutThrowing;

const char* netmeter_scope_name(int scope) {
  return netmeter::ScopeName(static_cast<netmeter::Scope>(scope));
}

int netmeter_parse_families(const char* list, size_t length, uint64_t* families,
                            netmeter_error* error) {
  return Return(WithoutThrowing([&] {
                  if (families == nullptr) {
                    return absl::InvalidArgumentError("families is NULL");
                  }
                  const absl::Status valid = CheckLength(length);
                  if (!valid.ok()) return valid;
                  const auto set =
                      netmeter::FamilySet::Parse(Name(list, length));
                  if (set.ok()) *families = FamilySetAccess::Get(*set);
                  return set.status();
                }),
                error);
}

int netmeter_has_family(uint64_t families, const char* family, size_t length) {
  if (!CheckLength(length).ok()) return 0;
  return FamilySetAccess::Of(families).Contains(Name(family, length)) ? 1 : 0;
}

netmeter_metrics* netmeter_metrics_new(void) {
  auto* const metrics = new (std::nothrow) netmeter_metrics;
  if (metrics == nullptr) return nullptr;
  for (size_t i = 0; i < NETMETER_RTT_BUCKETS; ++i) {
    metrics->bucket_bounds[i] = netmeter::internal::BucketBound(i);
  }
  return metrics;
}

void netmeter_metrics_free(netmeter_metrics* metrics) { delete metrics; }

size_t netmeter_metrics_count(const netmeter_metrics* metrics) {
  return metrics == nullptr ? 0 : metrics->rows.size();
}

const netmeter_metric* netmeter_metrics_get(const netmeter_metrics* metrics,
                                            size_t index) {
  if (index >= netmeter_metrics_count(metrics)) return nullptr;
  return &metrics->rows[index];
}

int netmeter_read_metrics(netmeter_meter* meter,
                          const netmeter_publish_options* options,
                          netmeter_metrics* metrics, netmeter_error* error) {
  return Return(WithoutThrowing([&] {
                  return netmeter::ReadMetrics(MeterOf(meter), options,
                                               metrics);
                }),
                error);
}

int netmeter_serialize_metrics(netmeter_meter* meter,
                               const netmeter_publish_options* options,
                               const netmeter_magma_options* magma,
                               netmeter_metrics* metrics, const char** bytes,
                               size_t* length, netmeter_error* error) {
  return Return(WithoutThrowing([&] {
                  netmeter::MagmaOptions all;
                  absl::Status taken = netmeter::TakeOptions(options, &all);
                  if (!taken.ok()) return taken;
                  taken = netmeter::TakeMagmaOptions(magma, &all);
                  if (!taken.ok()) return taken;
                  return netmeter::Serialize(metrics, bytes, length, [&] {
                    return netmeter::internal::SerializeMetrics(
                        MeterOf(meter), all, &metrics->buffer);
                  });
                }),
                error);
}

int netmeter_serialize_service_info(netmeter_meter* meter, const char* name,
                                    size_t name_length, const char* version,
                                    size_t version_length,
                                    uint64_t start_time_s,
                                    netmeter_metrics* metrics,
                                    const char** bytes, size_t* length,
                                    netmeter_error* error) {
  return Return(WithoutThrowing([&] {
                  for (const size_t given : {name_length, version_length}) {
                    const absl::Status valid = CheckLength(given);
                    if (!valid.ok()) return valid;
                  }
                  return netmeter::Serialize(metrics, bytes, length, [&] {
                    return netmeter::internal::ServiceInfo(
                               std::string(Name(name, name_length)),
                               std::string(Name(version, version_length)),
                               start_time_s)
                        .Serialize(MeterOf(meter));
                  });
                }),
                error);
}

int netmeter_visitor_new(netmeter_meter* meter,
                         const netmeter_publish_options* options,
                         netmeter_visitor** visitor, netmeter_error* error) {
  return Return(WithoutThrowing([&] {
                  if (visitor == nullptr) {
                    return absl::InvalidArgumentError("visitor is NULL");
                  }
                  netmeter::MagmaOptions all;
                  const absl::Status taken =
                      netmeter::TakeOptions(options, &all);
                  if (!taken.ok()) return taken;
                  *visitor = new netmeter_visitor(
                      meter == nullptr ? nullptr : meter->meter, all);
                  return absl::OkStatus();
                }),
                error);
}

void netmeter_visitor_free(netmeter_visitor* visitor) { delete visitor; }

int netmeter_visit(netmeter_visitor* visitor,
                   int (*take)(const netmeter_metric* delta, void* context),
                   void* context, netmeter_error* error) {
  // The callback makes system calls within a noexcept function.
  const netmeter::internal::WithoutCancellation guard;
  int taken = NETMETER_OK;
  const absl::Status visited = WithoutThrowing([&] {
    if (visitor == nullptr || take == nullptr) {
      return absl::InvalidArgumentError("visitor or take is NULL");
    }
    return visitor->visitor.Visit([&](const netmeter::Delta& delta) {
      return netmeter::Take(delta, take, context, &taken);
    });
  });
  return netmeter::internal::ReturnTaken(visited, taken, error);
}
