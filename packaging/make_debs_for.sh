#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# make_debs_for.sh SUITE [ARCH] [DIR]: makes the Debian packages of this tree for
# another release or another machine, in a root of that release made by mmdebstrap.
#
#   packaging/make_debs_for.sh trixie
#   packaging/make_debs_for.sh noble
#   packaging/make_debs_for.sh bookworm arm64
#
# SUITE is bookworm, trixie (Debian) or noble (Ubuntu 24.04; needs ubuntu-keyring). ARCH
# is amd64 (default) or arm64, which is cross-built. The packages are in DIR (default
# packaging/build/SUITE-ARCH). Needs root and test/install_packages.sh package, or
# guests for arm64. The root (2 GB) stays in ~/.cache/netmeter for the next time.
# sources.sh explains the sources of Ubuntu's packages.
set -euo pipefail
usage() { sed -n '3,15s/^# \{0,1\}//p' "$0"; }
die() { echo "make_debs_for.sh: $*" >&2; exit 1; }

case ${1:-} in
  -h | --help) usage; exit 0 ;;
  bookworm | trixie | noble) suite=$1 ;;
  "") usage >&2; exit 2 ;;
  *) die "'$1' is none of bookworm, trixie and noble" ;;
esac
[ "$(id -u)" = 0 ] || die "not root"
# The mounts and Bazel's server end with this process.
[ "${NETMETER_UNSHARED:-}" = 1 ] ||
  exec env NETMETER_UNSHARED=1 unshare --mount --pid --fork --kill-child "$0" "$@"
arch=${2:-amd64}
[ "$arch" = amd64 ] || [ "$arch" = arm64 ] || die "'$arch' is neither amd64 nor arm64"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=packaging/sources.sh
. packaging/sources.sh
mkdir -p "${3:-packaging/build/$suite-$arch}"
output=$(cd "${3:-packaging/build/$suite-$arch}" && pwd)
command -v mmdebstrap > /dev/null || die "no mmdebstrap (run: test/install_packages.sh package)"
root=${XDG_CACHE_HOME:-$HOME/.cache}/netmeter/build-$suite-$arch

# The packages for building and packaging.
packages=$(test/install_packages.sh --list compile)
# Not all libraries can be installed for both machines at once. Two are header-only.
is_library() { grep "$@" -E '^(lib(bpf|elf|absl|yaml-cpp|nghttp2|sqlite3|ncurses|fixbuf|grpc\+\+|protobuf|gtest|gmock)|zlib1g|prometheus-cpp|linux-libc)-dev$'; }
tools=$(if [ "$arch" = amd64 ]; then cat; else is_library -v; fi <<< "$packages" | paste -sd,)
[ "$suite" != noble ] || tools=${tools/,bpftool,/,linux-tools-generic,}
tools+=,debhelper,dh-python,help2man,lintian,dpkg-dev,git,procps,python3-all
libraries=
if [ "$arch" = arm64 ]; then
  # The target's libraries beside those of the building machine.
  tools+=,g++-aarch64-linux-gnu,qemu-user-static
  libraries=$(is_library <<< "$packages" | sed 's/$/:arm64/' | paste -sd,),libpython3-dev:arm64
fi

mkdir -p "$(dirname "$root")"
exec 9> "$root.lock"
flock -n 9 || die "another one works in $root"

if [ ! -e "$root/usr/bin/bazel" ]; then
  rm -rf --one-file-system "$root.new"
  sources_of "$suite" "$arch"
  mmdebstrap --quiet --variant=minbase --architectures="amd64$([ "$arch" = amd64 ] || echo ",$arch")" \
    --include="$tools${libraries:+,$libraries}" "$suite" "$root.new" "${sources[@]}" ||
    die "mmdebstrap could not make a root of $suite"
  # Ubuntu's bpftool looks for the one of the running kernel.
  if [ "$suite" = noble ]; then
    ln -sf "$(cd "$root.new" && find usr/lib/linux-tools-*/bpftool usr/lib/linux-tools/*/bpftool 2> /dev/null | head -n 1 | sed 's|^|/|')" "$root.new/usr/local/bin/bpftool"
  fi
  mv "$root.new" "$root"
fi

mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"

rm -rf --one-file-system "$root/src"
mkdir -p "$root/src"
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -xC "$root/src"
printf 'build --jobs=2 --color=no --curses=no --noshow_progress\n' > "$root/root/.bazelrc"
environment=(HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)" "NETMETER_ARCH=$arch")
if [ "$arch" = arm64 ]; then
  # test/arm64.sh explains why.
  mkdir -p "$root/opt/arm64"
  printf '#!/bin/sh\nexec /usr/bin/aarch64-linux-gnu-gcc "$@"\n' > "$root/opt/arm64/gcc"
  chmod 755 "$root/opt/arm64/gcc"
  cat >> "$root/root/.bazelrc" << 'END'
build --repo_env=CC=/opt/arm64/gcc --action_env=NETMETER_CXX=aarch64-linux-gnu-g++
build --linkopt=-fuse-ld=bfd --features=-supports_start_end_lib --dynamic_mode=off
END
fi
# shellcheck disable=SC2016 # for the inner shell
env -i "${environment[@]}" chroot "$root" sh -c 'cd /src && exec packaging/make_debs.sh /src/debs'
while read -r package; do rm -f "$output/$package"_*.deb; done < <(sed -n 's/^Package: //p' packaging/debian/control)
cp "$root"/src/debs/*.deb "$output/"
echo "packages: $output"
