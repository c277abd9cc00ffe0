#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# benchmark.sh datapath [OPTION...]: what counting costs.
#
# As root on Debian 12: installs the packages that are missing, builds with
# optimization and prints a table.
#
#   datapath   ns per packet of the BPF programs over an empty program at the
#              same hook, beside a hash that all CPUs share; by
#              BPF_PROG_TEST_RUN and with real packets, about three minutes.
#              datapath --help tells its options.
#
# Works in a cgroup and in network namespaces of its own, and leaves nothing
# behind. For figures worth quoting the machine should do nothing else.
set -euo pipefail
usage() { sed -n '3,14s/^# \{0,1\}//p' "$0"; }
die() { echo "benchmark.sh: $*" >&2; exit 1; }

case ${1:-} in
  -h | --help) usage; exit 0 ;;
  datapath) benchmark=$1; shift ;;
  '') usage >&2; exit 2 ;;
  *) echo "benchmark.sh: unknown benchmark $1 (--help tells)" >&2; exit 2 ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"
[ "$(id -u)" = 0 ] || die "not root: the benchmarks load BPF programs"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
test/install_packages.sh build

# The links to the output stay as they are: they are the usual build's.
options=(-c opt --jobs=2 --color=no --curses=no --noshow_progress --experimental_convenience_symlinks=ignore)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
bazel build "${options[@]}" "//test/benchmark:$benchmark" > "$log" 2>&1 ||
  { cat "$log" >&2; die "the build failed"; }
bin=$(bazel info -c opt bazel-bin 2> /dev/null)
rm -f "$log"
exec "$bin/test/benchmark/$benchmark" "$@"
