#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Tries the packages of make_debs.sh on a Debian of their own, with systemd, in a virtual
# machine:
#
#   packaging/make_debs.sh && packaging/test_debs.sh [DIR [SUITE]]
#
# DIR is where the packages are (packaging/build), SUITE a Debian (bookworm). They are
# installed, started, read by an unprivileged user, upgraded under traffic, and purged;
# test_debs_guest.sh has the steps. As root. Takes some minutes; the first run of a week
# fetches a Debian (140 MB). Prints PASS, or what failed.
# Needs test/install_packages.sh package.
set -euo pipefail

die() { echo "test_debs.sh: $*" >&2; exit 1; }

case ${1:-} in -h | --help) sed -n '3,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
debs=$(cd "${1:-$here/build}" && pwd)
suite=${2:-bookworm}
[ "$(id -u)" = 0 ] || die "not root"
ls "$debs"/netmeter_*.deb > /dev/null || die "no packages in $debs (run: packaging/make_debs.sh)"
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/netmeter
mkdir -p "$cache"

# What the packages depend on, and what a server has; the kernel is the suite's own.
depends=$(for deb in "$debs"/*.deb; do dpkg-deb -f "$deb" Depends; done |
  tr ',' '\n' | sed 's/ *(.*//; s/ //g; s/|.*//' | grep -v '^\(netmeter\|libnetmeter1\)$' | sort -u | paste -sd,)
root=$cache/$suite-$(sha256sum <<< "$depends" | cut -c1-8).tar
if [ -z "$(find "$root" -mtime -7 2> /dev/null)" ]; then
  mmdebstrap --quiet --format=tar --variant=minbase \
    --include="systemd,systemd-sysv,dbus,udev,kmod,iproute2,linux-image-amd64,$depends" "$suite" "$root.new"
  mv "$root.new" "$root"
fi

scratch=$(mktemp -d /var/tmp/netmeter-debs.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
tar -C "$scratch" --one-file-system -xf "$root"
mkdir "$scratch/debs"
cp "$debs"/*.deb "$scratch/debs/"
cp "$here/test_debs_guest.sh" "$scratch/guest.sh"
# A service in C, linked with what libnetmeter-dev has in it.
dpkg-deb -x "$debs"/libnetmeter-dev_*.deb "$scratch/dev"
cc -I"$scratch/dev/usr/include" "$here/../examples/embed.c" -o "$scratch/embed" \
  "$scratch"/dev/usr/lib/*/libnetmeter.a -lstdc++ -lm
rm -r "${scratch:?}/dev"
cat > "$scratch/etc/systemd/system/netmeter-guest.service" <<'UNIT'
[Unit]
After=basic.target dbus.service
[Service]
Type=oneshot
ExecStart=/guest.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStopPost=/bin/systemctl poweroff --force
UNIT
mkdir -p "$scratch/etc/systemd/system/multi-user.target.wants"
ln -s ../netmeter-guest.service "$scratch/etc/systemd/system/multi-user.target.wants/"
ln -sf /usr/lib/systemd/systemd "$scratch/init"
cp "$scratch"/boot/vmlinuz-* "$cache/$suite-vmlinuz"
# Small, and not compressed: the machine may be an emulated one.
find "$scratch"/lib/modules/ -name '*.ko' ! -name dummy.ko -delete
rm -rf "${scratch:?}"/boot/* "$scratch"/var/cache/* "$scratch"/var/lib/apt/* "$scratch"/usr/lib/firmware \
  "$scratch"/usr/share/{doc,locale,i18n,man,zoneinfo} "$scratch"/usr/lib/*/gconv "$scratch"/usr/lib/udev/hwdb*
initrd=$cache/$suite-initrd.$$
trap 'rm -rf "$scratch" "$initrd"' EXIT
(cd "$scratch" && find . -xdev | cpio --quiet -o -H newc) > "$initrd"

# ACCEL=kvm where that works; why these options of TCG, test/kernels/vmrun.sh tells.
timeout 900 qemu-system-x86_64 -display none -monitor none -no-reboot -m 2048 -smp 2 -nic none \
  -accel "${ACCEL:-tcg,thread=single}" -M q35 -cpu max,-cx16 -kernel "$cache/$suite-vmlinuz" -initrd "$initrd" \
  -append "console=ttyS0 quiet panic=-1 systemd.mask=systemd-udevd.service systemd.mask=serial-getty@ttyS0.service" \
  -serial "file:$scratch.log" < /dev/null || true
tr -d '\r' < "$scratch.log" | sed -n '/^GUEST: /p'
if ! grep -q '^GUEST: PASS' "$scratch.log"; then
  tail -n 60 "$scratch.log" >&2
  rm -f "$scratch.log"
  die "the packages fail (above: the machine's last lines)"
fi
rm -f "$scratch.log"
