// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/results.h"

#include <algorithm>
#include <fstream>

namespace netmeter {
namespace internal {

void Results::Add(const std::string& test_case, const std::string& subject,
                  const std::string& unit, Better better, double value) {
  auto found =
      std::find_if(series_.begin(), series_.end(), [&](const Series& series) {
        return series.test_case == test_case && series.subject == subject &&
               series.unit == unit;
      });
  if (found == series_.end()) {
    series_.push_back({test_case, subject, unit, better, {}});
    found = series_.end() - 1;
  }
  found->samples.push_back(value);
}

void Results::Fact(const std::string& name, nlohmann::json value) {
  facts_[name] = std::move(value);
}

void Results::Skip(const std::string& test_case, const std::string& subject,
                   const std::string& why) {
  nlohmann::json skipped = {
      {"case", test_case}, {"subject", subject}, {"why", why}};
  for (const auto& known : skipped_) {
    if (known == skipped) return;
  }
  skipped_.push_back(std::move(skipped));
}

bool Results::WriteTo(const std::string& path, std::string* error) const {
  nlohmann::json all = {{"benchmark", benchmark_},
                        {"facts", facts_},
                        {"skipped", skipped_},
                        {"series", nlohmann::json::array()}};
  for (const Series& series : series_) {
    all["series"].push_back(
        {{"case", series.test_case},
         {"subject", series.subject},
         {"unit", series.unit},
         {"better", series.better == Better::kLess ? "less" : "more"},
         {"samples", series.samples}});
  }
  std::ofstream file(path, std::ios::trunc);
  file << all.dump() << "\n";
  file.close();
  if (file.good()) return true;
  *error = "write " + path;
  return false;
}

}  // namespace internal
}  // namespace netmeter
