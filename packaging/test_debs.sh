#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Tries the packages of make_debs.sh on a new Debian with systemd, in a virtual machine:
#
#   packaging/make_debs.sh
#   packaging/test_debs.sh [--first-day] [DIR [SUITE [ARCH [EARLIER]]]]
#
# --first-day does only the steps of docs/first-day.md (test_first_day_guest.py).
# DIR has the packages (default packaging/build). SUITE is bookworm, trixie, noble, or
# jammy for the packages of make_debs.sh --static.
# ARCH is amd64 or arm64, whose programs must run here (qemu-user-static; binfmt_misc
# mounted). EARLIER has the packages of an earlier version; without it
# make_earlier_debs.py makes some, with other BPF programs. The earlier packages are
# installed, started, read by an unprivileged user, upgraded under traffic to those of
# DIR, whose programs take over, and purged; test_debs_guest.sh has the steps. Run it as
# root; it takes some minutes. The first run of a week fetches the release (140 MB; for
# Ubuntu see sources.sh). Prints PASS, or the failure. Needs test/install_packages.sh
# guests.
set -euo pipefail

die() { echo "test_debs.sh: $*" >&2; exit 1; }

case ${1:-} in -h | --help) sed -n '3,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
first_day=
if [ "${1:-}" = --first-day ]; then first_day=yes; shift; fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=packaging/sources.sh
. "$here/sources.sh"
debs=$(cd "${1:-$here/build}" && pwd)
suite=${2:-bookworm} arch=${3:-amd64}
earlier=${4:+$(cd "$4" && pwd)}
case $arch in
  amd64) console=ttyS0 machine=(qemu-system-x86_64 -M q35 -cpu "max,-cx16") ;;
  arm64) console=ttyAMA0 machine=(qemu-system-aarch64 -M virt -cpu neoverse-n1) ;;
  *) die "'$arch' is neither amd64 nor arm64" ;;
esac
[ "$(id -u)" = 0 ] || die "not root"
ls "$debs"/netmeter_*.deb > /dev/null || die "no packages in $debs (run: packaging/make_debs.sh)"
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/netmeter
mkdir -p "$cache"

# The packages' dependencies, the packages of a server, and those of docs/first-day.md.
# The kernel is the suite's own.
depends=$(for deb in "$debs"/*.deb; do dpkg-deb -f "$deb" Depends; done |
  tr ',' '\n' | sed 's/ *(.*//; s/ //g; s/|.*//' | grep -v '^\(netmeter\|netmeter-loader\|libnetmeter1\)$' | sort -u | paste -sd,),apt,curl,python3
root=$cache/$suite-$arch-$(sha256sum <<< "$depends" | cut -c1-8).tar
if [ -z "$(find "$root" -mtime -7 2> /dev/null)" ]; then
  sources_of "$suite" "$arch"
  # No initramfs: below is one of the whole root, and emulated it takes an hour.
  # shellcheck disable=SC2016 # for the inner shell
  mmdebstrap --quiet --format=tar --variant=minbase --architectures="$arch" \
    --essential-hook='chroot "$1" dpkg-divert --quiet --rename /usr/sbin/update-initramfs && ln -s /bin/true "$1/usr/sbin/update-initramfs"' \
    --include="systemd,systemd-sysv,dbus,udev,kmod,iproute2,$image,$depends" "$suite" "$root.new" "${sources[@]}"
  mv "$root.new" "$root"
fi

scratch=$(mktemp -d /var/tmp/netmeter-debs.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
tar -C "$scratch" --one-file-system -xf "$root"
mkdir "$scratch/debs" "$scratch/earlier"
cp "$debs"/*.deb "$scratch/debs/"
if [ -n "$first_day" ]; then
  cp "$here/test_first_day_guest.py" "$scratch/guest.sh"
  cp "$here/../docs/first-day.md" "$scratch/"
else
  if [ -n "$earlier" ]; then cp "$earlier"/*.deb "$scratch/earlier/"; else "$here/make_earlier_debs.py" "$debs" "$scratch/earlier"; fi
  cp "$here/test_debs_guest.sh" "$scratch/guest.sh"
fi
if [ -z "$first_day" ] && ls "$debs"/libnetmeter1_*.deb > /dev/null 2>&1; then
  # Services in C and C++, linked with the contents of libnetmeter-dev by the compiler
  # that made it; the one in C with the static library.
  compiler=/ tools=
  [ ! -e "$cache/build-$suite-$arch/usr/bin/cc" ] || compiler=$cache/build-$suite-$arch
  [ "$arch" = amd64 ] || tools=aarch64-linux-gnu-
  work=$(mktemp -d "$compiler/tmp/netmeter-debs.XXXXXX")
  trap 'rm -rf "$scratch" "$work"' EXIT
  for deb in "$debs"/libnetmeter-dev_*.deb "$debs"/libnetmeter1_*.deb; do dpkg-deb -x "$deb" "$work"; done
  cp "$here"/../examples/embed.c "$here"/../examples/embed.cc "$work/"
  # shellcheck disable=SC2016 # for the inner shell
  chroot "$compiler" sh -c 'cd "$0" && "$1gcc" -Iusr/include embed.c -o embed usr/lib/*/libnetmeter.a -lstdc++ -lm &&
    "$1g++" -std=c++17 -Iusr/include embed.cc -o embed-cc usr/lib/*/libnetmeter.so.1 -Wl,--start-group \
      $(ls /usr/lib/"$("$1gcc" -dumpmachine)"/libabsl_*.a) -Wl,--end-group' "/tmp/$(basename "$work")" "$tools"
  cp "$work/embed" "$work/embed-cc" "$scratch/"
  rm -r "$work"
fi
cat > "$scratch/etc/systemd/system/netmeter-guest.service" << UNIT
[Unit]
After=basic.target dbus.service
[Service]
Type=oneshot
ExecStart=/guest.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/$console
ExecStopPost=/bin/systemctl poweroff --force
UNIT
mkdir -p "$scratch/etc/systemd/system/multi-user.target.wants"
ln -s ../netmeter-guest.service "$scratch/etc/systemd/system/multi-user.target.wants/"
ln -sf /usr/lib/systemd/systemd "$scratch/init"
cp "$scratch"/boot/vmlinuz-* "$cache/$suite-$arch-vmlinuz"
# Small and not compressed, because the machine may be emulated.
find "$scratch"/lib/modules/ -name '*.ko' ! -name dummy.ko -delete
rm -rf "${scratch:?}"/boot/* "$scratch"/var/cache/* "$scratch"/var/lib/apt/* "$scratch"/usr/lib/firmware \
  "$scratch"/usr/share/{doc,locale,i18n,man,zoneinfo} "$scratch"/usr/lib/*/gconv "$scratch"/usr/lib/udev/hwdb*
initrd=$cache/$suite-$arch-initrd.$$
trap 'rm -rf "$scratch" "$initrd"' EXIT
(cd "$scratch" && find . -xdev | cpio --quiet -o -H newc) > "$initrd"

# ACCEL=kvm if that works. test/kernels/vmrun.sh explains the options of TCG.
timeout 3000 "${machine[@]}" -display none -monitor none -no-reboot -m 2048 -smp 2 -nic none \
  -accel "${ACCEL:-tcg,thread=single}" -kernel "$cache/$suite-$arch-vmlinuz" -initrd "$initrd" \
  -append "console=$console quiet panic=-1 systemd.mask=systemd-udevd.service systemd.mask=serial-getty@$console.service" \
  -serial "file:$scratch.log" < /dev/null || true
tr -d '\r' < "$scratch.log" | sed -n '/^GUEST: /p'
if ! grep -q '^GUEST: PASS' "$scratch.log"; then
  tail -n 60 "$scratch.log" >&2
  rm -f "$scratch.log"
  die "the packages fail (above: the machine's last lines)"
fi
rm -f "$scratch.log"
