// SPDX-License-Identifier: BSD-3-Clause
// bpf/command_line.bpf.h on a command line: argv, each argument with its NUL.

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "lib/loader/processes.h"
#include "test/fuzz/check.h"
#include "test/fuzz/reference.h"

namespace {

std::string_view memory;

// As bpf_probe_read_user_str(): the bytes of `to` after the NUL are whatever
// they are.
long nm_read_string(void* to, uint32_t size, uint64_t address) {
  if (size == 0 || address > memory.size()) return -1;
  const std::string_view rest = memory.substr(address);
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos) return -1;
  const size_t length = end < size - 1 ? end : size - 1;
  memset(to, '/', size);
  memcpy(to, rest.data(), length);
  static_cast<char*>(to)[length] = 0;
  return static_cast<long>(length + 1);
}

}  // namespace

#define NM_GLOBAL static inline
#include "bpf/command_line.bpf.h"

namespace netmeter {
namespace fuzz {
namespace {

static_assert(kNothing == NM_INFER_NOTHING && kModule == NM_INFER_MODULE &&
              kScript == NM_INFER_SCRIPT && kArguments == NM_INFER_ARGUMENTS);

void CheckService(int how, const nm_u8* name, const ExpectedService& expected) {
  const bool is_program = how == NM_INFER_PROGRAM;
  FUZZ_CHECK((is_program ? kNothing : how) == expected.how);
  if (how == kNothing) return;
  const auto* text = reinterpret_cast<const char*>(name);
  const size_t length = strnlen(text, NM_NAME_BYTES);
  FUZZ_CHECK(length > 0);
  FUZZ_CHECK(is_program || std::string_view(text, length) == expected.name);
  // A key of a map: zeros after the name.
  for (size_t i = length; i < NM_NAME_BYTES; i++) FUZZ_CHECK(name[i] == 0);
}

void One(std::string_view arguments) {
  memory = arguments;
  const ExpectedService expected = ReferencePython(arguments);
  auto name = std::make_unique<nm_u8[]>(NM_NAME_BYTES + 1);
  CheckService(
      nm_read_found(nm_find_in_python(0, arguments.size()), name.get()),
      name.get(), expected);

  // Through the kernel's other way in, what is executed being a script.
  const size_t end = arguments.find('\0');
  const long length = nm_string_length(0);
  if (end == std::string_view::npos || end > 5079) {
    FUZZ_CHECK(length == -1);
  } else {
    FUZZ_CHECK(length == static_cast<long>(end));
    auto script = std::make_unique<nm_u8[]>(NM_NAME_BYTES + 1);
    CheckService(nm_read_found(nm_find_executed(0, length), script.get()),
                 script.get(), ReferenceScript(arguments.substr(0, end)));
  }

  // And through the loader.
  static const auto* const services =
      new std::map<std::string, std::string>{{"oai_mme", "mme"}};
  const internal::Identity identity = internal::IdentifyProcess(
      "python3", {arguments.data(), arguments.size()}, *services, *services);
  if (expected.how == kModule) {
    FUZZ_CHECK(identity.service && identity.name == expected.name);
  } else if (expected.how == kScript && expected.name == "oai_mme") {
    FUZZ_CHECK(identity.service && identity.name == "mme");
  } else {
    // A module or a script is a program, or a service by its own name.
    FUZZ_CHECK(!identity.name.empty());
    FUZZ_CHECK(!identity.service || identity.name == "mme");
  }
}

}  // namespace
}  // namespace fuzz
}  // namespace netmeter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  netmeter::fuzz::One({reinterpret_cast<const char*>(data), size});
  return 0;
}
