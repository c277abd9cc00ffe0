#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the man pages of the programs, and of each subcommand, from their --help and from
# what reference.py wrote beside this file:
#
#   packaging/man/make_pages.sh PREFIX DIR [EMULATOR]
#
# PREFIX has bin/ and sbin/ with the programs. EMULATOR, if given, runs them. DIR gets a
# folder with pages for each package. Needs help2man.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
prefix=$(cd "$1" && pwd)
output=$2
emulator=${3:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# run PROGRAM ARGUMENT...
run() {
  local program=$prefix/$1
  shift
  ${emulator:+"$emulator"} "$program" "$@"
}

# Copies standard input, a --help, with the examples at the end, because help2man takes
# all lines after them for examples. Makes each a paragraph, because help2man would join
# those without a description.
examples_last() {
  awk '/^Examples:/ { inside = 1; examples = "\n" $0 "\n"; next }
    inside && /^$/ { inside = 0 }
    !inside { print; next }
    /^  [a-z]/ && lines++ { examples = examples "\n" }
    { examples = examples $0 "\n" }
    END { printf "%s", examples }'
}

# Prints the parts of standard input, a --help, that stay line by line in the page.
verbatim() {
  sed -n '/^[A-Z][a-z]* (YAML/,/^$/{s/\\/\\e/g; s/-/\\-/g; s/^\([.'"'"']\)/\\\&\1/; p}' |
    sed '1{s/^\([A-Z][a-z]*\) (\(.*\)):$/[\U\1\E]\n\2:\n.PP\n.nf/}; $s/^$/.fi/'
}

# page SECTION PACKAGE NAME DESCRIPTION SEE: from the help on standard input. SEE is a
# list like "netmeter(1) netmeter-loader(8)".
page() {
  local see
  cat > "$scratch/whole"
  sed '/^[A-Z][a-z]* (YAML/,/^$/d' "$scratch/whole" | examples_last > "$scratch/help"
  printf '#!/bin/sh\nexec cat "%s/help"\n' "$scratch" > "$scratch/$3"
  chmod 755 "$scratch/$3"
  verbatim < "$scratch/whole" > "$scratch/include"
  [ ! -e "$here/$3.h2m" ] || cat "$here/$3.h2m" >> "$scratch/include"
  see=$(tr ' ' '\n' <<< "$5" | sed 's/\(.*\)(\(.\))/.BR \1 (\2),/; $s/,$//')
  printf '\n[SEE ALSO]\n%s\n.PP\nDocuments, such as docs/history.md, are in /usr/share/doc/netmeter.\n' "$see" >> "$scratch/include"
  mkdir -p "$output/$2"
  help2man --no-info --section="$1" --version-string="$version" --name="$4" \
    --include="$scratch/include" "$scratch/$3" |
    sed '/^\.SH EXAMPLES/,/^\.SH "SEE/s/^\.IP$/.PP/' > "$output/$2/$3.$1"
}

# pages SECTION PACKAGE PROGRAM DESCRIPTION SEE
pages() {
  local command description name=${3##*/} all=$5 commands
  version=$(run "$3" --version)
  version=${version##* }
  commands=$(run "$3" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z0-9-]*\).*/\1/p')
  for command in $commands; do
    all+=" $name-$command($1)"
    description=$(run "$3" "$command" --help | head -n 1)
    run "$3" "$command" --help | page "$1" "$2" "$name-$command" "${description,}" "$name($1)"
  done
  run "$3" --help | page "$1" "$2" "$name" "$4" "$all"
}

pages 8 netmeter-loader sbin/netmeter-loader 'counts the network bytes of services' 'netmeter.yml(5) netmeter(1) netmeter-fds(8) netmeter-exporter(1)'
pages 8 netmeter-loader sbin/netmeter-fds 'passes the counters to a group' 'netmeter-loader(8)'
pages 1 netmeter bin/netmeter 'prints the network bytes of services' 'netmeter-budgets.yml(5) netmeter-loader(8) netmeter-exporter(1) netmeter-ipfix(1)'
pages 1 netmeter-exporter bin/netmeter-exporter 'publishes the network bytes of services' 'netmeter-loader(8) netmeter(1)'
# The static programs lack it.
[ ! -e "$prefix/bin/netmeter-ipfix" ] ||
  pages 1 netmeter-ipfix bin/netmeter-ipfix 'sends flow records to a collector of IPFIX' 'netmeter(1)'
