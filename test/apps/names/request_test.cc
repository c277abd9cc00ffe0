// SPDX-License-Identifier: BSD-3-Clause
// Compares the parser of requests in HTTP/2 with nghttp2, which writes them.

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bpf/wire_name_testing.h"

namespace netmeter {
namespace internal {
namespace {

TEST(Nghttp2Test, WhatNghttp2WritesIsRead) {
  const std::string names[] = {kName,
                               "a",
                               "127.0.0.1:8443",
                               "[::1]:8443",
                               "UPPER.example",
                               std::string(64, 'x'),
                               std::string(90, '~'),
                               "metricsd-controller.magma.test:7443",
                               "xn--bcher-kva.example",
                               "*&^%$#@!"};
  for (const std::string& name : names) {
    for (size_t position = 0; position < 6; position++) {
      for (uint8_t flags : {0, int{NGHTTP2_NV_FLAG_NO_INDEX}}) {
        for (size_t table : {0, 64, 4096, 1 << 20}) {
          std::vector<std::pair<std::string, std::string>> fields = {
              {":method", "POST"},
              {":scheme", "http"},
              {":path", "/magma.orc8r.Streamer/GetUpdates"},
              {"user-agent", "grpc-c++/1.51.1"},
              {"cookie", std::string(200, 'c')}};
          fields.insert(fields.begin() + position, {":authority", name});
          std::vector<nghttp2_nv> list;
          for (auto& field : fields) {
            nghttp2_nv nv = {};
            nv.name = reinterpret_cast<uint8_t*>(&field.first[0]);
            nv.namelen = field.first.size();
            nv.value = reinterpret_cast<uint8_t*>(&field.second[0]);
            nv.valuelen = field.second.size();
            nv.flags = flags;
            list.push_back(nv);
          }
          nghttp2_hd_deflater* deflater = nullptr;
          ASSERT_EQ(nghttp2_hd_deflate_new(&deflater, 4096), 0);
          ASSERT_EQ(nghttp2_hd_deflate_change_table_size(deflater, table), 0);
          std::string block(
              nghttp2_hd_deflate_bound(deflater, list.data(), list.size()), 0);
          const ssize_t size = nghttp2_hd_deflate_hd(
              deflater, reinterpret_cast<uint8_t*>(&block[0]), block.size(),
              list.data(), list.size());
          nghttp2_hd_deflate_del(deflater);
          ASSERT_GT(size, 0);
          block.resize(size);
          nm_naming n;
          nm_naming_start(&n, NM_WIRE_H2);
          Feed(&n, kPreface + Frame(4, 0, "") +
                       Frame(1, NM_H2_FLAG_END_HEADERS, block));
          const std::string shown = Show(n);
          ASSERT_TRUE(shown == "huffman:" + name || shown == name.substr(0, 64))
              << name << " is " << shown;
        }
      }
    }
  }
}

}  // namespace
}  // namespace internal
}  // namespace netmeter
