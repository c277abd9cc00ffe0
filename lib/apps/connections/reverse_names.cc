// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/connections/reverse_names.h"

#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

// Null in a static program, whose resolver would load shared libraries of the host.
extern decltype(getnameinfo) getnameinfo __attribute__((weak));

namespace netmeter {
namespace internal {
namespace {

constexpr size_t kMostAddresses = 65536;
// An address whose server does not answer takes a thread for many seconds.
constexpr int kThreads = 8;

}  // namespace

struct ReverseNames::State {
  std::function<std::string(const Address&)> lookup;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Address, std::string> names;
  std::deque<Address> queue;
  size_t awaited = 0;  // answers, of the queue and of the threads
  bool ended = false;
};

ReverseNames::ReverseNames(std::function<std::string(const Address&)> lookup)
    : state_(std::make_shared<State>()) {
  state_->lookup = std::move(lookup);
  for (int i = 0; i < kThreads; i++) std::thread(Work, state_).detach();
}

ReverseNames::~ReverseNames() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->ended = true;
  state_->changed.notify_all();
}

std::string ReverseNames::Find(const Address& address) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const auto known = state_->names.find(address);
  if (known != state_->names.end()) return known->second;
  if (state_->names.size() >= kMostAddresses) return "";
  state_->names[address];
  state_->queue.push_back(address);
  state_->awaited++;
  state_->changed.notify_all();
  return "";
}

void ReverseNames::Wait(std::chrono::milliseconds most) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->changed.wait_for(lock, most, [this] { return state_->awaited == 0; });
}

void ReverseNames::Work(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->changed.wait(lock,
                        [&] { return state->ended || !state->queue.empty(); });
    if (state->ended) return;
    const Address address = state->queue.front();
    state->queue.pop_front();
    lock.unlock();
    std::string name = state->lookup(address);
    lock.lock();
    state->names[address] = std::move(name);
    state->awaited--;
    state->changed.notify_all();
  }
}

std::string ReverseNames::AskResolver(const Address& address) {
  sockaddr_in ipv4 = {};
  sockaddr_in6 ipv6 = {};
  ipv4.sin_family = AF_INET;
  ipv6.sin6_family = AF_INET6;
  memcpy(&ipv4.sin_addr, address.second.data(), sizeof(ipv4.sin_addr));
  memcpy(&ipv6.sin6_addr, address.second.data(), sizeof(ipv6.sin6_addr));
  const bool is_ipv4 = address.first == AF_INET;
  const auto* const to = is_ipv4 ? reinterpret_cast<const sockaddr*>(&ipv4)
                                 : reinterpret_cast<const sockaddr*>(&ipv6);
  char name[NI_MAXHOST] = {};
  if (getnameinfo == nullptr ||
      getnameinfo(to, is_ipv4 ? sizeof(ipv4) : sizeof(ipv6), name, sizeof(name),
                  nullptr, 0, NI_NAMEREQD) != 0) {
    return "";
  }
  return name;
}

}  // namespace internal
}  // namespace netmeter
