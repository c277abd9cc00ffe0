// SPDX-License-Identifier: BSD-3-Clause
// A configuration as text: to keep it with the meter, and to tell whether a
// load changes anything, and what.
//
// Threads: any.

#ifndef NETMETER_LIB_LOADER_SETTINGS_H_
#define NETMETER_LIB_LOADER_SETTINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/loader/config.h"

namespace netmeter {
namespace internal {

// Key and value of all that a configuration says, but for where it applies.
using SettingList = std::vector<std::pair<std::string, std::string>>;
SettingList SettingsOf(const Config& config);

// The configuration as a file for ParseConfig(), which reads the same from it:
// all keys, or only those that are not as in Config(), so that the next version
// of the loader may have other defaults; these without pin_dir and cgroup.
enum class Keys { kAll, kChanged };
// Config::sources are comments on top.
std::string ConfigAsYaml(const Config& config, Keys keys);

// Config::sources of a text that ConfigAsYaml() made.
std::vector<std::string> SourcesOf(absl::string_view yaml);

// "FILE: max_series, services": the keys whose values differ from those in
// `before`; "" if none does.
std::string SourceOfKeys(absl::string_view file, const Config& before,
                         const Config& after);

// "max_series 4096 to 8192, services": what is different, with the values where
// they are short. Settings that `before` lacks are left out: an older loader
// wrote it.
std::string DescribeChanges(const SettingList& before,
                            const SettingList& after);

// 64-bit FNV-1a, for nm_info.build_id and config_id: it tells versions apart,
// and is no protection against anybody who wants two to be the same.
uint64_t HashOf(absl::string_view bytes);

// Of the configuration and of what the host makes of it. Equal ids mean that a
// load of the same programs would change nothing.
uint64_t ConfigIdOf(const Config& config, uint64_t cgroup_id,
                    uint64_t host_bits);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_LOADER_SETTINGS_H_
