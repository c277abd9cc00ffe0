// SPDX-License-Identifier: BSD-3-Clause
// netmeter-loader: the one privileged program. Puts the kernel part in place
// and exits.
//
// This file is the command line and nothing else. Each subcommand has a function that
// declares its options (AddLoad() and so on), one that runs it, and a text that follows
// its options in --help. All values go into one struct Options. FindWrongUse() has the
// checks that need more than one option.

#include <linux/capability.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lib/base/cgroup.h"
#include "lib/base/flags.h"
#include "lib/base/libbpf_log.h"
#include "lib/base/path.h"
#include "lib/base/prepare_process.h"
#include "lib/base/privileges.h"
#include "lib/base/standard_output.h"
#include "lib/base/status_util.h"
#include "lib/base/text.h"
#include "lib/base/users.h"
#include "lib/base/version.h"
#include "lib/evict/evict.h"
#include "lib/loader/config.h"
#include "lib/loader/load.h"
#include "lib/loader/status.h"
#include "lib/loader/trace.h"
#include "lib/loader/unload.h"
#include "lib/netlink/interfaces.h"
#include "lib/netlink/not_counted.h"
#include "lib/netlink/routes.h"

namespace netmeter {
namespace internal {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kNotLoaded = 3;  // of `status`, as in the LSB
constexpr int kDamaged = 4;

constexpr char kDescription[] =
    R"(Loads libnetmeter's BPF programs, which count the bytes that each service of
this host sends and receives, by destination. It exits; the programs stay
until `unload` or a reboot.)";

constexpr char kExitStatus[] =
    R"(Exit status: 0 done; 1 failed, one line on stderr says why; 2 wrong usage;
evict and status: 3 not loaded; status: 4 damaged.)";

constexpr char kEpilog[] =
    R"(Examples:
  netmeter-loader check                    is /etc/netmeter.yml right?
  netmeter-loader load                     the whole host, with that file if it
                                           exists
  netmeter-loader load --config FILE       with names, ports and destinations
  netmeter-loader load --max-series 8192   keeps all other settings
  netmeter-loader status --json            for programs
  netmeter-loader unload                   removes programs and counters
  netmeter-loader load --help              options and configuration of load

Needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN), kernel 5.10
or newer with BTF (or load --btf), and cgroup v2.

)";

constexpr char kLoadEpilog[] =
    R"(An option changes its setting; all others stay as they are loaded (see
status --config). --config and --defaults replace all settings except the
cgroup. Without both, a load reads /etc/netmeter.yml, unless it has another
--pin-dir, or only changes options of a loaded meter. If half of the series or
names is in use, a load also does what `evict --full 50` does, so a load every
hour needs no other timer.

Configuration (YAML, all keys optional, defaults shown):
)";

constexpr char kLoadExitStatus[] =
    R"(
Exit status: 0 loaded, upgraded, or nothing to do; 1 failed, one line on stderr
says why, and the present state; 2 wrong usage.)";

constexpr char kCheckEpilog[] =
    R"(Prints the keys whose values are not the defaults; a hash, which netmeter_config_info
and status have when this configuration is loaded, on each host; and notes: on settings without
effect, such as a rule behind one that matches all of its packets, and on uplinks that
count nothing on this host now, such as one without an interface. Without uplinks it
offers one for the default route. Needs no root.

Exit status: 0 no errors; 1 one line on stderr has the error and its line; 2 wrong
usage.)";

constexpr char kUnloadEpilog[] =
    R"(Open readers notice the unload. It is no error if nothing is loaded.

Exit status: 0 unloaded, or nothing to do; 1 failed, one line on stderr says why,
and whether a part of the meter is left; 2 wrong usage.)";

constexpr char kEvictEpilog[] =
    R"(Moves the counts of idle series into series of kind evicted, to the byte, and
forgets unused names. A series is idle if no process and no socket uses it, and it
has counted nothing for --idle seconds. Packets and readers continue meanwhile.
For a timer: evict --idle 3600 --full 50 -q

Fails from Linux 7.0 on, which could crash. With -q that is a note.

Exit status: 0 done, or nothing to do; 1 failed, one line on stderr says why; 2
wrong usage; 3 not loaded.)";

constexpr char kStatusEpilog[] =
    R"(adds            how packets add to the cell of their CPU on this kernel: plain,
                claimed (one atomic exchange per packet) or atomic
optional parts  on, or why not
tables          how full they are, without reserved entries
misattributed   traffic that was counted, but not under its own name
seen            events that lose nothing

Exit status: 0 loaded; 1 failed, one line on stderr says why; 2 wrong usage;
3 not loaded; 4 damaged: the output has the command for the repair.)";

int Fail(const absl::Status& status, int exit_status = kFailed) {
  std::fprintf(stderr, "netmeter-loader: %s\n",
               ToTerminal(std::string(status.message())).c_str());
  return exit_status;
}

// All that goes to standard output; the exit status.
int Print(absl::string_view text) {
  const absl::Status written = WriteToStandardOutput(text);
  if (written.ok()) return 0;
  return absl::IsCancelled(written) ? kFailed : Fail(written);
}

// Prints what was done. It is no failure if standard output is closed. `now` is for
// callers whose standard output fails.
int Report(absl::string_view text, absl::string_view now) {
  const absl::Status written = WriteToStandardOutput(text, now);
  return written.ok() || absl::IsCancelled(written) ? 0 : Fail(written);
}

int WrongUsage(const std::string& message) {
  return Fail(absl::InvalidArgumentError(message + " (see --help)"), kUsage);
}

// For an option that is also a key of the configuration.
std::function<std::string(const std::string&)> ValueOf(const char* key) {
  return [=](const std::string& text) { return WhyNotValue(key, text); };
}

struct FileConfig {
  Config config;
  std::string file;  // that was read; "": none
};

// The group, the users and the cgroup that a configuration names exist. NotFound, with
// the key, if one does not.
absl::Status CheckOnHost(const Config& config) {
  if (config.group_required) {
    const absl::StatusOr<gid_t> group = FindGroup(config.group);
    if (!group.ok()) {
      return absl::NotFoundError(
          absl::StrCat("group: ", group.status().message()));
    }
  }
  NETMETER_RETURN_IF_ERROR(FindRegistrants(config.register_by).status());
  if (config.cgroup.empty()) return absl::OkStatus();
  return OpenCgroup(CanonicalPath(config.cgroup)).status();
}

// The defaults, and what the file changes; "": no file. The errors of ParseConfig()
// and of CheckOnHost().
absl::StatusOr<FileConfig> ReadConfig(const std::string& path) {
  FileConfig all;
  if (path.empty()) return all;
  NETMETER_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  NETMETER_ASSIGN_OR_RETURN(Config read,
                            ParseConfig(text, path, all.config, CheckOnHost));
  const std::string source =
      SourceOfKeys(CanonicalPath(path), all.config, read);
  all.config = std::move(read);
  if (!source.empty()) all.config.sources.push_back(source);
  all.file = path;
  return all;
}

// The settings that have no effect, and what of the uplinks counts nothing on this host
// now, a line each.
std::vector<std::string> NotesOn(const Config& config) {
  std::vector<std::string> notes = WhatHasNoEffect(config);
  for (const std::string& name : config.forwarded_clients) {
    if (name != kOtherUplink && config.uplinks.count(name) == 0) {
      notes.push_back(
          absl::StrCat("forwarded_clients: ", name, ": no such uplink"));
    }
  }
  if (config.uplinks.empty()) return notes;
  const absl::StatusOr<std::vector<Interface>> interfaces = ListInterfaces();
  if (!interfaces.ok()) return notes;  // the load says why
  for (const NotCounted& one : FindNotCounted(config.uplinks, *interfaces)) {
    notes.push_back(NoteOf(one));
  }
  return notes;
}

// A line of the configuration for a host without uplinks; "" if it has some, or no
// default route. Only an offer: what is paid for need not be the default route.
std::string OfferUplinks(const Config& config) {
  const auto interfaces = ListInterfaces();
  const auto indexes = FindDefaultRoute();
  if (!config.uplinks.empty() || !interfaces.ok() || !indexes.ok()) return "";
  std::vector<std::string> names;
  for (const uint32_t index : *indexes) {
    for (const Interface& one : *interfaces) {
      if (one.index == index) names.push_back(ShellWord(one.name));
    }
  }
  if (names.empty()) return "";
  return absl::StrCat("no uplinks; the default route goes by ",
                      absl::StrJoin(names, " and "), ": uplinks: {wan: [",
                      absl::StrJoin(names, ", "), "]} counts its bill");
}

std::string NotesAsText(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) {
    absl::StrAppend(&text, "netmeter-loader: note: ", note, "\n");
  }
  return text;
}

int RunLoad(const std::string& pin_dir, const ConfigChange& change,
            bool replaces, bool restart, const FileConfig& file, bool quiet) {
  SignalsBlocked blocked;
  Config changed;
  absl::StatusOr<LoadResult> result = Load(
      pin_dir,
      [&](Config* config) {
        change(config);
        changed = *config;
      },
      replaces, restart);
  if (!result.ok()) return Fail(result.status());
  if (result->action != LoadResult::Action::kLoaded) {
    const std::string note = EvictAfterLoad(pin_dir);
    if (!note.empty()) result->notes.push_back(note);
  }
  if (quiet) return 0;
  constexpr const char* kActions[] = {"loaded", "upgraded, counters kept",
                                      "already loaded, nothing to do"};
  const char* const action = kActions[static_cast<size_t>(result->action)];
  std::string text = absl::StrCat("netmeter-loader: ", pin_dir, ": ", action,
                                  ", for cgroup ", result->cgroup);
  if (!file.file.empty()) {
    absl::StrAppend(&text, ", from ", ToTerminal(file.file));
  }
  absl::StrAppend(&text, "\n", NotesAsText(result->notes),
                  NotesAsText(NotesOn(changed)));
  return Report(text, "the meter is loaded");
}

int RunCheck(const std::string& path) {
  const absl::StatusOr<FileConfig> file = ReadConfig(path);
  if (!file.ok()) return Fail(file.status());
  const Config& config = file->config;
  std::string keys = SourceOfKeys("", Config(), config, Keys::kAll);
  if (keys.empty()) keys = ": only defaults";
  std::vector<std::string> notes = NotesOn(config);
  const std::string offer = OfferUplinks(config);
  if (!offer.empty()) notes.push_back(offer);
  return Print(absl::StrCat("netmeter-loader: ", ToTerminal(path),
                            ": no errors", keys, "; hash ",
                            absl::Hex(HashOfConfig(config), absl::kZeroPad16),
                            "\n", NotesAsText(notes)));
}

int RunUnload(const std::string& pin_dir, bool quiet) {
  bool was_loaded = false;
  std::string note;
  SignalsBlocked blocked;
  absl::Status status = Unload(pin_dir, &was_loaded, &note);
  if (!status.ok()) return Fail(status);
  int exit_status = 0;
  if (!quiet) {
    exit_status = Report(
        absl::StrCat("netmeter-loader: ", pin_dir, ": ",
                     was_loaded ? "unloaded" : "was not loaded, nothing to do",
                     "\n"),
        "no meter is loaded");
  }
  if (!note.empty()) {
    std::fprintf(stderr, "netmeter-loader: note: %s\n",
                 ToTerminal(note).c_str());
  }
  return exit_status;
}

int RunEvict(const EvictOptions& options, bool quiet) {
  SignalsBlocked blocked;
  const absl::StatusOr<EvictResult> result = Evict(options);
  if (quiet && absl::IsUnimplemented(result.status())) {
    // The timer would fail every five minutes on a kernel that cannot do it.
    std::fprintf(stderr, "netmeter-loader: note: %s\n",
                 ToTerminal(std::string(result.status().message())).c_str());
    return 0;
  }
  if (!result.ok()) {
    return Fail(result.status(),
                absl::IsNotFound(result.status()) ? kNotLoaded : kFailed);
  }
  if (quiet) return 0;
  const std::string done =
      result->needed ? absl::StrCat("evicted ", result->series, " series and ",
                                    result->names, " names")
                     : "nothing to do";
  return Report(
      absl::StrCat("netmeter-loader: ", options.pin_dir, ": ", done,
                   "; in use: ", result->series_used, " of ",
                   result->series_limit, " series, ", result->names_used,
                   " of ", result->names_limit, " names\n"),
      "it has evicted what it could");
}

int RunStatusConfig(const std::string& pin_dir) {
  absl::StatusOr<std::string> yaml = LoadedConfig(pin_dir);
  if (!yaml.ok()) {
    return Fail(yaml.status(),
                absl::IsNotFound(yaml.status()) ? kNotLoaded : kFailed);
  }
  return Print(*yaml);
}

int RunStatus(const std::string& pin_dir, bool json) {
  absl::StatusOr<MeterStatus> status = GetStatus(pin_dir);
  if (!status.ok()) return Fail(status.status());
  const int printed =
      Print(json ? StatusAsJson(*status) : StatusAsText(*status));
  if (printed != 0) return printed;
  return status->state == MeterState::kLoaded      ? 0
         : status->state == MeterState::kNotLoaded ? kNotLoaded
                                                   : kDamaged;
}

// --- Options -----------------------------------------------------------------

// What the command line says. An option that was not given leaves the value of
// the configuration files, or the default: WasGiven() asks the parser.
struct Options {
  std::string pin_dir;
  bool verbose = false;
  bool quiet = false;
  bool json = false;
  bool show_config = false;  // status
  // load
  bool defaults = false;
  bool restart = false;
  std::string config_file;
  std::string cgroup;
  std::string group;
  std::string btf;
  uint32_t max_series = 0;
  uint32_t max_names = 0;
  // check
  std::string checked_file = kDefaultConfig;
  // evict
  EvictOptions evict;
};

void AddPinDir(Flags* command, Options* options) {
  command
      ->AddOption("--pin-dir", &options->pin_dir,
                  "Where the maps are pinned (default /run/netmeter)")
      .Type("DIR");
}

void AddQuietAndVerbose(Flags* command, const char* verbose, Options* options) {
  const Option quiet =
      command->AddFlag("-q,--quiet", &options->quiet, "Print errors only");
  command->AddFlag("-v,--verbose", &options->verbose, verbose).Excludes(quiet);
}

Flags* AddLoad(Flags* flags, Options* options) {
  Flags* const load = flags->AddCommand(
      "load", "Load the programs, or upgrade them; counters are kept");
  AddPinDir(load, options);
  load->AddOption(
          "--cgroup", &options->cgroup,
          "Count this cgroup v2 directory and all below (default: that of\n"
          "the loaded meter, else the root)")
      .Type("DIR");
  const Option config =
      load->AddOption(
              "--config", &options->config_file,
              "YAML file, see below; replaces the loaded settings (default\n"
              "/etc/netmeter.yml, if it exists)")
          .Type("FILE");
  load->AddFlag("--defaults", &options->defaults,
                "Start from the defaults, not from a file or the loaded meter")
      .Excludes(config);
  load->AddOption(
          "--group", &options->group,
          "Group that may read, name or id (default netmeter; '': none)")
      .Type("GROUP");
  load->AddOption("--btf", &options->btf,
                  "Types of this kernel, if it has no /sys/kernel/btf/vmlinux")
      .Type("FILE");
  load->AddOption("--max-series", &options->max_series,
                  "Slots for series (default 4096)")
      .Check(ValueOf("max_series"))
      .Type("N");
  load->AddOption("--max-names", &options->max_names,
                  "Slots for names (default 4096)")
      .Check(ValueOf("max_names"))
      .Type("N");
  load->AddFlag("--restart", &options->restart,
                "Make a new meter, for other sizes or another layout, and "
                "unload the\nold one: counters start at 0");
  AddQuietAndVerbose(
      load, "Print each step, with its time, and libbpf's messages on stderr",
      options);
  load->SetFooter(absl::StrCat(kLoadEpilog, ConfigHelp(), kLoadExitStatus));
  return load;
}

Flags* AddCheck(Flags* flags, Options* options) {
  Flags* const check =
      flags->AddCommand("check", "Check a configuration without loading it");
  check
      ->AddOption("file,--config", &options->checked_file,
                  "YAML file, as for load --config (default "
                  "/etc/netmeter.yml)")
      .Type("FILE");
  check->SetFooter(kCheckEpilog);
  return check;
}

Flags* AddUnload(Flags* flags, Options* options) {
  Flags* const unload =
      flags->AddCommand("unload", "Detach, unpin, unmount; counters are lost");
  AddPinDir(unload, options);
  AddQuietAndVerbose(unload, "Print each step, with its time, on stderr",
                     options);
  unload->SetFooter(kUnloadEpilog);
  return unload;
}

Flags* AddEvict(Flags* flags, Options* options) {
  Flags* const evict =
      flags->AddCommand("evict", "Free the slots of idle series and names");
  AddPinDir(evict, options);
  evict
      ->AddOption(
          "--idle", &options->evict.idle_seconds,
          "Only series that have counted nothing for this time, as seen by\n"
          "calls of evict (default 3600); 0: as seen by this call")
      .InRange(0, 365 * 86400, Option::InHelp::kNo)
      .Type("SECONDS");
  evict
      ->AddOption(
          "--full", &options->evict.full_percent,
          "Only if this part of the series, or of the names, is in use\n"
          "(default 0)")
      .InRange(0, 100, Option::InHelp::kNo)
      .Type("PERCENT");
  AddQuietAndVerbose(evict, "Print each step, with its time, on stderr",
                     options);
  evict->SetFooter(kEvictEpilog);
  return evict;
}

Flags* AddStatus(Flags* flags, Options* options) {
  Flags* const status = flags->AddCommand(
      "status", "Show the loaded meter, its active parts and losses");
  AddPinDir(status, options);
  const Option json =
      status->AddFlag("--json", &options->json, "One JSON object");
  status
      ->AddFlag("--config", &options->show_config,
                "The loaded configuration, as a file for load --config, with\n"
                "the files that it came from (needs root)")
      .Excludes(json);
  status->SetFooter(kStatusEpilog);
  return status;
}

// What is wrong with the options of this command beyond what the parser checks;
// "" if nothing is.
std::string FindWrongUse(const Flags* command, const Options& options) {
  // An unset variable in quotes must not mean the default: the whole host.
  const std::string empty = command->FirstGivenEmpty(/*except=*/"--group");
  if (!empty.empty()) return empty + ": expected a path, not ''";
  // A meter would be at a path relative to this shell, and no reader would look there.
  if (command->name() == "load" && command->WasGiven("--pin-dir") &&
      options.pin_dir[0] != '/') {
    return "--pin-dir: expected an absolute path, not '" + options.pin_dir +
           "'";
  }
  return "";
}

// The file that this load reads: that of --config, or the default one, which is there for
// the default meter alone. Of options that change a loaded meter all else stays.
std::string FindConfigFile(const Flags* load, const Options& options) {
  const std::string pin_dir = Config().pin_dir;
  if (!options.config_file.empty()) return options.config_file;
  if (options.defaults ||
      (!options.pin_dir.empty() &&
       CanonicalPath(options.pin_dir) != CanonicalPath(pin_dir)) ||
      (access(kDefaultConfig, F_OK) != 0 && errno == ENOENT)) {
    return "";
  }
  bool changes = false;
  for (const char* name :
       {"--cgroup", "--group", "--btf", "--max-series", "--max-names"}) {
    changes |= load->WasGiven(name);
  }
  if (changes &&
      !absl::IsNotFound(LoadedConfig(CanonicalPath(pin_dir)).status())) {
    return "";
  }
  return kDefaultConfig;
}

void ApplyLoadOptions(const Flags* load, const Options& options,
                      Config* config) {
  const Config before = *config;
  if (load->WasGiven("--cgroup")) {
    config->cgroup = CanonicalPath(options.cgroup);
  }
  if (load->WasGiven("--group")) {
    config->group = options.group;
    config->group_required = !options.group.empty();
  }
  if (load->WasGiven("--btf")) config->btf = CanonicalPath(options.btf);
  if (load->WasGiven("--max-series")) config->max_series = options.max_series;
  if (load->WasGiven("--max-names")) config->max_names = options.max_names;
  const std::string source = SourceOfKeys("the command line", before, *config);
  std::vector<std::string>& sources = config->sources;
  if (!source.empty() &&
      std::find(sources.begin(), sources.end(), source) == sources.end()) {
    sources.push_back(source);
  }
}

// Each with the time since the program began to work, in milliseconds.
void PrintTrace() {
  PrintLibbpfMessages(true);
  const auto begin = std::chrono::steady_clock::now();
  TraceObserver() = [begin](const std::string& step) {
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "netmeter-loader: %7.1f ms  %s\n", elapsed.count(),
                 ToTerminal(step).c_str());
  };
}

// Drops the rights that the command does not need, before it reads anything that another
// user wrote.
absl::Status DropUnneededPrivileges(const std::string& command) {
  if (command == "load" || command == "unload" || command == "evict") {
    return DropPrivileges({CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN,
                           CAP_SYS_PTRACE, CAP_SYS_RESOURCE, CAP_DAC_OVERRIDE,
                           CAP_DAC_READ_SEARCH, CAP_CHOWN, CAP_FOWNER});
  }
  return DropPrivileges({CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN,
                         CAP_DAC_READ_SEARCH});
}

int Main(int argc, char** argv) {
  PrepareProcess();
  const std::string wrong =
      CheckCommand(argc, argv, "netmeter-loader",
                   {"load", "check", "unload", "evict", "status"});
  if (!wrong.empty()) return WrongUsage(wrong);

  Flags flags(kDescription, "netmeter-loader");
  flags.AddVersion(std::string("netmeter-loader ") + kVersion);
  flags.SetColumnWidth(34);
  flags.SetFooter(std::string(kEpilog) + kExitStatus);
  Options options;
  const Flags* const load = AddLoad(&flags, &options);
  const Flags* const check = AddCheck(&flags, &options);
  const Flags* const unload = AddUnload(&flags, &options);
  const Flags* const evict = AddEvict(&flags, &options);
  const Flags* const status = AddStatus(&flags, &options);
  std::string help;
  const absl::Status parsed = flags.Parse(argc, argv, &help);
  if (!parsed.ok()) return WrongUsage(std::string(parsed.message()));
  if (!help.empty()) return Print(help);
  const Flags* const command = flags.command();
  const std::string misuse = FindWrongUse(command, options);
  if (!misuse.empty()) return WrongUsage(misuse);
  const absl::Status dropped = DropUnneededPrivileges(command->name());
  if (!dropped.ok()) return Fail(dropped);
  if (options.verbose) PrintTrace();

  if (command == check) return RunCheck(options.checked_file);
  Config config;
  FileConfig file;
  if (command == load) {
    absl::StatusOr<FileConfig> read = ReadConfig(FindConfigFile(load, options));
    if (!read.ok()) return Fail(WithState(read.status(), kNothingWasChanged));
    file = *std::move(read);
    config = file.config;
    ApplyLoadOptions(load, options, &config);
  }
  if (!options.pin_dir.empty()) {
    config.pin_dir = CanonicalPath(options.pin_dir);
  }
  // The files' values were checked: these are the options'.
  const absl::Status checked = CheckConfig(config);
  if (!checked.ok()) return WrongUsage(std::string(checked.message()));
  config.pin_dir = CanonicalPath(config.pin_dir);

  if (command == load) {
    // Files replace what is loaded as a whole. Otherwise options change what they name.
    const bool replaces = options.defaults || !file.file.empty();
    const auto change = [&](Config* loaded) {
      if (replaces) *loaded = file.config;
      ApplyLoadOptions(load, options, loaded);
    };
    return RunLoad(config.pin_dir, change, replaces, options.restart, file,
                   options.quiet);
  }
  if (command == unload) return RunUnload(config.pin_dir, options.quiet);
  if (command == evict) {
    options.evict.pin_dir = config.pin_dir;
    return RunEvict(options.evict, options.quiet);
  }
  if (command == status && options.show_config) {
    return RunStatusConfig(config.pin_dir);
  }
  return RunStatus(config.pin_dir, options.json);
}

}  // namespace
}  // namespace internal
}  // namespace netmeter

int main(int argc, char** argv) { return netmeter::internal::Main(argc, argv); }
