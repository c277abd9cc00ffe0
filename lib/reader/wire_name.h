// SPDX-License-Identifier: BSD-3-Clause
// From a name as it stood on the wire, "streamer-cloud.example:443" in
// :authority, SNI or Host, to the destination's label, "streamer".
//
// The kernel part copies the name and does nothing else with it
// (bpf/wire_name.bpf.h): decoding and suffixes would cost each connection, and
// a verifier. So each reader makes the label, of the same bytes, with the
// suffixes that the loader published in `info`, and all readers come to the
// same one. Several names may have one label ("a.local", "A.local:443"):
// whoever publishes adds up series whose labels are equal.
//
// Threads: any.

#ifndef NETMETER_LIB_READER_WIRE_NAME_H_
#define NETMETER_LIB_READER_WIRE_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace netmeter {
namespace internal {

// Decodes the Huffman code of RFC 7541 section 5.2; false if it is none.
bool DecodeHuffman(absl::string_view code, std::string* text);

// The label of a name: decoded, in lower case (RFC 4343), without its port and
// without the first of the suffixes that it ends with. A name without any is
// kept, or "other" with `fold_unknown`, as is a name that cannot be decoded. A name
// of NM_NAME_BYTES that is not Huffman code may have been cut by the kernel part: from
// it the beginning of a suffix is taken off, too.
std::string LabelOfWireName(absl::string_view bytes, bool huffman,
                            const std::vector<std::string>& suffixes,
                            bool fold_unknown);

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_READER_WIRE_NAME_H_
