// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/netmeter/cost/program_holders.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/kernel_object.h"
#include "lib/base/mounts.h"
#include "lib/base/proc.h"
#include "lib/base/unique_fd.h"

namespace netmeter {
namespace internal {
namespace {

// Deeper than real pins. It also ends the search in a directory that is mounted into
// itself.
constexpr int kDeepest = 16;

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

// `directory` may be null.
template <typename Body>
void ForEachEntry(DIR* directory, const Body& body) {
  const std::unique_ptr<DIR, CloseDirectory> closes(directory);
  while (const dirent* const entry = directory ? readdir(directory) : nullptr) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") body(dirfd(directory), *entry);
  }
}

// The number after "prog_id:" in the fdinfo of a program or a link; 0: none.
uint32_t ProgramOfFdInfo(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  uint32_t id = 0;
  while (file >> key) {
    if (key == "prog_id:" && file >> id) return id;
  }
  return 0;
}

// The program of a perf event, by which libbpf attaches to tracepoints and probes.
uint32_t ProgramOfPerfEvent(int pid, int fd, std::string* attachment) {
  char name[64] = {};
  uint32_t length = sizeof(name), program = 0, type = 0;
  __u64 offset = 0, address = 0;
  if (bpf_task_fd_query(pid, fd, 0, name, &length, &program, &type, &offset,
                        &address) != 0) {
    return 0;
  }
  // enum bpf_task_fd_type
  constexpr const char* kTypes[] = {"raw_tracepoint", "tracepoint",
                                    "kprobe",         "kretprobe",
                                    "uprobe",         "uretprobe"};
  if (type < std::size(kTypes)) {
    *attachment = absl::StrCat(kTypes[type], " ", name);
  }
  return program;
}

// Calls neither stat(2) nor open(2) on the target of a descriptor: if it is a file of
// NFS or FUSE whose server hangs, they never return.
void ReadProcess(uint32_t pid, ProgramHolders* holders) {
  std::set<uint32_t> found;
  const auto look = [&](const Thread& thread, uint32_t fd,
                        absl::string_view link) {
    uint32_t program = 0;
    // A link from BPF_OBJ_GET has a hyphen in its name, one from BPF_LINK_CREATE an
    // underscore.
    if (link == "anon_inode:bpf-prog" || link == "anon_inode:bpf-link" ||
        link == "anon_inode:bpf_link") {
      program = ProgramOfFdInfo(absl::StrCat(thread.folder, "/fdinfo/", fd));
    } else if (link == "anon_inode:[perf_event]") {
      std::string attachment;
      program = ProgramOfPerfEvent(static_cast<int>(thread.tid),
                                   static_cast<int>(fd), &attachment);
      if (!attachment.empty()) {
        (*holders)[program].attachments.insert(attachment);
      }
    }
    if (program != 0) found.insert(program);
  };
  ForEachTable(pid, [&](const Thread& thread) {
    ForEachDescriptor(thread, [&](uint32_t fd, absl::string_view link) {
      look(thread, fd, link);
    });
  });
  if (found.empty()) return;
  std::string name;
  std::ifstream comm(absl::StrCat("/proc/", pid, "/comm"));
  std::getline(comm, name);
  for (const uint32_t program : found) {
    (*holders)[program].processes.push_back(absl::StrCat(pid, "/", name));
  }
}

// A directory of the same mount; null otherwise, because a file system that is mounted
// below a BPF file system may hang as well.
DIR* OpenBelow(int directory, const char* name) {
  open_how how = {};
  how.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_NO_XDEV;
  UniqueFd fd(static_cast<int>(
      syscall(SYS_openat2, directory, name, &how, sizeof(how))));
  return fd.ok() ? fdopendir(fd.Release()) : nullptr;
}

void ReadPins(DIR* directory, const std::string& path, int depth,
              ProgramHolders* holders) {
  ForEachEntry(directory, [&](int fd_of_directory, const dirent& entry) {
    const std::string below = absl::StrCat(path, "/", entry.d_name);
    if (entry.d_type == DT_DIR && depth < kDeepest) {
      ReadPins(OpenBelow(fd_of_directory, entry.d_name), below, depth + 1,
               holders);
    }
    if (entry.d_type != DT_REG) return;
    const UniqueFd fd(bpf_obj_get(below.c_str()));
    if (!fd.ok()) return;
    const KernelObject object = IdentifyObject(fd.get());
    if (object.kind == KernelObject::kProgram) {
      (*holders)[object.id].pins.push_back(below);
    } else if (object.kind == KernelObject::kLink) {
      (*holders)[object.program].pins.push_back(below);
    }
  });
}

// The mount points of BPF file systems, each device once.
std::vector<std::string> BpfMounts() {
  std::vector<std::string> points;
  std::set<uint64_t> devices;
  for (const Mount& mount : ReadMounts()) {
    if (mount.type == "bpf" && devices.insert(mount.device).second) {
      points.push_back(mount.point);
    }
  }
  return points;
}

}  // namespace

ProgramHolders ReadProgramHolders() {
  ProgramHolders holders;
  const auto own = static_cast<uint32_t>(getpid());
  ForEachProcess([&](uint32_t pid) {
    if (pid != own) ReadProcess(pid, &holders);
  });
  for (const std::string& mount : BpfMounts()) {
    ReadPins(opendir(mount.c_str()), mount, 0, &holders);
  }
  return holders;
}

}  // namespace internal
}  // namespace netmeter
