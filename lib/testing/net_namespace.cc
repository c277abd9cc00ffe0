// SPDX-License-Identifier: BSD-3-Clause
#include "lib/testing/net_namespace.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <thread>

namespace netmeter {
namespace internal {
namespace {

void WriteFile(const std::string& path, const std::string& value) {
  UniqueFd fd(Check(open(path.c_str(), O_WRONLY | O_CLOEXEC), path));
  Check(write(fd.get(), value.data(), value.size()), path);
}

uint8_t PrefixOf(const Address& address, int prefix) {
  if (prefix >= 0) return static_cast<uint8_t>(prefix);
  return address.family() == AF_INET ? 24 : 64;
}

}  // namespace

Address::Address(const std::string& text) {
  family_ = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (inet_pton(family_, text.c_str(), bytes_.data()) != 1) {
    Die("no address: " + text);
  }
}

std::string Address::text() const {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(family_, data(), text, sizeof(text));
}

Address Address::Mapped() const {
  Address mapped;
  mapped.family_ = AF_INET6;
  mapped.bytes_[10] = mapped.bytes_[11] = 0xff;
  for (int i = 0; i < 4; ++i) mapped.bytes_[12 + i] = bytes_[i];
  return mapped;
}

sockaddr_storage Address::WithPort(int port) const {
  sockaddr_storage storage = {};
  storage.ss_family = family_;
  if (family_ == AF_INET) {
    auto* in = reinterpret_cast<sockaddr_in*>(&storage);
    in->sin_port = htons(port);
    std::memcpy(&in->sin_addr, data(), 4);
  } else {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&storage);
    in6->sin6_port = htons(port);
    std::memcpy(&in6->sin6_addr, data(), 16);
  }
  return storage;
}

socklen_t Address::Length(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in)
                                      : sizeof(sockaddr_in6);
}

Address HostAddress(Family family, int site, int network, int host) {
  const std::string s = std::to_string(site), n = std::to_string(network),
                    h = std::to_string(host);
  return family == Family::kIpv4 ? Address("10." + s + "." + n + "." + h)
                                 : Address("fd" + s + ":" + n + "::" + h);
}

std::vector<Address> BothAddresses(int site, int network, int host) {
  return {HostAddress(Family::kIpv4, site, network, host),
          HostAddress(Family::kIpv6, site, network, host)};
}

Mac MacAddress(int last) {
  return {0x02, 0, 0, 0x77, 0, static_cast<uint8_t>(last)};
}

void Introduce(const LinkEnd& to, const LinkEnd& other) {
  for (const Address& address : other.addresses) {
    to.where->AddNeighbour(to.name, address, other.mac);
  }
}

void Join(const LinkEnd& left, const LinkEnd& right) {
  left.where->AddVeth(left, right);
  for (const LinkEnd* end : {&left, &right}) {
    end->where->SetUp(end->name);
    for (const Address& address : end->addresses) {
      end->where->AddAddress(end->name, address);
    }
  }
  if (!left.addresses.empty()) Introduce(left, right);
  if (!right.addresses.empty()) Introduce(right, left);
}

bool KernelAtLeast(int major, int minor) {
  utsname name;
  Check(uname(&name), "uname");
  int have_major = 0, have_minor = 0;
  std::sscanf(name.release, "%d.%d", &have_major, &have_minor);
  return have_major > major || (have_major == major && have_minor >= minor);
}

// A netlink message under construction.
class NetNamespace::Request {
 public:
  template <typename Header>
  Request(uint16_t type, uint16_t flags, const Header& header) {
    nlmsghdr message = {};
    message.nlmsg_type = type;
    message.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    Append(&message, sizeof(message));
    Append(&header, sizeof(header));
  }

  Request& Put(uint16_t type, const void* data, size_t size) {
    const size_t start = Begin(type);
    Append(data, size);
    End(start);  // then without the padding
    reinterpret_cast<rtattr*>(&bytes_[start])->rta_len = RTA_LENGTH(size);
    return *this;
  }
  Request& Put(uint16_t type, uint32_t value) {
    return Put(type, &value, sizeof(value));
  }
  Request& Put(uint16_t type, const std::string& text) {
    return Put(type, text.c_str(), text.size() + 1);
  }
  size_t Begin(uint16_t type) {
    const size_t start = bytes_.size();
    rtattr attribute = {};
    attribute.rta_type = type;
    Append(&attribute, sizeof(attribute));
    return start;
  }
  Request& End(size_t start) {
    reinterpret_cast<rtattr*>(&bytes_[start])->rta_len = bytes_.size() - start;
    return *this;
  }
  void Append(const void* data, size_t size) {
    const size_t start = bytes_.size();
    bytes_.resize((start + size + 3) & ~size_t{3});
    if (size > 0) std::memcpy(&bytes_[start], data, size);
  }
  std::vector<char> Finished() const {
    std::vector<char> bytes = bytes_;
    reinterpret_cast<nlmsghdr*>(bytes.data())->nlmsg_len = bytes.size();
    return bytes;
  }

 private:
  std::vector<char> bytes_;
};

int NetNamespace::Transact(const Request& request,
                           std::vector<char>* reply) const {
  const std::vector<char> bytes = request.Finished();
  Check(send(netlink_.get(), bytes.data(), bytes.size(), 0), "netlink send");
  for (;;) {
    std::vector<char> buffer(32768);
    ssize_t size = Check(recv(netlink_.get(), buffer.data(), buffer.size(), 0),
                         "netlink receive");
    auto* message = reinterpret_cast<nlmsghdr*>(buffer.data());
    for (; NLMSG_OK(message, static_cast<size_t>(size));
         message = NLMSG_NEXT(message, size)) {
      if (message->nlmsg_type == NLMSG_ERROR)
        return static_cast<nlmsgerr*>(NLMSG_DATA(message))->error;
      if (reply != nullptr)
        reply->assign(reinterpret_cast<char*>(message),
                      reinterpret_cast<char*>(message) + message->nlmsg_len);
    }
  }
}

void NetNamespace::Do(const Request& request, const std::string& what) const {
  const int error = Transact(request, nullptr);
  if (error != 0) {
    errno = -error;
    DieWithErrno(what);
  }
}

NetNamespace::NetNamespace() {
  std::thread([this] {
    Check(unshare(CLONE_NEWNET), "unshare network namespace");
    namespace_ =
        UniqueFd(Check(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC),
                       "/proc/thread-self/ns/net"));
    netlink_ = UniqueFd(
        Check(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE),
              "netlink socket"));
    for (const char* knob :
         {"accept_dad", "router_solicitations", "autoconf", "accept_ra"})
      WriteFile(std::string("/proc/sys/net/ipv6/conf/default/") + knob, "0");
    // No link-local addresses, and so nothing that announces them.
    WriteFile("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1");
    // A lossy test must not slow down the next one.
    WriteFile("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
    WriteFile("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
  }).join();
  SetUp("lo");
}

void NetNamespace::Enter() const {
  Check(setns(namespace_.get(), CLONE_NEWNET), "setns");
}

void NetNamespace::Run(const std::function<void()>& body) const {
  std::thread([&] {
    Enter();
    body();
  }).join();
}

void NetNamespace::Sysctl(const std::string& path,
                          const std::string& value) const {
  Run([&] { WriteFile("/proc/sys/net/" + path, value); });
}

void NetNamespace::AddVeth(const LinkEnd& here, const LinkEnd& there) {
  ifinfomsg info = {};
  Request request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, info);
  request.Put(IFLA_IFNAME, here.name)
      .Put(IFLA_ADDRESS, here.mac.data(), here.mac.size());
  const size_t link = request.Begin(IFLA_LINKINFO);
  request.Put(IFLA_INFO_KIND, "veth", 4);
  const size_t data = request.Begin(IFLA_INFO_DATA);
  const size_t other = request.Begin(VETH_INFO_PEER);
  request.Append(&info, sizeof(info));
  request.Put(IFLA_IFNAME, there.name)
      .Put(IFLA_ADDRESS, there.mac.data(), there.mac.size())
      .Put(IFLA_NET_NS_FD, there.where->namespace_.get());
  request.End(other).End(data).End(link);
  Do(request, "add veth " + here.name);
}

std::vector<char> NetNamespace::AskAbout(const std::string& link) const {
  ifinfomsg info = {};
  std::vector<char> reply;
  const int error =
      Transact(Request(RTM_GETLINK, 0, info).Put(IFLA_IFNAME, link), &reply);
  if (error != 0) {
    errno = -error;
    DieWithErrno("no link " + link);
  }
  return reply;
}

int NetNamespace::Index(const std::string& link) const {
  std::vector<char> reply = AskAbout(link);
  auto* message = reinterpret_cast<nlmsghdr*>(reply.data());
  return static_cast<ifinfomsg*>(NLMSG_DATA(message))->ifi_index;
}

void NetNamespace::SetUp(const std::string& link) {
  ifinfomsg info = {};
  info.ifi_index = Index(link);
  info.ifi_flags = info.ifi_change = IFF_UP;
  Do(Request(RTM_NEWLINK, 0, info), "set up " + link);
}

void NetNamespace::SetMtu(const std::string& link, uint32_t mtu) {
  ifinfomsg info = {};
  info.ifi_index = Index(link);
  Do(Request(RTM_NEWLINK, 0, info).Put(IFLA_MTU, mtu), "set MTU of " + link);
}

void NetNamespace::SetGsoMaxSegments(const std::string& link,
                                     uint32_t segments) {
  ifinfomsg info = {};
  info.ifi_index = Index(link);
  Do(Request(RTM_NEWLINK, 0, info).Put(IFLA_GSO_MAX_SEGS, segments),
     "set gso_max_segs of " + link);
}

bool NetNamespace::SetGsoMaxSize(const std::string& link, uint32_t bytes) {
  // IFLA_GSO_IPV4_MAX_SIZE, from 6.3 on; older kernels ignore it.
  constexpr uint16_t kGsoIpv4MaxSize = 63;
  ifinfomsg info = {};
  info.ifi_index = Index(link);
  std::vector<char> reply;
  return Transact(Request(RTM_NEWLINK, 0, info)
                      .Put(IFLA_GSO_MAX_SIZE, bytes)
                      .Put(kGsoIpv4MaxSize, bytes),
                  &reply) == 0;
}
void NetNamespace::AddAddress(const std::string& link, const Address& address,
                              int prefix) {
  ifaddrmsg message = {};
  message.ifa_family = address.family();
  message.ifa_prefixlen = PrefixOf(address, prefix);
  message.ifa_flags = address.family() == AF_INET6 ? IFA_F_NODAD : 0;
  message.ifa_index = Index(link);
  Do(Request(RTM_NEWADDR, NLM_F_CREATE, message)
         .Put(IFA_LOCAL, address.data(), address.size())
         .Put(IFA_ADDRESS, address.data(), address.size()),
     "add address to " + link);
  if (address.family() != AF_INET6) return;
  // The kernel's work queue makes the local route (addrconf_dad_work()). Until then the
  // kernel drops packets to the address, at times a test's first datagram.
  for (int i = 0; !IsLocal(address); ++i) {
    if (i == kTimeoutMs) Die("no local route for an address of " + link);
    usleep(1000);
  }
}

bool NetNamespace::IsLocal(const Address& address) const {
  rtmsg message = {};
  message.rtm_family = AF_INET6;
  message.rtm_dst_len = 128;
  std::vector<char> reply;
  const int error = Transact(Request(RTM_GETROUTE, 0, message)
                                 .Put(RTA_DST, address.data(), address.size()),
                             &reply);
  if (error != 0) return false;
  auto* header = reinterpret_cast<nlmsghdr*>(reply.data());
  return static_cast<rtmsg*>(NLMSG_DATA(header))->rtm_type == RTN_LOCAL;
}

void NetNamespace::AddDefaultRoute(const Address& gateway) {
  AddRoute(Address(), gateway, 0);
}

void NetNamespace::AddRoute(const Address& network, const Address& gateway,
                            int prefix) {
  rtmsg message = {};
  message.rtm_family = gateway.family();
  message.rtm_dst_len = PrefixOf(gateway, prefix);
  message.rtm_table = RT_TABLE_MAIN;
  message.rtm_protocol = RTPROT_STATIC;
  message.rtm_type = RTN_UNICAST;
  Request request(RTM_NEWROUTE, NLM_F_CREATE, message);
  if (prefix != 0) request.Put(RTA_DST, network.data(), network.size());
  Do(request.Put(RTA_GATEWAY, gateway.data(), gateway.size()), "add route");
}

void NetNamespace::AddNeighbour(const std::string& link, const Address& address,
                                const Mac& mac) {
  ndmsg message = {};
  message.ndm_family = address.family();
  message.ndm_ifindex = Index(link);
  message.ndm_state = NUD_PERMANENT;
  Do(Request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, message)
         .Put(NDA_DST, address.data(), address.size())
         .Put(NDA_LLADDR, mac.data(), mac.size()),
     "add neighbour to " + link);
}

void NetNamespace::DeleteNeighbour(const std::string& link,
                                   const Address& address) {
  ndmsg message = {};
  message.ndm_family = address.family();
  message.ndm_ifindex = Index(link);
  Do(Request(RTM_DELNEIGH, 0, message)
         .Put(NDA_DST, address.data(), address.size()),
     "delete neighbour from " + link);
}

LinkCounters NetNamespace::Counters(const std::string& link) const {
  std::vector<char> reply = AskAbout(link);
  auto* message = reinterpret_cast<nlmsghdr*>(reply.data());
  auto* attribute = IFLA_RTA(NLMSG_DATA(message));
  int left = IFLA_PAYLOAD(message);
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type != IFLA_STATS64) continue;
    rtnl_link_stats64 stats = {};
    std::memcpy(&stats, RTA_DATA(attribute),
                std::min<size_t>(sizeof(stats), RTA_PAYLOAD(attribute)));
    return {stats.rx_packets, stats.tx_packets, stats.rx_bytes, stats.tx_bytes,
            stats.tx_dropped};
  }
  errno = ENODATA;
  DieWithErrno("counters of " + link);
}

UniqueFd NetNamespace::AttachXdpPass(const std::string& link) const {
  const bpf_insn program[] = {
      {BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, XDP_PASS},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  UniqueFd attached;
  Run([&] {
    const UniqueFd fd = LoadProgram(BPF_PROG_TYPE_XDP, BPF_XDP, program, 2);
    bpf_attr attributes = {};
    attributes.link_create.prog_fd = fd.get();
    attributes.link_create.target_ifindex = Index(link);
    attributes.link_create.attach_type = BPF_XDP;
    attached = UniqueFd(
        Check(static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &attributes,
                                       sizeof(attributes))),
              "attach XDP program to " + link));
  });
  return attached;
}

UnlimitedLockedMemory::UnlimitedLockedMemory() {
  Check(getrlimit(RLIMIT_MEMLOCK, &before_), "getrlimit");
  const rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_MEMLOCK, &unlimited);
}

UniqueFd LoadProgram(uint32_t type, uint32_t attach_type,
                     const bpf_insn* program, uint32_t count) {
  const UnlimitedLockedMemory unlimited;
  bpf_attr attributes = {};
  attributes.prog_type = type;
  attributes.expected_attach_type = attach_type;
  attributes.insns = reinterpret_cast<uint64_t>(program);
  attributes.insn_cnt = count;
  attributes.license = reinterpret_cast<uint64_t>("GPL");
  return UniqueFd(
      Check(static_cast<int>(syscall(SYS_bpf, BPF_PROG_LOAD, &attributes,
                                     sizeof(attributes))),
            "load a BPF program"));
}

void NetNamespace::SetFeatures(const std::string& link,
                               const std::vector<std::string>& words,
                               bool on) const {
  Run([&] {
    UniqueFd fd(Check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket"));
    ifreq request = {};
    std::strncpy(request.ifr_name, link.c_str(), IFNAMSIZ - 1);
    const auto call = [&](void* data, const std::string& what) {
      request.ifr_data = static_cast<char*>(data);
      Check(ioctl(fd.get(), SIOCETHTOOL, &request), what + " of " + link);
    };
    std::vector<char> sets(sizeof(ethtool_sset_info) + sizeof(uint32_t));
    auto* info = reinterpret_cast<ethtool_sset_info*>(sets.data());
    info->cmd = ETHTOOL_GSSET_INFO;
    info->sset_mask = 1ULL << ETH_SS_FEATURES;
    call(info, "count features");
    const uint32_t count = info->data[0];

    std::vector<char> names(sizeof(ethtool_gstrings) + count * ETH_GSTRING_LEN);
    auto* strings = reinterpret_cast<ethtool_gstrings*>(names.data());
    strings->cmd = ETHTOOL_GSTRINGS;
    strings->string_set = ETH_SS_FEATURES;
    strings->len = count;
    call(strings, "name features");

    const size_t blocks = (count + 31) / 32;
    std::vector<char> bits(sizeof(ethtool_sfeatures) +
                           blocks * sizeof(ethtool_set_features_block));
    auto* change = reinterpret_cast<ethtool_sfeatures*>(bits.data());
    change->cmd = ETHTOOL_SFEATURES;
    change->size = blocks;

    // A feature that never changes may not be asked to.
    std::vector<char> current(sizeof(ethtool_gfeatures) +
                              blocks * sizeof(ethtool_get_features_block));
    auto* features = reinterpret_cast<ethtool_gfeatures*>(current.data());
    features->cmd = ETHTOOL_GFEATURES;
    features->size = blocks;
    call(features, "get features");

    for (uint32_t i = 0; i < count; ++i) {
      const char* start =
          reinterpret_cast<char*>(strings->data) + size_t{i} * ETH_GSTRING_LEN;
      const std::string name(start, strnlen(start, ETH_GSTRING_LEN));
      const uint32_t bit = 1U << (i % 32);
      if ((features->features[i / 32].available & bit) == 0) continue;
      for (const std::string& word : words) {
        if (name.find(word) == std::string::npos) continue;
        change->features[i / 32].valid |= bit;
        if (on) change->features[i / 32].requested |= bit;
      }
    }
    call(change, "set features");
  });
}

void NetNamespace::SetRealPackets(const std::string& link) const {
  SetFeatures(link, kOffloads, false);
  SetFeatures(link, {"rx-gro"}, false);
}

}  // namespace internal
}  // namespace netmeter
