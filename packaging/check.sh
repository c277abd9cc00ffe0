#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks what packaging/ makes, with other projects' tools: the packages and man pages
# (lintian), units (systemd-analyze verify), completion (bash), rules for Prometheus
# (promtool, with unit tests), each query of the dashboard (a real Prometheus), and the
# links, options and names in the documents:
#
#   packaging/check.sh
#
# As root. Needs test/install_packages.sh test, and package. Takes some minutes. Exits
# with 0 if nothing is wrong.
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '3,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  ?*) echo "check.sh: unknown argument '$1' (--help tells)" >&2; exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

packaging/make_debs.sh "$scratch"
for deb in "$scratch"/*.deb; do dpkg-deb -x "$deb" "$scratch/root"; done
# docs_test follows the links in the output of install_docs.py.
packaging/install_docs.py "$scratch/docs"
diff -r -x 'changelog*' -x copyright "$scratch/docs" "$scratch/root/usr/share/doc/netmeter"
# It was docs/history.md once.
while read -r package; do
  zcat "$scratch/root/usr/share/doc/$package/changelog.gz" | cmp - CHANGELOG.md
done < <(sed -n 's/^Package: //p' packaging/debian/control)
for page in "$scratch"/root/usr/share/man/man?/*.gz; do
  warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -l -Tutf8 -Z "$page" 2>&1 > /dev/null)
  [ -z "$warnings" ] || { printf '%s: %s\n' "${page##*/}" "$warnings" >&2; exit 1; }
done
# check_page PROGRAM [SUBCOMMAND]: each option and each example begins a line of its
# page.
check_page() {
  local help page lines wanted name=${1##*/}${2:+-$2}
  help=$("$scratch/root/usr/$1" "${@:2}" --help)
  page=$(echo "$scratch"/root/usr/share/man/man?/"$name".?.gz)
  [ -e "$page" ] || { echo "there is no man page $name" >&2; exit 1; }
  lines=$'\n'$(LC_ALL=C MANWIDTH=1000 man -l "$page" | col -bx | sed 's/^ *//; s/$/ /')
  while read -r wanted; do
    [[ $lines == *$'\n'"$wanted "* ]] || { echo "the man page $name has no line '$wanted'" >&2; exit 1; }
  done < <(sed -n 's/  *$//; /^Options:/,/^$/s/^  \(-[^ ]*\).*/\1/p
    /^Examples:/,/^$/s/^  \([a-z].*\)/\1/p' <<< "$help" | sed 's/   *.*//')
  echo "man page: $name"
}
for program in sbin/netmeter-loader sbin/netmeter-fds bin/netmeter bin/netmeter-exporter bin/netmeter-ipfix; do
  check_page "$program"
  for command in $("$scratch/root/usr/$program" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z0-9-]*\).*/\1/p'); do
    check_page "$program" "$command"
  done
done
bazel test --jobs=2 --test_output=errors //packaging:all //test/docs:docs_test
bazel test --jobs=2 --config=root --test_output=errors //test/apps/metrics:dashboard_test
