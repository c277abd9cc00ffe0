// SPDX-License-Identifier: BSD-3-Clause
#include "test/benchmark/measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

namespace netmeter {
namespace internal {
namespace {

// As the results have them.
constexpr const char* kKeys[kSubjects] = {
    "empty", "socket table", "socket storage", "shared hash",
    "floor", "one uplink",   "four uplinks"};

const char* NameOf(int subject) {
  switch (subject) {
    case kEmpty:
      return "empty program, itself";
    case kTable:
      return "netmeter, socket table";
    case kStorage:
      return "netmeter, socket storage";
    case kFloor:
      return "floor: no checks, no guard";
    case kOneUplink:
      return "netmeter, one uplink";
    case kFourUplinks:
      return "netmeter, four uplinks";
    default:
      return "shared hash, 28-byte key";
  }
}

void Print(const std::string& title, const std::vector<Column>& columns) {
  std::printf("\n%s\n  %-26s", title.c_str(), "ns over the empty program");
  for (const Column& column : columns) {
    std::printf(" %8s", column.title.c_str());
  }
  std::printf("\n");
  for (int subject :
       {kTable, kOneUplink, kFourUplinks, kStorage, kHash, kFloor, kEmpty}) {
    std::printf("  %-26s", NameOf(subject));
    for (const Column& column : columns) {
      if (column.samples[subject].empty()) {
        std::printf(" %8s", "-");
      } else {
        std::printf(subject == kEmpty ? " %8.1f" : " %+8.1f",
                    column.Over(subject));
      }
    }
    std::printf("\n");
  }
  std::printf("  %-26s", "hash / socket table");
  for (const Column& column : columns) {
    const double table = column.Over(kTable);
    if (column.samples[kTable].empty() || table <= 0) {
      std::printf(" %8s", "-");
    } else {
      std::printf(" %7.1fx", column.Over(kHash) / table);
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

const char* KeyOf(int subject) { return kKeys[subject]; }

long Preemptions() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw + usage.ru_nvcsw;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

void Report(const Settings& settings, const std::string& way,
            const std::string& title, const std::vector<Column>& columns) {
  Print(title, columns);
  for (const Column& column : columns) {
    for (int subject = 0; subject < kSubjects; ++subject) {
      for (double sample : column.samples[subject]) {
        settings.results->Add(way + "/" + column.title, KeyOf(subject), "ns",
                              Better::kLess, sample);
      }
    }
  }
}

void ForEachRound(int rounds, const std::function<void(int)>& measure) {
  ForEachRound(rounds, kSubjects, measure);
}

}  // namespace internal
}  // namespace netmeter
