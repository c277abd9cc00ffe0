// SPDX-License-Identifier: BSD-3-Clause
#include "test/live/soak_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace netmeter {
namespace internal {
namespace {

constexpr char kOtherSenders[] = "live_test";  // the executable of all others

Kind KindOf(const Owner& owner) {
  if (owner.kind != Kind::kEvicted) return owner.kind;
  for (const Kind kind :
       {Kind::kService, Kind::kBinary, Kind::kUnit, Kind::kContainer}) {
    if (owner.name == KindName(kind)) return kind;
  }
  ADD_FAILURE() << "of which kind is what was evicted as " << owner.name << "?";
  return owner.kind;
}

bool BeginsWith(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

// Whether a sender of the soak has this name.
bool IsKnown(const Owner& owner) {
  const std::string& name = owner.name;
  const bool service =
      name == kSoakWitness || BeginsWith(name, kSoakServices) ||
      name == std::string(kSoakPrograms) + std::to_string(kSoakServiceProgram);
  const bool binary = name == kOtherSenders || BeginsWith(name, kSoakPrograms);
  switch (owner.kind) {
    case Kind::kService:
      return service;
    case Kind::kBinary:
      return binary;
    case Kind::kPending:
      return service || binary;
    default:
      return owner.kind == Kind::kUnattributed ||
             owner.kind == Kind::kOverflow || owner.kind == Kind::kEvicted;
  }
}

}  // namespace

SoakKinds KindsOf(const Measurement& measurement) {
  SoakKinds kinds;
  for (const auto& owner : measurement.owners()) {
    Totals& kind = kinds[KindOf(owner.first)];
    kind = Sum(kind, owner.second);
  }
  return kinds;
}

void ExpectNames(const Measurement& measurement, const SoakCounts& sent) {
  for (const auto& owner : measurement.owners()) {
    EXPECT_TRUE(IsKnown(owner.first))
        << KindName(owner.first.kind) << " " << owner.first.name;
  }
  EXPECT_GT(sent.registered, 0) << "of " << sent.refused << " refused";
  EXPECT_GT(sent.witnessed, 0) << "of " << sent.refused << " refused";

  // One name and its two destinations, to the byte, whatever else goes on: they have had
  // room from the beginning, and as a process has the name they are never idle.
  const Totals witness = measurement.Of({Kind::kService, kSoakWitness, ""});
  const Totals named =
      measurement.Of({Kind::kService, kSoakWitness, kSoakWitnessDestination});
  EXPECT_EQ(witness.tx_payload, sent.witness_tx);
  EXPECT_EQ(witness.rx_payload, sent.witness_rx);
  EXPECT_EQ(named.tx_payload, sent.witness_named_tx);
  EXPECT_EQ(named.rx_payload, sent.witness_named_rx);

  // All services together are exact to the byte, except for traffic without room. The
  // service that is known by its executable sends, and receives nothing.
  SoakKinds kinds = KindsOf(measurement);
  const Totals service = kinds[Kind::kService], none = kinds[Kind::kOverflow];
  const int64_t tx = sent.services_tx + sent.witness_tx + sent.witness_named_tx,
                rx = sent.services_rx + sent.witness_rx + sent.witness_named_rx;
  EXPECT_GE(service.tx_payload + none.tx_payload, tx);
  EXPECT_GE(service.rx_payload + none.rx_payload, rx);
  EXPECT_LE(service.tx_payload, tx + sent.program_tx);
  EXPECT_LE(service.rx_payload, rx);

  // Only requests for a new name or destination find no room. (While the tables are full,
  // a process whose series was just evicted may have none; but each time the newcomers
  // have room first.)
  EXPECT_LE(none.tx_payload, sent.newcomers_tx);
  EXPECT_LE(none.rx_payload, sent.newcomers_rx);
  // Each socket has an owner.
  EXPECT_EQ(kinds[Kind::kUnattributed].tx_bytes, 0);
  EXPECT_EQ(kinds[Kind::kUnattributed].rx_bytes, 0);
}

}  // namespace internal
}  // namespace netmeter
