// SPDX-License-Identifier: BSD-3-Clause
// The clients behind this host: whose an address is, and what that client is called.
//
//   ClientOptions options;
//   AddClientOptions(flags, &options);
//   ...
//   auto clients = Clients::Read(options);
//   clients->IdentityOf("10.0.0.7", "br0");      // "02:00:00:00:03:02"
//   clients->NameOf("02:00:00:00:03:02");        // "phone"
//
// Threads: any, once it is read.

#ifndef NETMETER_LIB_APPS_CLIENTS_CLIENTS_H_
#define NETMETER_LIB_APPS_CLIENTS_CLIENTS_H_

#include <netinet/in.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/flags.h"

namespace netmeter {
namespace internal {

struct ClientOptions {
  std::string identities;  // of --clients
  std::vector<std::string> name_files;

  // Whether rows may differ from those of addresses without names.
  bool any() const { return !identities.empty() || !name_files.empty(); }
};

// Adds --clients and --client-names.
void AddClientOptions(Flags* flags, ClientOptions* options);

class Clients {
 public:
  // The identity of each client is its address.
  Clients() = default;

  // Reads the kernel's neighbours in the network namespace of this process, asks wg(8),
  // and reads the files, as far as the options say. Blocks for 10 seconds at most, if wg
  // does not answer. Errors are one line:
  //   InvalidArgument     a line of a file has no known format, or it is too large
  //   NotFound            no such file; or wg is not installed
  //   FailedPrecondition  wg failed, such as without root
  // and those of open(2) and netlink(7).
  static absl::StatusOr<Clients> Read(const ClientOptions& options);

  // The MAC address or the public key of the client that has this address; or the address
  // itself if none is known, or if it is no address. `interface`: the one that leads to
  // the client; "": not known.
  std::string IdentityOf(const std::string& address,
                         const std::string& interface) const;

  // Whether the options ask for MAC addresses.
  bool has_macs() const;

  // The public key of the WireGuard peer; "": none.
  std::string PeerOf(const std::string& address,
                     const std::string& interface) const;

  // The name of an identity; "": none.
  std::string NameOf(const std::string& identity) const;

 private:
  // "": not known.
  std::string MacOfAddress(const std::string& address,
                           const std::string& interface) const;

  struct Peer {
    std::string interface, key;
    in6_addr prefix;
    int length;  // in bits
  };

  absl::Status ReadNeighbours();
  void ShareName(const std::string& address, const std::string& mac);
  absl::Status ReadPeers();
  absl::Status ReadNames(const std::string& path);
  bool ReadLine(absl::string_view line);

  std::vector<std::string> identities_;
  // MAC addresses by address and interface: a host elsewhere may claim the address.
  std::map<std::pair<std::string, std::string>, std::string> neighbours_;
  std::map<std::string, std::string> leases_;  // MAC addresses by address
  std::vector<Peer> peers_;
  std::map<std::string, std::string> names_;  // by identity
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_CLIENTS_CLIENTS_H_
