#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Limits what a service sends when its budget is used up, until the period ends:
#
#   limit='/usr/local/sbin/limit.sh system.slice/rsync.service 125kb/s'
#   netmeter budget --run-as root --run "[ \$NETMETER_BUDGET != backups ] || $limit"
#
# The service is a cgroup, below the mount point of cgroup v2. The rate is in bytes a
# second, as hashlimit of iptables-extensions(8) takes it. Packets above it are dropped,
# and TCP slows down. `limit.sh SERVICE off` ends it before its time. The rule is of the
# cgroup that is there: a service that is restarted is not limited any more, but one in a
# slice whose cgroup is named here is.
set -eu
service=$1 rate=$2

rules() {
  for tables in iptables ip6tables; do
    "$tables" -w "$1" OUTPUT -m cgroup --path "$service" -m hashlimit \
      --hashlimit-name netmeter --hashlimit-above "$2" -j DROP
  done
}

state=/run/netmeter-limit-$(printf %s "$service" | tr / -)
if [ "$rate" = off ]; then
  rules -D "$(cat "$state")"
  rm "$state"
elif [ "$NETMETER_PERCENT" -ge 100 ] && [ ! -e "$state" ]; then
  rules -A "$rate"
  echo "$rate" > "$state"
  if [ -d /run/systemd/system ]; then
    systemd-run --on-calendar="$NETMETER_PERIOD_TO 23:59:59" "$(realpath "$0")" "$service" off
  fi
fi
