// SPDX-License-Identifier: BSD-3-Clause
// The commands of the program `netmeter`, in the order of its --help.

#ifndef NETMETER_LIB_APPS_NETMETER_COMMANDS_H_
#define NETMETER_LIB_APPS_NETMETER_COMMANDS_H_

#include <memory>

#include "lib/apps/netmeter/command.h"

namespace netmeter {
namespace internal {

std::unique_ptr<Command> NewListCommand();
std::unique_ptr<Command> NewSocketsCommand();
std::unique_ptr<Command> NewFlowsCommand();
std::unique_ptr<Command> NewRecordCommand();
std::unique_ptr<Command> NewUsageCommand();
std::unique_ptr<Command> NewExportCommand();
std::unique_ptr<Command> NewForgetCommand();
std::unique_ptr<Command> NewTopCommand();
std::unique_ptr<Command> NewCostCommand();
std::unique_ptr<Command> NewBudgetCommand();
std::unique_ptr<Command> NewReportCommand();
std::unique_ptr<Command> NewUplinksCommand();

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_NETMETER_COMMANDS_H_
