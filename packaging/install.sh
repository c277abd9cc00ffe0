#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs Bazel's output in the places where other builds and hosts look for it:
#
#   bazel build -c opt //packaging
#   packaging/install.sh [--prefix DIR] [--libdir DIR] [--destdir DIR] [COMPONENT...]
#
#   library   headers, libnetmeter.so.1, libnetmeter.a, pkg-config file, CMake package
#   loader    netmeter-loader, netmeter-fds
#   tools     netmeter
#   exporter  netmeter-exporter
#   ipfix     netmeter-ipfix
#   python    the package `netmeter` for /usr/bin/python3
#
# Without COMPONENT it installs the library and all programs. The default of --prefix is
# /usr/local, that of --libdir PREFIX/lib. --destdir is put in front of both, for
# packages. --build DIR has Bazel's output (default bazel-bin). --machine TRIPLET is the
# machine that it was cross-built for, such as aarch64-linux-gnu. --static takes the
# static programs.
set -euo pipefail

die() { echo "install.sh: $*" >&2; exit 1; }

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
prefix=/usr/local libdir='' destdir='' build=$source/bazel-bin machine='' static='' components=()
while [ $# -gt 0 ]; do
  case $1 in
    --prefix | --libdir | --destdir | --build | --machine)
      [ $# -ge 2 ] || die "$1 needs a value"
      declare "${1#--}=$2"
      shift 2
      ;;
    -h | --help) sed -n '3,21s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --static) static=-static; shift ;;
    library | loader | tools | exporter | ipfix | python) components+=("$1"); shift ;;
    *) die "unknown argument '$1' (--help lists them)" ;;
  esac
done
[ ${#components[@]} -gt 0 ] || components=(library loader tools exporter ipfix)
libdir=${libdir:-$prefix/lib}
# Both are written into files for pkg-config and CMake.
for directory in "$prefix" "$libdir"; do
  [[ $directory =~ ^/[A-Za-z0-9@%+=:,._/~-]*$ ]] || die "'$directory' is no absolute path of letters, digits and @%+=:,._/~-"
done
to_prefix=$(realpath -m --no-symlinks --relative-to="$libdir" "$prefix")
version=$(sed -n 's/^#define NETMETER_VERSION "\(.*\)"$/\1/p' "$source/include/netmeter/netmeter.h")
[ -n "$version" ] || die "no version in include/netmeter/netmeter.h"

# put MODE FROM TO
put() {
  [ -e "$2" ] || die "$2 is missing (run: bazel build -c opt //packaging)"
  install -D -m "$1" "$2" "$destdir$3"
}

# fill TEMPLATE TO: fills in the folders and the version. CMake's files use folders
# relative to their own, because the tree may be a sysroot, or moved.
fill() {
  install -d "$(dirname "$destdir$2")"
  sed -e "s|@prefix@|$prefix|g; s|@libdir@|$libdir|g; s|@version@|$version|g; s|@to_prefix@|$to_prefix|g" \
    "$source/packaging/$1" > "$destdir$2"
  chmod 644 "$destdir$2"
}

install_library() {
  local header
  for header in "$source"/include/netmeter/*.h; do
    put 644 "$header" "$prefix/include/netmeter/${header##*/}"
  done
  put 644 "$build/lib/capi/libnetmeter.so.1" "$libdir/libnetmeter.so.1"
  ln -sf libnetmeter.so.1 "$destdir$libdir/libnetmeter.so"
  put 644 "$build/lib/capi/libnetmeter.a" "$libdir/libnetmeter.a"
  fill netmeter.pc.in "$libdir/pkgconfig/netmeter.pc"
  fill netmeter-config.cmake.in "$libdir/cmake/netmeter/netmeter-config.cmake"
  fill netmeter-config-version.cmake.in "$libdir/cmake/netmeter/netmeter-config-version.cmake"
}

install_loader() {
  put 755 "$build/lib/netmeter_loader/netmeter-loader$static" "$prefix/sbin/netmeter-loader"
  put 755 "$build/lib/apps/fds/netmeter-fds$static" "$prefix/sbin/netmeter-fds"
  put 755 "$source/packaging/magma/magma_config.py" "$prefix/share/netmeter/magma_config.py"
}

install_tools() {
  put 755 "$build/lib/apps/netmeter/netmeter$static" "$prefix/bin/netmeter"
}

install_exporter() {
  put 755 "$build/lib/apps/exporter/netmeter-exporter$static" "$prefix/bin/netmeter-exporter"
}

install_ipfix() {
  put 755 "$build/lib/apps/ipfix/netmeter-ipfix" "$prefix/bin/netmeter-ipfix"
}

install_python() {
  local packages suffix file
  # Only below /usr does Debian's Python look for packages of all its versions.
  packages=$prefix/lib/python3/dist-packages
  [ "$prefix" = /usr ] ||
    packages=$prefix/lib/$(/usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/dist-packages
  suffix=$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
  # ".cpython-311-x86_64-linux-gnu.so"
  [ -z "$machine" ] || suffix=${suffix/-$(uname -m)-linux-gnu/-$machine}
  for file in __init__.py connections.py prometheus.py py.typed _netmeter.pyi; do
    put 644 "$source/bindings/python/netmeter/$file" "$packages/netmeter/$file"
  done
  put 644 "$build/bindings/python/netmeter/_netmeter.so" "$packages/netmeter/_netmeter$suffix"

  # For importlib.metadata and pip. Without RECORD pip does not remove the package.
  local info=$destdir$packages/netmeter-$version.dist-info
  install -d "$info"
  python_metadata > "$info/METADATA"
  echo netmeter > "$info/top_level.txt"
  echo install.sh > "$info/INSTALLER"
  chmod 644 "$info"/*
}

# As setuptools makes it from setup.py.
python_metadata() {
  local setup=$source/bindings/python/setup.py
  # keyword NAME: the string that setup() gets
  keyword() { sed -n "s/^    $1=\"\(.*\)\",\$/\1/p" "$setup"; }
  cat << END
Metadata-Version: 2.1
Name: $(keyword name)
Version: $version
Summary: $(keyword description)
License: $(keyword license)
Requires-Python: $(keyword python_requires)
Provides-Extra: prometheus
Requires-Dist: $(sed -n 's/.*"prometheus": \["\(.*\)"\].*/\1/p' "$setup"); extra == "prometheus"
END
}

for component in "${components[@]}"; do "install_$component"; done
