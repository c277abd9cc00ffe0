#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# link_library.sh SHARED SONAME STATIC EXPORTS ARCHIVE... -- LIBRARY...
#
# Makes the shared and the static library; library.bzl explains how and why. A
# LIBRARY of the system is "absl_status", or a pattern, "absl_*". NETMETER_CXX replaces
# the compiler g++: aarch64-linux-gnu-g++ (build --action_env).
set -euo pipefail
export LC_ALL=C # the order of patterns
compiler=${NETMETER_CXX:-g++}
shared=$1 soname=$2 static=$3 exports=$4
shift 4
archives=()
while [ "$1" != -- ]; do
  archives+=("$1")
  shift
done
shift
system_archives=() system_shared=()
for library; do
  folder=$(dirname "$("$compiler" -print-file-name="lib${library/\*/base}.a")")
  # shellcheck disable=SC2206 # patterns
  archives_found=("$folder"/lib$library.a) shared_found=("$folder"/lib$library.so)
  system_archives+=("${archives_found[@]}")
  # Without a shared one, as for glibc 2.31, the archives go into the library.
  if [ -e "${shared_found[0]}" ]; then system_shared+=("${shared_found[@]}"); else system_shared+=("${archives_found[@]}"); fi
done

"$compiler" -shared -o "$shared" -Wl,-soname,"$soname" -Wl,--version-script="$exports" \
  -Wl,--whole-archive "${archives[@]}" -Wl,--no-whole-archive \
  -Wl,--as-needed -Wl,--start-group "${system_shared[@]}" -Wl,--end-group -Wl,--no-as-needed \
  -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-s

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$compiler" -r -nostdlib -o "$scratch/all.o" -Wl,--force-group-allocation \
  -Wl,--whole-archive "${archives[@]}" -Wl,--no-whole-archive \
  -Wl,--start-group "${system_archives[@]}" -Wl,--end-group
# The names between "global:" and "local:". LLVM's objcopy also makes
# STB_GNU_UNIQUE symbols local; that of binutils does not.
sed -n '/global:/,/local:/s/^ *\(netmeter_[a-z_]*\);$/\1/p' "$exports" > "$scratch/names"
llvm-objcopy --keep-global-symbols="$scratch/names" --strip-debug "$scratch/all.o" "$scratch/netmeter.o"
rm -f "$static"
# D: no times and owners, so that two builds give the same bytes.
ar rcsD "$static" "$scratch/netmeter.o"
