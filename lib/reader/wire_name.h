// SPDX-License-Identifier: BSD-3-Clause
// Turns a name from the wire, "streamer-cloud.example:443" in :authority, SNI or Host,
// into the destination's label, "streamer".
//
// The kernel part only copies the name (bpf/wire_name.bpf.h). Decoding and suffixes would
// cost time for each connection, and complicate verification. So each reader makes the
// label, from the same bytes and with the suffixes that the loader published in `info`.
// All readers get the same label. Several names may have one label ("a.local",
// "A.local:443"): code that publishes series sums those with equal labels.
//
// Threads: any.

#ifndef NETMETER_LIB_READER_WIRE_NAME_H_
#define NETMETER_LIB_READER_WIRE_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// Decodes the Huffman code of RFC 7541 section 5.2; false if the code is invalid.
bool DecodeHuffman(absl::string_view code, std::string* text);

// The label of a name: decoded, in lower case (RFC 4343), without its port, and without
// the first of the suffixes that matches its end. A name without such a suffix is kept,
// or becomes "other" with `fold_unknown`. So does a name that cannot be decoded. The
// kernel part may have cut a name of NM_NAME_BYTES that is not Huffman code: at its end
// the beginning of a suffix is removed, too.
std::string LabelOfWireName(absl::string_view bytes, bool huffman,
                            const std::vector<std::string>& suffixes,
                            bool fold_unknown);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_WIRE_NAME_H_
