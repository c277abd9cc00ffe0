// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/actor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "netmeter/abi.h"
#include "test/live/child.h"
#include "test/live/sockets.h"

namespace netmeter {
namespace internal {
namespace {

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, '/');)
    parts.push_back(part);
  return parts;
}

class Actor {
 public:
  int Run(const std::vector<std::string>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      const std::string word = argument.substr(0, argument.find('='));
      const std::string value = word.size() == argument.size()
                                    ? ""
                                    : argument.substr(word.size() + 1);
      const std::vector<std::string> rest(arguments.begin() + i + 1,
                                          arguments.end());
      if (word == "thread") return InThread(value, rest);
      if (word == "fork") return InChild(rest);
      if (word == "exec") ExecActor(value, rest);
      Do(word, value);
    }
    return 0;
  }

 private:
  int InThread(const std::string& name, const std::vector<std::string>& rest) {
    int status = 0;
    std::thread([&] {
      prctl(PR_SET_NAME, name.c_str());
      status = Run(rest);
    }).join();
    return status;
  }

  int InChild(const std::vector<std::string>& rest) {
    const pid_t pid = Check(fork(), "fork");
    if (pid == 0) _exit(Run(rest));
    int status = 0;
    Check(waitpid(pid, &status, 0), "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
  }

  int Open(int family, int type) {
    const int fd = OpenSocket(family, type);
    if (!tag_.empty() && (errno = Control(fd, NM_TAG, tag_)) != 0)
      DieWithErrno("NM_TAG");
    return fd;
  }

  void Do(const std::string& word, const std::string& value) {
    if (word[0] == '/') return;
    const std::vector<std::string> parts = Split(value);
    const auto number = [&](size_t i) {
      return std::atoi(parts.at(i).c_str());
    };
    if (word == "register") {
      errno = Control(OpenSocket(AF_INET, SOCK_DGRAM), NM_REGISTER, value);
      if (errno != 0) DieWithErrno("NM_REGISTER");
    } else if (word == "user") {
      Check(setuid(static_cast<uid_t>(number(0))), "setuid");
    } else if (word == "cgroup") {
      std::ofstream file(value + "/cgroup.procs");
      file << 0 << std::flush;
      if (!file.good()) DieWithErrno("move to " + value);
    } else if (word == "tag") {
      tag_ = value;
    } else if (word == "udp" || word == "hold") {
      const Address to(parts.at(0));
      const int fd = Open(to.family(), SOCK_DGRAM);
      for (int i = 0; i < number(2); ++i)
        SendTo(fd, std::string(number(3), 'x'), to, number(1));
      if (word == "udp") {
        close(fd);
      } else {
        Connect(fd, to, number(1));
        held_ = fd;
      }
    } else if (word == "more") {
      for (int i = 0; i < number(0); ++i) SendAll(held_, number(1));
    } else if (word == "wait") {
      std::ofstream(value).flush();
      while (access(value.c_str(), F_OK) == 0) usleep(10000);
    } else if (word == "serve") {
      const Address address(parts.at(0));
      const int listener = Open(address.family(), SOCK_STREAM);
      SetOption(listener, SOL_SOCKET, SO_REUSEADDR, 1);
      Bind(listener, address, number(1));
      Check(listen(listener, 8), "listen");
      const int fd = Accept(listener);
      ReceiveExactly(fd, number(2));
      Check(shutdown(fd, SHUT_WR), "shutdown");
      ReceiveUntilEnd(fd);
      close(fd);
    } else {
      Die("actor: " + word);
    }
  }

  int held_ = -1;
  std::string tag_;
};

void Copy(int from, int to) {
  struct stat info;
  Check(fstat(from, &info), "program");
  for (off_t left = info.st_size; left > 0;)
    left -= Check(sendfile(to, from, nullptr, left), "copy");
}

std::vector<char*> Argv(const std::string& path,
                        const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  return argv;
}

}  // namespace

int RunActor(const std::vector<std::string>& arguments) {
  return Actor().Run(arguments);
}

std::string actor_program;

std::string CopyOfActor(const std::string& name) {
  const std::string directory = WorkDirectory() + "/bin";
  mkdir(WorkDirectory().c_str(), 0700);
  mkdir(directory.c_str(), 0700);
  const std::string path = directory + "/" + name;
  if (access(path.c_str(), X_OK) == 0) return path;
  UniqueFd from(
      Check(open(actor_program.c_str(), O_RDONLY | O_CLOEXEC), actor_program));
  UniqueFd to(
      Check(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0700), path));
  Copy(from.get(), to.get());
  return path;
}

int MemfdOf(const std::string& path, const std::string& name) {
  UniqueFd from(Check(open(path.c_str(), O_RDONLY | O_CLOEXEC), path));
  const int fd = Check(memfd_create(name.c_str(), 0), "memfd");
  Copy(from.get(), fd);
  return fd;
}

void ExecActor(const std::string& path,
               const std::vector<std::string>& arguments) {
  execv(path.c_str(), Argv(path, arguments).data());
  DieWithErrno("exec " + path);
}

void ExecActor(int fd, ExecBy by, const std::vector<std::string>& arguments) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const std::vector<char*> argv = Argv(path, arguments);
  if (by == ExecBy::kPathOfDescriptor)
    execv(path.c_str(), argv.data());
  else
    syscall(SYS_execveat, fd, "", argv.data(), environ, AT_EMPTY_PATH);
  DieWithErrno("exec by descriptor");
}

}  // namespace internal
}  // namespace netmeter
