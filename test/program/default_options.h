// SPDX-License-Identifier: BSD-3-Clause
// What netmeter-loader loads where nobody configured anything: for benchmarks,
// which are to measure what people run.
//
//   ProgramOptions options = DefaultOptions();
//   options.max_sockets = 1 << 20;
//
// Threads: any; nothing here keeps state.

#ifndef NETMETER_TEST_PROGRAM_DEFAULT_OPTIONS_H_
#define NETMETER_TEST_PROGRAM_DEFAULT_OPTIONS_H_

#include "test/program/programs.h"

namespace netmeter {
namespace internal {

// The defaults of lib/loader/config.h: sizes, ports, rules and kinds; with the
// socket hooks, without the tracing programs.
ProgramOptions DefaultOptions();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_PROGRAM_DEFAULT_OPTIONS_H_
