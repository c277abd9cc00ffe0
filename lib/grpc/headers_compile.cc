// SPDX-License-Identifier: BSD-3-Clause
// Compiled as C++14, C++17 and C++20: a program that uses the public header.
#include "netmeter/grpc.h"

std::unique_ptr<grpc::Service> MakeService(
    std::shared_ptr<const netmeter::Meter> meter,
    grpc::ChannelArguments* arguments) {
  netmeter::Service303Options options;
  options.name = "subscriberdb";
  if (!netmeter::SetChannelTag("streamer", arguments)) return nullptr;
  return std::unique_ptr<grpc::Service>(
      new netmeter::Service303(meter, options));
}
