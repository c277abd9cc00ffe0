// SPDX-License-Identifier: BSD-3-Clause
// lib/reader/shared_maps.h: what may come from the socket of `netmeter-fds`,
// or from who has taken its place: any bytes, and any descriptors. Each byte of the
// input but the first, which is the byte of data, is a descriptor, or begins another
// control message. Where bpf(2) is allowed some are maps, and one of them is an `info`
// that could be; but none has as many entries as it demands. Nothing opens, and no
// descriptor is left.

#include <dirent.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "lib/reader/shared_maps.h"
#include "netmeter/abi.h"
#include "test/fuzz/check.h"

namespace {

std::string Directory() {
  static const auto* const directory = [] {
    char name[] = "/tmp/netmeter-fuzz.XXXXXX";
    FUZZ_CHECK(mkdtemp(name) != nullptr);
    return new std::string(name);
  }();
  return *directory;
}

size_t OpenDescriptors() {
  DIR* const directory = opendir("/proc/self/fd");
  FUZZ_CHECK(directory != nullptr);
  size_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Appends one message of SCM_RIGHTS with these descriptors.
void Append(const std::vector<int>& fds, std::string* control) {
  const size_t begin = control->size();
  control->resize(begin + CMSG_SPACE(fds.size() * sizeof(int)));
  cmsghdr header = {};
  header.cmsg_level = SOL_SOCKET;
  header.cmsg_type = SCM_RIGHTS;
  header.cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  memcpy(&(*control)[begin], &header, sizeof(header));
  memcpy(&(*control)[begin + CMSG_LEN(0)], fds.data(),
         fds.size() * sizeof(int));
}

// Less than 0: bpf(2) is refused to us.
int MakeMap(uint32_t type, size_t value_size, uint32_t flags) {
  bpf_attr attributes = {};
  attributes.map_type = type;
  attributes.key_size = sizeof(uint32_t);
  attributes.value_size = static_cast<uint32_t>(value_size);
  attributes.max_entries = 1;
  attributes.map_flags = flags;
  return static_cast<int>(
      syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof(attributes)));
}

void Fill(int map, const nm_info& info) {
  const uint32_t zero = 0;
  bpf_attr attributes = {};
  attributes.map_fd = static_cast<uint32_t>(map);
  attributes.key = reinterpret_cast<uintptr_t>(&zero);
  attributes.value = reinterpret_cast<uintptr_t>(&info);
  FUZZ_CHECK(syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attributes,
                     sizeof(attributes)) == 0);
}

// What CheckInfo() takes: of the smallest tables that can be.
nm_info GoodInfo() {
  nm_info info = {};
  info.magic = NM_MAGIC;
  info.abi_major = NM_ABI_MAJOR;
  info.info_size = sizeof(nm_info);
  info.cell_size = sizeof(nm_cell);
  info.name_size = sizeof(nm_name);
  info.stats_size = sizeof(nm_stats);
  info.tcp_size = sizeof(nm_tcp);
  info.cells_per_series = 1;
  info.max_series = NM_SLOT_FIRST;
  info.max_names = NM_NAME_FIRST;
  return info;
}

// The seeds name them by their places here.
std::vector<int> MakeKinds() {
  std::vector<int> kinds = {open("/dev/null", O_RDWR | O_CLOEXEC),
                            open("/", O_RDONLY | O_CLOEXEC),
                            memfd_create("fuzz", MFD_CLOEXEC),
                            socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int hash = MakeMap(BPF_MAP_TYPE_HASH, sizeof(nm_cell), 0);
  if (hash < 0) return kinds;
  kinds.push_back(hash);
  kinds.push_back(MakeMap(BPF_MAP_TYPE_ARRAY, sizeof(nm_info), 0));
  for (const size_t size :
       {size_t{1}, sizeof(nm_cell), sizeof(nm_name), sizeof(nm_info),
        sizeof(nm_stats), sizeof(nm_tcp), sizeof(nm_info)}) {
    kinds.push_back(MakeMap(BPF_MAP_TYPE_ARRAY, size, BPF_F_MMAPABLE));
  }
  Fill(kinds.back(), GoodInfo());  // the other one of this size is all zeros
  return kinds;
}

void Answer(int connection, const uint8_t* data, size_t size) {
  static const std::vector<int> kinds = MakeKinds();
  if (size == 0) return;
  std::vector<int> fds;
  std::string control;
  for (size_t i = 1; i < size; ++i) {
    if (data[i] < 240) {
      fds.push_back(kinds[data[i] % kinds.size()]);
    } else if (!fds.empty()) {
      Append(fds, &control);
      fds.clear();
    }
  }
  if (!fds.empty()) Append(fds, &control);
  iovec bytes = {const_cast<uint8_t*>(data), 1 + size % 2};
  if (size < 2) bytes.iov_len = 1;
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.empty() ? nullptr : &control[0];
  message.msg_controllen = control.size();
  sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using netmeter::internal::SharedMaps;
  static const std::string pin_dir = Directory() + "/pins";
  static const int listener = [] {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, (pin_dir + ".sock").c_str());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(bind(fd, reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)) == 0);
    FUZZ_CHECK(listen(fd, 4) == 0);
    atexit([] {
      unlink((pin_dir + ".sock").c_str());
      rmdir(Directory().c_str());
    });
    return fd;
  }();
  Answer(-1, data, 0);  // opens what it sends, before they are counted
  const size_t before = OpenDescriptors();
  std::thread server([&] {
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    Answer(connection, data, size);
    close(connection);
  });
  const auto maps = SharedMaps::Open(pin_dir, std::chrono::milliseconds(5000));
  server.join();
  FUZZ_CHECK(!maps.ok());
  FUZZ_CHECK(!maps.status().message().empty());
  FUZZ_CHECK(OpenDescriptors() == before);
  return 0;
}
