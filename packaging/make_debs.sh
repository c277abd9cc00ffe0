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
version=$(sed -n 's/^#define NETMETER_VERSION "\(.*\)"$/\1/p' include/netmeter/netmeter.h)
# A package for a newer release of the distribution has the higher version, so an upgrade
# of the distribution takes it, and the files of all releases fit into one directory.
# Static programs come first: they are for the releases before these.
# shellcheck source=/dev/null
release=$(. /etc/os-release && case $ID in
  debian) echo "${VERSION_ID:++deb$VERSION_ID}" ;;
  ubuntu) echo "+ubuntu$VERSION_ID" ;;
esac)
version+=-1${static:++0static}
[ -n "$static" ] || version+=$release
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2> /dev/null) ||
  SOURCE_DATE_EPOCH=$(stat -c %Y CHANGELOG.md) # of the source archive
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
# parts TARGET...: Debian's packages whose code is in the programs: that of headers, and
# in static programs that of archives. Their sources become the field Static-Built-Using,
# from which make_release.sh makes the bill of materials. dpkg knows it, and lintian of
# Debian 12 does not (unknown-field).
parts() {
  local libraries library name file names
  libraries=$(bazel query "deps(set($*)) intersect //third_party:all" 2> /dev/null | sed 's|.*:||') || die "no bazel query for $*"
  for library in $libraries ${static:+runtime}; do
    names=${static:+$library}
    case $library in
      cli11) echo libcli11-dev ;;
      nlohmann_json) echo nlohmann-json3-dev ;;
      protozero) echo libprotozero-dev ;;
      pybind11) echo pybind11-dev ;;
      absl_*) echo libabsl-dev; names="" ;;
      libbpf) names=${static:+bpf elf z zstd} ;;
      ncursesw) names=${static:+ncursesw tinfo} ;;
      runtime) names="c m stdc++ gcc gcc_eh" ;;
      yaml_cpp) names=${static:+yaml-cpp} ;;
      zlib) names=${static:+z} ;;
    esac
    for name in $names; do
      file=$("${NETMETER_CXX:-g++}" -print-file-name="lib$name.a")
      [ ! -e "$file" ] || dpkg -S "$(realpath "$file")" | sed 's/: .*//'
    done
  done | sort -u
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bazel build "${options[@]}" "${targets[@]}"
build=$(bazel info "${options[@]}" bazel-bin 2> /dev/null)
for pair in "netmeter-loader //lib/netmeter_loader:netmeter-loader //lib/apps/fds:netmeter-fds" "netmeter //lib/apps/netmeter" \
  "netmeter-exporter //lib/apps/exporter:netmeter-exporter" "netmeter-ipfix //lib/apps/ipfix:netmeter-ipfix" \
  "libnetmeter1 //lib/capi" "libnetmeter-dev //lib/capi" "python3-netmeter //bindings/python:netmeter/_netmeter.so"; do
  package=${pair%% *}
  # shellcheck disable=SC2086 # words
  parts ${pair#* } > "$scratch/parts"
  echo "$package: $(xargs -r dpkg-query -W -f "\${source:Package} (= \${source:Version})\n" < "$scratch/parts" | sort -u | paste -sd, | sed 's/,/, /g')"
  [ -n "$static" ] || continue
  # The licences of these parts.
  while IFS=: read -r part _; do
    install -D -m 644 "/usr/share/doc/$part/copyright" "$scratch/licences/$package/usr/share/doc/$package/copyright.$part"
  done < "$scratch/parts"
done > "$scratch/built-using"
bazel shutdown # its server would keep some hundred megabytes of memory

# A fixed folder name; dpkg-buildpackage writes beside the folder.
tree=$scratch/netmeter
mkdir "$tree"
cp -a packaging/debian "$tree/debian"
mv "$scratch/built-using" "$tree/built-using"
[ -z "$static" ] || mv "$scratch/licences" "$tree/"
cat > "$tree/debian/changelog" << END
netmeter ($version) unstable; urgency=medium

  * Release ${version%-*}: changelog.gz says what is new.

 -- The libnetmeter Authors <libnetmeter@users.noreply.github.com>  $(date -Rud "@$SOURCE_DATE_EPOCH")
END
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

# dpkg-deb replaces only times after SOURCE_DATE_EPOCH, and a clone's files may be older.
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
# -d: Bazel and clang are not in Build-Depends, because dh builds nothing.
(cd "$tree" && dpkg-buildpackage -b -us -uc -d -a "$arch" > "$scratch/log" 2>&1) ||
  { tail -n 40 "$scratch/log" >&2; die "dpkg-buildpackage fails"; }
lintian --profile debian --fail-on error,warning --suppress-tags-from-file packaging/lintian-suppressed "${ignored[@]}" \
  "$scratch"/*.changes || die "lintian is not content"
while read -r package; do rm -f "$output/$package"_*.deb; done < <(sed -n 's/^Package: //p' packaging/debian/control)
cp "$scratch"/*.deb "$output/"
(cd "$output" && sha256sum ./*.deb)
