#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# lane.sh LIVE_TEST RUNFILES FILTER SECONDS [TEST]...: matrix.sh runs this on each
# kernel, in the guest (dash and busybox) or on the host: the features that are active
# after a load, then the live tests and those of each TEST. netmeter-loader is in PATH.
# NETMETER_HIDE_BTF: hides the kernel's types from here on, and gives every load a file
# with the types; in a guest only. NETMETER_LIVE_OPTIONS: more arguments for LIVE_TEST.
# NETMETER_LIVE_SHARDS: its number of parts that run side by side (1); on a fast kernel
# a test mostly waits. Lines beginning with @@ are for report.py, here and in
# test/accuracy.
live_test=$1 runfiles=$2 filter=$3 seconds=$4
shift 4

echo "@@release $(uname -r)"
echo "@@version $(uname -v)"
[ -r /sys/kernel/security/lockdown ] && echo "@@lockdown $(cat /sys/kernel/security/lockdown)"

# Features that a test needs, and without which it passes all the same. The file
# expectations lists the kernels that have them.
esp='src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1 mode transport'
# shellcheck disable=SC2086 # words
unshare -n ip xfrm state add $esp auth 'hmac(sha1)' 0x000102030405060708090a0b0c0d0e0f10111213 \
  enc 'cbc(aes)' 0x000102030405060708090a0b0c0d0e0f > /dev/null 2>&1 && ipsec=yes || ipsec=no
echo "@@kernel ipsec $ipsec"

if [ -n "${NETMETER_HIDE_BTF:-}" ]; then
  types=/run/types loader=$(command -v netmeter-loader)
  cp /sys/kernel/btf/vmlinux "$types" && mount -t tmpfs none /sys/kernel/btf || exit 1
  mv "$loader" "$loader-itself" || exit 1
  cat > "$loader" << EOF
#!/bin/sh
command=\$1
shift
[ "\$command" != load ] || set -- --btf $types "\$@"
exec $loader-itself "\$command" "\$@"
EOF
  chmod 755 "$loader"
  # An unsuitable file is refused before anything is created.
  head -c 100000 "$types" > "$types-short"
  for wrong in "$types-none" "$types-short" /bin/busybox; do
    if "$loader-itself" load --btf "$wrong" --pin-dir /run/wrong || [ -e /run/wrong ]; then
      echo "a load with $wrong was not refused"
      exit 1
    fi
  done
fi
[ -r /sys/kernel/btf/vmlinux ] && btf=yes || btf=no
echo "@@kernel btf $btf"

# Its own meter, so that the host's is unaffected.
dir=$(mktemp -d) || exit 1
while read -r _ mount type _; do
  [ "$type" = cgroup2 ] && cgroup=$mount/netmeter-matrix-$$ && break
done < /proc/mounts
mkdir "$cgroup" "$dir/pins" || exit 1
netmeter-loader load --cgroup "$cgroup" --pin-dir "$dir/pins"
echo "@@load $?"
echo "@@status-begin"
netmeter-loader status --json --pin-dir "$dir/pins"
echo
echo "@@status-end"
netmeter-loader unload --pin-dir "$dir/pins"
echo "@@unload $?"
rmdir "$cgroup"
rm -rf "$dir"

# Like "bazel test".
export TEST_SRCDIR="$runfiles" RUNFILES_DIR="$runfiles" TEST_WORKSPACE=libnetmeter
TEST_TMPDIR=$(mktemp -d) || exit 1
export TEST_TMPDIR
cd "$runfiles/$TEST_WORKSPACE" || exit 1
echo "@@live-begin"
# shard INDEX: runs one of the parts; its exit status goes into a file.
shard() {
  # shellcheck disable=SC2086 # words
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$1 timeout --foreground -k 5 "$seconds" "$live_test" \
    --loader="$(command -v netmeter-loader)" --accuracy="$TEST_TMPDIR/rows$1" \
    --gtest_filter="$filter" --gtest_color=no ${NETMETER_LIVE_OPTIONS:-}
  echo $? > "$TEST_TMPDIR/status$1"
}
shards=${NETMETER_LIVE_SHARDS:-1} index=1
while [ "$index" -lt "$shards" ]; do
  shard "$index" > "$TEST_TMPDIR/log$index" 2>&1 &
  index=$((index + 1))
done
shard 0
wait
status=0
for file in "$TEST_TMPDIR"/log*; do [ ! -e "$file" ] || cat "$file"; done
for file in "$TEST_TMPDIR"/status*; do [ "$(cat "$file")" = 0 ] || status=$(cat "$file"); done
for test in "$@"; do
  timeout --foreground -k 5 "$seconds" "$test" --loader="$(command -v netmeter-loader)" \
    --gtest_filter="$filter" --gtest_color=no
  test_status=$?
  [ "$status" != 0 ] || status=$test_status
done
echo
echo "@@live-end $status"
cat "$TEST_TMPDIR"/rows* | sed 's/^/@@accuracy /'
rm -rf "$TEST_TMPDIR"
exit "$status"
