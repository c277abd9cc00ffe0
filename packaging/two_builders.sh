#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# two_builders.sh [ROW...]: does this commit give everybody the same bytes? Two builders
# make its release, and diffoscope explains each file that differs.
#
#   packaging/two_builders.sh bookworm-amd64 static-arm64
#
# ROW is one of make_release.sh (default: Debian 12's, static, library, wheels). The first
# builder is its dry run. The second one's clone has another path, and it has another
# home, umask, language, time zone, number of CPUs (1), and no compiled file. For packages
# and static programs, it has another user, host name and day (400 days later), too.
# Prints each file's size and hash, and "N equal, N differ"; exits with 0 if none differs.
# Files, logs and differences are in packaging/build/builders. Needs what make_release.sh
# needs.
set -euo pipefail
die() { echo "two_builders.sh: $*" >&2; exit 1; }

# In the second builder's root, as NETMETER_WRAPPER of in_root.sh.
as_second() {
  if ! id second > /dev/null 2>&1; then
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
  -h | --help) sed -n '3,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --as-second) shift; umask 077; as_second "$@"; exit ;;
  -*) die "unknown option '$1' (--help)" ;;
esac
[ "$(id -u)" = 0 ] || die "not root"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v diffoscope > /dev/null || die "no diffoscope (run: test/install_packages.sh guests)"
[ -z "$(git status --porcelain)" ] || die "there is what no commit has (git status)"
[ $# -gt 0 ] || set -- bookworm-amd64 bookworm-arm64 static-amd64 static-arm64 library wheels
here=$PWD/packaging/build/builders cache=${XDG_CACHE_HOME:-$HOME/.cache}
scratch=$cache/netmeter/second
mkdir -p "$cache/netmeter"
exec 9> "$scratch.lock"
flock -n 9 || die "another one works"
clean() { rm -rf --one-file-system "$scratch" "$cache"/netmeter/build-*.second{,.lock}; }
trap clean EXIT
clean
rm -rf "$here"
mkdir -p "$here/differences"
(umask 077 && git clone -q . "$scratch/clone")
for name in user.name user.email; do git -C "$scratch/clone" config "$name" "$(git config "$name")"; done

# build BUILDER ROW,...: in the current folder. A dry run goes on without a row.
build() {
  local log=$here/$1.log version
  version=$(sed -n 's/^#define NETMETER_VERSION "\(.*\)"$/\1/p' include/netmeter/netmeter.h)
  if ! packaging/make_release.sh --dry-run --only "$2" "$version" "$here/$1" > "$log" 2>&1 9>&- || grep -q ' is missing' "$log"; then
    tail -n 30 "$log" >&2
    die "the $1 builder fails (log: $log)"
  fi
}
rows=$(IFS=, && echo "$*")
build first "$rows" &
(
  cd "$scratch/clone"
  umask 077
  taskset -cp 0 "$BASHPID" > /dev/null
  export GIT_CONFIG_GLOBAL=~/.gitconfig HOME=$scratch/home XDG_CACHE_HOME=$cache TZ=XYZ-14 LC_ALL=en_US.UTF-8
  export NETMETER_LAYER=second NETMETER_WRAPPER="packaging/two_builders.sh --as-second"
  build second "$rows"
) || { wait; exit 1; }
wait $!
equal=0 differ=0
while read -r file; do
  mine=$here/first/$file theirs=$here/second/$file
  if cmp -s "$mine" "$theirs"; then
    equal=$((equal + 1)) verdict=equal
  else
    differ=$((differ + 1)) verdict=DIFFERS
    timeout 600 diffoscope --text "$here/differences/${file//\//-}.txt" "$mine" "$theirs" || true
  fi
  printf '%-8s %10s  %.16s  %s\n' "$verdict" "$(stat -c %s "$theirs" 2> /dev/null || echo missing)" \
    "$(sha256sum "$theirs" 2> /dev/null)" "$file"
done < <(cd "$here" && find first second -type f -printf '%P\n' | LC_ALL=C sort -u)
echo "$equal equal, $differ differ"
[ "$differ" = 0 ] || die "the differences are in $here/differences"
