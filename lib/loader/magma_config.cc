// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/magma_config.h"

#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/loader/config_text.h"

namespace netmeter {
namespace internal {
namespace {

// Magma reads its configuration from two directories: the files of the package,
// and overrides that the cloud or the operator wrote, which replace whole keys
// of the top level. What is read here is what its own services would see.

// Thrown within this file only.
class BadValue : public std::exception {
 public:
  explicit BadValue(std::string text) : text_(OneLine(std::move(text))) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// The top-level map of a file and its override; empty where there is neither.
struct Merged {
  // Not a YAML::Node, which looks at one key after the other.
  std::map<std::string, YAML::Node> map;
  std::map<std::string, std::string> paths;  // key: the file that it is from
  bool found = false;
};

// The value of a top-level key; one that is not defined where the key is missing.
YAML::Node Find(const Merged& file, const std::string& key) {
  const auto found = file.map.find(key);
  return found == file.map.end() ? YAML::Node(YAML::NodeType::Undefined)
                                 : found->second;
}

// "PATH:LINE", of a node below a top-level key.
std::string Place(const Merged& file, const std::string& key,
                  const YAML::Node& node) {
  return absl::StrCat(file.paths.at(key), ":", node.Mark().line + 1);
}

// Magma's own reader takes in what a merge key refers to; yaml-cpp has it as a key of
// that name, and what it refers to would be missing.
void RefuseMerge(const std::string& path, const YAML::Node& key) {
  if (key.Scalar() != "<<" || key.Tag() == "!") return;
  throw BadValue(absl::StrCat(path, ":", key.Mark().line + 1,
                              ": a merge key (<<): write its keys out"));
}

Merged LoadMerged(const std::string& directory, const std::string& overrides,
                  const std::string& name) {
  Merged merged;
  for (const std::string& dir : {directory, overrides}) {
    if (dir.empty()) continue;
    const std::string path = absl::StrCat(dir, "/", name);
    // A directory that is not there is as one without the file.
    if (access(path.c_str(), F_OK) != 0 &&
        (errno == ENOENT || errno == ENOTDIR)) {
      struct stat link = {};
      if (lstat(path.c_str(), &link) == 0) {
        throw BadValue(absl::StrCat(
            path, ": is a symbolic link to a file that is missing"));
      }
      continue;
    }
    const absl::StatusOr<std::string> text = ReadConfigFile(path);
    if (!text.ok()) throw BadValue(std::string(text.status().message()));
    YAML::Node file;
    try {
      file = YAML::Load(*text);
      const int second = LineOfSecondDocument(*text);
      if (second != 0) {
        throw BadValue(absl::StrCat(path, ":", second,
                                    ": a second document: expected one map"));
      }
    } catch (const YAML::Exception& error) {
      throw BadValue(absl::StrCat(path, ":", error.mark.line + 1, ": ",
                                  WhyNoYaml(*text, error)));
    }
    merged.found = true;
    if (file.IsNull()) continue;
    if (!file.IsMap()) {
      throw BadValue(
          absl::StrCat(path, ":", file.Mark().line + 1, ": expected a map"));
    }
    // Of a key that is there twice the last one counts, as in Magma's own reader.
    for (const auto& item : file) {
      if (!item.first.IsScalar()) {
        throw BadValue(absl::StrCat(path, ":", item.first.Mark().line + 1,
                                    ": expected key: value lines"));
      }
      RefuseMerge(path, item.first);
      // Not "=", which makes the same of the old value, wherever that is referred to.
      merged.map[item.first.Scalar()].reset(item.second);
      merged.paths[item.first.Scalar()] = path;
    }
  }
  return merged;
}

std::string Text(const Merged& file, const char* key) {
  const YAML::Node value = Find(file, key);
  if (!value || value.IsNull()) return "";
  if (!value.IsScalar()) {
    throw BadValue(absl::StrCat(Place(file, key, value), ": ", key,
                                ": expected one value"));
  }
  return value.Scalar();
}

uint16_t Port(const Merged& file, const char* key) {
  const std::string text = Text(file, key);
  uint32_t port = 0;
  if (text.empty()) return 0;
  if (!absl::SimpleAtoi(text, &port) || port < 1 || port > 65535) {
    throw BadValue(absl::StrCat(Place(file, key, Find(file, key)), ": ", key,
                                ": '", text.substr(0, 64), "' is no port"));
  }
  return static_cast<uint16_t>(port);
}

template <typename T>
void AddOnce(std::vector<T>* values, const T& value) {
  if (std::find(values->begin(), values->end(), value) == values->end()) {
    values->push_back(value);
  }
}

// Collects Config::sources, by file, in the order of the files.
class Sources {
 public:
  void Add(const std::string& file, const std::string& key,
           const std::vector<std::string>& values) {
    if (values.empty()) return;
    for (auto& source : sources_) {
      if (source.first == file) {
        source.second.push_back(Describe(key, values));
        return;
      }
    }
    sources_.push_back({file, {Describe(key, values)}});
  }

  void MoveTo(Config* config) const {
    for (const auto& source : sources_) {
      config->sources.push_back(
          absl::StrCat(source.first, ": ", absl::StrJoin(source.second, "; ")));
    }
  }

 private:
  static std::string Describe(const std::string& key,
                              const std::vector<std::string>& values) {
    return absl::StrCat(key, " ", absl::StrJoin(values, ", "));
  }

  std::vector<std::pair<std::string, std::vector<std::string>>> sources_;
};

// In Config::sources, what is in no file.
constexpr char kBuiltIn[] = "libnetmeter, of Magma's programs";

// Executables that have another name than their service. The MME is no Python
// service: its executable is oai_mme, or agw_of where it was built by Bazel. FeG
// and CWF call the program of their service health gateway_health.
constexpr const char* kAliases[][2] = {
    {"oai_mme", "mme"}, {"agw_of", "mme"}, {"gateway_health", "health"}};

void ImportServices(const Merged& registry, Config* config, Sources* sources) {
  const YAML::Node services = Find(registry, "services");
  if (services && !services.IsNull() && !services.IsMap()) {
    throw BadValue(absl::StrCat(Place(registry, "services", services),
                                ": services: expected a map"));
  }
  if (services && services.IsMap()) {
    std::vector<std::string> names;
    for (const auto& service : services) {
      const std::string place = Place(registry, "services", service.first);
      if (!service.first.IsScalar()) {
        throw BadValue(absl::StrCat(place, ": services: expected names"));
      }
      RefuseMerge(registry.paths.at("services"), service.first);
      const std::string name = service.first.Scalar();
      const std::string reason = WhyNoExecutable(name);
      if (!reason.empty()) {
        throw BadValue(absl::StrCat(place, ": services: ", reason));
      }
      // Here, too: each is looked for among the others.
      if (names.size() == kMaxExecutables) {
        throw BadValue(
            absl::StrCat(place, ": services: at most ", kMaxExecutables));
      }
      AddOnce(&config->services, name);
      names.push_back(name);
    }
    sources->Add(registry.paths.at("services"), "services", names);
  }
  // The registry has no entry for sctpd, and for parts of the MME only.
  for (const char* name : {"mme", "sctpd"}) {
    AddOnce(&config->services, std::string(name));
  }
  sources->Add(kBuiltIn, "services", {"mme", "sctpd"});
  std::vector<std::string> aliases;
  for (const auto& alias : kAliases) {
    if (config->aliases.emplace(alias[0], alias[1]).second) {
      aliases.push_back(absl::StrCat(alias[0], "=", alias[1]));
    }
  }
  sources->Add(kBuiltIn, "aliases", aliases);
}

// There is no rule for the fluentd_port of the file, but SNI is looked for there. Where
// it is 443, as the other ports in Magma's deployment guide, a rule would take what
// bootstrapper and streamer send.
void ImportProxy(const Merged& proxy, Config* config, Sources* sources) {
  if (const uint16_t port = Port(proxy, "local_port")) {
    if (!config->proxy_ports_given) config->proxy_ports.clear();
    AddOnce(&config->proxy_ports, port);
    sources->Add(proxy.paths.at("local_port"), "proxy_ports",
                 {absl::StrCat(port)});
  }
  uint16_t before = 0;
  for (const char* key : {"cloud_port", "bootstrap_port", "fluentd_port"}) {
    const uint16_t port = Port(proxy, key);
    if (port == 0 || port == before) continue;
    AddOnce(&config->sni_ports, port);
    sources->Add(proxy.paths.at(key), "sni_ports", {absl::StrCat(port)});
    before = port;
  }
  // A service calls "streamer-<cloud_address>". In front of the others, as the
  // first suffix that fits is the one that is taken off.
  std::string cloud = Text(proxy, "cloud_address");
  // The dot of the root, which is taken off the names that are compared with it.
  if (!cloud.empty() && cloud.back() == '.') cloud.pop_back();
  if (cloud.empty()) return;
  const std::string place =
      Place(proxy, "cloud_address", Find(proxy, "cloud_address"));
  if (cloud.find_first_of(":/ ") != std::string::npos) {
    throw BadValue(absl::StrCat(place, ": cloud_address: ", Quote(cloud),
                                ": expected a host, without a port"));
  }
  const std::string reason = WhyNoSuffix(absl::StrCat("-", cloud));
  if (!reason.empty()) {
    throw BadValue(absl::StrCat(place, ": cloud_address: ", reason));
  }
  config->destination_suffixes.insert(config->destination_suffixes.begin(),
                                      absl::StrCat("-", cloud));
  sources->Add(proxy.paths.at("cloud_address"), "destination_suffixes",
               {absl::StrCat("-", cloud)});
}

}  // namespace

absl::StatusOr<Config> ImportMagmaConfig(const std::string& directory,
                                         const std::string& overrides,
                                         const Config& config) {
  Config result = config;
  try {
    const Merged registry =
        LoadMerged(directory, overrides, "service_registry.yml");
    const Merged proxy = LoadMerged(directory, overrides, "control_proxy.yml");
    if (!registry.found && !proxy.found) {
      return absl::NotFoundError(absl::StrCat(
          directory,
          " holds neither service_registry.yml nor control_proxy.yml"));
    }
    // A file that was cut short when it was written, as on a full disk, would take all
    // names away in silence.
    const YAML::Node services = Find(registry, "services");
    if (registry.found && (!services || services.IsNull())) {
      throw BadValue(
          absl::StrCat(directory, "/service_registry.yml: has no services"));
    }
    if (proxy.found && proxy.map.empty()) {
      throw BadValue(absl::StrCat(directory, "/control_proxy.yml: is empty"));
    }
    // Without the registry, most of Magma's services keep the names of their programs.
    const auto note_missing = [&](const Merged& file, const char* name) {
      if (file.found) return;
      result.sources.push_back(
          absl::StrCat(directory, "/", name, ": does not exist"));
    };
    note_missing(registry, "service_registry.yml");
    note_missing(proxy, "control_proxy.yml");
    Sources sources;
    ImportServices(registry, &result, &sources);
    ImportProxy(proxy, &result, &sources);
    sources.MoveTo(&result);
  } catch (const BadValue& error) {
    return absl::InvalidArgumentError(error.what());
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        OneLine(absl::StrCat(directory, ": ", error.msg)));
  }
  absl::Status status = CheckConfig(result);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, ": ", status.message()));
  }
  return result;
}

}  // namespace internal
}  // namespace netmeter
