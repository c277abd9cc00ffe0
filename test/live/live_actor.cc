// SPDX-License-Identifier: BSD-3-Clause
// A program that does what its arguments say (actor.h).

#include <string>
#include <vector>

#include "test/live/actor.h"

int main(int argc, char** argv) {
  return netmeter::internal::RunActor(
      std::vector<std::string>(argv + 1, argv + argc));
}
