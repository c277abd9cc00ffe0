#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes a release of this clone's commit:
#
#   packaging/make_release.sh [--dry-run] [--only ROW,...] [--key KEY] VERSION [DIR]
#
# CHANGELOG.md gets the day of the commit, in a commit of its own. From that one come the
# source archive, the packages of each ROW below, static programs, the library for old
# hosts, wheels, a bill of materials (SPDX), release notes and SHA256SUMS with its
# signature: in DIR (default packaging/build/VERSION), which is also an apt repository for
# each release of a distribution (docs/fleet.md). At the end the branch and the signed tag
# vVERSION take the commit; after an error nothing has changed. --key is a secret key of
# your gpg. DIR is empty, or has the output of an earlier run, which is replaced.
#
#   bookworm-amd64 bookworm-arm64 trixie-amd64 noble-amd64
#   static-amd64 static-arm64 library wheels
#
# --dry-run makes everything but the commit and the tag, and prints why a release would be
# refused. --only: these rows, for a trial. CONTRIBUTING.md has the steps around it. Needs
# root, test/install_packages.sh guests, and PyPI.
set -euo pipefail
unset CDPATH

die() { echo "make_release.sh: $*" >&2; exit 1; }
rows=(bookworm-amd64 bookworm-arm64 trixie-amd64 noble-amd64 static-amd64 static-arm64 library wheels)

dry='' key='' only='' words=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '3,22s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --dry-run) dry=yes ;;
    --key) [ -n "${2:-}" ] || die "--key needs a KEY of gpg --list-secret-keys"; key=$2; shift ;;
    --only) [ -n "${2:-}" ] || die "--only needs some of: ${rows[*]}"; only=$2; shift ;;
    -*) die "unknown option '$1' (--help lists them)" ;;
    *) words+=("$1") ;;
  esac
  shift
done
[[ ${#words[@]} =~ ^[12]$ ]] || die "needs VERSION and at most one DIR (--help)"
version=${words[0]} directory=${words[1]:+$(realpath -m -- "${words[1]}")}
if [ -n "$only" ]; then
  IFS=, read -ra chosen <<< "$only"
  for row in "${chosen[@]}"; do printf '%s\n' "${rows[@]}" | grep -qxF -- "$row" || die "no row '$row': ${rows[*]}"; done
  rows=("${chosen[@]}")
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022
directory=${directory:-$PWD/packaging/build/$version}

# --- what a release needs -----------------------------------------------------------
refused=()
refuse() {
  [ -n "$dry" ] || die "$*"
  refused+=("$*")
  echo "dry run: a release would refuse: $*"
}
# agree FILE FOUND [EXPECTED]
agree() { [ "$2" = "${3:-$version}" ] || refuse "$1 says '$2', not ${3:-$version}"; }
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "'$version' is no version like 1.2.3"
agree include/netmeter/netmeter.h "$(sed -n 's/^#define NETMETER_VERSION "\(.*\)"$/\1/p' include/netmeter/netmeter.h)"
agree include/netmeter/sample.h "$(sed -n 's/^ *inline namespace v\([0-9_]*\) {$/\1/p' include/netmeter/sample.h | tr _ .)"
agree MODULE.bazel "$(sed -n '/^module(/,/^)/s/^ *version = "\(.*\)",$/\1/p' MODULE.bazel)"
agree CHANGELOG.md "$(grep -m 1 '^## ' CHANGELOG.md)" "## [$version] - unreleased"
[ "$(grep -cF "## [$version]" CHANGELOG.md)" = 1 ] || refuse "CHANGELOG.md must have one section [$version]"
# The ABI's major version is in the library's name, the package's, and the symbols'.
soname=$(sed -n 's/.*soname = "libnetmeter\.so\.\(.*\)",/\1/p' lib/capi/BUILD.bazel)
agree "packaging/debian/control: libnetmeter" "$(sed -n 's/^Package: libnetmeter\([0-9]*\)$/\1/p' packaging/debian/control)" "$soname"
agree "lib/capi/exports.lds: NETMETER_" "$(sed -n 's/^NETMETER_\([0-9]*\)\..*/\1/p' lib/capi/exports.lds | tail -n 1)" "$soname"

[ -z "$only" ] || refuse "--only leaves rows out"
[ -z "$(git status --porcelain)" ] || refuse "there is what no commit has, and what no release has (git status)"
branch=$(git symbolic-ref -q --short HEAD) || refuse "no branch is checked out (git switch main)"
! git rev-parse -q --verify "refs/tags/v$version" > /dev/null || refuse "there is a tag v$version"
# test/run.sh writes the hash of the tree that passed.
[ "$(cat "$(git rev-parse --git-path netmeter-tested)" 2> /dev/null)" = "$(git rev-parse 'HEAD^{tree}')" ] ||
  refuse "this commit's tree has not passed: test/run.sh --kernels all --long"
sign() { gpg --batch --yes --local-user "$key" "$@"; }
if [ -n "$key" ]; then
  # A part of a name would also match the keys of others.
  found=$(gpg --batch --with-colons --list-secret-keys -- "$key" 2> /dev/null | awk -F: '$1 == "sec" { sec = 1 } $1 == "fpr" && sec { print $10; sec = 0 }' | paste -sd' ') || true
  [ -n "$found" ] || die "gpg has no secret key '$key' (gpg --list-secret-keys)"
  [[ $found != *' '* ]] || die "'$key' means more than one secret key: give the fingerprint of one ($found)"
  key=$found
  sign --clearsign < /dev/null > /dev/null || die "gpg cannot sign with $key (above: why)"
else
  refuse "nothing is signed without --key KEY"
fi
for tool in apt-ftparchive jq mmdebstrap; do
  command -v "$tool" > /dev/null || die "no $tool (run: test/install_packages.sh guests)"
done

# The files of an earlier run are in its SHA256SUMS, and have this project's name or are
# the indexes of apt.
earlier() { sed -nE 's/^[0-9a-f]{64}  (RELEASE_NOTES\.md|[a-z]+\/(InRelease|Packages)|(python3-|lib)?netmeter[-_0-9][^/]*)$/\1/p' "$directory/SHA256SUMS" 2> /dev/null || true; }
if [ -e "$directory" ]; then
  [ -d "$directory" ] || die "$directory is no directory"
  foreign=$(cd "$directory" && find . -mindepth 1 ! -type d -printf '%P\n' | grep -vxF -e SHA256SUMS -e SHA256SUMS.asc -f <(earlier) | head -n 1) || true
  [ -z "$foreign" ] || die "$directory has '$foreign', which no release left there: it must be empty"
fi

# --- the commit -----------------------------------------------------------------------
# A fixed place, so that in_root.sh finds what it built before.
work=$(git rev-parse --absolute-git-dir)/netmeter-release
exec 9> "$work.lock"
flock -n 9 || die "another one makes a release of this clone"
rm -rf --one-file-system "$work"
mkdir -p "$work/files"
# The server of Bazel, which made the library, would stay.
trap '[ ! -d "$work/tree" ] || (cd "$work/tree" && bazel shutdown 2> /dev/null); rm -rf --one-file-system "$work" "$directory/netmeter-new"' EXIT
trap 'exit 130' INT TERM
head=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$head")
export SOURCE_DATE_EPOCH
day=$(date -ud "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)
dated=$(git show "$head:CHANGELOG.md" | sed "s/^## \[${version//./\\.}\] - unreleased$/## [$version] - $day/" | git hash-object -w --stdin)
GIT_INDEX_FILE=$work/index git read-tree "$head"
GIT_INDEX_FILE=$work/index git update-index --cacheinfo "100644,$dated,CHANGELOG.md"
tree=$(GIT_INDEX_FILE=$work/index git write-tree)
commit=$(GIT_COMMITTER_DATE="@$SOURCE_DATE_EPOCH +0000" git commit-tree "$tree" -p "$head" -m "Release $version")
git clone --quiet --shared --no-checkout . "$work/tree"
git -C "$work/tree" checkout --quiet --detach "$commit"

# --- everything -----------------------------------------------------------------------
files=$work/files
# add FROM...: two rows may have one file, such as a package for all machine types.
add() {
  local file to
  for file; do
    to=$files/${file##*/}
    [ ! -e "$to" ] || cmp -s "$file" "$to" || { echo "make_release.sh: two rows made different ${file##*/}" >&2; return 1; }
    install -m "$([ -x "$file" ] && echo 755 || echo 644)" "$file" "$to" || return
  done
}
make_source() {
  (cd "$work/tree" && git ls-files -z |
    tar -c --null --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw --mtime="@$SOURCE_DATE_EPOCH" --transform "s|^|netmeter-$version/|S" -T -) |
    gzip -n > "$files/netmeter-$version.tar.gz"
}
make_static() {
  local deb program machine=x86_64
  [ "$1" != arm64 ] || machine=aarch64
  "$work/tree/packaging/make_debs_for.sh" --static bookworm "$1" "$work/static-$1" && add "$work/static-$1"/*.deb || return
  # The programs of these packages.
  for deb in "$work/static-$1"/*.deb; do dpkg-deb -x "$deb" "$work/root-$1" || return; done
  for program in "$work/root-$1"/usr/bin/* "$work/root-$1"/usr/sbin/*; do
    install -m 755 "$program" "$files/$(basename "$program")-$version-$machine-static"
  done
}
make_row() {
  case $1 in
    static-*) make_static "${1#*-}" ;;
    library | wheels) "$work/tree/packaging/make_$1.sh" "$work/$1" && add "$work/$1"/* ;;
    *) "$work/tree/packaging/make_debs_for.sh" "${1%-*}" "${1#*-}" "$work/$1" && add "$work/$1"/*.deb ;;
  esac
}
make_source
for row in "${rows[@]}"; do
  start=$SECONDS
  if make_row "$row" > "$work/log" 2>&1 9>&-; then
    echo "$row: $((SECONDS - start)) s"
  else
    tail -n 20 "$work/log" >&2
    refuse "$row is missing (above: its last lines)"
  fi
done
sed "1,/^## \[/d; /^## \[/,\$d" "$work/tree/CHANGELOG.md" | sed '/./,$!d' > "$files/RELEASE_NOTES.md"
[ -s "$files/RELEASE_NOTES.md" ] || refuse "CHANGELOG.md says nothing of $version"

cd "$files"
# bill SUITE ARCH: the bill of materials, in SPDX, of the packages in pool: each with its
# version and the sources, with theirs, whose code is in it (Static-Built-Using). One for
# each machine type, because the tool knows no machine type of a dependency.
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q debsbom==0.10.2 spdx-tools==0.8.5
bill() {
  local deb name=netmeter-$version-$1-$2
  mkdir -p "$work/$name/var/lib/dpkg"
  for deb in pool/*_"$2".deb pool/*_all.deb; do printf '%s\nStatus: install ok installed\n\n' "$(dpkg-deb -f "$deb")"; done > "$work/$name/var/lib/dpkg/status"
  "$work/venv/bin/debsbom" generate -t spdx --validate --root "$work/$name" --distro-arch "$2" \
    --base-distro-vendor "$([ "$1" = noble ] && echo ubuntu || echo debian)" --distro-name netmeter --distro-version "$version" \
    --distro-supplier "The libnetmeter Authors" --spdx-namespace "https://spdx.org/spdxdocs/$name" \
    --timestamp "$(date -u -Iseconds -d "@$SOURCE_DATE_EPOCH")" -o - 2> "$work/log" > "$work/$name.json" ||
    { tail -n 20 "$work/log" >&2; die "no bill of materials for $1 $2"; }
  # Lists have any order in SPDX, and another one in each run.
  jq -S 'walk(if type == "array" then sort else . end)' "$work/$name.json" > "$name.spdx.json"
}
# For each release a flat repository over its own packages: apt takes the highest version.
for suffix in deb12:bookworm deb13:trixie ubuntu24.04:noble 0static:static; do
  compgen -G "*-1+${suffix%:*}_*.deb" > /dev/null || continue
  suite=${suffix#*:}
  mkdir "$suite" pool
  ln ./*-1+"${suffix%:*}"_*.deb pool/
  apt-ftparchive packages pool | sed 's|^Filename: pool/|Filename: |' > "$suite/Packages"
  for arch in amd64 arm64; do
    ! compgen -G "pool/*_$arch.deb" > /dev/null || bill "$suite" "$arch"
  done
  rm -r pool
  [ -z "$key" ] || apt-ftparchive -o APT::FTPArchive::Release::Origin=netmeter -o APT::FTPArchive::Release::Suite="$suite" \
    release "$suite" | sign --clearsign > "$suite/InRelease"
done
[ -z "$key" ] || gpg --batch --export -- "$key" > netmeter-archive-keyring.gpg
sums=$(find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum)
echo "$sums" > SHA256SUMS
[ -z "$key" ] || sign --armor --detach-sign SHA256SUMS
find . -type f -printf '%12s %P\n' | LC_ALL=C sort -k 2
cd - > /dev/null

# --- all of it or nothing -------------------------------------------------------------
# Hours later. DIR takes the files last, by renames on one file system.
mkdir -p "$directory"
rm -rf --one-file-system "$directory/netmeter-new"
cp -r "$files" "$directory/netmeter-new"
if [ -z "$dry" ]; then
  [ "$(git symbolic-ref -q --short HEAD) $(git rev-parse HEAD)" = "$branch $head" ] || die "$branch is no longer checked out at $head"
  undo() { git tag -d "v$version" > /dev/null; die "$*"; }
  git -c gpg.format=openpgp tag -s -u "$key" -m "netmeter $version" "v$version" "$commit"
  git -c gpg.format=openpgp verify-tag "v$version" 2> /dev/null || undo "git made no signature"
  git merge --quiet --ff-only "$commit" || undo "$branch does not take $commit"
fi
earlier | (cd "$directory" && xargs -r -d '\n' rm -f --)
rm -f "$directory"/SHA256SUMS{,.asc}
find "$directory" -mindepth 1 -type d -empty -delete
mv "$directory"/netmeter-new/* "$directory/"
rmdir "$directory/netmeter-new"
if [ -n "$dry" ]; then
  echo "dry run: $version is in $directory; ${#refused[@]} reasons to refuse a release"
else
  echo "$version is in $directory, $branch and the tag v$version are at $commit: git push --atomic origin $branch v$version"
fi
