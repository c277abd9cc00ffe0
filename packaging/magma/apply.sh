#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the branch "netmeter" in a clone of Magma: netmeter-exporter is kernsnoopd there
# (docs/magma.md says what changes):
#
#   packaging/magma/apply.sh [--check] MAGMA
#
# The branch starts at HEAD and has two commits: the patch beside this script, and the
# removal of kernsnoopd's own programs, which nothing uses after it. --check only says
# whether the patch applies.
set -euo pipefail

die() { echo "apply.sh: $*" >&2; exit 1; }

check=
case ${1:-} in
  -h | --help) sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  --check) check=1; shift ;;
  -*) die "unknown option '$1' (--help lists them)" ;;
esac
[ $# = 1 ] || die "expected the folder of a clone of Magma (--help explains)"
patch=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/0001-kernsnoopd-is-netmeter-exporter.patch
cd -P -- "$1"
up=$(git rev-parse --show-cdup) # nothing in a bare clone
cd "./$up"
git cat-file -e HEAD:lte/gateway 2> /dev/null || die "$1 is no clone of Magma: it has no lte/gateway"

# Against HEAD, and in an index of its own: --check also works in a bare clone.
index=$(mktemp -d)
trap 'rm -rf "$index"' EXIT
export GIT_INDEX_FILE=$index/index
git read-tree HEAD
why=$(git apply --cached --check "$patch" 2>&1) ||
  die "the patch, made for a368d209, does not apply to $(git rev-parse --short HEAD): ${why%%$'\n'*}"
unset GIT_INDEX_FILE
[ -z "$check" ] || { echo "the patch applies to $(git rev-parse --short HEAD)"; exit 0; }

[ -z "$(git status --porcelain --untracked-files=no)" ] || die "$1 has changes: commit or stash them"
[ ! -e "$(git rev-parse --git-path rebase-apply)" ] || die "$1 is in a rebase or an am: end it"
! git rev-parse --verify --quiet refs/heads/netmeter > /dev/null || die "$1 has a branch netmeter already"
from=$(git symbolic-ref --quiet --short HEAD || git rev-parse HEAD)
undo() {
  git am --abort 2> /dev/null || true
  git checkout --quiet --force "$from"
  git branch --quiet -D netmeter
  rm -rf "$index"
  echo "apply.sh: nothing has changed in $(pwd), because of the error above" >&2
}
trap undo EXIT
git checkout --quiet -b netmeter
git am --quiet --signoff "$patch"
git rm --quiet -r lte/gateway/configs/kernsnoopd.yml lte/gateway/deploy/roles/magma/files/systemd_bazel/magma@kernsnoopd.service \
  lte/gateway/python/magma/kernsnoopd/{BUILD.bazel,handlers.py,main.py,metrics.py,snooper.py,ebpf,tests/byte_counter_tests.py}
git commit --quiet --signoff -m "chore(agw): remove kernsnoopd's own programs" -m "netmeter-exporter is kernsnoopd."
trap 'rm -rf "$index"' EXIT
git log --oneline -2
