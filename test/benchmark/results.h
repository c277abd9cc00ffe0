// SPDX-License-Identifier: BSD-3-Clause
// What a benchmark measured, as JSON. A benchmark writes every sample that it
// took and judges nothing: medians, differences of pairs and verdicts are
// summary.py's work, so that each of them is computed in one place.
//
//   Results results("throughput");
//   results.Add("veth/tcp_stream", "empty", "bytes/s", Better::kMore, value);
//   results.Fact("seconds per phase", 0.5);
//   if (!results.WriteTo(path, &error)) ...
//
// Samples of one case and one unit are pairs: the n-th of each subject was
// taken in the n-th round. summary.py describes the file.

#ifndef NETMETER_TEST_BENCHMARK_RESULTS_H_
#define NETMETER_TEST_BENCHMARK_RESULTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace netmeter {
namespace internal {

enum class Better { kLess, kMore };

class Results {
 public:
  explicit Results(std::string benchmark) : benchmark_(std::move(benchmark)) {}

  // One sample of one subject.
  void Add(const std::string& test_case, const std::string& subject,
           const std::string& unit, Better better, double value);
  // What is counted or computed once: no sample has it.
  void Fact(const std::string& name, nlohmann::json value);
  // What this machine cannot measure, and why. Nothing is left out silently.
  void Skip(const std::string& test_case, const std::string& subject,
            const std::string& why);

  bool WriteTo(const std::string& path, std::string* error) const;

 private:
  struct Series {
    std::string test_case, subject, unit;
    Better better;
    std::vector<double> samples;
  };

  const std::string benchmark_;
  std::vector<Series> series_;
  nlohmann::json facts_ = nlohmann::json::object();
  nlohmann::json skipped_ = nlohmann::json::array();
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_BENCHMARK_RESULTS_H_
