#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes a release of this tree:
#
#   packaging/make_release.sh [--check | --snapshot] [--apt-key KEY] [DIR]
#
# Checks that all versions agree, then makes the sources, the Debian packages (with
# lintian), the static programs and wheels, with their SHA256SUMS, in DIR (default
# packaging/build/VERSION). DIR is empty, or has the output of an earlier run, which is
# replaced. A release needs a commit whose CHANGELOG.md has the date of the version;
# --snapshot takes the tree as it is. --check only compares the versions. --apt-key makes
# DIR an apt repository, signed by this secret key of your gpg (docs/fleet.md).
# CONTRIBUTING.md has the steps around it. Needs test/install_packages.sh package, and
# PyPI. NETMETER_BAZEL_OPTIONS replaces Bazel's "-c opt".
set -euo pipefail

die() { echo "make_release.sh: $*" >&2; exit 1; }

way=release directory='' key=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '3,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --check | --snapshot) way=${1#--} ;;
    --apt-key) [ -n "${2:-}" ] || die "--apt-key needs a KEY of gpg --list-secret-keys"; key=$2; shift ;;
    -*) die "unknown option '$1' (--help lists them)" ;;
    *) [ -z "$directory" ] || die "one DIR, not '$directory' and '$1'"; directory=$1 ;;
  esac
  shift
done
[ -z "$directory" ] || directory=$(realpath -m -- "$directory")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# --- versions -----------------------------------------------------------------
version=$(sed -n 's/^#define NETMETER_VERSION "\(.*\)"$/\1/p' include/netmeter/netmeter.h)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "include/netmeter/netmeter.h has no version like 1.2.3: '$version'"
# agree FILE FOUND [EXPECTED]
agree() { [ "$2" = "${3:-$version}" ] || die "$1 says '$2', and include/netmeter/netmeter.h $version"; }
agree packaging/debian/changelog "$(sed -n '1s/^netmeter (\(.*\)-[0-9]*) .*/\1/p' packaging/debian/changelog)"
newest=$(grep -m 1 '^## ' CHANGELOG.md)
agree CHANGELOG.md "$(sed -n 's/^## \[\([^]]*\)\] - .*/\1/p' <<< "$newest")"
agree include/netmeter/sample.h "$(sed -n 's/^ *inline namespace v\([0-9_]*\) {$/\1/p' include/netmeter/sample.h | tr _ .)"
agree MODULE.bazel "$(sed -n '/^module(/,/^)/s/^ *version = "\(.*\)",$/\1/p' MODULE.bazel)"
# The ABI's major version is in the library's name, the package's, and the symbols'.
soname=$(sed -n 's/.*soname = "libnetmeter\.so\.\(.*\)",/\1/p' lib/capi/BUILD.bazel)
agree "packaging/debian/control: libnetmeter" "$(sed -n 's/^Package: libnetmeter\([0-9]*\)$/\1/p' packaging/debian/control)" "$soname"
agree "lib/capi/exports.lds: NETMETER_" "$(sed -n 's/^NETMETER_\([0-9]*\)\..*/\1/p' lib/capi/exports.lds | tail -n 1)" "$soname"
echo "version $version, libnetmeter.so.$soname: all agree"
[ "$way" != check ] || exit 0

if [ -n "$key" ]; then
  command -v apt-ftparchive > /dev/null || die "no apt-ftparchive (run: test/install_packages.sh package)"
  gpg --batch --list-secret-keys -- "$key" > /dev/null 2>&1 || die "gpg has no secret key '$key' (gpg --list-secret-keys)"
fi

if [ "$way" = release ]; then
  [[ $newest =~ \ -\ 20[0-9]{2}-[01][0-9]-[0-3][0-9]$ ]] || die "CHANGELOG.md has no day of the release yet: $newest"
  [ -z "$(git status --porcelain)" ] || die "there is what no commit has (git status)"
  # test/run.sh writes the hash of the tree that passed.
  tested=$(git rev-parse --git-path netmeter-tested)
  [ "$(cat "$tested" 2> /dev/null)" = "$(git rev-parse 'HEAD^{tree}')" ] ||
    die "this commit's tree has not passed: test/run.sh --kernels all --long"
fi

directory=${directory:-$PWD/packaging/build/$version}
# The files of an earlier run are in its SHA256SUMS, and have this project's name or are
# the indexes of apt.
earlier() { sed -nE 's/^[0-9a-f]{64}  (InRelease|Packages|[^/]*netmeter[^/]*)$/\1/p' "$directory/SHA256SUMS" 2> /dev/null || true; }
if [ -e "$directory" ]; then
  [ -d "$directory" ] || die "$directory is no directory"
  foreign=$(cd "$directory" && find . -mindepth 1 -maxdepth 1 -printf '%P\n' | grep -vxF -e SHA256SUMS -f <(earlier) | head -n 1) || true
  [ -z "$foreign" ] || die "$directory has '$foreign', which no release left there: it must be empty"
fi

# --- everything ---------------------------------------------------------------
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
# gzip -n: two runs on one commit give the same bytes.
if [ "$way" = release ]; then
  git archive --format=tar --prefix="netmeter-$version/" HEAD
else
  # The sources of the packages.
  git ls-files -z --cached --others --exclude-standard |
    tar -c --null --no-recursion --ignore-failed-read --sort=name --owner=0 --group=0 --numeric-owner --transform "s|^|netmeter-$version/|" -T -
fi | gzip -n > "$output/netmeter-$version.tar.gz"
packaging/make_debs.sh "$output" > /dev/null
read -ra options <<< "${NETMETER_BAZEL_OPTIONS:--c opt}"
static=(lib/netmeter_loader/netmeter-loader-static lib/apps/fds/netmeter-fds-static lib/apps/netmeter/netmeter-static lib/apps/exporter/netmeter-exporter-static)
labels=()
for program in "${static[@]}"; do labels+=("//${program%/*}:${program##*/}"); done
bazel build "${options[@]}" "${labels[@]}" > /dev/null
build=$(bazel info "${options[@]}" bazel-bin 2> /dev/null)
for program in "${static[@]}"; do
  name=$(basename "$program")
  install -m 755 "$build/$program" "$output/${name%-static}-$version-$(uname -m)-static"
done
packaging/make_wheels.sh "$output" > /dev/null
if [ -n "$key" ]; then
  # InRelease has the hash of Packages, which has those of the packages.
  (
    cd "$output"
    apt-ftparchive packages . > Packages
    apt-ftparchive -o APT::FTPArchive::Release::Origin=netmeter release . |
      gpg --batch --local-user "$key" --clearsign > InRelease
    gpg --batch --export -- "$key" > netmeter-archive-keyring.gpg
  )
fi
(cd "$output" && sums=$(sha256sum -- *) && echo "$sums" | tee SHA256SUMS)

# Publish all files or none.
mkdir -p "$directory"
earlier | (cd "$directory" && xargs -r -d '\n' rm -f --)
cp "$output"/* "$directory/"
[ "$way" = snapshot ] || echo "git tag -s v$version"
