// SPDX-License-Identifier: BSD-3-Clause
// A program that does what its arguments say, one after the other. It is copied
// under many names, so that the tests of naming have real executables to name.
//
//   user=UID         setuid(2)
//   cgroup=PATH      moves the process there
//   register=NAME    NM_REGISTER
//   tag=NAME         NM_TAG of the sockets opened from now on
//   udp=ADDRESS/PORT/COUNT/SIZE     datagrams from one new socket
//   spread=PORT/COUNT/SIZE/ADDRESS/ADDRESS...   in turn, from one new socket
//   tcp=ADDRESS/PORT/BYTES          one connection: upload, wait for the end
//   serve=ADDRESS/PORT/BYTES        accepts one connection, receives, closes
//   hold=ADDRESS/PORT/COUNT/SIZE    as udp=, and the socket stays open
//   more=COUNT/SIZE  from that socket
//   wait=FILE        makes FILE, and waits until it has gone
//   thread=NAME      the rest runs in a thread of this name
//   fork             the rest runs in a child process
//   exec=PATH        the rest runs in this program
//   /PATH            nothing: a script that has this program as interpreter

#ifndef NETMETER_TEST_LIVE_ACTOR_H_
#define NETMETER_TEST_LIVE_ACTOR_H_

#include <string>
#include <vector>

namespace netmeter {
namespace internal {

// What the program does; returns the exit status.
int RunActor(const std::vector<std::string>& arguments);

// The path of the program; set by main().
extern std::string actor_program;

// A copy of the program under WorkDirectory(), with this file name.
std::string CopyOfActor(const std::string& name);

// Becomes the program at path, as an actor.
[[noreturn]] void ExecActor(const std::string& path,
                            const std::vector<std::string>& arguments);

// Becomes the program that a descriptor has open: by fexecve(3), that is
// execveat(2) with AT_EMPTY_PATH; or by a path that names the descriptor.
enum class ExecBy { kDescriptor, kPathOfDescriptor };
[[noreturn]] void ExecActor(int fd, ExecBy by,
                            const std::vector<std::string>& arguments);

// A memfd that holds the program at path.
int MemfdOf(const std::string& path, const std::string& name);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_TEST_LIVE_ACTOR_H_
