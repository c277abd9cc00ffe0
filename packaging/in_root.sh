#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# in_root.sh [--out DIR] SUITE ARCH COMMAND...: runs COMMAND in this tree's sources, in a
# root of another release, where Bazel builds for ARCH.
#
#   packaging/in_root.sh trixie amd64 bazel build //lib/...
#   packaging/in_root.sh --out /tmp/debs bookworm arm64 packaging/make_debs.sh /out
#
# SUITE is of Debian (bookworm, trixie) or Ubuntu (noble; sources.sh explains its
# sources). ARCH is amd64, or arm64, armhf or riscv64, for which a compiler of amd64
# builds; COMMAND itself runs on amd64. /out in the root is DIR. The root (2 GB) stays in
# ~/.cache/netmeter and never changes; delete build-SUITE-ARCH there after a change of
# the packages below. What COMMAND writes is kept beside it in a layer of this clone, for
# its next COMMAND; NETMETER_LAYER names another layer, and NETMETER_WRAPPER is a program
# that runs COMMAND (two_builders.sh). Needs root and test/install_packages.sh package.
set -euo pipefail
die() { echo "in_root.sh: $*" >&2; exit 1; }

# The mounts and Bazel's server end with this process.
[ "$(id -u)" = 0 ] || [[ ${1:-} =~ ^(-h|--help|)$ ]] || die "not root"
out='' arguments=("$@")
while [[ ${1:-} = -* ]]; do
  case $1 in
    -h | --help) sed -n '3,18s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --out) out=$(realpath -e -- "${2:-}") || die "--out needs a folder"; shift ;;
    *) die "unknown option '$1' (--help lists them)" ;;
  esac
  shift
done
[ $# -ge 3 ] || die "needs SUITE ARCH COMMAND (--help)"
umask 022
if [ "${NETMETER_UNSHARED:-}" != 1 ]; then
  exec env NETMETER_UNSHARED=1 unshare --mount --pid --fork --kill-child "$0" "${arguments[@]}"
fi
unset NETMETER_UNSHARED
suite=$1 arch=$2
shift 2
case $arch in
  amd64) triplet='' ;;
  arm64) triplet=aarch64-linux-gnu ;;
  armhf) triplet=arm-linux-gnueabihf ;;
  riscv64) triplet=riscv64-linux-gnu ;;
  *) die "'$arch' is none of amd64, arm64, armhf and riscv64" ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=packaging/sources.sh
. packaging/sources.sh
command -v mmdebstrap > /dev/null || die "no mmdebstrap (run: test/install_packages.sh package)"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/netmeter
base=$cache/build-$suite-$arch
mkdir -p "$cache"

# --- the root -------------------------------------------------------------------
exec 9> "$base.lock"
flock 9 # another one may be making it
if [ ! -e "$base/usr/bin/bazel" ]; then
  packages=$(test/install_packages.sh --list compile)
  # Not all libraries can be installed for both machines at once. Two are header-only.
  is_library() { grep "$@" -E '^(lib(bpf|elf|absl|yaml-cpp|nghttp2|sqlite3|ncurses|fixbuf|grpc\+\+|protobuf|gtest|gmock)|zlib1g|prometheus-cpp|linux-libc)-dev$'; }
  tools=$(if [ -z "$triplet" ]; then cat; else is_library -v; fi <<< "$packages" | paste -sd,)
  [ "$suite" != noble ] || tools=${tools/,bpftool,/,linux-tools-generic,}
  tools+=,debhelper,dh-python,help2man,lintian,dpkg-dev,git,procps,python3-all,faketime,locales
  if [ -n "$triplet" ]; then
    # The target's libraries beside those of the building machine.
    tools+=,g++-$triplet,qemu-user-static
    tools+=,$(is_library <<< "$packages" | sed "s/$/:$arch/" | paste -sd,),libpython3-dev:$arch
  fi
  rm -rf --one-file-system "$base.new"
  sources_of "$suite" "$arch"
  mmdebstrap --quiet --variant=minbase --architectures="amd64${triplet:+,$arch}" \
    --include="$tools" "$suite" "$base.new" "${sources[@]}" || die "mmdebstrap could not make a root of $suite for $arch"
  # Ubuntu's bpftool looks for the one of the running kernel.
  if [ "$suite" = noble ]; then
    ln -sf "$(cd "$base.new" && find usr/lib/linux-tools-*/bpftool usr/lib/linux-tools/*/bpftool 2> /dev/null | head -n 1 | sed 's|^|/|')" "$base.new/usr/local/bin/bpftool"
  fi
  mv "$base.new" "$base"
fi
exec 9>&-

# --- what COMMAND sees ------------------------------------------------------------
work=$base.${NETMETER_LAYER:-$(pwd | sha256sum | cut -c1-8)}
exec 8> "$work.lock"
flock -n 8 || die "another one works in $work"
root=$work/root
mkdir -p "$root" "$work/upper" "$work/work"
mount -t overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/work" netmeter "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mkdir -p "$root/out"
[ -z "$out" ] || mount --bind "$out" "$root/out"
rm -rf --one-file-system "$root/src"
mkdir -p "$root/src" "$root/opt/cross"
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -xC "$root/src"
settings=
if [ -n "$triplet" ]; then
  # Bazel looks for the linker beside the compiler. There is none here, so the compiler
  # takes its own, and not gold, whose static programs for arm64 crash at their start.
  printf '#!/bin/sh\nexec /usr/bin/%s-gcc "$@"\n' "$triplet" > "$root/opt/cross/gcc"
  chmod 755 "$root/opt/cross/gcc"
  settings="build --repo_env=CC=/opt/cross/gcc --action_env=NETMETER_CXX=$triplet-g++
build --linkopt=-fuse-ld=bfd --features=-supports_start_end_lib --dynamic_mode=off"
fi
# Debian's Bazel reads this before the tree's .bazelrc.
printf 'build --color=no --curses=no --noshow_progress\n%s\n' "$settings" > "$root/etc/bazel.bazelrc"

# The tree without its history: a program there takes the commit's time from here.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
status=0
# shellcheck disable=SC2016,SC2086 # for the inner shell; a wrapper may have options
env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "SOURCE_DATE_EPOCH=$epoch" \
  "NETMETER_ARCH=$arch" chroot "$root" sh -c 'cd /src && exec "$@"' sh ${NETMETER_WRAPPER:-} "$@" || status=$?
exit "$status"
