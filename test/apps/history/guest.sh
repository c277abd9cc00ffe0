#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# guest.sh last|INTERVAL: power_failure.py runs this in the guest (dash and busybox). It
# mounts the disk, prints the history on it, and unless this is the last boot counts,
# sends and records every INTERVAL seconds, until the guest is killed.
mkdir -p /var/lib/netmeter
mount -t ext4 /dev/vda /var/lib/netmeter || exit 1
echo "@@usage-begin"
netmeter usage --json --service sender --from 2020-01-01
echo
echo "@@usage-end"
if [ "$1" = last ]; then
  umount /var/lib/netmeter
  exit 0
fi

# No program receives the datagrams, so no answer disturbs the count.
ip netns add far && ip link add up0 type veth peer name far0 netns far || exit 1
for option in all default up0; do echo 1 > /proc/sys/net/ipv6/conf/$option/disable_ipv6; done
ip address add 10.9.0.1/24 dev up0
ip link set up0 up
ip -n far link set far0 up
ip neighbour replace 10.9.0.3 lladdr 02:00:00:00:00:03 dev up0 nud permanent
netmeter-loader load --quiet || exit 1

echo 0 > /tmp/sent
/t/sender 10.9.0.3 /tmp/sent &
records=0
while sleep "$1"; do
  before=$(cat /tmp/sent)
  netmeter record
  status=$?
  echo "@@recorded $status $before $(cat /tmp/sent)"
  records=$((records + 1))
  [ $records != 2 ] || echo "@@running"
done
