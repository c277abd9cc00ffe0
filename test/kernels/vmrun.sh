#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# vmrun.sh -k DIR [OPTION]... -- COMMAND...: run a command under another kernel.
#
# Boots the kernel in DIR (from getkernel.sh) in QEMU, without KVM, with an initramfs
# that has only what is named here. Copies the command's output to stdout and exits with
# its status. 125: the guest died or hung before the command finished (the console is
# shown). Needs no root.
#
#   -b PROGRAM     copied to /bin, with the shared libraries ldd names
#   -f FROM[:TO]   file or directory copied (TO: default /t/), with libraries
#   -m MODULE      loaded, with its dependencies, before the command; one that
#                  this kernel doesn't have is an error
#   -a ARGUMENTS   added to the kernel's command line
#   -d IMAGE       a raw disk, /dev/vda in the guest, which keeps its changes
#   -K LINE        kills QEMU by SIGKILL, like a power failure, when the output has a
#                  line that begins so; the status is then 137
#   -r ROOT        takes the guest's programs and libraries from this root of Debian,
#                  which may be for another machine; then that machine is emulated
#   -s CPUS (2)  -M MEGABYTES (512)  -t SECONDS (300)
#   -o DIR         keeps the console and the output there
#
# Environment: QEMU, CPU, ACCEL, MACHINE, LOGLEVEL (quiet), VERBOSE, KILL_AFTER (seconds
# from that line to the kill).
set -euo pipefail
usage() { sed -n '3,25s/^# \{0,1\}//p' "$0"; }
misuse() { usage >&2; exit 2; }
case ${1:-} in
  -h | --help) usage; exit 0 ;;
esac
# busybox prefers its own applets to the programs in PATH: its sh, and any applet that
# starts another program, would use busybox's ip and tc. So these are real ones.
programs=(dash env nsenter setsid timeout unshare xargs) files=() modules=() arguments='' cpus=2 memory=512 seconds=300 keep='' kernel='' disk=() kill_at='' from_root=''
while getopts k:b:f:m:a:s:M:t:o:d:K:r: option; do
  case $option in
    k) kernel=$OPTARG ;; b) programs+=("$OPTARG") ;; f) files+=("$OPTARG") ;; m) modules+=("$OPTARG") ;;
    a) arguments=$OPTARG ;; s) cpus=$OPTARG ;; M) memory=$OPTARG ;; t) seconds=$OPTARG ;; o) keep=$OPTARG ;;
    d) modules+=(virtio_pci virtio_blk) disk=(-drive "file=$OPTARG,format=raw,if=virtio") ;;
    K) kill_at=$OPTARG ;;
    r) from_root=$OPTARG ;;
    *) misuse ;;
  esac
done
shift $((OPTIND - 1))
if [ -z "$kernel" ] || [ $# = 0 ]; then misuse; fi
PATH=$PATH:/usr/sbin:/sbin
die() { echo "vmrun: $*" >&2; exit 1; }
release=$(cat "$kernel/release")

work=$(mktemp -d)
qemu=
# shellcheck disable=SC2317 # by trap
cleanup() {
  if [ -n "$qemu" ]; then kill "$qemu" 2> /dev/null || true; fi
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
root=$work/root

# --- the initramfs ---------------------------------------------------------
mkdir -p "$root"/{bin,t,lib,lib64,proc,sys,dev,tmp,run,etc,usr/lib,mod,var} "$work/seen"
ln -s ../bin "$root/usr/bin"
ln -s bin "$root/sbin"
ln -s ../bin "$root/usr/sbin"
ln -s ../run "$root/var/run"
printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' > "$root/etc/passwd"
printf 'root:x:0:\ndaemon:x:1:\nnetmeter:x:900:\nnogroup:x:65534:\n' > "$root/etc/group"
printf '127.0.0.1 localhost\n::1 localhost\n' > "$root/etc/hosts"

# Libraries of the system keep their place. Others, from a build folder, go to /lib
# under their names, where the guest's ld.so also looks.
libraries_of() {
  local name
  if [ -z "$from_root" ]; then
    ldd "$1" 2> /dev/null | grep -o '/[^ ]*' || true # static: ldd fails
    return
  fi
  # ldd would run the program, which may be for another machine.
  for name in $(readelf -ld "$1" 2> /dev/null | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p; s/.*interpreter: .*\/\(.*\)\]/\1/p'); do
    find "$from_root"/lib "$from_root"/usr/lib -name "$name" -print -quit
  done
}
add_libraries() {
  local library to
  for library in $(libraries_of "$1"); do
    case $library in
      /lib/* | /lib64/* | /usr/lib/* | /usr/lib64/*) to=$library ;;
      *) to=/lib/${library##*/} ;;
    esac
    if [ -e "$root$to" ]; then continue; fi
    mkdir -p "$root${to%/*}"
    cp -L "$library" "$root$to"
    if [ -n "$from_root" ]; then add_libraries "$library"; fi
  done
}
path_of() {
  if [ -z "$from_root" ] || [ -e "$1" ]; then
    command -v "$1"
  else
    find "$from_root"/{,usr/}{bin,sbin} -name "$1" -print -quit
  fi
}
for program in busybox "${programs[@]}"; do
  path=$(path_of "$program") || path=
  [ -n "$path" ] || die "no program $program ${from_root:-on this machine}"
  cp -L "$path" "$root/bin/"
  add_libraries "$path"
done
ln -sf dash "$root/bin/sh"
for file in ${files[@]+"${files[@]}"}; do
  from=${file%%:*} to=/t/
  if [ "$from" != "$file" ]; then to=${file#*:}; fi
  case $to in */) to=$to${from##*/} ;; esac
  mkdir -p "$root${to%/*}"
  cp -RL "$from" "$root$to"
  while IFS= read -r -d '' path; do
    if [ "$(head -c 4 "$path" | tail -c 3)" = ELF ]; then add_libraries "$path"; fi
  done < <(find -L "$from" -type f -perm -u+x -print0)
done

# Modules are found by file name and unpacked here, and their dependencies read
# from .modinfo: no kmod, depmod or xz in the guest. They keep their signatures.
add_module() {
  local name=$1 file dependency
  if [ -e "$work/seen/$name" ]; then return 0; fi
  : > "$work/seen/$name"
  if grep -q -e "/$name\.ko\$" -e "/${name//_/-}\.ko\$" "$kernel/modules/modules.builtin"; then return 0; fi
  file=$(find "$kernel/modules" \( -name "$name.ko*" -o -name "${name//_/-}.ko*" \) -print -quit)
  [ -n "$file" ] || die "no module $name for $release"
  case $file in
    *.xz) xz -dc "$file" ;;
    *.zst) zstd -dqc "$file" ;;
    *) cat "$file" ;;
  esac > "$root/mod/$name.ko"
  for dependency in $(tr '\0' '\n' < "$root/mod/$name.ko" | sed -n 's/^depends=//p' | tr , ' '); do
    add_module "$dependency"
  done
  echo "insmod /mod/$name.ko || echo \"vmrun: insmod $name failed\"" >> "$root/mod/load"
}
: > "$root/mod/load"
for module in ${modules[@]+"${modules[@]}"}; do add_module "$module"; done

machine=$(readelf -h "$root/bin/dash" | sed -n 's/^ *Machine: *//p')

# The console is ttyS0, the command's output ttyS1: 8250 is built in everywhere,
# virtio-console is a module in 5.10 and 6.1. An Arm machine has one port of its own,
# ttyAMA0, a RISC-V machine ttyS0; the other is on PCI.
port=ttyS1
case $machine in AArch64 | ARM) port=ttyS0 ;; esac
echo "port=$port" > "$root/t/.port"
printf '%q ' "$@" > "$root/t/.command"
cat > "$root/init" << 'EOI'
#!/bin/busybox sh
export PATH=/bin HOME=/ TERM=dumb LC_ALL=C.UTF-8
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin 2> /dev/null # keeps the copied tools
mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts; mount -t tmpfs tmp /tmp; mount -t tmpfs run /run; mount -t tmpfs shm /dev/shm
chmod 1777 /tmp /dev/shm
mount -t cgroup2 cg /sys/fs/cgroup; mount -t bpf -o mode=0700 bpf /sys/fs/bpf
mount -t tracefs tr /sys/kernel/tracing 2> /dev/null
mount -t securityfs se /sys/kernel/security 2> /dev/null
busybox ip link set lo up
. /mod/load
. /t/.port
stty -F /dev/$port raw -echo
# Opened once, because open(2) returns EAGAIN while the last close drains the port.
exec 9> /dev/$port
read up _ < /proc/uptime
cd /t; /bin/sh /t/.command < /dev/null >&9 2>&1; status=$?
read up2 _ < /proc/uptime
printf '\n@@vmrun exit %s up %s %s\n' $status $up $up2 >&9
sync; poweroff -f
EOI
chmod 755 "$root/init"
(cd "$root" && find . -print0 | cpio -0 -o -H newc -R 0:0 --quiet) > "$work/initramfs"
rm -rf "$root"

# --- QEMU ------------------------------------------------------------------
# QEMU 7.2 TCG computes cmpxchg16b's flags from a stale cc_op (inlined and right
# from 8.0): SLUB's fast path then oopses at random on 6.12. Hiding cx16 cures that. But
# from 6.19 on, BPF local storage allocates with kmalloc_nolock(), which without cx16
# returns nothing (ENOMEM); and 7.2 with cx16 has never crashed so.
# Without erms and fsrm, because the kernel and libc would use "rep movsb" with them,
# which TCG runs one byte at a time: copies and zeroed pages take three to five times
# the time. Without la57, because a walk of four levels is shorter than one of five.
# Without smap, because each copy to and from a process would end two blocks of code.
cpu=${CPU:-max,-erms,-fsrm,-la57,-smap}
major=${release%%.*} minor=${release#*.}
minor=${minor%%[!0-9]*}
if [ -z "${CPU:-}" ] && [ $((major * 1000 + minor)) -lt 6018 ]; then cpu+=,-cx16; fi
system=qemu-system-x86_64 board=q35 console=ttyS0
output=(-serial "file:$work/output")
on_pci=(-chardev "file,id=output,path=$work/output" -device "pci-serial,chardev=output")
case $machine in
  # A server's CPU, with LSE atomics and without pointer authentication, which is slow to
  # emulate.
  AArch64) system=qemu-system-aarch64 board=virt console=ttyAMA0 cpu=${CPU:-neoverse-n1} output=("${on_pci[@]}") ;;
  ARM) system=qemu-system-arm board=virt,highmem=off console=ttyAMA0 cpu=${CPU:-cortex-a15} output=("${on_pci[@]}") ;;
  RISC-V) system=qemu-system-riscv64 board=virt cpu=${CPU:-rv64} output=("${on_pci[@]}") ;;
esac
# cryptomgr.notests: the kernel tests its own cryptography at the start and with each
# crypto module, which takes half of the boot time. 6.1 finds no cipher for IPsec
# without these tests. The other options turn off a kernel's protection against
# attackers and bugs. They do not affect what is tested, and save a fifth of an emulated
# kernel's time. The live tests on the host's own kernel run with all of it.
faster="cryptomgr.notests mitigations=off init_on_alloc=0 randomize_kstack_offset=off hardened_usercopy=off audit=0 nowatchdog"
if [ $((major * 1000 + minor)) -eq 6001 ]; then faster=${faster#* }; fi
# noirqdebug: if interrupts are threads (PREEMPT_RT), those of the emulated serial port
# look unhandled, and the kernel takes the port from the test in the middle of a word.
# thread=single: multi-threaded TCG races with the kernel patching its own text
# (1 of 20 boots of 7.2: "Oops: int3"). It costs no time, and one VM one CPU.
: > "$work/console"
: > "$work/output"
start=$EPOCHREALTIME status=0
timeout -k 5 "$seconds" "${QEMU:-$system}" \
  -accel "${ACCEL:-tcg,thread=single}" -M "${MACHINE:-$board}" -cpu "$cpu" ${ICOUNT:+-icount "$ICOUNT"} -smp "$cpus" -m "$memory" \
  -nodefaults -no-user-config -display none -no-reboot -nic none ${disk[@]+"${disk[@]}"} \
  -serial "file:$work/console" "${output[@]}" -kernel "$kernel/vmlinuz" -initrd "$work/initramfs" \
  -append "console=$console panic=-1 oops=panic noirqdebug $faster ${LOGLEVEL:-quiet} $arguments" < /dev/null > "$work/qemu" 2>&1 &
qemu=$!
if [ -n "$kill_at" ]; then
  until grep -q "^$kill_at" "$work/output" || ! kill -0 "$qemu" 2> /dev/null; do sleep 0.05; done
  sleep "${KILL_AFTER:-0}"
  # timeout's child, because timeout itself would let QEMU end in order.
  read -r child < "/proc/$qemu/task/$qemu/children" || true # the file has no newline
  if [ -n "${child:-}" ] && kill -KILL "$child"; then killed=yes; fi
fi
wait "$qemu" || status=$?
qemu=
end=$EPOCHREALTIME
if [ -n "$keep" ]; then
  mkdir -p "$keep"
  cp "$work/console" "$work/output" "$work/qemu" "$keep/"
fi
last=$(tail -n 1 "$work/output" | tr -d '\r')
case $last in
  '@@vmrun exit '*)
    sed '$d' "$work/output"
    read -r _ _ code _ from to <<< "$last"
    [ -z "${VERBOSE:-}" ] || echo "vmrun: $release: exit $code, guest: init at $from s, end at $to s; qemu" \
      "$(((${end/./} - ${start/./}) / 1000)) ms; initramfs $(($(stat -c %s "$work/initramfs") / 1024)) KiB" >&2
    exit "$code"
    ;;
esac
cat "$work/output"
if [ -n "${killed:-}" ]; then exit 137; fi
{
  echo "vmrun: $release: the guest did not finish (qemu's status $status$([ $status != 124 ] || echo ': timed out'))"
  tail -n 40 "$work/console"
  cat "$work/qemu"
} >&2
exit 125
