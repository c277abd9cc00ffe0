#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# static_test.sh PROGRAM...: each needs no shared library, and runs in a root without any
# other file.
set -euo pipefail
root=$(mktemp -d "${TEST_TMPDIR:-/tmp}/root.XXXXXX")
fail() { echo "FAILED: $*"; exit 1; }

for program in "$@"; do
  name=$(basename "$program")
  cp "$program" "$root/$name"
  # An interpreter would be the dynamic linker.
  if readelf -lW "$root/$name" | grep -w INTERP; then fail "$name has an interpreter"; fi
  if readelf -dW "$root/$name" | grep -w NEEDED; then fail "$name needs a shared library"; fi
  output=$(unshare --user --map-root-user --root="$root" "/$name" --version) || fail "$name --version in an empty folder"
  [[ $output = "${name%-static} "[0-9]* ]] || fail "$name --version says: $output"
  echo "$name: $(stat -c %s "$root/$name") bytes"
  rm "$root/$name"
done
