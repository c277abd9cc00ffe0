#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# two_builders.sh [ROW...]: does this commit give everybody the same bytes? Two builders
# make its packages, and diffoscope explains each file that differs.
#
#   packaging/two_builders.sh bookworm-amd64 static-arm64
#
# ROW is SUITE-ARCH or static-ARCH (default: bookworm and static, for amd64 and arm64).
# The first builder is make_debs_for.sh as it is. The second one has another path, user,
# home, umask, host name, language, time zone, day (400 days later) and number of CPUs
# (1), and begins with a clone and no compiled file; NETMETER_LAYER keeps them (in_root.sh
# explains it). Prints each file's size and hash, and "N equal, N differ"; exits with 0 if
# none differs. Files and differences are in packaging/build/builders. Needs root, and
# test/install_packages.sh guests.
set -euo pipefail
die() { echo "two_builders.sh: $*" >&2; exit 1; }

# In the second builder's root, as NETMETER_WRAPPER of in_root.sh.
as_second() {
  if ! id second > /dev/null 2>&1; then
    { apt-get -q update && apt-get -qy install --no-install-recommends faketime locales; } > /dev/null
    localedef -i et_EE -f UTF-8 et_EE.UTF-8
    useradd --create-home --home-dir /srv/second/home --uid 4242 second
  fi
  local path=/srv/second/builds/of/today/netmeter status=0 other
  other=(TZ=XYZ-14 LC_ALL=et_EE.UTF-8 LANG=et_EE.UTF-8
    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME=+400d FAKETIME_DONT_FAKE_MONOTONIC=1)
  # What Bazel runs has them all. Bazel itself fails with another day.
  printf 'build %s\n' --jobs=2 "${other[@]/#/--action_env=}" > /srv/second/home/.bazelrc
  mkdir -p /srv/second/bin
  printf '#!/bin/sh\nexec env -u LD_PRELOAD /usr/bin/bazel "$@"\n' > /srv/second/bin/bazel
  chmod 755 /srv/second/bin/bazel
  rm -rf "$path"
  mkdir -p "$(dirname "$path")"
  cp -r /src "$path"
  chown -R second: /srv/second /out
  cd "$path"
  # shellcheck disable=SC2016 # for the inner shell
  unshare --uts sh -c 'hostname elsewhere && exec "$@"' sh \
    setpriv --reuid=second --regid=second --init-groups \
    env HOME=/srv/second/home USER=second PATH="/srv/second/bin:$PATH" "${other[@]}" "$@" || status=$?
  chown -R root: /out
  return $status
}

case ${1:-} in
  -h | --help) sed -n '3,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --as-second) shift; umask 077; as_second "$@"; exit ;;
  -*) die "unknown option '$1' (--help)" ;;
esac
[ "$(id -u)" = 0 ] || die "not root"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v diffoscope > /dev/null || die "no diffoscope (run: test/install_packages.sh guests)"
[ -z "$(git status --porcelain)" ] || die "there is what no commit has (git status)"
[ $# -gt 0 ] || set -- bookworm-amd64 static-amd64 bookworm-arm64 static-arm64
here=$PWD/packaging/build/builders
rm -rf "$here"
mkdir -p "$here/first" "$here/second" "$here/differences"
clone=$(mktemp -d /var/tmp/netmeter-second.XXXXXX)
trap 'rm -rf "$clone"' EXIT
(umask 077 && git clone -q . "$clone")
second=("NETMETER_LAYER=${NETMETER_LAYER:-fresh}" "NETMETER_WRAPPER=packaging/two_builders.sh --as-second")
unset NETMETER_LAYER

# packages ROW DIR [COMMAND...]: by COMMAND, in the current folder's clone
packages() {
  local row=$1 output=$2 static=() suite=${1%-*}
  shift 2
  if [ "$suite" = static ]; then static=(--static) suite=bookworm; fi
  "$@" packaging/make_debs_for.sh "${static[@]}" "$suite" "${row##*-}" "$output" > "$output.log" 2>&1 ||
    { tail -n 20 "$output.log" >&2; die "$row could not be built (log: $output.log)"; }
}
equal=0 differ=0 failed=''
for row; do
  packages "$row" "$here/first/$row" &
  (cd "$clone" && packages "$row" "$here/second/$row" env "${second[@]}" taskset -c 0) || failed=yes
  wait $! || failed=yes
  [ -z "$failed" ] || exit 1
  while read -r file; do
    mine=$here/first/$row/$file theirs=$here/second/$row/$file
    if cmp -s "$mine" "$theirs"; then
      equal=$((equal + 1)) verdict=equal
    else
      differ=$((differ + 1)) verdict=DIFFERS
      diffoscope --text "$here/differences/$row-$file.txt" "$mine" "$theirs" || true
    fi
    printf '%-8s %-16s %10s  %.16s  %s\n' "$verdict" "$row" "$(stat -c %s "$theirs" 2> /dev/null || echo missing)" \
      "$(sha256sum "$theirs" 2> /dev/null)" "$file"
  done < <(cd "$here" && find "first/$row" "second/$row" -type f -printf '%P\n' | sort -u)
done
[ "$differ" = 0 ] || echo "the differences are in $here/differences"
echo "$equal equal, $differ differ"
[ "$differ" = 0 ]
