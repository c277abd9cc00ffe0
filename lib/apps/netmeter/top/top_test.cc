// SPDX-License-Identifier: BSD-3-Clause
// Rates and the screen, without a meter and without a terminal;
// lib/apps/netmeter/top/top_root_test.py has both.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "lib/apps/netmeter/top/top_model.h"
#include "lib/apps/netmeter/top/top_view.h"
#include "lib/base/text.h"
#include "lib/base/text_table.h"
#include "lib/reader/words.h"

namespace netmeter {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::string Text(const TextTable& table) { return table.Format(0); }

Sample Of(const std::string& name, const std::string& destination, uint64_t tx,
          uint64_t rx) {
  Sample sample;
  sample.kind = Kind::kService;
  sample.name = name;
  sample.destination = destination;
  sample.transport = Transport::kTcp;
  sample.tx_bytes = tx;
  sample.rx_bytes = rx;
  sample.tcp.known = true;
  return sample;
}

// The bug: a megabyte of last week was the rate of the second in which it was evicted.
TEST(TopModel, EvictionIsNoTraffic) {
  TopModel model;
  model.Update({Of("mme", "streamer", 1000000, 0)}, 1);
  Sample evicted = Of("service", "", 1000000, 0);
  evicted.kind = Kind::kEvicted;
  model.Update({evicted}, 1);
  EXPECT_EQ(model.All().rate(), 0);
  EXPECT_EQ(model.All().tx_bytes, 1000000u);
}

TEST(TopModel, RatesAreDifferencesBySecondsAndTheFirstReadingHasNone) {
  TopModel model;
  model.Update({Of("mme", "streamer", 1000, 500)}, 5);
  EXPECT_EQ(model.Services(TopSort::kRate)[0].rate(), 0);
  Sample later = Of("mme", "streamer", 5000, 1500);
  later.tx_retransmit_bytes = 100;
  later.tcp.opened = 7;
  later.tcp.accepted = 2;
  later.tcp.closed = 4;
  later.tcp.rtt_us = 3000;
  later.tcp.rtt_buckets[2] = 2;
  model.Update({later, Of("mme", "metricsd", 1000, 0)}, 2);
  const std::vector<TopRow> services = model.Services(TopSort::kRate);
  ASSERT_THAT(services, SizeIs(1));
  EXPECT_DOUBLE_EQ(services[0].tx_rate, 2500);  // a new series counts from 0
  EXPECT_DOUBLE_EQ(services[0].rx_rate, 500);
  EXPECT_DOUBLE_EQ(services[0].retransmit_rate, 50);
  EXPECT_DOUBLE_EQ(services[0].rtt_us, 1500);
  EXPECT_EQ(services[0].connections, 5u);
  EXPECT_EQ(services[0].tx_bytes, 6000u);
  EXPECT_DOUBLE_EQ(services[0].share, 1);
  EXPECT_DOUBLE_EQ(services[0].history.back(), 3000);
  const std::vector<TopRow> destinations =
      model.Destinations(services[0], TopSort::kRate);
  ASSERT_THAT(destinations, SizeIs(2));
  EXPECT_EQ(destinations[0].destination, "streamer");
  EXPECT_DOUBLE_EQ(destinations[0].share, 2500.0 / 3000);
  EXPECT_DOUBLE_EQ(destinations[1].rtt_us, -1);
  EXPECT_DOUBLE_EQ(model.All().rate(), 3000);
}

TEST(TopModel, ACounterThatGoesBackIsNoRate) {
  TopModel model;
  model.Update({Of("mme", "", 1000, 0), Of("gone", "", 1, 1)}, 0);
  model.Update({Of("mme", "", 10, 0)}, 1);  // loaded anew
  const std::vector<TopRow> rows = model.Services(TopSort::kName);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].rate(), 0);
}

// Otherwise the total of an address would be the rate of the device that gets it.
TEST(TopModel, AnAddressOfAnotherClientIsNoTraffic) {
  const std::string path = ::testing::TempDir() + "/leases";
  const auto clients = [&path](const std::string& mac) {
    std::ofstream(path) << "1 02:00:00:00:03:02 10.0.0.2 phone *\n1 " << mac
                        << " 10.0.0.3 * *\n";
    return *Clients::Read({"mac", {path}});
  };
  const auto read = [](uint64_t bytes) {
    std::vector<Sample> samples = {Of("lan0", "10.0.0.2", bytes, 0),
                                   Of("lan0", "10.0.0.3", 10 * bytes, 0)};
    for (Sample& sample : samples) sample.kind = kForwardedRow;
    return samples;
  };
  TopModel model;
  model.Update(read(100), 0, {}, clients("02:00:00:00:03:03"));
  model.Update(read(110), 1, {}, clients("02:00:00:00:03:02"));
  const TopRow lan = model.Services(TopSort::kRate)[0];
  const std::vector<TopRow> rows = model.Destinations(lan, TopSort::kRate);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].destination, "02:00:00:00:03:02");
  EXPECT_EQ(rows[0].client_name, "phone");
  EXPECT_EQ(rows[0].tx_rate, 110);
  EXPECT_EQ(rows[0].tx_bytes, 1210u);
  EXPECT_EQ(rows[0].tx_rate, lan.tx_rate);
  EXPECT_THAT(TopTable(rows, false, SizeUnits::kBinary).Format(0),
              HasSubstr("\n02:00:00:00:03:02 (phone) "));
}

TEST(TopModel, WhatWentToAProxyIsARowOfItsOwnAndInNoSum) {
  TopModel model;
  model.Update({}, 0);
  Sample proxy = Of("mme", "streamer", 900, 0);
  proxy.path = Path::kProxy;
  model.Update({Of("mme", "streamer", 100, 0), proxy}, 1);
  const std::vector<TopRow> rows = model.Services(TopSort::kRate);
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_DOUBLE_EQ(rows[0].share, -1);
  EXPECT_DOUBLE_EQ(rows[1].share, 1);
  EXPECT_DOUBLE_EQ(model.All().rate(), 100);
}

// "Uplinks apart": the same service on two of them.
// A forwarded packet is in two uplinks. The shares had three bases, so mme's was 100 %
// beside 50 % of lan0, and the head had no forwarded traffic.
TEST(TopModel, ASharesBaseIsAllTrafficOfThePaidUplinks) {
  Sample lan = Of("lan0", "10.0.0.2", 0, 0), wan = Of("wan0", "", 0, 0);
  lan.kind = wan.kind = kForwardedRow;
  lan.uplink = "wan";
  wan.uplink = "lan";
  Sample mme = Of("mme", "", 1000, 0), container = Of("nginx", "", 3000, 0);
  mme.uplink = "wan";
  TopModel model;
  model.Update({lan, wan}, 0, {"wan"});
  lan.tx_bytes = wan.rx_bytes = 3000;
  model.Update({lan, wan, mme, container}, 1, {"wan"});
  EXPECT_EQ(model.All().rate(), 4000);
  const std::map<std::string, double> shares = {
      {"lan0", .75}, {"mme", .25}, {"wan0", -1}, {"nginx", -1}};
  for (const TopRow& row : model.Services(TopSort::kRate)) {
    EXPECT_DOUBLE_EQ(row.share, shares.at(row.name)) << row.name;
  }
  EXPECT_THAT(TopHead(model, true, SizeUnits::kBinary, 80),
              ElementsAre("total of wan: sent 3.9K/s, received 0/s",
                          "resent 0/s, rtt -, 0 connections, in no total: lan, "
                          "no uplink"));
  EXPECT_THAT(TopHead(model, false, SizeUnits::kBinary, 0)[0],
              HasSubstr("total of wan without forwarded: sent "));
  EXPECT_THAT(
      Text(TopTable(model.Services(TopSort::kRate), true, SizeUnits::kBinary)),
      AllOf(HasSubstr(" 75%"), Not(HasSubstr("-100%"))));
  TopView view(true, SizeUnits::kBinary);
  view.Press(TopKey::kEnter, 0, model);  // lan0
  EXPECT_EQ(view.Rows(model)[0].destination, "10.0.0.2");
  view.Press(TopKey::kEnter, 0, model);
  EXPECT_EQ(view.level(), TopView::Level::kDestinations);
}

TEST(TopModel, EachUplinkOfAServiceIsARow) {
  TopModel model;
  model.Update({}, 0);
  EXPECT_FALSE(model.has_uplinks());
  Sample satellite = Of("mme", "streamer", 300, 0);
  satellite.uplink = "satellite";
  Sample state = Of("mme", "state", 60, 0);
  state.uplink = "satellite";
  Sample mobile = Of("mme", "streamer", 40, 0);
  mobile.uplink = "lte";
  model.Update({satellite, mobile, state}, 1);
  EXPECT_TRUE(model.has_uplinks());
  const std::vector<TopRow> rows = model.Services(TopSort::kRate);
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0].uplink, "satellite");
  EXPECT_DOUBLE_EQ(rows[0].tx_rate, 360);
  EXPECT_DOUBLE_EQ(rows[0].share, 0.9);
  EXPECT_EQ(rows[1].uplink, "lte");
  EXPECT_DOUBLE_EQ(rows[1].tx_rate, 40);
  EXPECT_DOUBLE_EQ(model.All().rate(), 400);
  const std::vector<TopRow> destinations =
      model.Destinations(rows[0], TopSort::kRate);
  ASSERT_THAT(destinations, SizeIs(2));
  EXPECT_EQ(destinations[0].destination, "streamer");
  EXPECT_EQ(destinations[1].uplink, "satellite");

  TopView view(false, SizeUnits::kBinary);
  const auto screen = [&](int width) {
    std::string text;
    for (const ScreenLine& line : view.Render(model, width, 24, 1)) {
      EXPECT_LE(line.text.size(), static_cast<size_t>(width));
      text += line.text + "\n";
    }
    return text;
  };
  for (const int width : {80, 200}) {
    EXPECT_THAT(screen(width), HasSubstr(" UPLINK   "));
    EXPECT_THAT(screen(width), HasSubstr(" satellite     360 "));
  }
  view.Press(TopKey::kEnter, 0, model);
  EXPECT_THAT(screen(80), HasSubstr("services > mme on satellite "));
  EXPECT_EQ(view.service().uplink, "satellite");
}

TEST(TopModel, SparklinesScaleToTheirHighest) {
  std::array<double, kTopHistory> history = {};
  history[kTopHistory - 1] = 800;
  history[kTopHistory - 2] = 1;
  history[kTopHistory - 3] = 400;
  EXPECT_EQ(Sparkline(history, 4, false), " =.#");
  EXPECT_EQ(Sparkline(history, 4, true), " ▄▁█");
  EXPECT_EQ(Sparkline({}, 3, false), "   ");
}

class TopViewTest : public testing::Test {
 protected:
  TopViewTest() : view_(false, SizeUnits::kBinary) {
    std::vector<Sample> samples;
    for (int i = 0; i < 50; i++) {
      samples.push_back(Of("service" + std::to_string(i), "destination", 0, 0));
    }
    samples.push_back(Of("evil\x1b[2J", "", 0, 0));
    model_.Update(samples, 0);
    for (size_t i = 0; i < samples.size(); i++) {
      samples[i].tx_bytes = 1000 * (samples.size() - i);
    }
    model_.Update(samples, 1);
  }

  std::string Screen(int width = 80, int height = 24) {
    std::string text;
    const auto lines = view_.Render(model_, width, height, 1);
    EXPECT_LE(lines.size(), static_cast<size_t>(height));
    for (const ScreenLine& line : lines) {
      EXPECT_LE(line.text.size(), static_cast<size_t>(width));
      text += (line.reverse ? ">" : " ") + line.text + "\n";
    }
    return text;
  }
  bool Press(TopKey key) { return view_.Press(key, 0, model_); }
  bool Type(char c) { return view_.Press(TopKey::kCharacter, c, model_); }

  TopModel model_;
  TopView view_;
};

TEST_F(TopViewTest, FitsEverySizeAndHasNothingThatATerminalObeys) {
  for (const int width : {1, 20, 80, 110, 300}) {
    for (const int height : {1, 2, 4, 5, 24, 100}) {
      EXPECT_EQ(Screen(width, height).find('\x1b'), std::string::npos);
    }
  }
  EXPECT_THAT(Screen(80, 24), HasSubstr(">service0 "));
  EXPECT_THAT(Screen(80, 24), HasSubstr("LAST MINUTE"));
  EXPECT_THAT(Screen(80, 24), Not(HasSubstr("UPLINK")));
  EXPECT_THAT(Screen(120, 100), HasSubstr("evil\\x1b[2J"));
}

TEST_F(TopViewTest, RowsAreChosenScrolledAndOpened) {
  Screen();
  for (int i = 0; i < 30; i++) Press(TopKey::kDown);
  EXPECT_THAT(Screen(), HasSubstr(">service30 "));
  Press(TopKey::kEnd);
  EXPECT_THAT(Screen(), HasSubstr(">evil"));
  Press(TopKey::kHome);
  Press(TopKey::kDown);
  Press(TopKey::kEnter);
  EXPECT_EQ(view_.level(), TopView::Level::kDestinations);
  EXPECT_THAT(Screen(), HasSubstr("services > service1  "));
  EXPECT_THAT(Screen(), HasSubstr(">destination "));
  Press(TopKey::kEnter);
  EXPECT_EQ(view_.level(), TopView::Level::kSockets);
  EXPECT_EQ(view_.service().name, "service1");
  EXPECT_EQ(view_.destination().destination, "destination");
  TopSockets sockets;
  sockets.columns = {{"STATE"}, {"LOCAL"}};
  sockets.rows = {{{"LISTEN", "192.0.2.1:6"}, 0, 90, 0, 0},
                  {{"ESTABLISHED", "192.0.2.1:5"}, 10, 20, 1, 5}};
  view_.SetSockets(sockets);
  EXPECT_THAT(Screen(), HasSubstr("\n STATE        LOCAL "));
  EXPECT_THAT(Screen(), HasSubstr(">ESTABLISHED  192.0.2.1:5"));
  // The order was only in the first line, not in the rows.
  Type('s');
  EXPECT_THAT(Screen(), HasSubstr("by total"));
  EXPECT_THAT(Screen(), HasSubstr(">LISTEN       192.0.2.1:6"));
  Type('s');
  EXPECT_THAT(Screen(), HasSubstr(">ESTABLISHED  192.0.2.1:5"));
  Press(TopKey::kBack);
  Press(TopKey::kBack);
  Press(TopKey::kBack);
  EXPECT_EQ(view_.level(), TopView::Level::kServices);
}

// The table of sockets ended at "TCPI" on 80 columns.
TEST_F(TopViewTest, WholeColumnsOfSocketsGoAndAFilterStillFindsTheirText) {
  Press(TopKey::kEnter);
  Press(TopKey::kEnter);
  TopSockets sockets;
  sockets.columns = {{"LOCAL"}, {"TCPI_RTT", TextColumn::kRight, 1}};
  sockets.rows = {{{std::string(20, 'a'), "1.5 ms"}},
                  {{std::string(20, 'b'), "2.5 ms"}}};
  view_.SetSockets(sockets);
  EXPECT_THAT(Screen(30), HasSubstr("TCPI_RTT"));
  EXPECT_THAT(Screen(29), Not(HasSubstr("TCPI")));
  for (const char c : std::string("/2.5")) Type(c);
  EXPECT_THAT(Screen(29), HasSubstr("bbb"));
  EXPECT_THAT(Screen(29), Not(HasSubstr("aaa")));
}

// On 80 columns the head ended at "1 connectio". The "(proxy)" of a long name was cut to
// "~", so two rows looked alike.
TEST_F(TopViewTest, NothingIsCutFromTheHeadAndNoRowLosesItsPath) {
  std::vector<Sample> samples = {Of("control_proxy_of_the_host", "", 0, 0)};
  samples.push_back(samples[0]);
  samples[1].path = Path::kProxy;
  samples[0].tcp.opened = samples[1].tcp.opened = 1;
  for (uint64_t uplinks = 0; uplinks < 2; ++uplinks) {
    if (uplinks == 1) samples[0].uplink = "satellite";
    TopModel model;
    model.Update(samples, 0);
    for (Sample& sample : samples) {
      sample.tx_bytes += 123456789;
      sample.tx_retransmit_bytes += 123456789;
      sample.tcp.rtt_us += 123456789;
      sample.tcp.rtt_buckets[9] += 1000;
    }
    model.Update(samples, 1);
    TopView view(false, SizeUnits::kBinary);
    std::string text;
    for (const ScreenLine& line : view.Render(model, 80, 24, 1)) {
      text += line.text + "\n";
    }
    EXPECT_THAT(text, HasSubstr("rtt 123 ms, 1 connection, in no total: "
                                "(proxy)  "));
    EXPECT_THAT(text,
                ContainsRegex(uplinks == 1 ? "~ +satellite " : "~ +direct "));
    EXPECT_THAT(text, ContainsRegex("~ +\\(proxy\\) "));
  }
}

TEST_F(TopViewTest, WideNamesShiftNothing) {
  model_.Update({Of("卫星链路", "", 1, 0), Of("mme", "", 1, 0)}, 1);
  const auto lines = view_.Render(model_, 80, 7, 1);
  for (const ScreenLine& line : lines) {
    EXPECT_EQ(DisplayWidth(line.text), 80u) << line.text;
  }
  EXPECT_THAT(lines[4].text, HasSubstr("mme                      1       0 "));
  EXPECT_THAT(lines[5].text, HasSubstr("卫星链路                 1       0 "));
}

// The head said "3 connections", and below it stood "(nothing)".
class TopViewSocketsTest : public testing::Test {
 protected:
  TopViewSocketsTest() : view_(false, SizeUnits::kBinary) {
    Sample streamer = Of("mme", "streamer", 1, 0),
           untagged = Of("mme", "", 1, 0);
    streamer.tcp.opened = 3;
    untagged.tcp.opened = 1;
    model_.Update({streamer, untagged}, 0);
    view_.Press(TopKey::kEnter, 0, model_);
  }

  // The sockets of a destination, as a screen.
  std::string Screen(const std::string& destination, uint64_t shown,
                     uint64_t other_networks, uint64_t of_service,
                     const std::string& error = "") {
    while (view_.level() != TopView::Level::kDestinations) {
      view_.Press(TopKey::kBack, 0, model_);
    }
    view_.Press(destination.empty() ? TopKey::kHome : TopKey::kEnd, 0, model_);
    view_.Press(TopKey::kEnter, 0, model_);
    EXPECT_EQ(view_.destination().destination, destination);
    TopSockets sockets;
    sockets.columns = {{"LOCAL"}};
    sockets.rows.assign(shown, {{"192.0.2.1:5"}});
    sockets.connections = shown;
    sockets.other_networks = other_networks;
    sockets.of_service = of_service;
    sockets.error = error;
    view_.SetSockets(sockets);
    std::string text;
    for (const ScreenLine& line : view_.Render(model_, 80, 12, 1)) {
      text += line.text.substr(0, line.text.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

  TopModel model_;
  TopView view_;
};

TEST_F(TopViewSocketsTest, TheHeadCountsWhatTheTableHas) {
  EXPECT_THAT(
      Screen("streamer", 3, 2, 4),
      HasSubstr("\nconnections: 3 counted, 3 shown, 2 of these in other "
                "network namespaces\nLOCAL\n192.0.2.1:5\n"));
}

TEST_F(TopViewSocketsTest, AConnectionThatIsNotShownHasAReason) {
  EXPECT_THAT(
      Screen("streamer", 1, 0, 2),
      HasSubstr("\nconnections: 3 counted, 1 shown\n"
                "(2 not found: just ended, or in a network namespace that "
                "cannot be found or\n entered; netmeter flows prints each "
                "connection when it ends)\nLOCAL\n192.0.2.1:5\n"));
  // It was tagged after it was opened.
  EXPECT_THAT(
      Screen("", 0, 0, 4),
      HasSubstr("\nconnections: 1 counted, 0 shown\n(1 opened here have "
                "another destination now: Backspace)\n"));
  EXPECT_THAT(Screen("streamer", 4, 0, 4),
              HasSubstr("\n(1 shown here were opened before they had this "
                        "destination)\nLOCAL\n"));
  EXPECT_THAT(Screen("streamer", 0, 0, 0, "open /run: denied (run as root)"),
              HasSubstr("\nconnections: 3 counted\n"
                        "(sockets: open /run: denied (run as root))\n"));
}

TEST_F(TopViewTest, AFilterIsTypedAndTakenOff) {
  Type('/');
  Type('q');  // a letter of the filter, and no end
  EXPECT_THAT(Screen(), HasSubstr("/q_"));
  EXPECT_THAT(Screen(), HasSubstr("(nothing)"));
  Press(TopKey::kBack);
  for (const char c : std::string("e4")) Type(c);
  Press(TopKey::kEnter);
  EXPECT_THAT(Screen(), HasSubstr("service4 "));
  EXPECT_THAT(Screen(), HasSubstr("service42 "));
  EXPECT_THAT(Screen(), Not(HasSubstr("service5 ")));
  Press(TopKey::kEscape);
  EXPECT_THAT(Screen(), HasSubstr("service5 "));
}

TEST_F(TopViewTest, AKeyHidesIdleRows) {
  model_.Update({Of("busy", "", 1, 0), Of("service0", "", 0, 0)}, 1);
  // A series of this reading has its whole count as rate: service0 had its own before.
  for (size_t i = 0; i < kTopHistory; i++) {
    EXPECT_THAT(Screen(), HasSubstr("service0 ")) << i;
    model_.Update({Of("busy", "", i, 0), Of("service0", "", 0, 0)}, 1);
  }
  Type('i');
  EXPECT_THAT(Screen(), HasSubstr("  without idle rows"));
  EXPECT_THAT(Screen(), HasSubstr(">busy "));
  EXPECT_THAT(Screen(), Not(HasSubstr("service0 ")));
  Type('i');
  EXPECT_THAT(Screen(), HasSubstr(" service0 "));
}

TEST_F(TopViewTest, AKeyShowsProcesses) {
  Press(TopKey::kEnter);
  Type('t');
  EXPECT_EQ(view_.level(), TopView::Level::kProcesses);
  TopSockets processes;
  processes.columns = {{"PROCESS"}};
  processes.rows = {{{"mme/7"}, 1, 0, 0, 0}, {{"curl/8"}, 2, 0, 0, 0}};
  view_.SetSockets(processes);
  EXPECT_THAT(Screen(), HasSubstr(" processes  every 1 s  by rate"));
  EXPECT_THAT(Screen(), HasSubstr("\n PROCESS"));
  EXPECT_THAT(Screen(), HasSubstr("\n>curl/8"));
  Press(TopKey::kEnter);
  EXPECT_EQ(view_.level(), TopView::Level::kProcesses);
  Type('t');
  EXPECT_EQ(view_.level(), TopView::Level::kServices);
}

TEST_F(TopViewTest, KeysSortPauseHelpAndQuit) {
  EXPECT_THAT(Screen(), HasSubstr("by rate"));
  Type('s');
  EXPECT_THAT(Screen(), HasSubstr("by total"));
  Type('p');
  EXPECT_TRUE(view_.paused());
  EXPECT_THAT(Screen(), HasSubstr("PAUSED"));
  Type('?');
  EXPECT_THAT(Screen(), HasSubstr("KEYS AND COLUMNS"));
  EXPECT_TRUE(Type('q'));  // closes the help
  view_.SetMessage("no meter");
  EXPECT_THAT(Screen(), HasSubstr("no meter"));
  Press(TopKey::kNone);
  EXPECT_THAT(Screen(), HasSubstr("no meter"));
  EXPECT_FALSE(Type('q'));
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
