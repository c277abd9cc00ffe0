#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# make_library.sh [DIR]: makes the library for hosts whose glibc is 2.31 or newer, such as
# Debian 11 and Ubuntu 20.04 to 22.04: netmeter-VERSION-glibc2.31-x86_64.tar.gz, in DIR
# (default packaging/build). On such a host:
#
#   tar -xzC / -f netmeter-*-glibc2.31-x86_64.tar.gz && ldconfig
#
# installs headers, libnetmeter.so.1, libnetmeter.a, and files for pkg-config and CMake
# below /usr/local. Both libraries have their abseil in them. Two runs on one commit give
# the same bytes. Needs what glibc_2_31.sh says.
set -euo pipefail
die() { echo "make_library.sh: $*" >&2; exit 1; }

case ${1:-} in
  -h | --help) sed -n '3,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) die "unknown option '$1' (--help tells)" ;;
esac
mkdir -p "${1:-$(dirname "$0")/build}"
output=$(cd "${1:-$(dirname "$0")/build}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=packaging/glibc_2_31.sh
. packaging/glibc_2_31.sh
for_glibc_2_31
version=$(sed -n 's/^#define NETMETER_VERSION "\(.*\)"$/\1/p' include/netmeter/netmeter.h)
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
umask 022

bazel build "${options[@]}" //:libnetmeter
build=$(bazel info "${options[@]}" bazel-bin 2> /dev/null)
/usr/bin/python3 lib/capi/symbols_test.py "$build/lib/capi/libnetmeter.so.1" "$build/lib/capi/libnetmeter.a" lib/capi/exports.lds \
  include/netmeter/{netmeter,connections_c,magma_c,publish_c}.h || die "a library does not show the C API alone"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
packaging/install.sh --build "$build" --destdir "$scratch/tree" --prefix /usr/local library
file=netmeter-$version-glibc2.31-x86_64.tar.gz
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$scratch/tree" -c usr |
  gzip -n > "$output/$file"
echo "$output/$file: $(stat -c %s "$output/$file") bytes"
