// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/list/list.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/csv.h"
#include "lib/base/text.h"
#include "lib/base/unique_fd.h"
#include "lib/base/users.h"
#include "lib/reader/words.h"

namespace netmeter {
namespace internal {
namespace {

using nlohmann::json;

constexpr size_t kShortId = 12;
// Much more than a runtime writes.
constexpr size_t kMostBytes = 64 << 20;

// "" if it is no regular file or cannot be read.
std::string ReadRegularFile(const std::string& path) {
  // O_NONBLOCK, because a FIFO may have no writer.
  const UniqueFd fd(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat about;
  if (!fd.ok() || fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return "";
  }
  std::string text;
  char buffer[65536];
  ssize_t bytes;
  while (text.size() < kMostBytes &&
         (bytes = read(fd.get(), buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(bytes));
  }
  return text;
}

// The text of a member; "" if it is missing or no string.
std::string TextOf(const json& object, const char* member) {
  const auto found = object.find(member);
  return found != object.end() && found->is_string() ? found->get<std::string>()
                                                     : "";
}

void Add(const std::string& id, const std::string& name, ReadableNames* names) {
  if (id.size() >= kShortId && !name.empty()) {
    names->emplace(id.substr(0, kShortId), name);
  }
}

// Docker has a directory for each container, named by its id. The container's name
// begins with a slash.
void ReadDocker(const std::string& directory, ReadableNames* names) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(directory.c_str()),
                                                    closedir);
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries.get())) {
    const std::string id = entry->d_name;
    if (id.size() < kShortId) continue;
    const json config = json::parse(
        ReadRegularFile(directory + "/" + id + "/config.v2.json"), nullptr,
        /*allow_exceptions=*/false);
    if (!config.is_object()) continue;
    const std::string name = TextOf(config, "Name");
    Add(id, name.substr(name.find_first_not_of('/') == 1 ? 1 : 0), names);
  }
}

// containers/storage has one array for all containers of a storage driver.
void ReadStorage(const std::string& directory, ReadableNames* names) {
  for (const char* driver : {"overlay", "vfs", "btrfs", "zfs"}) {
    const json all = json::parse(ReadRegularFile(directory + "/" + driver +
                                                 "-containers/containers.json"),
                                 nullptr, /*allow_exceptions=*/false);
    if (!all.is_array()) continue;
    for (const json& one : all) {
      if (!one.is_object()) continue;
      const auto found = one.find("names");
      if (found == one.end() || !found->is_array() || found->empty()) continue;
      const json& name = found->front();
      if (name.is_string()) {
        Add(TextOf(one, "id"), name.get<std::string>(), names);
      }
    }
  }
}

}  // namespace

ReadableNames ReadContainerNames(const std::string& state) {
  ReadableNames names;
  ReadDocker(state + "/docker/containers", &names);
  ReadStorage(state + "/containers/storage", &names);
  return names;
}

namespace {

// The name of a machine of systemd, whose cgroup has "web\x2d1" for "web-1"
// (systemd.unit(5)).
std::string Unescape(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size(); i++) {
    uint32_t code = 0;
    if (name.compare(i, 2, "\\x") == 0 &&
        absl::SimpleHexAtoi(name.substr(i + 2, 2), &code)) {
      text += static_cast<char>(code);
      i += 3;
    } else {
      text += name[i];
    }
  }
  return text;
}

struct Readable {
  const char* field = nullptr;  // in JSON
  std::string name;             // empty if there is none
};

// The readable name of a container, a client, or a user.
Readable ReadableName(const Sample& sample, const ReadableNames& names) {
  if (sample.kind == Kind::kUser) return {"user_name", UserName(sample.name)};
  const bool is_client = sample.kind == kForwardedRow;
  if (sample.kind != Kind::kContainer && !is_client) return {};
  const char* const field = is_client ? "client_name" : "container_name";
  const auto found = names.find(is_client ? sample.destination : sample.name);
  if (found != names.end()) return {field, found->second};
  if (is_client) return {};
  const std::string unescaped = Unescape(sample.name);
  return {field, unescaped == sample.name ? "" : unescaped};
}

// "0123456789ab (web)"
std::string WithReadable(const std::string& name, const std::string& readable) {
  if (readable.empty()) return ToTerminal(name);
  return absl::StrCat(ToTerminal(name), " (", ToTerminal(readable), ")");
}

// The fields of TcpConnections; null if unknown.
nlohmann::ordered_json ToJson(const TcpConnections& tcp) {
  if (!tcp.known) return nullptr;
  return {{"opened", tcp.opened},
          {"accepted", tcp.accepted},
          {"closed", tcp.closed},
          {"failed", tcp.failed},
          {"rtt_us", tcp.rtt_us},
          {"rtt_buckets", tcp.rtt_buckets},
          {"resets_sent", tcp.resets_sent},
          {"resets_received", tcp.resets_received},
          {"timeouts", tcp.timeouts},
          {"retransmitted_segments", tcp.retransmitted_segments}};
}

nlohmann::ordered_json ToJson(const std::vector<Sample>& samples,
                              const ReadableNames& names,
                              bool lacks_forwarded) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Sample& sample : samples) {
    // The fields of Sample, under their names.
    array.push_back({{"kind", KindName(sample.kind)},
                     {"name", ToUtf8(sample.name)},
                     {"destination", ToUtf8(sample.destination)},
                     {"transport", TransportName(sample.transport)},
                     {"path", PathName(sample.path)},
                     {"uplink", ToUtf8(sample.uplink)},
                     {"registered", sample.registered},
                     {"tx_bytes", sample.tx_bytes},
                     {"rx_bytes", sample.rx_bytes},
                     {"tx_packets", sample.tx_packets},
                     {"rx_packets", sample.rx_packets},
                     {"tx_payload_bytes", sample.tx_payload_bytes},
                     {"rx_payload_bytes", sample.rx_payload_bytes},
                     {"tx_retransmit_bytes", sample.tx_retransmit_bytes},
                     {"tcp", ToJson(sample.tcp)}});
    nlohmann::ordered_json& row = array.back();
    const Readable readable = ReadableName(sample, names);
    if (!readable.name.empty()) row[readable.field] = ToUtf8(readable.name);
    if (lacks_forwarded && !sample.uplink.empty()) {
      row["sum_lacks"] = KindName(kForwardedRow);
    }
  }
  return array;
}

}  // namespace

std::string ShownName(const Sample& sample, const ReadableNames& names) {
  const bool is_client = sample.kind == kForwardedRow;
  return WithReadable(sample.name,
                      is_client ? "" : ReadableName(sample, names).name);
}

std::string ShownDestination(const Sample& sample, const ReadableNames& names) {
  if (sample.destination.empty()) return "-";
  const bool is_client = sample.kind == kForwardedRow;
  return WithReadable(sample.destination,
                      is_client ? ReadableName(sample, names).name : "");
}

bool HaveUplinks(const std::vector<Sample>& samples) {
  return std::any_of(samples.begin(), samples.end(),
                     [](const Sample& s) { return !s.uplink.empty(); });
}

std::string ShownUplink(const Sample& sample) {
  return sample.uplink.empty() ? "-" : ToTerminal(sample.uplink);
}

std::string FormatJson(const std::vector<Sample>& samples,
                       const ReadableNames& names, bool lacks_forwarded) {
  return ToJson(samples, names, lacks_forwarded).dump(2) + "\n";
}

std::string FormatCsv(const std::vector<Sample>& samples,
                      const ReadableNames& names, bool lacks_forwarded) {
  TcpConnections known;
  known.known = true;
  nlohmann::ordered_json columns = ToJson({Sample()}, {}, false)[0];
  columns.erase("tcp");
  columns.update(ToJson(known));
  columns.erase("rtt_buckets");
  for (const char* optional :
       {"container_name", "user_name", "sum_lacks", "client_name"}) {
    columns[optional] = nullptr;
  }
  std::string text;
  for (const auto& column : columns.items()) {
    absl::StrAppend(&text, text.empty() ? "" : ",", column.key());
  }
  for (nlohmann::ordered_json& row : ToJson(samples, names, lacks_forwarded)) {
    if (row["tcp"].is_object()) row.update(nlohmann::ordered_json(row["tcp"]));
    char before = '\n';
    for (const auto& column : columns.items()) {
      text += std::exchange(before, ',');
      const auto cell = row.find(column.key());
      if (cell == row.end()) continue;
      absl::StrAppend(&text,
                      cell->is_string()
                          ? CsvField(ToTerminal(cell->get<std::string>()))
                          : cell->dump());
    }
  }
  return text + "\n";
}

}  // namespace internal
}  // namespace netmeter
