# VMs are taken and given back, whatever ends it. Function, never time. Sourced after inside.sh and ext.sh.
mkdir -p /run
# A thread that is no vCPU sleeps for 20 ms again and again: it runs while vCPUs spin for 2 s of CPU time.
woken() { sed -n 's/^voluntary_ctxt_switches:[^0-9]*//p' /proc/$1/task/$1/status; }
woken_later() { [ "$(woken $1)" -gt $2 ]; }
works() {
	woken=$(woken $1)
	settle later $1 $(($(time_of $1) + 200))
	woken_later $1 $((woken + 4)) || { echo "woken $woken times, then $(woken $1)"; false; }
}
refuses() {
	wanted=$1
	code=$2
	shift 2
	answer=$(unspin schedule --journal $J "$@" < /dev/null 2>&1)
	is=$?
	[ $is = $code ] || { echo "exit $is: $answer"; return 1; }
	echo "$answer" | grep -q "$wanted" || { echo "$answer"; false; }
}

check "this kernel can have it" unspin schedule --check
G=/sys/fs/cgroup
echo +cpu > $G/cgroup.subtree_control

start 4 /tmp/stop a
start 4 /tmp/stop b
# What is to be as before: nice values, and CPUs.
tid=$(vcpus $a | head -n 1)
renice -n 5 -p $tid
check "a vCPU has a nice value" [ "$(field $a $tid 17)" = 5 ]
taskset -p 7 $tid > /dev/null
tid=$(vcpus $a | tail -n 1)
unspin-inside class batch $tid
check "another has SCHED_BATCH" [ "$(field $a $tid 39)" = 3 ]
for vm in $a $b; do settings $vm > /tmp/before-$vm; done

for gangs in "--gang pid:$a --gang pid:$b" --no-gangs ""; do
	check "'$gangs': the kernel takes it" schedule --cpus 0-3 $gangs
	check "'$gangs': it is on" is $STATE enabled
	for vm in $a $b; do
		check "'$gangs': threads are its" settle all_are $vm $EXT
		check "'$gangs': and run" go_on $vm
		check "'$gangs': other threads run" works $vm
	done
	sleep 1
	check "'$gangs': it ends" end
	say "$(tail -n 1 /tmp/said)"
	check "'$gangs': it is off" settle is $STATE disabled
	for vm in $a $b; do
		check "'$gangs': threads are as before" as_before $vm
		check "'$gangs': and run on" go_on $vm
	done
done

# --- a trace of its decisions, and their replay ---
check "traced: the kernel takes it" schedule --cpus 0-3 --gang pid:$a --trace /tmp/trace
for vm in $a $b; do
	check "traced: threads are its" settle all_are $vm $EXT
	check "traced: and run" go_on $vm
done
sleep 2
check "traced: it ends" end
replayed() {
	unspin-inside replay /tmp/trace > /tmp/replayed || { cat /tmp/replayed; return 1; }
	say "$(wc -c < /tmp/trace) bytes: $(cat /tmp/replayed)"
}
check "traced: every decision comes out the same" replayed
decided() { [ "$(sed -n "s/.*$1: \([0-9]*\)[,)].*/\1/p" /tmp/replayed)" -ge $2 ] || { cat /tmp/replayed; false; }; }
check "traced: who runs next" decided "who runs next" 200
check "traced: who has the next turn" decided "who has the next turn" 100
first_lines() { head -n 200 /tmp/trace | grep -q "$1"; }
for vm in $a $b; do check "traced: VMs are named" first_lines "^{\"vm\":.*\"process\":$vm,"; done
check "traced: a gang has turns" grep -q '"then":"begins"' /tmp/trace

# --- a VM that starts later, CPUs that are fewer, a CPU that goes ---
check "on 2 CPUs" schedule --cpus 2-3
start 2 /tmp/stop c
check "a VM that starts later is taken" settle all_are $c $EXT
check "and runs" go_on $c
on_these() { [ "$(cpus_of $c $1)" = 2-3 ]; }
check "on these CPUs" on_these $c

# --- another program changes CPUs of threads ---
first_has() { [ "$(field $1 $1 39)" = $2 ]; }
taskset -p 1 $c > /dev/null
check "pinned elsewhere, a thread gets its policy back" settle first_has $c 0
check "and runs" works $c
taskset -p c $c > /dev/null
check "back on these CPUs it is taken again" settle all_are $c $EXT
check "and runs" works $c
tid=$(vcpus $c | tail -n 1)
taskset -p f $tid > /dev/null
check "a vCPU that may run elsewhere, too, is narrowed again" settle on_these $tid
check "and runs" go_on $c

# --- a VM ends, and another gets its number ---
start 2 /tmp/stop-d d
check "a VM that will end is taken" settle all_are $d $EXT
check "and runs" go_on $d
touch /tmp/stop-d
check "it worked" wait $d
start 2 /tmp/stop e
check "the next is taken" settle all_are $e $EXT
check "and runs" go_on $e
mkdir -p $G/q.scope
echo 50000 100000 > $G/q.scope/cpu.max
echo $e > $G/q.scope/cgroup.procs
check "a VM that gets a quota is given back" settle all_are $e 0
check "with its CPUs" settle all_on $e 0-3
check "and runs" go_on $e
# In a scope, a VM without a name of its own has the scope's.
named="^unspin: q: not taken, and may run on CPUs 2-3"
check "and is named as one that may run there" settle grep -q "$named" /tmp/said
outside() { of $1 | grep -q '"cpus":"2-3"'; }
check "for other commands, too" settle outside $e
echo $e > $G/cgroup.procs
check "without the quota it is taken again" settle all_are $e $EXT
check "on these CPUs" settle all_on $e 2-3
check "other commands are told" settle not outside $e
check "it was named once" [ "$(grep -c "$named" /tmp/said)" = 1 ]
if [ -w /sys/devices/system/cpu/cpu3/online ]; then
	echo 0 > /sys/devices/system/cpu/cpu3/online
	for vm in $a $b $c; do check "a CPU goes: VMs run on" go_on $vm; done
	check "a CPU goes: it is on" is $STATE enabled
	echo 1 > /sys/devices/system/cpu/cpu3/online
fi
for vm in $a $b $c $e; do check "with all CPUs: VMs run" go_on $vm; done
check "another beside it is refused" refuses "another sched_ext scheduler is loaded: unspin" 77 --cpus 0-3

# --- killed ---
end_by KILL
check "killed: it is off" settle is $STATE disabled
for vm in $a $b; do
	check "killed: threads are as before" settle as_before $vm
	check "killed: VMs run on" go_on $vm
done
check "killed: the VM that started later is, too" settle all_are $c 0

# --- quotas ---
echo $b > $G/q.scope/cgroup.procs
check "a VM with a quota is refused by name" refuses "has a quota of 0.5 CPUs (cpu.max)" 1 --cpus 0-3 pid:$b
check "and is as before" settle all_are $b 0
check "no CPU of that number" refuses "CPU 64 of --cpus is not online" 2 --cpus 64
end_vms /tmp/stop $a $b $c $e
finish
