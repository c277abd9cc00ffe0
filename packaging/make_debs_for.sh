#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# make_debs_for.sh [--static] SUITE [ARCH] [DIR]: makes the Debian packages of this tree
# for another release or another machine, in a root of that release (in_root.sh).
#
#   packaging/make_debs_for.sh trixie
#   packaging/make_debs_for.sh noble
#   packaging/make_debs_for.sh bookworm arm64
#   packaging/make_debs_for.sh --static bookworm arm64
#
# ARCH is amd64 (default) or arm64, which is cross-built. The packages are in DIR (default
# packaging/build/SUITE-ARCH). --static: see make_debs.sh. Needs root, and
# test/install_packages.sh package.
set -euo pipefail
die() { echo "make_debs_for.sh: $*" >&2; exit 1; }

static=()
case ${1:-} in
  -h | --help | "") sed -n '3,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --static) static=(--static); shift ;;
esac
[[ ${1:-} =~ ^[a-z]+$ ]] || die "needs SUITE (--help)"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
suite=$1 arch=${2:-amd64}
output=${3:-$here/build/${static:+static-}$suite-$arch}
mkdir -p "$output"
"$here/in_root.sh" --out "$output" "$suite" "$arch" packaging/make_debs.sh "${static[@]}" /out
echo "packages: $output"
