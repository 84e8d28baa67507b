# unspin schedule ended in each way that an operator or the kernel has, again and again: each thread is as before,
# and nobody waits. Function, in virtual time. Sourced after inside.sh and ext.sh.
ROUNDS=${ROUNDS:-3}
mkdir -p /run
# Twelve vCPUs that always run, on four CPUs: in a fair scheduler's slices one waits for some 10 ms.
vms=""
for n in 1 2 3; do
	start 4 /tmp/stop $n
	vms="$vms $vm"
done
tid=$(vcpus $vm | head -n 1)
renice -n 5 -p $tid
taskset -p 7 $tid > /dev/null
for vm in $vms; do settings $vm > /tmp/before-$vm; done

waits() { unspin-inside unserved 400 $vms; }
begins() { schedule --cpus 0-3 $gangs; }
all_taken() { for of in $vms; do all_are $of $EXT || return 1; done; }
all_before() { for of in $vms; do as_before $of || return 1; done; }
killed() { end_by KILL; settle is $STATE disabled; }
terminated() { end_by TERM; }
# Its guard, too; then what a unit does after a service ended.
both_killed() {
	for dir in /proc/[0-9]*; do
		tr '\0' ' ' < $dir/cmdline 2> /dev/null | grep -q '^[^ ]*unspin guard ' && kill -9 ${dir##*/}
	done
	killed && unspin diagnose --put-back
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
		say "while it runs: vCPUs, ms without CPU time, ms between looks: $(waits)"
		$how || { echo "round $round: $how"; return 1; }
		nobody_waits 12 $vms || { echo "round $round: $how"; return 1; }
		settle all_before || { all_before; echo "round $round: not as before"; return 1; }
		round=$((round + 1))
	done
}
gangs="--gang pid:${vms##* }"
for how in end terminated killed both_killed; do
	worst=0
	check "$how, $ROUNDS times" rounds $how $ROUNDS
	say "$how: longest time without CPU time: $worst ms"
done
worst=0
check "stopped" rounds stopped 1
say "stopped: longest time without CPU time: $worst ms"
end_vms /tmp/stop $vms
finish
