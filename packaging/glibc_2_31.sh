# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# For the scripts here that make libraries for old hosts: for_glibc_2_31 sets `sysroot` to
# a root of Debian 11, whose glibc is 2.31, and `options` to Bazel's options that build
# with its headers and libraries. The root stays in ~/.cache/netmeter. To make it, which
# compiles abseil, takes minutes, root and test/install_packages.sh package.
#
# Clang compiles, because GCC has no other release's C++ headers. abseil is Debian 12's,
# compiled for shared libraries, as no Debian's archives are, and has no shared library:
# so it is linked in. Debian 11's abseil is for C++14.
# shellcheck disable=SC2016,SC2034 # for other shells; callers use the options
for_glibc_2_31() {
  local name target
  # Bazel does not see a change in the root: raise the number after a change below.
  sysroot=${XDG_CACHE_HOME:-$HOME/.cache}/netmeter/glibc-2.31-2
  mkdir -p "$(dirname "$sysroot")"
  exec 7> "$sysroot.lock"
  flock 7 # another one may be making it
  if [ ! -e "$sysroot" ]; then
    [ "$(id -u)" = 0 ] || die "not root, and there is no $sysroot yet"
    command -v mmdebstrap > /dev/null || die "no mmdebstrap (run: test/install_packages.sh package)"
    rm -rf --one-file-system "$sysroot.new"
    mmdebstrap --variant=minbase --include=g++,cmake,make,pkg-config bullseye "$sysroot.new" \
      --customize-hook='sed -i "p; s/^deb /deb-src /; s/bullseye/bookworm/" "$1/etc/apt/sources.list"' \
      --customize-hook='cd "$1/opt" && export APT_CONFIG=$MMDEBSTRAP_APT_CONFIG && apt-get -q update && apt-get -q source --only-source abseil' \
      --customize-hook='chroot "$1" sh -ec "cd /opt
        cmake -S abseil-*/ -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=17 \
          -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_CXX_VISIBILITY_PRESET=hidden
        make -C build -j\$(nproc) statusor str_format_internal"' > "$sysroot.log" 2>&1 ||
      { tail -n 20 "$sysroot.log" >&2; die "mmdebstrap could not make a root of Debian 11 with abseil ($sysroot.log)"; }
    mkdir "$sysroot.new/opt/include" "$sysroot.new/opt/lib"
    cp -r "$sysroot.new"/opt/abseil-*/absl /usr/include/pybind11 /usr/include/protozero "$sysroot.new/opt/include/"
    mkdir "$sysroot.new/opt/include/x86_64-linux-gnu"
    cp -r /usr/include/x86_64-linux-gnu/python3* "$sysroot.new/opt/include/x86_64-linux-gnu/"
    # One archive by all names, because archives do not name those that they need.
    find "$sysroot.new/opt/build" -name 'libabsl_*.a' | LC_ALL=C sort > "$sysroot.new/opt/archives"
    { echo "create $sysroot.new/opt/lib/libabsl.a"; sed 's/^/addlib /' "$sysroot.new/opt/archives"; echo save; echo end; } | ar -M
    while read -r name; do ln -s libabsl.a "$sysroot.new/opt/lib/${name##*/}"; done < "$sysroot.new/opt/archives"
    # Links to absolute paths would lead to this machine's libraries.
    find "$sysroot.new"/lib64 "$sysroot.new"/lib/*-linux-gnu "$sysroot.new"/usr/lib -lname '/*' -printf '%p %l\n' |
      while read -r name target; do ln -srf "$sysroot.new$target" "$name"; done
    # -ffile-prefix-map: no name of this machine's folders is in the output.
    printf '#!/bin/sh\nsysroot=%s\nexec /usr/bin/clang${0##*/cc} --sysroot=$sysroot -B$sysroot/opt/lib -L$sysroot/opt/lib -isystem $sysroot/opt/include -ffile-prefix-map=$sysroot= -Qunused-arguments "$@" -pthread\n' \
      "$sysroot" > "$sysroot.new/opt/cc"
    chmod 755 "$sysroot.new/opt/cc"
    ln -s cc "$sysroot.new/opt/cc++"
    mv "$sysroot.new" "$sysroot"
  fi
  exec 7>&-
  # An output folder of its own, or the developer's own build would begin anew.
  options=(--compilation_mode=opt --platform_suffix=-glibc2.31 --symlink_prefix=/ "--repo_env=CC=$sysroot/opt/cc"
    "--action_env=NETMETER_CXX=$sysroot/opt/cc++" --linkopt=-fuse-ld=bfd --features=-supports_start_end_lib)
}
