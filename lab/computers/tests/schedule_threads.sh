# unspin schedule under QEMU: threads that start, cpusets that change, and tasks of the host. Function, never time.
# Sourced after inside.sh and ext.sh.
mkdir -p /run
# --- threads that a VM starts meanwhile ---
begin h 2 unspin-inside vm-that-starts 2 --until /tmp/stop-h
for ends in end killed; do
	check "threads are started: the kernel takes it" schedule --cpus 2-3 pid:$h
	check "threads are started: all are its" settle all_are $h $EXT
	check "threads are started: on its CPUs" settle all_on $h 2-3
	sleep 2
	if [ $ends = end ]; then
		check "threads are started: it ends" end
	else
		end_by KILL
		settle all_are $h 0
	fi
	check "$ends: threads that were started have the VM's policy" settle all_are $h 0
	check "$ends: and its CPUs" settle all_on $h 0-3
done
# --- the same where they have SCHED_BATCH: threads that were started are there for 3 s, so nothing may settle ---
batch() { for tid in $(threads $h); do unspin-inside class batch $tid; done; all_are $h 3; }
check "SCHED_BATCH: all threads have it" settle batch
check "SCHED_BATCH: the kernel takes it" schedule --cpus 2-3 pid:$h
check "SCHED_BATCH: all are its" settle all_are $h $EXT
sleep 2
check "SCHED_BATCH: it ends" end
check "SCHED_BATCH: all threads have it again" all_are $h 3
check "SCHED_BATCH: and their CPUs" all_on $h 0-3
end_vms /tmp/stop-h $h

# --- a worker of vhost, which the kernel starts as a thread of the VM's process. The VM's vCPUs wait meanwhile ---
for module in $VHOST; do check "vhost: $module is loaded" insmod /modules/$module.ko; done
begin w 2 unspin-inside vm-with-vhost 2 /tmp/begin-w --until /tmp/stop-w
worker=$(grep -l '^vhost-' /proc/$w/task/*/comm | cut -d / -f 5)
worker_has() {
	has="$(field $w $worker 39) $(field $w $worker 17)"
	[ "$has" = "$*" ] || { echo "policy and nice value: $has, not $*"; false; }
}
unspin-inside class batch $worker
renice -n 5 -p $worker
check "vhost: the worker has SCHED_BATCH and a nice value" worker_has 3 5
settings $w > /tmp/before-$w
worker_on() { [ "$(cpus_of $w $worker)" = $1 ]; }
# CPU time of threads of a VM, ns: ns_of VM THREAD...
ns_of() {
	ns_of=$1
	shift
	for tid; do
		cut -d ' ' -f 1 /proc/$ns_of/task/$tid/schedstat
	done | tr '\n' '+' | sed 's/$/0/'
}
worker_ran() { [ $(($(ns_of $w $worker))) -gt $1 ]; }
# Threads of a VM that are the scheduler's, without the worker. The one that gives it work cannot run on the scheduler's
# CPUs, and stays as it is.
taken() { for tid in $(threads $1); do [ $tid = $worker ] || [ "$(field $1 $tid 39)" != $EXT ] || echo $tid; done; }
# The figures are of one moment, because the VMs are stopped for more than a look: look_at_times VM...
look_at_times() {
	kill -STOP "$@"
	sleep 3
	works=$(($(ns_of $w $worker) - works)) others=$((-others)) charged=$((-charged))
	for vm; do
		# shellcheck disable=SC2046 # words
		others=$((others + $(ns_of $vm $(taken $vm)))) charged=$((charged + $(of $vm | sed -n 's/.*"ran_ns":\([0-9]*\).*/\1/p')))
	done
	kill -CONT "$@"
}
# Both count the switch to a thread as its time, which is most of the worker's: it runs for some us at a time.
# worker_is_charged VM...: these are charged what they use, all in all.
worker_is_charged() {
	works=0 others=0 charged=0
	look_at_times "$@"
	settle worker_ran $((works + 200000000))
	look_at_times "$@"
	say "vhost: the worker ran for $works ns, others for $others ns, charged are $charged ns"
	[ $works -ge 200000000 ] && [ $((100 * charged)) -ge $((99 * (others + works))) ] &&
		[ $((100 * charged)) -le $((101 * (others + works))) ]
}
for ends in end killed; do
	check "vhost: the kernel takes it" schedule --cpus 2-3 --no-gangs pid:$w
	check "vhost: the worker is its, and has its nice value" settle worker_has $EXT 5
	check "vhost: on its CPUs" settle worker_on 2-3
	if [ $ends = end ]; then
		check "vhost: the worker's CPU time is charged" worker_is_charged $w
		check "vhost: it ends" end
	else
		end_by KILL
	fi
	check "vhost: $ends: threads are as before" settle as_before $w
	check "vhost: $ends: it works" settle worker_ran $(($(ns_of $w $worker) + 1))
done
# It takes CPUs from a VM that computes, all the time. No time is paid for twice.
start 2 /tmp/stop-v v
check "vhost beside a VM: the kernel takes both" schedule --cpus 2-3 --no-gangs pid:$w pid:$v
check "vhost beside a VM: on its CPUs" settle worker_on 2-3
check "vhost beside a VM: all CPU time is charged once" worker_is_charged $w $v
check "vhost beside a VM: it ends" end
end_vms /tmp/stop-v $v
touch /tmp/begin-w
end_vms /tmp/stop-w $w

# --- processes that a VM starts meanwhile, and processes of those ---
children() { grep -l "^PPid:[^0-9]*$1\$" /proc/[0-9]*/status 2> /dev/null | cut -d / -f 3; }
one_has() {
	for child in $(children $1); do [ "$(field $child $child 39)" = $2 ] && return; done
	false
}
# Each has this policy and these CPUs, and so has what it started.
each_has() {
	[ -n "$(children $1)" ] || { echo "no processes"; return 1; }
	for child in $(children $1); do
		are $child $2 $child && all_on $child $3 || return 1
		for of in $(children $child); do are $of $2 $of || return 1; done
	done
}
begin k 2 unspin-inside vm-that-forks 2 /tmp/begin-k --until /tmp/stop-k
for ends in end killed; do
	check "processes are started: the kernel takes it" schedule --cpus 2-3 pid:$k
	check "processes are started: all threads are its" settle all_are $k $EXT
	touch /tmp/begin-k
	check "processes are started: one has the policy, too" settle one_has $k $EXT
	if [ $ends = end ]; then
		check "processes are started: it ends" end
	else
		end_by KILL
		settle all_are $k 0
	fi
	check "$ends: processes that were started have the VM's policy and CPUs" settle each_has $k 0 0-3
	check "$ends: no longer that of the scheduler" not one_has $k $EXT
done
started=$(children $k)
end_vms /tmp/stop-k $k
for child in $started; do
	for of in $(children $child) $child; do kill $of; done
done

# --- the cpuset of a VM grows after it was given back ---
G=/sys/fs/cgroup
echo +cpuset > $G/cgroup.subtree_control
mkdir -p $G/set.scope
echo 1-3 > $G/set.scope/cpuset.cpus
start 2 /tmp/stop-c c
echo $c > $G/set.scope/cgroup.procs
check "a cpuset: its threads have it" all_on $c 1-3
check "a cpuset: the kernel takes it" schedule --cpus 2-3 pid:$c
check "a cpuset: on the scheduler's CPUs" settle all_on $c 2-3
check "a cpuset: it ends" end
check "a cpuset: its threads have it again" all_on $c 1-3
echo 0-3 > $G/set.scope/cpuset.cpus
check "a cpuset: and more when it has" all_on $c 0-3
check "a cpuset: the kernel takes it" schedule --cpus 2-3 pid:$c
check "a cpuset: on the scheduler's CPUs" settle all_on $c 2-3
echo 0-2 > $G/set.scope/cpuset.cpus
check "a cpuset: it shrinks" all_on $c 2
echo 0-1 > $G/set.scope/cpuset.cpus
check "a cpuset: it has none of the scheduler's CPUs, and its threads are given back" settle all_are $c 0
check "a cpuset: they have all that it has" all_on $c 0-1
check "a cpuset: they run" go_on $c
echo 0-2 > $G/set.scope/cpuset.cpus
check "a cpuset: it has one of them, and its threads are taken again" settle all_are $c $EXT
check "a cpuset: on that CPU" settle all_on $c 2
check "a cpuset: they run there" go_on $c
check "a cpuset: it ends" end
check "a cpuset: its threads have what is left" all_on $c 0-2
end_vms /tmp/stop-c $c

for n in a b; do
	start 4 /tmp/stop $n
	settings $vm > /tmp/before-$vm
done

# --- a task of the host that wants all of a CPU: others may use much of another ---
left() { for tid in $(threads $2); do case $(cpus_of $2 $tid) in *$1*) return 1 ;; esac; done; }
begin p 1 taskset 8 unspin-inside vm 1 --until /tmp/stop-p
settings $p > /tmp/before-$p
check "a hog: the kernel takes it" schedule --cpus 0-3 --no-gangs
check "a hog: a VM that is pinned is its" settle all_are $p $EXT
taskset 8 sh -c 'while :; do :; done' &
hog=$!
check "a hog: its CPU is left to it" settle grep -q 'CPU 3 is left to tasks of the host' /tmp/said
check "a hog: a VM that can only run there is as before" settle as_before $p
check "a hog: and runs" go_on $p
for vm in $a $b; do
	check "a hog: other VMs stay" all_are $vm $EXT
	check "a hog: and leave it" left 3 $vm
	check "a hog: and run" go_on $vm
done
check "a hog: it is on" is $STATE enabled
kill $hog
check "a hog: it ends" end
for vm in $a $b $p; do check "a hog: threads are as before" as_before $vm; done
end_vms /tmp/stop-p $p

# --- a fork bomb outside ---
# Tasks of the host that end at once and are followed by others, on all CPUs, while one VM runs as a gang. They
# run before VMs, until after 3 s of that all VMs are given back.
LONGEST_MS=3000
bomb() { until [ -e /tmp/stop-bomb ]; do for n in 1 2 3 4 5 6 7 8; do true & done; wait; done; }
check "a fork bomb: the kernel takes it" schedule --cpus 0-3 --gang pid:$a
bomb & first=$!
bomb & second=$!
for vm in $a $b; do
	check "a fork bomb: VMs run" go_on $vm
	check "a fork bomb: all of their vCPUs" nobody_waits 4 $vm
done
say "a fork bomb: longest time without CPU time: $worst ms"
check "a fork bomb: VMs are given back" \
	settle grep -q 'tasks of the host use more than half of each of the CPUs' /tmp/said
for vm in $a $b; do check "a fork bomb: VMs run" go_on $vm; done
touch /tmp/stop-bomb
wait $first $second
check "a fork bomb: it has ended with an error" not end
for vm in $a $b; do check "a fork bomb: threads are as before" as_before $vm; done

# --- a fork bomb on the other CPUs, where the command runs ---
LONGEST_MS=100
worst=0
rm /tmp/stop-bomb
kill -STOP $b
# This script is there, too, and takes no time from VMs.
taskset -p 3 $$ > /dev/null
check "a fork bomb elsewhere: the kernel takes it" schedule --cpus 2-3 --no-gangs pid:$a
check "a fork bomb elsewhere: all threads are its" settle all_are $a $EXT
check "a fork bomb elsewhere: on its CPUs" settle all_on $a 2-3
# A shell keeps what a function has closed.
( exec 9>&-; bomb ) & first=$!
( exec 9>&-; bomb ) & second=$!
check "a fork bomb elsewhere: all vCPUs run" nobody_waits 4 $a
say "a fork bomb elsewhere: longest time without CPU time: $worst ms"
taskset -p f $a > /dev/null
check "a fork bomb elsewhere: a thread that may run there is narrowed again" settle all_on $a 2-3
check "a fork bomb elsewhere: it is on" is $STATE enabled
check "a fork bomb elsewhere: it ends" end
check "a fork bomb elsewhere: threads are as before" as_before $a
touch /tmp/stop-bomb
wait $first $second
taskset -p f $$ > /dev/null
kill -CONT $b

# --- a hog on a CPU of a gang, before that CPU is left to it; another CPU goes meanwhile ---
worst=0
check "a gang: the kernel takes it" schedule --cpus 0-3 --gang pid:$a
taskset 8 sh -c 'while :; do :; done' &
hog=$!
sleep 0.5
check "a gang beside a hog: all of its vCPUs run" nobody_waits 4 $a
say "a gang beside a hog: longest time without CPU time: $worst ms"
kill $hog
if echo 0 > /sys/devices/system/cpu/cpu2/online; then
	check "a CPU goes in a gang: it runs" go_on $a
	check "a CPU goes in a gang: so do others" go_on $b
	echo 1 > /sys/devices/system/cpu/cpu2/online
fi

# --- a vCPU becomes real-time: its VM is given back, and too little is left for the other ---
tid=$(vcpus $b | head -n 1)
check "a vCPU becomes real-time" unspin-inside class real-time $tid
check "a real-time vCPU: VMs of the host take all CPUs" \
	settle grep -q 'tasks of the host use more than half of each of the CPUs' /tmp/said
for vm in $a $b; do check "a real-time vCPU: VMs run" go_on $vm; done
check "a real-time vCPU: it has ended with an error" not end
check "a real-time vCPU: threads are as before" settle as_before $a
check "it is as the other program made it" [ "$(field $b $tid 39)" = 1 ]
end_vms /tmp/stop $a $b
finish
