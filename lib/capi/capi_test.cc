// SPDX-License-Identifier: BSD-3-Clause
// Tests the C API without a meter: a wrong call returns an error, and does not crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "lib/base/version.h"
#include "lib/testing/failing_new.h"
#include "netmeter/connections_c.h"
#include "netmeter/magma_c.h"

namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kNoMeter[] = "/nonexistent/netmeter";

netmeter_options Waiting() {
  netmeter_options options = NETMETER_OPTIONS_INIT;
  options.pin_dir = kNoMeter;
  options.wait_for_loader = 1;
  return options;
}

TEST(CapiTest, TheHeaderIsOfTheLibrarysVersion) {
  EXPECT_STREQ(netmeter_version(), NETMETER_VERSION);
  EXPECT_STREQ(netmeter_version(), netmeter::internal::kVersion);
}

TEST(CapiTest, WithoutAMeterOpenIsNotFoundAndLeavesTheOutputAlone) {
  netmeter_options options = NETMETER_OPTIONS_INIT;
  options.pin_dir = kNoMeter;
  netmeter_meter* const before = reinterpret_cast<netmeter_meter*>(0x10);
  netmeter_meter* meter = before;
  netmeter_error error;
  EXPECT_EQ(netmeter_open(&options, &meter, &error), NETMETER_NOT_FOUND);
  EXPECT_EQ(meter, before);
  EXPECT_EQ(error.code, NETMETER_NOT_FOUND);
  EXPECT_THAT(error.message, StartsWith("no meter at /nonexistent/netmeter"));
  // A caller that passes no error struct gets only the code.
  EXPECT_EQ(netmeter_open(&options, &meter, nullptr), NETMETER_NOT_FOUND);
}

TEST(CapiTest, AMessageThatIsTooLongIsCut) {
  const std::string pin_dir = "/" + std::string(3000, 'x');
  netmeter_options options = NETMETER_OPTIONS_INIT;
  options.pin_dir = pin_dir.c_str();
  netmeter_meter* meter;
  netmeter_error error;
  memset(&error, 'y', sizeof(error));
  EXPECT_NE(netmeter_open(&options, &meter, &error), NETMETER_OK);
  EXPECT_THAT(std::string(error.message), SizeIs(NETMETER_MESSAGE_BYTES - 1));
}

TEST(CapiTest, OptionsOfAnotherSizeAreRefusedOrUnderstood) {
  netmeter_options options = Waiting();
  options.size = sizeof(options) - 8;
  netmeter_meter* meter = nullptr;
  netmeter_error error;
  EXPECT_EQ(netmeter_open(&options, &meter, &error), NETMETER_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("size"));
  // A newer caller's struct: the part after ours is ignored.
  struct {
    netmeter_options options = Waiting();
    uint64_t more = 1;
  } larger;
  larger.options.size = sizeof(larger);
  EXPECT_EQ(netmeter_open(&larger.options, &meter, &error), NETMETER_OK);
  netmeter_close(meter);
}

TEST(CapiTest, ANameHasOneToSixtyFourBytesWithoutNul) {
  netmeter_options options = Waiting();
  netmeter_meter* meter;
  ASSERT_EQ(netmeter_open(&options, &meter, nullptr), NETMETER_OK);
  const std::string longest(64, 'n');
  EXPECT_EQ(netmeter_register(meter, longest.data(), 64, nullptr), NETMETER_OK);
  netmeter_error error;
  for (const std::string& name :
       {std::string(), std::string(65, 'n'), std::string("a\0b", 3)}) {
    const auto expect_refused = [&](int code) {
      EXPECT_EQ(code, NETMETER_INVALID_ARGUMENT) << name;
      EXPECT_NE(error.message[0], '\0');
    };
    expect_refused(netmeter_register(meter, name.data(), name.size(), &error));
    expect_refused(netmeter_register_process(name.data(), name.size(), &error));
    expect_refused(netmeter_tag_socket(0, name.data(), name.size(), &error));
    expect_refused(
        netmeter_set_socket_service(0, name.data(), name.size(), &error));
    options.service = name.data();
    options.service_length = name.size();
    netmeter_meter* other;
    expect_refused(netmeter_open(&options, &other, &error));
  }
  EXPECT_EQ(netmeter_register(meter, nullptr, 5, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_tag_socket(-1, "streamer", 8, &error),
            NETMETER_INVALID_ARGUMENT);
  netmeter_close(meter);
}

// A failed call may have left -1 in a length. The bugs: with such a length abseil ended
// the program, and such a size of a struct made the library write zeros up to the end of
// memory.
TEST(CapiTest, ALengthThatIsNoneIsAnError) {
  netmeter_options options = Waiting();
  netmeter_meter* meter;
  ASSERT_EQ(netmeter_open(&options, &meter, nullptr), NETMETER_OK);
  netmeter_samples* samples = netmeter_samples_new();
  netmeter_metrics* metrics = netmeter_metrics_new();
  for (const size_t length : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 20}) {
    netmeter_error error;
    const auto expect_refused = [&](int code) {
      EXPECT_EQ(code, NETMETER_INVALID_ARGUMENT) << length;
      EXPECT_THAT(error.message, HasSubstr("at most"));
    };
    expect_refused(netmeter_register_process("x", length, &error));
    expect_refused(netmeter_tag_socket(0, "x", length, &error));
    expect_refused(netmeter_set_socket_service(0, "x", length, &error));
    expect_refused(netmeter_register(meter, "x", length, &error));
    expect_refused(netmeter_read_service(meter, "x", length, samples, &error));
    uint64_t families = 7;
    expect_refused(netmeter_parse_families("x", length, &families, &error));
    EXPECT_EQ(families, 7u);
    EXPECT_EQ(netmeter_has_family(7, "x", length), 0);
    const char* bytes;
    size_t size;
    expect_refused(netmeter_serialize_service_info(
        meter, "x", length, "1", 1, 0, metrics, &bytes, &size, &error));
    expect_refused(netmeter_serialize_service_info(
        meter, "x", 1, "1", length, 0, metrics, &bytes, &size, &error));
    options = Waiting();
    options.service = "x";
    options.service_length = length;
    netmeter_meter* other;
    expect_refused(netmeter_open(&options, &other, &error));
    netmeter_health health = {};
    health.size = length;
    EXPECT_NE(netmeter_read_health(meter, &health, &error), NETMETER_OK);
    options = Waiting();
    options.size = length;
    EXPECT_EQ(netmeter_open(&options, &other, &error),
              NETMETER_INVALID_ARGUMENT);
    EXPECT_THAT(error.message, HasSubstr("size"));
  }
  netmeter_metrics_free(metrics);
  netmeter_samples_free(samples);
  netmeter_close(meter);
}

TEST(CapiTest, ReadsWithoutAMeterWaitForIt) {
  netmeter_options options = Waiting();
  netmeter_meter* meter;
  ASSERT_EQ(netmeter_open(&options, &meter, nullptr), NETMETER_OK);
  netmeter_samples* const samples = netmeter_samples_new();
  netmeter_error error;
  EXPECT_EQ(netmeter_read_host(meter, samples, &error), NETMETER_UNAVAILABLE);
  EXPECT_THAT(error.message, StartsWith("waiting for a meter"));
  EXPECT_EQ(netmeter_read_service(meter, "mme", 3, samples, &error),
            NETMETER_UNAVAILABLE);
  EXPECT_EQ(netmeter_read_service(meter, nullptr, 0, samples, &error),
            NETMETER_FAILED_PRECONDITION);
  EXPECT_EQ(netmeter_samples_count(samples), 0u);
  EXPECT_EQ(netmeter_samples_get(samples, 0), nullptr);
  netmeter_health health;
  health.size = sizeof(health);
  health.series = 7;
  EXPECT_EQ(netmeter_read_health(meter, &health, &error), NETMETER_UNAVAILABLE);
  EXPECT_EQ(health.series, 7u);
  netmeter_samples_free(samples);
  netmeter_close(meter);
}

TEST(CapiTest, NullIsAnErrorOrNothing) {
  netmeter_error error;
  EXPECT_EQ(netmeter_open(nullptr, nullptr, &error), NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_register(nullptr, "mme", 3, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_read_host(nullptr, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_read_service(nullptr, nullptr, 0, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_read_uplinks(nullptr, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_read_health(nullptr, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
  netmeter_options options = Waiting();
  netmeter_meter* meter;
  ASSERT_EQ(netmeter_open(&options, &meter, nullptr), NETMETER_OK);
  EXPECT_EQ(netmeter_read_host(meter, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_read_uplinks(meter, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
  netmeter_uplinks* const uplinks = netmeter_uplinks_new();
  EXPECT_EQ(netmeter_read_uplinks(meter, uplinks, &error),
            NETMETER_UNAVAILABLE);
  EXPECT_EQ(netmeter_uplinks_count(uplinks), 0u);
  EXPECT_EQ(netmeter_uplinks_get(uplinks, 0), nullptr);
  netmeter_uplinks_free(uplinks);
  EXPECT_EQ(netmeter_read_health(meter, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
  netmeter_close(meter);
  netmeter_close(nullptr);
  netmeter_samples_free(nullptr);
  netmeter_uplinks_free(nullptr);
  EXPECT_EQ(netmeter_samples_count(nullptr), 0u);
  EXPECT_EQ(netmeter_uplinks_count(nullptr), 0u);
}

// The message for a NULL meter is too long for a string without an allocation. The bug:
// without memory std::bad_alloc went through the caller, which may be written in C.
TEST(CapiTest, WhatIsPublishedWithoutAMeterIsThatThereIsNone) {
  netmeter_metrics* const metrics = netmeter_metrics_new();
  netmeter_publish_options options = NETMETER_PUBLISH_OPTIONS_INIT;
  for (const auto* given :
       {&options, static_cast<netmeter_publish_options*>(nullptr)}) {
    ASSERT_EQ(netmeter_read_metrics(nullptr, given, metrics, nullptr),
              NETMETER_OK);
    ASSERT_EQ(netmeter_metrics_count(metrics), 1u);
    const netmeter_metric& up = *netmeter_metrics_get(metrics, 0);
    EXPECT_EQ(up.size, sizeof(up));
    EXPECT_STREQ(up.family, "netmeter_up");
    EXPECT_EQ(up.type, NETMETER_TYPE_GAUGE);
    EXPECT_EQ(up.label_count, 0u);
    EXPECT_EQ(up.value, 0u);
    EXPECT_EQ(netmeter_metrics_get(metrics, 1), nullptr);
    const char* bytes = nullptr;
    size_t length = 0;
    ASSERT_EQ(netmeter_serialize_metrics(nullptr, given, nullptr, metrics,
                                         &bytes, &length, nullptr),
              NETMETER_OK);
    EXPECT_THAT(std::string(bytes, length), HasSubstr("netmeter_up"));
    ASSERT_EQ(
        netmeter_serialize_service_info(nullptr, "mme", 3, "1.2", 3, 77,
                                        metrics, &bytes, &length, nullptr),
        NETMETER_OK);
    EXPECT_THAT(std::string(bytes, length), HasSubstr("no meter"));
  }
  netmeter_metrics_free(metrics);
}

TEST(CapiTest, PublishOptionsOfAnotherKindAreRefused) {
  netmeter_metrics* const metrics = netmeter_metrics_new();
  netmeter_visitor* visitor = nullptr;
  netmeter_publish_options smaller = NETMETER_PUBLISH_OPTIONS_INIT;
  --smaller.size;
  netmeter_publish_options no_scope = NETMETER_PUBLISH_OPTIONS_INIT;
  no_scope.scope = 3;
  // The bug: it was accepted, and then the error was "not enough memory".
  netmeter_publish_options no_families = NETMETER_PUBLISH_OPTIONS_INIT;
  no_families.families = uint64_t{1} << 63;
  const char* bytes = nullptr;
  size_t length = 0;
  for (const auto* options : {&smaller, &no_scope, &no_families}) {
    EXPECT_EQ(netmeter_read_metrics(nullptr, options, metrics, nullptr),
              NETMETER_INVALID_ARGUMENT);
    EXPECT_EQ(netmeter_serialize_metrics(nullptr, options, nullptr, metrics,
                                         &bytes, &length, nullptr),
              NETMETER_INVALID_ARGUMENT);
    EXPECT_EQ(netmeter_visitor_new(nullptr, options, &visitor, nullptr),
              NETMETER_INVALID_ARGUMENT);
  }
  netmeter_magma_options magma = NETMETER_MAGMA_OPTIONS_INIT;
  --magma.size;
  EXPECT_EQ(netmeter_serialize_metrics(nullptr, nullptr, &magma, metrics,
                                       &bytes, &length, nullptr),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(bytes, nullptr);
  EXPECT_EQ(visitor, nullptr);
  netmeter_metrics_free(metrics);
}

TEST(CapiTest, FamiliesAreChosenByName) {
  uint64_t families = 0;
  netmeter_error error;
  ASSERT_EQ(netmeter_parse_families("bytes", 5, &families, &error),
            NETMETER_OK);
  const uint64_t bytes = families;
  EXPECT_NE(bytes, 0u);
  EXPECT_EQ(netmeter_has_family(bytes, "netmeter_wire_bytes_total", 25), 1);
  EXPECT_EQ(netmeter_has_family(bytes, "netmeter_series", 15), 0);
  EXPECT_EQ(netmeter_parse_families("byte", 4, &families, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("did you mean"));
  // The bug: this was a choice of no family at all.
  EXPECT_EQ(netmeter_parse_families(nullptr, 0, &families, nullptr),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(families, bytes);
  EXPECT_STREQ(netmeter_scope_name(NETMETER_SCOPE_UNREGISTERED),
               "unregistered");
}

TEST(CapiTest, NullWhereNothingCanBePublishedIsAnError) {
  EXPECT_EQ(netmeter_parse_families("all", 3, nullptr, nullptr),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_read_metrics(nullptr, nullptr, nullptr, nullptr),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_serialize_metrics(nullptr, nullptr, nullptr, nullptr,
                                       nullptr, nullptr, nullptr),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_visitor_new(nullptr, nullptr, nullptr, nullptr),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_visit(nullptr, nullptr, nullptr, nullptr),
            NETMETER_INVALID_ARGUMENT);
  netmeter_metrics_free(nullptr);
  netmeter_visitor_free(nullptr);
}

// Counts the sockets in *context, and ends the visit at the second.
int TakeTwo(const netmeter_connection* connection, void* context) {
  EXPECT_EQ(connection->size, sizeof(*connection));
  EXPECT_STREQ(connection->state, "CLOSE");
  return ++*static_cast<int*>(context) == 2 ? 1234 : NETMETER_OK;
}

TEST(CapiTest, AVisitEndsWhenTheCallbackSaysSo) {
  const int sockets[] = {socket(AF_INET, SOCK_STREAM, 0),
                         socket(AF_INET, SOCK_STREAM, 0),
                         socket(AF_INET6, SOCK_STREAM, 0)};
  int count = 0;
  netmeter_error error = {};
  EXPECT_EQ(netmeter_visit_connections(TakeTwo, &count, &error), 1234);
  EXPECT_EQ(error.code, 1234);
  EXPECT_STREQ(error.message, "take() returned an error");
  EXPECT_EQ(count, 2);
  for (const int fd : sockets) close(fd);
  count = 2;
  EXPECT_EQ(netmeter_visit_connections(TakeTwo, &count, nullptr), NETMETER_OK);
  EXPECT_EQ(count, 2);
}

// The bug: each row had 1 KiB for the tcp_info of future kernels, of which they fill 280.
int TakeOne(const netmeter_connection* connection, void* context) {
  EXPECT_EQ(connection->size, sizeof(*connection));
  EXPECT_EQ(connection->fd, *static_cast<int*>(context));
  tcp_info info = {};
  EXPECT_GE(connection->tcp_info_length, sizeof(info));
  memcpy(&info, connection->tcp_info, sizeof(info));
  EXPECT_EQ(info.tcpi_state, TCP_CLOSE);
  *static_cast<int*>(context) = -1;
  return 1234;
}

TEST(CapiTest, AConnectionIsReadByACallback) {
  int context = socket(AF_INET, SOCK_STREAM, 0);
  const int fd = context;
  netmeter_error error = {};
  EXPECT_EQ(netmeter_read_connection(fd, TakeOne, &context, &error), 1234);
  EXPECT_EQ(error.code, 1234);
  EXPECT_EQ(context, -1);
  close(fd);
  EXPECT_EQ(netmeter_read_connection(fd, TakeOne, &context, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_read_connection(fd, nullptr, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(netmeter_visit_connections(nullptr, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
}

// "name=text" or "name=value" of each field.
int AppendField(const netmeter_flow_field* field, void* context) {
  auto* const text = static_cast<std::string*>(context);
  *text +=
      std::string(field->name) + "=" +
      (field->text != nullptr ? std::string(field->text, field->text_length)
                              : std::to_string(field->value)) +
      " ";
  if (field->number == 13) {
    EXPECT_EQ(field->value, uint64_t{NETMETER_KIND_SERVICE});
  } else if (field->number == 16) {
    EXPECT_EQ(field->value, UINT64_MAX);
  }
  if (field->label != nullptr) {
    *text += std::string(field->label, field->label_length) + " ";
  }
  return field->number == 34 ? 1234 : NETMETER_OK;
}

TEST(CapiTest, FieldsOfAFlowHaveTheirNames) {
  // record "flow", kind "service", service "mme", transport of a newer netmeter,
  // tx_bytes 300, label "site" "ulm", and a field of a newer netmeter
  const std::string bytes(
      "\x30\x0a\x04"
      "flow\x6a\x07service\x72\x03mme\x82\x01\x04quic\xf0\x01\xac\x02"
      "\xe2\x02\x0b\x0a\x04site\x12\x03ulm\x98\x06\x05"
      "next");
  std::string text;
  size_t used = 7;
  netmeter_error error;
  for (const size_t incomplete : {size_t{0}, size_t{1}, size_t{18}}) {
    EXPECT_EQ(netmeter_decode_flow(bytes.data(), incomplete, AppendField, &text,
                                   &used, &error),
              NETMETER_OK);
    EXPECT_EQ(used, 0U);
    EXPECT_EQ(text, "");
  }
  EXPECT_EQ(netmeter_decode_flow(bytes.data(), bytes.size(), AppendField, &text,
                                 &used, &error),
            NETMETER_OK);
  EXPECT_EQ(used, 49U);
  EXPECT_EQ(text,
            "record=flow kind=service service=mme transport=quic tx_bytes=300 "
            "labels=ulm site ");
  // tx_payload_bytes 1, at which AppendField() ends the visit
  const std::string other(
      "\x09\x0a\x04"
      "flow\x90\x02\x01");
  EXPECT_EQ(netmeter_decode_flow(other.data(), other.size(), AppendField, &text,
                                 &used, &error),
            1234);
  EXPECT_EQ(
      netmeter_decode_flow("\x01\x02", 2, AppendField, &text, &used, &error),
      NETMETER_DATA_LOSS);
  EXPECT_EQ(used, 49U);
  EXPECT_EQ(netmeter_decode_flow(nullptr, 0, nullptr, nullptr, nullptr, &error),
            NETMETER_INVALID_ARGUMENT);
  EXPECT_EQ(
      netmeter_decode_flow("\x01", SIZE_MAX, AppendField, &text, &used, &error),
      NETMETER_INVALID_ARGUMENT);
}

TEST(CapiTest, NullWithoutMemoryIsAnErrorToo) {
  for (int call = 0; call < 4; ++call) {
    netmeter::internal::FailNew fail(0, /*and_after=*/true);
    netmeter_error error;
    const int code =
        call == 0   ? netmeter_register(nullptr, "mme", 3, &error)
        : call == 1 ? netmeter_read_host(nullptr, nullptr, &error)
        : call == 2
            ? netmeter_read_service(nullptr, nullptr, 0, nullptr, &error)
            : netmeter_read_health(nullptr, nullptr, &error);
    const bool failed = fail.Failed();
    EXPECT_TRUE(failed) << call;
    EXPECT_EQ(code, NETMETER_RESOURCE_EXHAUSTED) << call;
  }
}

}  // namespace
