#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# build.sh [TARGET...]: compiles the fuzzers, all if none is named, as OSS-Fuzz asks for
# it. For each, $OUT gets fuzz_TARGET, its seeds (fuzz_TARGET_seed_corpus.zip) and
# libFuzzer's options (fuzz_TARGET.options).
#
#   OUT                 the folder, which must exist
#   CXX, CXXFLAGS       the compiler, with the sanitizer's flags (default: clang++, asan
#                       and ubsan). CC, CFLAGS and SANITIZER are for others: no C here
#   LIB_FUZZING_ENGINE  the engine (default: libFuzzer)
#   SRC, WORK           if CXXFLAGS has -stdlib=libc++: the folder of abseil-cpp, because
#                       the system's abseil is of libstdc++, and a folder to build it in
#
# All libraries but those of the compiler and libc are linked statically, because the
# machines that run the fuzzers have none. nghttp2 and zlib are the system's, so not for
# MemorySanitizer.
set -euo pipefail
die() { echo "build.sh: $*" >&2; exit 1; }
if [[ ${1:-} = -h || ${1:-} = --help ]]; then
  sed -n '3,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit
fi
[ -d "${OUT:-}" ] || die "OUT is no folder: '${OUT:-}'"
OUT=$(realpath -- "$OUT")

# TARGET: its longest input, and sources
declare -A targets=(
  [h2]='512 lib/reader/wire_name.cc'
  [tls]='2048'
  [http]='512'
  [command_line]='1024 lib/loader/processes.cc lib/base/proc.cc'
  [wire_name]='96 lib/reader/wire_name.cc'
  [grpc]='4096 lib/apps/exporter/grpc_session.cc lib/apps/exporter/output_queue.cc lib/apps/exporter/reply_cache.cc'
  [http_request]='512 lib/apps/exporter/http_peer.cc lib/apps/exporter/output_queue.cc'
)
[ $# -gt 0 ] || set -- "${!targets[@]}"
: "${CXX:=clang++}" "${LIB_FUZZING_ENGINE:=-fsanitize=fuzzer}"
: "${CXXFLAGS:=-O2 -g -fno-omit-frame-pointer -Wall -Wextra -Werror -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all}"

if [[ $CXXFLAGS = *-stdlib=libc++* ]]; then
  : "${SRC:?has to name the folder of abseil-cpp}" "${WORK:?has to name a folder to build abseil in}"
  SRC=$(realpath -- "$SRC") WORK=$(realpath -- "$WORK")
  [ -d "$SRC/abseil-cpp" ] || die "SRC has no abseil-cpp: $SRC (clone https://github.com/abseil/abseil-cpp there)"
  export CXX CXXFLAGS # for cmake
  cmake -S "$SRC/abseil-cpp" -B "$WORK/abseil" -DCMAKE_CXX_STANDARD=17 > /dev/null
  cmake --build "$WORK/abseil" --parallel "$(nproc)" --target statusor strings > /dev/null
  mapfile -t archives < <(find "$WORK/abseil" -name 'libabsl_*.a')
  abseil=("-I$SRC/abseil-cpp" '-Wl,--start-group' "${archives[@]}" '-Wl,--end-group')
else
  read -ra abseil < <(pkg-config --cflags --libs absl_statusor absl_strings)
fi

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
for target; do
  [[ -v targets[$target] ]] || die "no target '$target': ${!targets[*]}"
  read -r longest sources <<< "${targets[$target]}"
  # shellcheck disable=SC2086 # lists of words
  "$CXX" -std=c++17 $CXXFLAGS -iquote . -I include -DNETMETER_FROM_SOURCE "test/fuzz/fuzz_$target.cc" $sources \
    -o "$OUT/fuzz_$target" -Wl,-Bstatic "${abseil[@]}" -lnghttp2 -lz -Wl,-Bdynamic $LIB_FUZZING_ENGINE
  printf '[libfuzzer]\nmax_len = %s\ntimeout = 10\n' "$longest" > "$OUT/fuzz_$target.options"
  python3 -m zipfile -c "$OUT/fuzz_${target}_seed_corpus.zip" "test/fuzz/corpus/$target"/*
done
