// SPDX-License-Identifier: BSD-3-Clause
// Sends standard input by Post(), for its test: post URL TOKEN_FILE CA_FILE SECONDS
// Prints the code and the message.
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>

#include "lib/apps/export/http.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string body(std::istreambuf_iterator<char>(std::cin), {});
  const absl::Status sent = netmeter::internal::Post(
      {argv[1], argv[2], argv[3], std::chrono::seconds(atoi(argv[4]))}, body);
  std::cout << absl::StatusCodeToString(sent.code()) << " " << sent.message();
  return sent.ok() ? 0 : 1;
}
