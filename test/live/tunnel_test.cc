// SPDX-License-Identifier: BSD-3-Clause
// Tunnels of a device of their own: VXLAN, whose packets the kernel wraps, and
// tun, whose packets a process reads.

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test/live/world.h"

namespace netmeter {
namespace internal {
namespace {

// The parameter is the family without and within.
class TunnelTest : public FamilyTest {
 protected:  // No later test meets these devices.
  void TearDown() override {
    World::ForgetLabs();
    FamilyTest::TearDown();
  }

  static Address Inner(int host) {
    return Address((v4() ? "10.79.0." : "fd79::") + std::to_string(host));
  }
};
NM_FOR_BOTH_FAMILIES(TunnelTest);

// What a service sends into the tunnel is the service's, once. What the kernel
// puts around it counts nowhere: the capture finds it on each packet.
TEST_P(TunnelTest, VxlanCountsWhatIsWithin) {
  constexpr int kPort = 4789;
  for (const bool client : {true, false}) {
    NetNamespace& end = client ? lab().client : lab().server;
    const std::string here = v4() ? (client ? "10.77.1.2" : "10.77.3.2")
                                  : (client ? "fd77:1::2" : "fd77:3::2");
    const std::string there = v4() ? (client ? "10.77.3.2" : "10.77.1.2")
                                   : (client ? "fd77:3::2" : "fd77:1::2");
    const std::string error =
        TryIp(end, {"link", "add", "x0", "type", "vxlan", "id", "7", "local",
                    here, "remote", there, "dstport", std::to_string(kPort)});
    if (!error.empty()) {
      Measurement::NotOnThisKernel(error);
      EXPECT_NE(access("/mod/vxlan.ko", F_OK), 0) << "loaded, but no VXLAN";
      return;
    }
    const Mac mac = MacAddress(client ? 31 : 32);
    char text[18];
    std::snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0],
                  mac[1], mac[2], mac[3], mac[4], mac[5]);
    Ip(end, {"link", "set", "x0", "address", text, "mtu", "1400"});
    end.SetUp("x0");
    end.AddAddress("x0", Inner(client ? 1 : 2));
    end.AddNeighbour("x0", Inner(client ? 2 : 1), MacAddress(client ? 32 : 31));
  }
  MeteredCgroup& meter = World::ClientMeter();
  TcpPlan plan(Inner(2), 300007, 200003);
  plan.begin_client = [] { Register("tunnel-vxlan"); };
  Measurement measurement(meter, lab().ClientReference());
  RunTcp(lab().Between(meter.cgroup(), nullptr), plan);
  // IP, UDP, VXLAN and the inner Ethernet header (RFC 7348, 5).
  const int64_t around = (v4() ? 20 : 40) + 8 + 8 + 14;
  measurement.Finish([&](const Packet& packet) -> Remainder {
    if (packet.vxlan_protocol == 0) return {};
    // The devices' own, as Everywhere() names them outside.
    if (packet.vxlan_protocol == 58) return Whole("mld", packet);
    return {"vxlan", around, 0};
  });
  measurement.ExpectBalance();
  measurement.ExpectPayloadOnly(plan.upload, plan.download);
  measurement.ExpectOwner({Kind::kService, "tunnel-vxlan", ""});
  EXPECT_TRUE(measurement.Any([](const Packet& packet) {
    return packet.vxlan_protocol == 6;
  })) << "nothing was encapsulated: this test proves nothing";
}

// A tun device of the calling process, or -1 and errno.
int OpenTun() {
  const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  ifreq request = {};
  std::strcpy(request.ifr_name, "t0");
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(fd, TUNSETIFF, &request) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// An answer to each packet, as echo(7) gives it: addresses and ports change
// places, which leaves the checksums as they are.
void TurnAround(bool v4, std::vector<char>* packet) {
  char* address = packet->data() + (v4 ? 12 : 8);
  const size_t size = v4 ? 4 : 16;
  std::swap_ranges(address, address + size, address + size);
  char* ports = packet->data() + (v4 ? 20 : 40);
  std::swap_ranges(ports, ports + 2, ports + 2);
}

struct TunReport {
  int64_t sent = 0;  // bytes of IP packets out of the device, and into it
  int64_t received = 0;
  int64_t packets = 0;
};

// A VPN: what comes from the device goes to the server by UDP, and back.
void Vpn(int tun, int count, int port, const Address& server, bool v4,
         Child::Parent& parent) {
  const int fd = Connected(server, port, SOCK_DGRAM);
  parent.Send(0);
  TunReport report;
  std::vector<char> packet(2000);
  while (report.packets < count) {
    WaitReadable(tun);
    packet.resize(2000);
    packet.resize(Check(read(tun, packet.data(), packet.size()), "read"));
    // The device's own multicast listener reports belong to no socket of ours.
    if (packet[0] >> 4 != (v4 ? 4 : 6) || packet[v4 ? 9 : 6] != 17) continue;
    report.sent += packet.size();
    ++report.packets;
    Check(send(fd, packet.data(), packet.size(), 0), "send");
    WaitReadable(fd);
    packet.resize(Check(recv(fd, packet.data(), packet.size(), 0), "recv"));
    TurnAround(v4, &packet);
    report.received += packet.size();
    Check(write(tun, packet.data(), packet.size()), "write");
  }
  parent.Send(report);
  parent.Receive<int>();
}

// A service's packets go into a tun device, and a VPN, which is another
// service, sends them on. Both count: each on its own device. The VPN itself
// counts what it reads and writes.
TEST_P(TunnelTest, TunCountsWithinAndAround) {
  constexpr int kCount = 200, kBytes = 700;
  MeteredCgroup& meter = World::ClientMeter();
  const Address server = Server();
  Child echo(nullptr, lab().server, [&](Child::Parent& parent) {
    const int fd = OpenSocket(server.family(), SOCK_DGRAM);
    parent.Send(Bind(fd, server));
    for (;;) {
      std::vector<char> data(2000);
      sockaddr_storage from;
      socklen_t size = sizeof(from);
      WaitReadable(fd);
      data.resize(Check(recvfrom(fd, data.data(), data.size(), 0,
                                 reinterpret_cast<sockaddr*>(&from), &size),
                        "recvfrom"));
      Check(sendto(fd, data.data(), data.size(), 0,
                   reinterpret_cast<sockaddr*>(&from), size),
            "sendto");
    }
  });
  const int port = echo.Receive<int>();
  Child vpn(meter.cgroup(), lab().client, [&](Child::Parent& parent) {
    Register("tunnel-vpn");
    const int tun = OpenTun();
    parent.Send(tun < 0 ? errno : 0);
    parent.Receive<int>();  // it has an address
    Vpn(tun, kCount, port, server, v4(), parent);
  });
  if (const int error = vpn.Receive<int>()) {
    Measurement::NotOnThisKernel("TUNSETIFF: " +
                                 std::string(std::strerror(error)));
    EXPECT_NE(access("/mod/tun.ko", F_OK), 0) << "loaded, but no tun";
    return;
  }
  lab().client.SetUp("t0");
  lab().client.AddAddress("t0", Inner(1));
  Measurement measurement(meter, lab().ClientReference());
  vpn.Send(0);
  vpn.Receive<int>();
  RunChild(meter.cgroup(), lab().client, [&] {
    Register("tunnel-user");
    const int fd = OpenSocket(server.family(), SOCK_DGRAM);
    Connect(fd, Inner(2), 9000);
    for (int i = 0; i < kCount; ++i) {
      SendAll(fd, kBytes);
      ReceiveExactly(fd, kBytes);
    }
  });
  const auto report = vpn.Receive<TunReport>();
  vpn.Send(0);
  vpn.Join();
  measurement.Finish();
  const Owner user = {Kind::kService, "tunnel-user", ""};
  const Owner around = {Kind::kService, "tunnel-vpn", ""};
  EXPECT_EQ(measurement.Of(user).tx_bytes, report.sent);
  EXPECT_EQ(measurement.Of(user).rx_bytes, report.received);
  EXPECT_EQ(measurement.Of(around).tx_bytes, measurement.link().tx_bytes);
  EXPECT_EQ(measurement.Of(around).rx_bytes, measurement.link().rx_bytes);
  Totals within;
  within.tx_bytes = -report.sent;
  within.rx_bytes = -report.received;
  within.tx_packets = within.rx_packets = -report.packets;
  measurement.Explain("tun", within);
  measurement.ExpectBalance();
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
