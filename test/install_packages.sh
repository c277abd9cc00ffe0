#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs the packages that libnetmeter needs on Debian 12 or 13; all are Debian's own.
#
#   install_packages.sh compile  to build everything
#   install_packages.sh core     to run test/run.sh --core
#   install_packages.sh build    also to run examples/demo.sh
#   install_packages.sh test     also to run test/run.sh (default)
#   install_packages.sh package
#                                to build, and to make packages (packaging/)
#   install_packages.sh guests   also the virtual machines in which
#                                packaging/test_debs.sh and others try the packages
#   install_packages.sh benchmark
#                                to build, and the programs that test/benchmark.sh
#                                compares with and draws with
#   install_packages.sh --list GROUP
#                                prints the packages of a group, one per line
#
# Silent and offline when nothing is missing. Starts no service.
set -euo pipefail

CORE_PACKAGES=(
  bazel-bootstrap g++ clang llvm bpftool git ca-certificates
  libbpf-dev libelf-dev linux-libc-dev
  libabsl-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev
  prometheus-cpp-dev libprotozero-dev
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  python3 python3-dev pybind11-dev
  libgtest-dev libgmock-dev
)
COMPILE_PACKAGES=(
  "${CORE_PACKAGES[@]}"
  # the applications
  zlib1g-dev libnghttp2-dev libsqlite3-dev libncurses-dev libfixbuf-dev
)
RUN_PACKAGES=(
  # running the programs, and traffic
  iproute2 iputils-ping ethtool curl procps kmod util-linux
  nghttp2-proxy openssl python3-grpcio
)
BUILD_PACKAGES=("${COMPILE_PACKAGES[@]}" "${RUN_PACKAGES[@]}")
CORE_TEST_PACKAGES=(
  # the kernels of test/kernels
  qemu-system-x86 busybox-static dash cpio xz-utils zstd nftables
  debian-archive-keyring
  # second opinions: system call counts
  python3-protobuf strace
  # containers and units by a real runtime and a real manager
  crun systemd libcap2-bin python3-yaml
  # real clients; Python's are from PyPI
  golang-go cmake make pkgconf musl-tools iptables python3-venv python3-pip libclang-rt-dev
  # compares the library and its headers with the last release
  abigail-tools
  # the style of the sources
  shellcheck
)
TEST_PACKAGES=(
  "${CORE_TEST_PACKAGES[@]}"
  # Prometheus and promtool, a sniffer, a terminal for netmeter top, a client in Rust
  prometheus tcpdump tmux rustc clang-tidy
  # clients behind a gateway: leases, and WireGuard without a kernel module
  dnsmasq-base udhcpc wireguard-tools wireguard-go
  # an apt repository; what docs/fleet.md rolls out and alerts with
  apt-utils gnupg jq ansible-core prometheus-alertmanager
  # collectors of IPFIX
  nfdump pmacct python3-ipfix
)
PACKAGE_PACKAGES=(
  debhelper dh-python help2man man-db lintian mmdebstrap
  # auditwheel and debsbom, from PyPI
  python3-venv
  # the apt repository, the bill of materials
  apt-utils gnupg jq
)
GUEST_PACKAGES=(
  "${PACKAGE_PACKAGES[@]}"
  cpio qemu-system-x86 qemu-system-arm
  # roots of arm64
  arch-test qemu-user-static
  # two builders' packages, compared
  diffoscope-minimal
)
BENCHMARK_PACKAGES=(
  # meters to compare with
  nethogs tcpdump
)

die() { echo "install_packages.sh: $*" >&2; exit 1; }

list=
if [ "${1:-}" = --list ]; then
  list=yes
  shift
  [ $# -ge 1 ] || die "--list needs a group"
fi
[ $# -le 1 ] || die "takes one group, not '$*' (--help)"
case ${1:-test} in
  compile) packages=("${COMPILE_PACKAGES[@]}") ;;
  core) packages=("${CORE_PACKAGES[@]}" "${RUN_PACKAGES[@]}" "${CORE_TEST_PACKAGES[@]}") ;;
  build) packages=("${BUILD_PACKAGES[@]}") ;;
  test) packages=("${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}") ;;
  package) packages=("${BUILD_PACKAGES[@]}" "${PACKAGE_PACKAGES[@]}") ;;
  guests) packages=("${BUILD_PACKAGES[@]}" "${GUEST_PACKAGES[@]}") ;;
  benchmark) packages=("${BUILD_PACKAGES[@]}" "${BENCHMARK_PACKAGES[@]}") ;;
  -h | --help) sed -n '3,19s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) die "unknown group '$1': compile, core, build, test, package, guests or benchmark" ;;
esac
if [ -n "$list" ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if ! grep -qsx 'ID="\?debian"\?' /etc/os-release || ! command -v apt-get > /dev/null; then
  die "this is not Debian; the packages are Debian 12's"
fi

missing=()
installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' 2> /dev/null) "
for package in "${packages[@]}"; do
  [[ $installed == *" installed:$package "* ]] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
[ "$(id -u)" = 0 ] || die "not root, and these packages are missing: ${missing[*]}"

log=$(mktemp)
policy=/usr/sbin/policy-rc.d
mark="# libnetmeter: packages being installed start no service"
cleanup() {
  rm -f "$log"
  if grep -qsF "$mark" "$policy"; then rm -f "$policy"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# thrice COMMAND...: up to three times; its output is in $log.
thrice() {
  local try
  for try in 1 2 3; do
    if "$@" > "$log" 2>&1 < /dev/null; then return 0; fi
    if [ $try -lt 3 ]; then sleep $((try * 5)); fi
  done
  tail -n 20 "$log" >&2
  return 1
}

export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
apt=(apt-get -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
echo "installing ${#missing[@]} packages: ${missing[*]}"
# "update" alone continues with old lists. But one failing foreign repository must not
# stop this script: the installation shows whether the lists suffice.
thrice "${apt[@]}" -o APT::Update::Error-Mode=any update ||
  echo "install_packages.sh: apt-get update failed (above); going on with the lists that are there" >&2

# prometheus (needed for promtool), its Alertmanager, nghttp2-proxy and the collectors of
# IPFIX start a server, and enable it for the next boot. policy-rc.d, Debian's way,
# prevents the start; the enabling is undone.
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\n%s\nexit 101\n' "$mark" > "$policy"
  chmod 755 "$policy"
fi
thrice "${apt[@]}" --no-install-recommends install "${missing[@]}" ||
  die "apt-get install failed three times (above: its last lines)"
for pair in prometheus:prometheus prometheus-alertmanager:prometheus-alertmanager nghttp2-proxy:nghttpx nfdump:nfdump \
  pmacct:nfacctd pmacct:pmacctd pmacct:sfacctd pmacct:uacctd; do
  [[ " ${missing[*]} " == *" ${pair%:*} "* ]] || continue
  server=${pair#*:}
  if command -v systemctl > /dev/null; then
    systemctl -q disable --now "$server.service" > /dev/null 2>&1 || systemctl -q disable "$server.service" > /dev/null 2>&1 || true
  fi
  if command -v update-rc.d > /dev/null; then update-rc.d "$server" disable > /dev/null 2>&1 || true; fi
done
