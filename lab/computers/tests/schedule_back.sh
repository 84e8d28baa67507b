# unspin schedule ended in each way that an operator or the kernel has, again and again: each thread is as before,
# and nobody waits. The same if memory is short. Function, in virtual time. Sourced after inside.sh and ext.sh.
ROUNDS=${ROUNDS:-3}
mkdir -p /run
# As a service it has a cgroup of its own, which may have a limit of memory.
G=/sys/fs/cgroup
UNIT=$G/unit.service
echo +memory > $G/cgroup.subtree_control
mkdir -p $UNIT
in_unit() { echo "echo \$\$ > $UNIT/cgroup.procs && exec unspin schedule --beside --journal $J --cpus 0-3 $gangs"; }
# Twelve vCPUs that always run, on four CPUs: in a fair scheduler's slices one waits for some 10 ms.
vms=""
for n in 1 2 3; do
	start 4 /tmp/stop v$n
	vms="$vms $vm"
done
tid=$(vcpus $vm | head -n 1)
renice -n 5 -p $tid
taskset -p 7 $tid > /dev/null
for vm in $vms; do settings $vm > /tmp/before-$vm; done

waits() { unspin-inside unserved 400 $vms; }
begins() { hold sh -c "$(in_unit)"; }
all_taken() { for of in $vms; do all_are $of $EXT || return 1; done; }
all_before() { for of in $vms; do as_before $of || return 1; done; }
killed() { end_by KILL; settle is $STATE disabled; }
terminated() { end_by TERM; }
# Its guard, too.
left() {
	for dir in /proc/[0-9]*; do
		tr '\0' ' ' < $dir/cmdline 2> /dev/null | grep -q '^[^ ]*unspin guard ' && kill -9 ${dir##*/}
	done
	killed
}
# Then what a unit does after a service ended.
both_killed() { left && unspin diagnose --put-back; }
# The kernel prints a call trace where memory is short, which is no fault: it must not be on the console, nor in the log.
quietly() {
	echo 1 > /proc/sys/kernel/printk
	"$@"
	answer=$?
	dmesg -c | grep -E "$SPLAT" | grep -v 'Call Trace:' && answer=1
	echo 5 > /proc/sys/kernel/printk
	return $answer
}
# Its memory is taken from it and its guard. The kernel kills both.
oom_kills() { sed -n 's/^oom_kill //p' $UNIT/memory.events; }
starve() {
	before=$(oom_kills)
	echo 0 > $UNIT/memory.max
	settle is $UNIT/cgroup.procs ""
	echo max > $UNIT/memory.max
	[ "$(oom_kills)" -gt "$before" ]
}
out_of_memory() {
	quietly starve || { cat $UNIT/memory.events; return 1; }
	wait $command
	exec 9>&-
	settle is $STATE disabled && unspin diagnose --put-back
}
# As packages do it: the program's file is another one, then the service ends and begins again.
replaced() { cp /bin/unspin /bin/unspin.new && mv /bin/unspin.new /bin/unspin; }
upgraded() {
	replaced && terminated && unspin diagnose --put-back || return
	all_before || { echo "not as before between the two"; return 1; }
	begins && settle all_taken && end
}
# The next one restores what was left, before it takes VMs.
upgraded_after_kill() {
	replaced && left && begins || return
	grep -q 'restored changes of an earlier unspin' /tmp/said || { cat /tmp/said; return 1; }
	settle all_taken && end
}
# The guard kills it after 15 s.
stopped() {
	kill -STOP $command
	settle is $STATE disabled
	wait $command
	exec 9>&-
}
rounds() {
	how=$1
	round=1
	while [ $round -le $2 ]; do
		begins || { echo "round $round: it does not begin"; return 1; }
		settle all_taken || { echo "round $round: VMs are not taken"; return 1; }
		say "while it runs: vCPUs, ms without CPU time, ms between looks, ms ready: $(waits)"
		$how || { echo "round $round: $how"; return 1; }
		nobody_waits 12 $vms || { echo "round $round: $how"; return 1; }
		settle all_before || { all_before; echo "round $round: not as before"; return 1; }
		round=$((round + 1))
	done
}
gangs="--gang pid:${vms##* }"
for how in end terminated killed both_killed out_of_memory upgraded; do
	worst=0
	check "$how, $ROUNDS times" rounds $how $ROUNDS
	say "$how: longest time without CPU time: $worst ms"
done
for how in stopped upgraded_after_kill; do
	worst=0
	check "$how" rounds $how 1
	say "$how: longest time without CPU time: $worst ms"
done

# --- memory is short when it starts: it may be too little for any step, and all is as before. 2 MiB are too little ---
short_of() {
	echo $1 > $UNIT/memory.max
	said=$(sh -c "$(in_unit)" < /dev/null 2>&1)
	code=$?
	settle is $UNIT/cgroup.procs "" || { echo "processes stay"; return 1; }
	echo max > $UNIT/memory.max
	say "with $1 of memory: exit code $code: $(echo "$said" | tail -n 1 | head -c 200)"
	[ $1 != 2M ] || [ $code != 0 ]
}
for most in 2M 8M 24M; do
	check "with $most of memory it ends" quietly short_of $most
	check "with $most of memory: it is off" settle is $STATE disabled
	check "with $most of memory: what was left is restored" unspin diagnose --put-back
	check "with $most of memory: threads are as before" all_before
	check "with $most of memory: nobody waits" nobody_waits 12 $vms
done
end_vms /tmp/stop $vms
finish
