#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# getkernel.sh SUITE DIR: fetch and unpack the newest Debian kernel of a suite.
#
#   SUITE   bullseye | bookworm | bookworm-backports | trixie | sid ...
#   DIR     gets vmlinuz, config, modules/ (= /lib/modules/<release>), release,
#           and package (the file name of each .deb). Is kept if it exists already;
#           REFRESH=1 looks for a newer kernel
#
# Neither reads nor changes the machine's own apt state (lists, cache, dpkg status).
# Needs no root. Exit status:
#
#   0    DIR holds a kernel
#   100  Debian no longer carries the suite: its Release file is gone (404), while
#        the mirror has this machine's own suite
#   1    anything else: the network, the mirror's signature, no such kernel...
#
# After 1 and 100 DIR is unchanged. Environment: FLAVOUR (cloud-amd64; its end is the
# architecture), MIRROR and SECURITY (default: the repositories of this machine's own
# apt), KEYRING.
set -euo pipefail
export LC_ALL=C
if [ $# != 2 ]; then sed -n '3,20s/^# \{0,1\}//p' "$0" >&2; exit 2; fi
suite=$1 out=$2
flavour=${FLAVOUR:-cloud-amd64}
architecture=${flavour##*-}
[ "$flavour" != armmp ] || architecture=armhf
keyring=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

die() { echo "getkernel: $suite: $*" >&2; exit 1; }

mkdir -p "$out"
out=$(cd "$out" && pwd)
exec 9> "$out/.lock"
flock 9 # two lanes may need one kernel
if [ -s "$out/package" ] && [ -z "${REFRESH:-}" ]; then cat "$out/package"; exit 0; fi

# repo SUITE: the repository from which this machine's apt has it; Debian's own goes
# before others with a suite of that name. Needs no downloaded lists.
uris=$(apt-get --print-uris update 2> /dev/null || true)
repo() {
  local all
  all=$(sed -n "s|^'\(.*\)/dists/$1/InRelease'.*|\1|p" <<< "$uris")
  { grep -E '^[^/]*//[^/]*/debian(-security)?$' <<< "$all" || echo "$all"; } | head -n 1
}
own=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
mirror=${MIRROR:-$(repo "$own")}
security=${SECURITY:-$(repo "$own-security")}
[ -n "$mirror" ] || die "no Debian repository in apt's sources; set MIRROR"
[ -r "$keyring" ] || die "no $keyring (apt-get install debian-archive-keyring)"

# Unpacked beside DIR's contents and moved at the end, so that DIR never has half a
# kernel.
tmp=$out/.new
rm -rf "$tmp"
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/debs" "$tmp/tree"
trap 'rm -rf "$tmp"' EXIT
: > "$tmp/status"
# The system's apt.conf is still read, hence the #clear of its hooks.
# Error-Mode any: otherwise "update" succeeds even if nothing could be fetched.
# A suite past its end has an expired Release file.
cat > "$tmp/apt.conf" << EOC
Dir::Etc::SourceList "$tmp/sources.list"; Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null"; Dir::Etc::PreferencesParts "/dev/null";
Dir::State "$tmp"; Dir::State::Lists "$tmp/lists"; Dir::State::status "$tmp/status"; Dir::Cache "$tmp/cache";
APT::Architecture "$architecture"; APT::Architectures { "$architecture"; };
APT::Sandbox::User ""; APT::Default-Release ""; APT::Update::Error-Mode "any";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::Languages "none"; Acquire::Retries "3";
Acquire::Check-Valid-Until "false"; Acquire::Check-Date "false";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled "false";
EOC
apt() { local tool=$1; shift; "apt-$tool" -c "$tmp/apt.conf" "$@"; }

# update URI SUITE...: 0 fetched, 4 a Release file is missing, 1 other
update() {
  local uri
  : > "$tmp/sources.list"
  while [ $# -gt 0 ]; do
    uri=$1
    echo "deb [arch=$architecture signed-by=$keyring] $uri $2 main" >> "$tmp/sources.list"
    shift 2
  done
  if apt get -q update > "$tmp/log" 2>&1; then return 0; fi
  # apt says "does not have a Release file" also if the server is in trouble.
  if grep -q 'does not have a Release file' "$tmp/log" &&
    grep -A 1 '^Err:.* Release$' "$tmp/log" | grep -q '^ *404 '; then return 4; fi
  return 1
}
# The first error of apt's log, with the reason below it.
reason() { { grep -m 1 -A 1 -E '^(Err:|E:|W:)' "$tmp/log" || tail -n 1 "$tmp/log"; } | tr -s '\n ' ' '; }
gone() {
  update "$mirror" "$own" || die "cannot fetch it, nor $own: $(reason)"
  echo "getkernel: $suite: Debian no longer carries this suite" >&2
  exit 100
}

status=0
case $suite in
  # Backports only: its newest, not the newest of the suite below.
  sid | unstable | experimental | *-backports) update "$mirror" "$suite" || status=$? ;;
  *)
    [ -n "$security" ] || security=$mirror-security
    update "$mirror" "$suite" "$security" "$suite-security" || status=$?
    # Security support ends, and moves to the archive, before the suite does.
    if [ $status = 4 ]; then status=0; update "$mirror" "$suite" || status=$?; fi
    ;;
esac
case $status in
  0) ;;
  4) gone ;;
  *) die "$(reason)" ;;
esac

# The metapackage names the newest ABI: linux-image-cloud-amd64 depends on
# linux-image-<release>-cloud-amd64. So no version is written here.
image=$(apt cache -q show --no-all-versions "linux-image-$flavour" 2> "$tmp/log" |
  sed -n "s/^Depends:.*\(linux-image-[0-9][^ ,]*-$flavour\).*/\1/p") || true
[ -n "$image" ] || die "no linux-image-$flavour in it"
release=${image#linux-image-}
# Up to 6.12 linux-image-<release> holds everything; later ones are split into
# linux-{base,binary,modules}-<release>.
mapfile -t want < <(apt cache -q pkgnames linux- | grep -Fx -e "linux-image-$release" \
  -e "linux-base-$release" -e "linux-binary-$release" -e "linux-modules-$release")
files=$(cd "$tmp/debs" && apt get -q --print-uris download "${want[@]}" 2> "$tmp/log" |
  awk '{print $2}' | sort) || true
if [ -s "$out/package" ] && [ "$files" = "$(sort "$out/package")" ]; then
  touch "$out/package"
  cat "$out/package"
  exit 0
fi
(cd "$tmp/debs" && apt get -qq download "${want[@]}" > "$tmp/log" 2>&1) || die "$(tail -n 1 "$tmp/log")"
for deb in "$tmp"/debs/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tmp/tree"; done

# The place of the files differs between versions (/boot, /usr/lib/modules...).
find_one() { find "$tmp/tree" "$@" -print -quit; }
vmlinuz=$(find_one -type f \( -name "vmlinu[xz]-$release" -o -path "*/$release/vmlinuz" \))
config=$(find_one -type f \( -name "config-$release" -o -path "*/$release/config" \))
modules=$(find_one -type d -path "*lib/modules/$release")
if [ -z "$vmlinuz" ] || [ -z "$modules" ]; then die "no kernel in: ${want[*]}"; fi
rm -rf "$out/package" "$out/modules" "$out/vmlinuz" "$out/config"
mv "$vmlinuz" "$out/vmlinuz"
[ -z "$config" ] || mv "$config" "$out/config"
mv "$modules" "$out/modules"
echo "$release" > "$out/release"
(cd "$tmp/debs" && ls) > "$out/package"
cat "$out/package"
