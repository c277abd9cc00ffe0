#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# bazel_module.sh [OPTION...] [TARGET...]: builds TARGETs (default: the programs, the
# libraries, the BPF programs and the Python package) with MODULE.bazel, by a Bazel
# without support for WORKSPACE. There it runs unit tests and the verifier's test of the
# BPF programs; then it builds the example of docs/embedding.md as a module of its own.
#
#   --root DIR   the Debian root with that Bazel (default ~/.cache/netmeter/unstable)
#
# The Bazel, 7 or newer, is from Debian's unstable, in a root of its own made by
# mmdebstrap (once; 2.3 GB), with newer compilers and libraries than Debian 12's.
# Nothing else is downloaded. Needs root; 20 minutes. Not in test/run.sh.
set -euo pipefail
usage() { sed -n '3,13s/^# \{0,1\}//p' "$0"; }
die() { echo "bazel_module.sh: $*" >&2; exit 1; }

directory=${XDG_CACHE_HOME:-$HOME/.cache}/netmeter/unstable
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --root) [ $# -ge 2 ] || die "--root needs a value"; directory=$2; shift ;;
    --root=*) directory=${1#*=} ;;
    -*) die "unknown option $1 (--help tells)" ;;
    *) targets+=("$1") ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || die "run as root"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v mmdebstrap > /dev/null || die "no mmdebstrap (test/install_packages.sh package)"

if [ ! -e "$directory/usr/bin/bazel" ]; then
  mkdir -p "$(dirname "$directory")"
  rm -rf --one-file-system "$directory.new"
  # A mirror may be outdated.
  mmdebstrap --quiet --variant=minbase --include="$(test/install_packages.sh --list compile | paste -sd,),procps" \
    --aptopt='Acquire::Check-Valid-Until "false"' sid "$directory.new" ||
    die "mmdebstrap could not make a root of Debian's unstable"
  mv "$directory.new" "$directory"
fi

clean_up() {
  for child in proc dev sys; do
    umount -R "$directory/$child" 2> /dev/null || :
  done
}
trap clean_up EXIT
trap 'exit 1' INT TERM
mount -t proc proc "$directory/proc"
mount --rbind /dev "$directory/dev"
mount --rbind /sys "$directory/sys"
mount --make-rslave "$directory/dev"
mount --make-rslave "$directory/sys"

work=$directory/src
rm -rf --one-file-system "$work"
mkdir -p "$work/libnetmeter" "$work/own" "$work/modules"
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -xC "$work/libnetmeter"

# Debian's Bazel has the modules that it needs, except these, which others list but do
# not use.
for module in buildozer protobuf zlib apple_support; do
  mkdir "$work/modules/$module"
  echo "module(name = \"$module\")" > "$work/modules/$module/MODULE.bazel"
  : > "$work/modules/$module/BUILD.bazel"
  echo "common --override_module=$module=/src/modules/$module"
done > "$directory/root/.bazelrc"
echo "common --noenable_workspace" >> "$directory/root/.bazelrc"

bazel() {
  local there=$1
  shift
  # shellcheck disable=SC2016  # for the inner shell
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$directory" \
    sh -c 'cd "$0" && exec bazel --host_jvm_args=-Xmx1g "$@"' "/src/$there" "$@"
}
options=(--jobs=2 --color=no --curses=no --noshow_progress)

chroot "$directory" bazel --version
if [ ${#targets[@]} = 0 ]; then
  targets=(//:all //bpf/... //bindings/python:netmeter)
  for program in loader:netmeter-loader tools:netmeter exporter:netmeter-exporter; do
    targets+=("//lib/$program" "//lib/$program-static")
  done
fi
bazel libnetmeter build "${options[@]}" "${targets[@]}"
# Newer versions of abseil need C++17.
bazel libnetmeter test "${options[@]}" -- \
  //lib/base:base_test //lib/reader:reader_test //lib/publish:publish_test //lib/apps/history:history_test
# The output of a newer clang has to load, too: one compared a name with a branch for
# each byte, and the verifier gave up.
bazel libnetmeter build "${options[@]}" //test/program:verifier_test
bazel libnetmeter shutdown
NETMETER_OTHER_CLANG=1 chroot "$directory" /src/libnetmeter/bazel-bin/test/program/verifier_test

# The document's files, except WORKSPACE.
python3 - "$work/own" << 'END'
import sys
sys.path.insert(0, "test/docs")
import embedding_test
for name, text in embedding_test.blocks().items():
    if name != "WORKSPACE":
        with open(sys.argv[1] + "/" + name, "w", encoding="utf-8") as file:
            file.write(text)
END
cp examples/embed.cc "$work/own"
bazel own build "${options[@]}" //:embed
chroot "$directory" /src/own/bazel-bin/embed || [ $? = 1 ]  # no meter is loaded
bazel own shutdown
echo "bazel_module.sh: passed"
