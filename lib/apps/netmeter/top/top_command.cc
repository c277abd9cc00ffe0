// SPDX-License-Identifier: BSD-3-Clause
// `netmeter top`: services and destinations live on a terminal.

#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lib/apps/clients/clients.h"
#include "lib/apps/connections/fields.h"
#include "lib/apps/connections/format.h"
#include "lib/apps/connections/poll.h"
#include "lib/apps/connections/reverse_names.h"
#include "lib/apps/netmeter/commands.h"
#include "lib/apps/netmeter/options.h"
#include "lib/apps/netmeter/top/top_model.h"
#include "lib/apps/netmeter/top/top_view.h"
#include "lib/apps/netmeter/uplinks.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/netlink/networks.h"
#include "lib/reader/words.h"
#include "netmeter/meter.h"

namespace netmeter {
namespace internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kTopFooter[] = R"(
Keys: up and down choose a row; Enter opens its destinations, then the sockets of
one; Backspace goes back; t: processes; s: next order; i: no idle rows; /: filter;
p: pause; q: quit; ?: help on keys and columns.

A row is a service or another series. Traffic over loopback to a proxy has a row of its
own, (proxy). If the configuration has uplinks, a service has a row for each uplink, and
forwarded traffic has a row of kind forwarded for the interface at the other side. With
forwarded_clients, Enter opens its clients, which --clients and --client-names describe.

The lines above the table are the total, of which SHARE is a part: the traffic of the
uplinks, or without uplinks this host's own. The total leaves out, and lists: uplinks of
forwarded_clients, which have forwarded traffic a second time; interfaces in no uplink
(other); traffic without an uplink, such as that of containers, which the total has as
forwarded; and (proxy). It has no unnamed traffic, so it is not the whole bill.

A row of a process (t) is the sum over its open TCP connections. UDP and ended
connections are in the rows of services. Sockets are those of all network namespaces.
The lines above them have the number of connections that the meter counts there, and the
reason if some are not shown.

Exit status: 0 ended by q or a signal, or printed; 1 failed, one line on stderr
says why; 2 wrong usage.

Examples:
  netmeter top
  netmeter top --interval 5
  netmeter top --once          one table, after one interval
  netmeter top --once --json   the same for programs
)";

volatile sig_atomic_t g_ended = 0;
void End(int) { g_ended = 1; }

// ncurses, from the constructor to the destructor.
class Terminal {
 public:
  // Returns false if curses does not know this type of terminal.
  bool Open() {
    screen_ = newterm(nullptr, stdout, stdin);
    if (screen_ == nullptr) return false;
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    set_escdelay(50);
    return true;
  }
  ~Terminal() {
    if (screen_ == nullptr) return;
    endwin();
    delscreen(screen_);
  }

  void Show(const std::vector<ScreenLine>& lines) {
    erase();
    for (size_t i = 0; i < lines.size(); i++) {
      const attr_t attributes = (lines[i].bold ? A_BOLD : A_NORMAL) |
                                (lines[i].reverse ? A_REVERSE : A_NORMAL);
      attrset(attributes);
      mvaddnstr(static_cast<int>(i), 0, lines[i].text.c_str(),
                static_cast<int>(lines[i].text.size()));
    }
    attrset(A_NORMAL);
    refresh();
  }

  // Whether the terminal has gone, after which every read fails at once. SIGHUP only
  // reaches the session that owns the terminal.
  static bool HasGone() {
    pollfd input = {STDIN_FILENO, 0, 0};
    return poll(&input, 1, 0) > 0;
  }

  // Waits for a key, for at most timeout_ms.
  TopKey Read(int timeout_ms, char* character) {
    timeout(timeout_ms);
    const int key = getch();
    switch (key) {
      case KEY_UP:
        return TopKey::kUp;
      case KEY_DOWN:
        return TopKey::kDown;
      case KEY_PPAGE:
        return TopKey::kPageUp;
      case KEY_NPAGE:
        return TopKey::kPageDown;
      case KEY_HOME:
        return TopKey::kHome;
      case KEY_END:
        return TopKey::kEnd;
      case '\r':
      case '\n':
      case KEY_ENTER:
        return TopKey::kEnter;
      case KEY_BACKSPACE:
      case KEY_LEFT:
      case 127:
      case 8:
        return TopKey::kBack;
      case 27:
        return TopKey::kEscape;
      default:
        break;
    }
    if (key < ' ' || key > '~') return TopKey::kNone;
    *character = static_cast<char>(key);
    return TopKey::kCharacter;
  }

 private:
  SCREEN* screen_ = nullptr;
};

nlohmann::ordered_json ToJson(const TopRow& row) {
  nlohmann::ordered_json json = {
      {"kind", KindName(row.kind)},
      {"name", ToUtf8(row.name)},
      {"destination", ToUtf8(row.destination)},
      {"path", PathName(row.path)},
      {"uplink", ToUtf8(row.uplink)},
      {"tx_bytes_per_second", row.tx_rate},
      {"rx_bytes_per_second", row.rx_rate},
      {"share", nullptr},
      {"tx_retransmit_bytes_per_second", row.retransmit_rate},
      {"rtt_us", nullptr},
      {"connections", row.connections},
      {"tx_bytes", row.tx_bytes},
      {"rx_bytes", row.rx_bytes}};
  if (row.share >= 0) json["share"] = row.share;
  if (row.rtt_us >= 0) json["rtt_us"] = row.rtt_us;
  if (!row.client_name.empty()) json["client_name"] = ToUtf8(row.client_name);
  return json;
}

// Whether a series counts this socket as an open connection.
bool IsConnection(const DiagSocket& socket) {
  if (socket.protocol != IPPROTO_TCP) return false;
  switch (socket.state) {
    case TCP_ESTABLISHED:
    case TCP_FIN_WAIT1:
    case TCP_FIN_WAIT2:
    case TCP_CLOSE_WAIT:
    case TCP_LAST_ACK:
    case TCP_CLOSING:
      return true;
    default:
      return false;
  }
}

// Payload bytes of a socket, as TCP counts them: retransmitted ones included.
struct SocketBytes {
  uint64_t sent;
  uint64_t received;
};

// Whether both ends are this host's. The meter does not count such packets either.
bool IsLoopback(const DiagSocket& socket) {
  const auto& remote = socket.remote_address;
  in6_addr address = {};
  memcpy(&address, remote.data(), sizeof(address));
  return remote == socket.local_address ||
         (socket.family == AF_INET
              ? remote[0] == IN_LOOPBACKNET
              : IN6_IS_ADDR_V4MAPPED(&address) && remote[12] == IN_LOOPBACKNET);
}

// 0 if the socket has no such field.
uint64_t NumberOf(const SocketRow& row, absl::string_view field) {
  FieldValue value;
  FindField(field)->read(row, &value);
  return value.number;
}

class TopCommand : public Command {
 public:
  std::string Name() const override { return "top"; }

  std::string Description() const override {
    return "Shows services and destinations live, down to their sockets";
  }

  void Declare(Flags* flags) override {
    AddPinDir(flags, &pin_dir_);
    flags->AddOption("--interval", &interval_, "Seconds between two readings")
        .Type("SECONDS")
        .InRange(0.1, 3600.0, Option::InHelp::kNo)
        .ShowDefault();
    const Option once = flags->AddFlag(
        "--once", &once_, "Read twice, print the rates once, and end");
    flags
        ->AddFlag("--names", &with_names_,
                  "Sockets have the name of the remote address, by DNS and\n"
                  "/etc/hosts; asking is traffic of the program netmeter")
        .Excludes(once);
    const Option units = AddUnits(flags, &sizes_);
    flags
        ->AddFlag("--json", &json_,
                  "With --once: a JSON array, a row for each destination")
        .Needs(once)
        .Excludes(units);
    AddClientOptions(flags, &client_options_);
    flags->SetFooter(kTopFooter);
  }

  absl::Status CheckOptions() override { return CheckPinDir(pin_dir_); }

  int Run() override {
    units_ = sizes_.Or(MeterUnits(pin_dir_));
    MeterOptions options;
    options.pin_dir = pin_dir_;
    auto meter = Meter::Open(options);
    if (!meter.ok()) return Fail(meter.status().message());
    meter_ = std::move(*meter);
    const absl::Status status = Read();
    if (!status.ok()) return Fail(status.message());
    return once_ ? RunOnce() : RunLive();
  }

 private:
  // The rates of sockets since the reading before, which this one replaces.
  class SocketRates {
   public:
    explicit SocketRates(TopCommand* top)
        : top_(top), before_(std::exchange(top->socket_bytes_, {})) {
      const Clock::time_point now = Clock::now();
      seconds_ =
          std::chrono::duration<double>(now - top->sockets_read_).count();
      top->sockets_read_ = now;
    }

    // Adds a socket to `to`, except its round trip. Payload bytes a second: sent and
    // received.
    std::pair<double, double> Add(const SocketRow& row, TopSocket* to) {
      const SocketBytes total = {NumberOf(row, "tcpi_bytes_sent"),
                                 NumberOf(row, "tcpi_bytes_received")};
      top_->socket_bytes_[row.socket->cookie] = total;
      to->bytes += total.sent + total.received;
      to->retransmits += NumberOf(row, "tcpi_total_retrans");
      const auto before = before_.find(row.socket->cookie);
      if (before == before_.end()) return {0, 0};
      const auto rate = [this](uint64_t now, uint64_t then) {
        return static_cast<double>(now - then) / seconds_;
      };
      const std::pair<double, double> rates = {
          rate(total.sent, before->second.sent),
          rate(total.received, before->second.received)};
      to->rate += rates.first + rates.second;
      return rates;
    }

   private:
    TopCommand* const top_;
    const std::map<uint64_t, SocketBytes> before_;
    double seconds_;
  };

  absl::Status Read() {
    auto samples = meter_->ReadHost();
    if (!samples.ok()) return samples.status();
    has_forwarded_ = AddForwardedRows(*meter_, &*samples).ok();
    const Clock::time_point now = Clock::now();
    auto clients = Clients::Read(client_options_);
    if (!clients.ok()) return clients.status();
    model_.Update(*samples, std::chrono::duration<double>(now - last_).count(),
                  ReadPaidUplinks(pin_dir_), *std::move(clients));
    last_ = now;
    return absl::OkStatus();
  }

  Clock::duration Interval() const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(interval_));
  }

  int RunOnce() {
    std::this_thread::sleep_for(Interval());
    const absl::Status status = Read();
    if (!status.ok()) return Fail(status.message());
    const std::vector<TopRow> services = model_.Services(TopSort::kRate);
    if (!json_) {
      const size_t width = TerminalWidth();
      const auto head = TopHead(model_, has_forwarded_, units_, width);
      return Print(absl::StrCat(
          absl::StrJoin(head, "\n"), "\n",
          TopTable(services, model_.has_uplinks(), units_).Format(width)));
    }
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const TopRow& service : services) {
      for (const TopRow& row : model_.Destinations(service, TopSort::kRate)) {
        array.push_back(ToJson(row));
        if (!has_forwarded_ && !row.uplink.empty()) {
          array.back()["sum_lacks"] = KindName(kForwardedRow);
        }
      }
    }
    return Print(array.dump(2) + "\n");
  }

  // Reads the sockets of the open row, or the processes.
  void ReadSockets(TopView* view) {
    if (view->level() < TopView::Level::kSockets) return;
    if (sockets_ == nullptr) sockets_ = std::make_unique<SocketPoll>(pin_dir_);
    if (view->level() == TopView::Level::kProcesses) {
      view->SetSockets(ReadProcesses());
      return;
    }
    PollOptions options;
    options.all_networks = true;  // because the series cover all of them
    options.filter.services = {view->service().name};
    if (model_.has_uplinks()) {
      options.filter.uplinks = {view->service().uplink};
    }
    if (with_names_ && !names_.has_value()) names_.emplace();
    if (with_names_) options.names = &*names_;
    auto columns = ParseColumns(absl::StrCat(
        "state,", with_names_ ? "remote,remote_name" : "local,remote",
        ",process,tcpi_rtt,tcpi_total_retrans,tcpi_snd_cwnd,tcpi_bytes_sent,"
        "tcpi_bytes_received"));
    if (!columns.ok()) return;
    TopSockets sockets;
    sockets.columns = TextColumns(*columns, /*keep_all=*/false);
    const auto rates = [](auto* cells) { return cells->begin() + 4; };
    sockets.columns.insert(rates(&sockets.columns),
                           {{"SENT/S", TextColumn::kRight, 1, 0, 6},
                            {"RECV/S", TextColumn::kRight, 1, 0, 6}});
    SocketRates rates_of(this);
    const uint64_t own = OwnNetwork().inode;
    const absl::Status status =
        sockets_->Run(options, [&](const SocketRow& row) {
          const bool connection = IsConnection(*row.socket);
          sockets.of_service += connection ? 1 : 0;
          if (row.owner->destination != view->destination().destination) return;
          TopSocket shown;
          shown.cells = Cells(*columns, row, units_);
          const auto [sent, received] = rates_of.Add(row, &shown);
          shown.cells.insert(
              rates(&shown.cells),
              {ShortBytes(sent, units_), ShortBytes(received, units_)});
          shown.rtt_us = NumberOf(row, "tcpi_rtt");
          sockets.rows.push_back(std::move(shown));
          if (!connection) return;
          sockets.connections++;
          if (row.network != own) sockets.other_networks++;
        });
    sockets.error = ErrorOf(status);
    view->SetSockets(std::move(sockets));
  }

  // What the TCP connections of each process have now. The meter's counters know no
  // process, because a series is as old as the meter.
  TopSockets ReadProcesses() {
    PollOptions options;
    options.all_networks = true;
    options.protocols = {IPPROTO_TCP};
    const bool uplinks = model_.has_uplinks();
    const auto columns =
        ParseColumns(uplinks ? "user,service,uplink" : "user,service");
    TopSockets sockets;
    if (!columns.ok()) return sockets;
    sockets.columns = TextColumns(*columns, /*keep_all=*/false);
    sockets.columns.insert(sockets.columns.begin(),
                           {"PROCESS", TextColumn::kLeft, 0, 23});
    for (const char* header : {"SENT/S", "RECV/S", "CONN", "TOTAL"}) {
      sockets.columns.push_back({header, TextColumn::kRight, 0, 0, 6});
    }
    struct Process {
      TopSocket shown;
      double sent = 0, received = 0;
      uint64_t connections = 0;
    };
    std::map<std::vector<std::string>, Process> processes;
    SocketRates rates_of(this);
    const absl::Status status =
        sockets_->Run(options, [&](const SocketRow& row) {
          if (!IsConnection(*row.socket) || IsLoopback(*row.socket)) return;
          std::string holder;
          row.holders->ForEach(row.socket->inode, [&](const Holder& one) {
            if (!holder.empty()) return;
            holder = absl::StrCat(ToTerminal(*one.name), "/", one.pid);
          });
          std::vector<std::string> cells = Cells(*columns, row, units_);
          cells.insert(cells.begin(), holder.empty() ? "-" : holder);
          Process& process = processes[std::move(cells)];
          const auto [sent, received] = rates_of.Add(row, &process.shown);
          process.sent += sent;
          process.received += received;
          process.connections++;
        });
    for (auto& pair : processes) {
      Process& process = pair.second;
      process.shown.cells = pair.first;
      for (const std::string& cell :
           {ShortBytes(process.sent, units_),
            ShortBytes(process.received, units_),
            absl::StrCat(process.connections),
            ShortBytes(static_cast<double>(process.shown.bytes), units_)}) {
        process.shown.cells.push_back(cell);
      }
      sockets.rows.push_back(std::move(process.shown));
    }
    sockets.error = ErrorOf(status);
    return sockets;
  }

  // Why sockets are missing, or have no service: without a meter, or without root.
  std::string ErrorOf(const absl::Status& run) const {
    const absl::Status& read =
        sockets_->attribution().ok() ? run : sockets_->attribution();
    return read.ok() ? "" : ToTerminal(read.message());
  }

  int RunLive() {
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
      return Fail(
          "standard input and output must be a terminal (for scripts: "
          "netmeter top --once --json)");
    }
    setlocale(LC_CTYPE, "");
    const bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    // Names are UTF-8 in any locale, as in `list`. In a locale without UTF-8, curses
    // would show each byte of a name by itself.
    if (!utf8) setlocale(LC_CTYPE, "C.UTF-8");
    Terminal terminal;
    if (!terminal.Open()) {
      return Fail("unknown type of terminal: check the variable TERM");
    }
    for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action = {};
      action.sa_handler = End;
      sigaction(signal_number, &action, nullptr);
    }
    TopView view(utf8, units_);
    // The first rates come soon.
    Clock::time_point next =
        last_ +
        std::min<Clock::duration>(Interval(), std::chrono::milliseconds(500));
    while (g_ended == 0) {
      view.SetHasForwarded(has_forwarded_);
      terminal.Show(view.Render(model_, COLS, LINES, interval_));
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          next - Clock::now());
      char character = 0;
      const TopView::Level level = view.level();
      const TopKey key = terminal.Read(
          static_cast<int>(std::max<int64_t>(left.count(), 0)), &character);
      if (key == TopKey::kNone && terminal.HasGone()) break;
      if (!view.Press(key, character, model_)) break;
      if (view.level() != level) ReadSockets(&view);
      if (Clock::now() < next) continue;
      next = Clock::now() + Interval();
      if (view.paused()) continue;
      const absl::Status status = Read();
      view.SetMessage(status.ok() ? "" : ToTerminal(status.message()));
      ReadSockets(&view);
    }
    return 0;
  }

  std::string pin_dir_;
  double interval_ = 1;
  bool once_ = false;
  bool json_ = false;
  bool has_forwarded_ = true;
  SizeOptions sizes_;
  ClientOptions client_options_;
  SizeUnits units_ = SizeUnits::kBinary;
  std::unique_ptr<Meter> meter_;
  std::unique_ptr<SocketPoll> sockets_;
  bool with_names_ = false;
  std::optional<ReverseNames> names_;
  // From the last reading of sockets.
  std::map<uint64_t, SocketBytes> socket_bytes_;
  Clock::time_point sockets_read_;
  TopModel model_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace

std::unique_ptr<Command> NewTopCommand() {
  return std::make_unique<TopCommand>();
}

}  // namespace internal
}  // namespace netmeter
