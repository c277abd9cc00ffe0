// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/read_installed.h"

#include <memory>
#include <utility>
#include <vector>

#include "netmeter/meter.h"
#include "netmeter/netmeter.h"

namespace netmeter_benchmark {
namespace {

// Without a service: all series.
Reader ByC(std::shared_ptr<netmeter_meter> meter, const std::string& service) {
  const std::shared_ptr<netmeter_samples> samples(netmeter_samples_new(),
                                                  netmeter_samples_free);
  return [=](int count) -> size_t {
    for (int i = 0; i < count; ++i) {
      const int code =
          service.empty()
              ? netmeter_read_host(meter.get(), samples.get(), nullptr)
              : netmeter_read_service(meter.get(), service.data(),
                                      service.size(), samples.get(), nullptr);
      if (code != NETMETER_OK) return 0;
    }
    return netmeter_samples_count(samples.get());
  };
}

// Into memory of type To: a vector of samples, or rows.
template <typename To>
Reader ByCpp(std::shared_ptr<const netmeter::Meter> meter,
             const std::string& service) {
  const auto samples = std::make_shared<To>();
  return [=](int count) -> size_t {
    for (int i = 0; i < count; ++i) {
      const absl::Status status =
          service.empty() ? meter->ReadHost(samples.get())
                          : meter->ReadService(service, samples.get());
      if (!status.ok()) return 0;
    }
    return samples->size();
  };
}

}  // namespace

InstalledReaders OpenInstalled(const std::string& pin_dir,
                               const std::string& service) {
  netmeter_options c_options = NETMETER_OPTIONS_INIT;
  c_options.pin_dir = pin_dir.c_str();
  netmeter_meter* c_meter = nullptr;
  if (netmeter_open(&c_options, &c_meter, nullptr) != NETMETER_OK) return {};
  const std::shared_ptr<netmeter_meter> by_c(c_meter, netmeter_close);
  netmeter::MeterOptions options;
  options.pin_dir = pin_dir;
  auto opened = netmeter::Meter::Open(options);
  if (!opened.ok()) return {};
  const std::shared_ptr<const netmeter::Meter> by_cpp = *std::move(opened);
  using Samples = std::vector<netmeter::Sample>;
  return {ByC(by_c, service),
          ByC(by_c, ""),
          ByCpp<Samples>(by_cpp, service),
          ByCpp<Samples>(by_cpp, ""),
          ByCpp<netmeter::Rows>(by_cpp, service),
          ByCpp<netmeter::Rows>(by_cpp, "")};
}

}  // namespace netmeter_benchmark
