/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled as C11: a reader that uses the layout alone. */
#include "netmeter/abi.h"

nm_u64 sent_bytes(const struct nm_info *info, const struct nm_cell *counters,
                  unsigned slot);

nm_u64 sent_bytes(const struct nm_info *info, const struct nm_cell *counters,
                  unsigned slot) {
  nm_u64 sum = 0;

  for (unsigned i = 0; i < info->cells_per_series; i++)
    sum += counters[slot * info->cells_per_series + i].tx_bytes;
  return sum;
}
