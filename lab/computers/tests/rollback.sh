# shellcheck disable=SC2016,SC2046,SC3045 # a script for another shell; words; busybox
# Sourced after inside.sh. Function, in virtual time.
ROUNDS=${ROUNDS:-34}
# Twelve vCPUs that always run, on four CPUs: in a fair scheduler's slices one waits for some 10 ms.
VMS=3
insert() { insmod /modules/unspin.ko crowded_ok=1 force_pause_intercept=1; }
pids=""
for vm in $(seq $VMS); do
	unspin-inside vm-in-user-space 4 --until /tmp/stop > /tmp/vm-$vm &
	pids="$pids $!"
done
parks() { cat $U/vms/*/parks | tr '\n' '+' | sed 's/$/0/'; }
# Turns are made, and VMs are kept from running in them. A script that looks often is a task of the host,
# and such a CPU has no turns.
turns() {
	for try in 1 2 3 4 5 6 7 8 9 10; do
		before=$(($(parks)))
		sleep 1
		[ $(($(parks))) -gt $((before + 20)) ] && return
	done
	echo "$before parks, $(($(parks))) a second later"
	return 1
}
# ROUNDS times: turns, then their end, then nobody waits.
rounds() {
	round=1
	while [ $round -le $ROUNDS ]; do
		"$1" || { echo "round $round: $1"; return 1; }
		turns || { echo "round $round"; return 1; }
		"$2" || { echo "round $round: $2"; return 1; }
		nobody_waits $((4 * VMS)) $pids || { echo "round $round"; return 1; }
		[ $((round % 5)) != 0 ] || say "$2: $round rounds, longest time without CPU time so far: $worst ms"
		round=$((round + 1))
	done
}

# --- off ---
insert
gangs() { echo con > $D/coscheduling && echo aple > $D/mode; }
off() { echo off > $D/mode; }
check "off, $ROUNDS times" rounds gangs off
say "longest time without CPU time: $worst ms"
rmmod unspin

# --- unloaded ---
worst=0
inserted() { insert && gangs; }
removed() { rmmod unspin && [ ! -e $U ] && ! grep -q unspin $HOOKS; }
check "unloaded, $ROUNDS times" rounds inserted removed
say "longest time without CPU time: $worst ms"

# --- the service killed, and what it left cleared, as its unit does ---
worst=0
mkdir -p /tmp/bin /tmp/run
printf '#!/bin/sh\n[ "$1" = unspin ] && exec insmod /modules/unspin.ko crowded_ok=1 force_pause_intercept=1\n' > /tmp/bin/modprobe
busybox chmod 755 /tmp/bin/modprobe
printf '[default]\nmode = "aple"\ncoscheduling = "con"\n' > /tmp/unspin.toml
applied() { unspin apply --config /tmp/unspin.toml --run-dir /tmp/run "$@"; }
served() {
	(
		export PATH=/tmp/bin:$PATH
		exec unspin apply --config /tmp/unspin.toml --run-dir /tmp/run --every-ms 1000 --stay 2> /tmp/said
	) &
	service=$!
	settle is $D/mode aple
}
killed() {
	kill -KILL $service
	wait $service
	nobody_waits $((4 * VMS)) $pids || return 1
	applied --stop && [ ! -e $U ]
}
check "the service killed, $ROUNDS times" rounds served killed
say "longest time without CPU time: $worst ms"

touch /tmp/stop
for pid in $pids; do
	check "a VM worked all the time" wait $pid
done
