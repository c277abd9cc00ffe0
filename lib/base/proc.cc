// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace netmeter {
namespace internal {
namespace {

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
constexpr int kPidfdThread = O_EXCL;  // PIDFD_THREAD of linux/pidfd.h

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

// Calls body(directory, name, number) for each name that is a number.
template <typename Body>
void ForEachNumber(const std::string& path, const Body& body) {
  const std::unique_ptr<DIR, CloseDirectory> directory(opendir(path.c_str()));
  if (!directory) return;
  while (const dirent* const entry = readdir(directory.get())) {
    uint32_t number;
    if (absl::SimpleAtoi(entry->d_name, &number)) {
      body(dirfd(directory.get()), entry->d_name, number);
    }
  }
}

// The kernel counts "." and "..", and the threads (proc_task_getattr()).
bool HasOneThread(uint32_t pid) {
  struct stat about;
  return stat(absl::StrCat("/proc/", pid, "/task").c_str(), &about) == 0 &&
         about.st_nlink == 3;
}

bool HasMemory(const std::string& folder) {
  char byte;
  return readlink((folder + "/exe").c_str(), &byte, 1) == 1 || errno != ENOENT;
}

}  // namespace

void ForEachProcess(const std::function<void(uint32_t pid)>& body) {
  ForEachNumber("/proc", [&](int, const char*, uint32_t pid) { body(pid); });
}

void ForEachThread(uint32_t pid,
                   const std::function<void(const Thread&)>& body) {
  const std::string folder = absl::StrCat("/proc/", pid);
  body({pid, pid, folder});
  if (HasOneThread(pid)) return;
  ForEachNumber(folder + "/task", [&](int, const char* name, uint32_t tid) {
    if (tid != pid) body({pid, tid, absl::StrCat(folder, "/task/", name)});
  });
}

void ForEachTable(uint32_t pid,
                  const std::function<void(const Thread&)>& body) {
  std::vector<uint32_t> seen;  // one thread of each table, in kcmp(2)'s order
  ForEachThread(pid, [&](const Thread& thread) {
    auto begin = seen.begin();
    auto end = seen.end();
    while (begin != end) {
      const auto middle = begin + (end - begin) / 2;
      const long order =
          syscall(SYS_kcmp, thread.tid, *middle, KCMP_FILES, 0, 0);
      if (order == 0) return;
      if (order < 0) {
        // The other thread may have ended: no search meets it again.
        seen.erase(middle);
        body(thread);
        return;
      }
      if (order == 1) {
        end = middle;
      } else {
        begin = middle + 1;
      }
    }
    seen.insert(begin, thread.tid);
    body(thread);
  });
}

bool ForEachDescriptor(
    const Thread& thread,
    const std::function<void(uint32_t fd, absl::string_view link)>& body) {
  bool all = true;
  ForEachNumber(
      thread.folder + "/fd", [&](int directory, const char* name, uint32_t fd) {
        char link[64];
        const ssize_t size = readlinkat(directory, name, link, sizeof(link));
        if (size < 0 && errno == EACCES) all = false;
        if (size > 0) body(fd, {link, static_cast<size_t>(size)});
      });
  return all;
}

UniqueFd OpenThread(uint32_t pid, uint32_t tid) {
  const int flags = tid == pid ? 0 : kPidfdThread;
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, tid, flags)));
}

std::string FolderOfProcess(uint32_t pid) {
  std::string found = absl::StrCat("/proc/", pid);
  if (HasMemory(found)) return found;
  ForEachThread(pid, [&](const Thread& thread) {
    if (HasMemory(thread.folder)) found = thread.folder;
  });
  return found;
}

std::optional<uint64_t> StartOfProcess(uint32_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat, '\0');
  // proc(5): the 22nd field. The second, "(name)", may have spaces.
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(stat).substr(stat.rfind(')') + 1), ' ');
  uint64_t ticks = 0;
  if (fields.size() <= 20 || !absl::SimpleAtoi(fields[20], &ticks)) {
    return std::nullopt;
  }
  return ticks;
}

}  // namespace internal
}  // namespace netmeter
