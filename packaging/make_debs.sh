#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the Debian packages of this tree, and checks them with lintian:
#
#   packaging/make_debs.sh [--static] [DIR]
#
# They are in DIR (default packaging/build). Two runs on one commit give the same bytes.
# --static: only the programs, linked with all their libraries, for releases that are
# older than this one, such as Ubuntu 22.04. Needs test/install_packages.sh package.
# NETMETER_BAZEL_OPTIONS replaces Bazel's "-c opt". make_debs_for.sh makes packages for
# other releases, and for arm64.
set -euo pipefail

die() { echo "make_debs.sh: $*" >&2; exit 1; }

static=
case ${1:-} in
  -h | --help) sed -n '3,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  --static) static=-static; shift ;;
  -*) die "unknown option '$1' (--help lists them)" ;;
esac
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "${1:-$source/packaging/build}"
output=$(cd "${1:-$source/packaging/build}" && pwd)
cd "$source"
for tool in dh help2man lintian dh_python3; do
  command -v "$tool" > /dev/null || die "no $tool (run: test/install_packages.sh package)"
done
version=$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)
[ "${version%-*}" = "$(sed -n 's/^#define NETMETER_VERSION "\(.*\)"$/\1/p' include/netmeter/netmeter.h)" ] ||
  die "packaging/debian/changelog has version $version, include/netmeter/netmeter.h another one"
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2> /dev/null) ||
  SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -l packaging/debian/changelog -S Timestamp)
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8
umask 022

# From make_debs_for.sh: the target of Bazel's compiler.
arch=${NETMETER_ARCH:-$(dpkg --print-architecture)}
multiarch=$(dpkg-architecture -a "$arch" -q DEB_HOST_MULTIARCH 2> /dev/null)

read -ra options <<< "${NETMETER_BAZEL_OPTIONS:--c opt}"
# The tree has no warnings with GCC 12. Those of other compilers must not prevent a
# package.
[ "$(gcc -dumpversion)" = 12 ] || options+=(--per_file_copt=.*@-Wno-error)
targets=(//packaging) components=(library loader tools exporter ipfix python) ignored=()
if [ -n "$static" ]; then
  targets=(//lib/netmeter_loader:netmeter-loader-static //lib/apps/fds:netmeter-fds-static //lib/apps/netmeter:netmeter-static //lib/apps/exporter:netmeter-exporter-static)
  components=(--static loader tools exporter)
  export DH_OPTIONS="-Nlibnetmeter1 -Nlibnetmeter-dev -Npython3-netmeter -Nnetmeter-ipfix"
  # They are what the packages are for.
  ignored=(--suppress-tags "statically-linked-binary,embedded-library")
fi
bazel build "${options[@]}" "${targets[@]}"
build=$(bazel info "${options[@]}" bazel-bin 2> /dev/null)
bazel shutdown # its server would keep some hundred megabytes of memory

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# A fixed folder name; dpkg-buildpackage writes beside the folder.
tree=$scratch/netmeter
mkdir "$tree"
cp -a packaging/debian "$tree/debian"
cp -a packaging/man "$tree/man"
packaging/man/reference.py "$tree/man"
# --help and the man pages refer to these.
packaging/install_docs.py "$tree"
cp CHANGELOG.md "$tree/"
staged=$tree/prebuilt
packaging/install.sh --build "$build" --destdir "$staged" --prefix /usr \
  --libdir "/usr/lib/$multiarch" --machine "$multiarch" "${components[@]}"
install -D -m 644 packaging/netmeter.yml "$staged/etc/netmeter.yml"
install -D -m 644 packaging/netmeter-exporter.default "$staged/etc/default/netmeter-exporter"
install -D -m 644 packaging/netmeter-export.default "$staged/etc/default/netmeter-export"
for program in netmeter netmeter-loader netmeter-fds netmeter-exporter netmeter-ipfix; do
  install -D -m 644 packaging/completion/netmeter.bash \
    "$staged/usr/share/bash-completion/completions/$program"
done
install -D -m 644 packaging/completion/_netmeter "$staged/usr/share/zsh/vendor-completions/_netmeter"

install -D -m 644 packaging/grafana/netmeter.yml "$staged/etc/grafana/provisioning/dashboards/netmeter.yml"
for file in packaging/grafana/netmeter.json packaging/prometheus/netmeter.rules.yml; do
  install -D -m 644 "$file" "$staged/usr/share/netmeter-grafana/$(basename "$file")"
done

# -d: Bazel and clang are not in Build-Depends, because dh builds nothing.
(cd "$tree" && dpkg-buildpackage -b -us -uc -d -a "$arch" > "$scratch/log" 2>&1) ||
  { tail -n 40 "$scratch/log" >&2; die "dpkg-buildpackage fails"; }
lintian --profile debian --fail-on error,warning --suppress-tags-from-file packaging/lintian-suppressed "${ignored[@]}" \
  "$scratch"/*.changes || die "lintian is not content"
while read -r package; do rm -f "$output/$package"_*.deb; done < <(sed -n 's/^Package: //p' packaging/debian/control)
cp "$scratch"/*.deb "$output/"
(cd "$output" && sha256sum ./*.deb)
