# Sourced after inside.sh. Function, never time.
load() { insmod /modules/unspin.ko crowded_ok=1 force_pause_intercept=1 look_always=1; }
# Class, nice value, affinity, cgroup and, where the kernel shows it, slice of threads.
threads_are() {
	for task; do
		echo $task
		sed 's/.*) //' $task/stat | cut -d ' ' -f 16,17,38,39
		grep Cpus_allowed: $task/status
		cat $task/cgroup
		grep '^se.slice' $task/sched
	done
}
note_threads() { threads_are "/proc/$1/task/"* > /tmp/threads-$1; }
# A thread that KVM has made since is none of those.
# shellcheck disable=SC2046 # words
same_threads() { threads_are $(grep ^/proc /tmp/threads-$1) | cmp - /tmp/threads-$1; }
# A VM of so many vCPUs, until the file is there; $vm is its process.
start() {
	unspin-inside vm $1 --until $2 > /tmp/vm-$3 &
	vm=$!
	settle [ -e $U/vms/$vm-0 ]
	settle has_threads $vm $(($1 + 1))
}
has_threads() {
	wanted=$2
	set -- "/proc/$1/task/"*
	[ $# -ge $wanted ]
}
more() { above $1 $(($2)); }
grows() { before=$(value $1); settle more $1 $before; }
# Turns of a VM are made, or so many have been.
turns_grow() {
	before=$(value $1)
	# Where turns go on, this is enough, and a second of VMs that spin takes two of CPU time.
	sleep 0.2
	more $1 $before || within 20 more $1 $before
}
turns_above() {
	within 80 above $1 $2 && return
	echo "refused: $(value ${1%/*}/turns_refused), CPUs without turns: $(value $U/turns_excluded_cpus)"
	who_runs
	false
}
# What keeps VMs from turns: threads that ran within a second, with their CPU and ticks, and every VM's state.
who_runs() {
	threads_ran > /tmp/ran
	sleep 1
	threads_ran | grep -vxFf /tmp/ran
	grep . $U/vms/*/mode $U/vms/*/coscheduling $U/vms/*/turns_refused
}
threads_ran() {
	sed 's/) /)\t/' /proc/[0-9]*/task/[0-9]*/stat 2> /dev/null |
		awk -F '\t' '{ split($2, of, " "); if (of[12] + of[13]) print $1, "on CPU", of[37], "ticks", of[12] + of[13] }'
}
# By what the kernel counts: in mode off the module counts nothing.
ticks() {
	stat=$(sed 's/.*) //' /proc/$1/stat)
	set -- $stat
	echo $((${12} + ${13}))
}
goes_on() {
	before=$(ticks $1)
	sleep 2
	after=$(ticks $1)
	[ $after -gt $((before + 20)) ] || { echo "$before ticks, $after 2 s later"; false; }
}
becomes() { within 80 is "$1" "$2"; }
grows_soon() {
	sleep 0.1
	before=$(value $1)
	sleep 0.5
	more $1 $before
}
# Once it has had the time to see that it should.
stays() {
	sleep 1
	before=$(value $1)
	sleep 1
	is $1 $before
}
total() { cat $U/vms/*/$1 | tr '\n' '+' | sed 's/$/0/'; }

# --- settings ---
load
check "coscheduling is none" is $D/coscheduling none
check "and no turns are made" not parks_hooked
for bad in coscheduling=gang coscheduling= turn_us=x; do
	check "$bad is EINVAL" refused "${bad#*=}" $D/${bad%%=*} "Invalid argument"
done
for bad in turn_us=999 turn_us=100001; do
	check "$bad is ERANGE" refused "${bad#*=}" $D/${bad%%=*} "out of range"
done
echo con > $D/coscheduling
check "in mode off nobody has turns" not parks_hooked
# Turns go with any mode but off and observe. Under hvs so slow a computer leaves a vCPU ready for 750 ms now
# and then, and its VM is left to KVM.
echo aple > $D/mode
check "nor where there is no VM" not parks_hooked
echo none > $D/coscheduling

# --- what a guest says of itself ---
# Of so many reports at once all are counted, and most ignored.
too_many() {
	answer=$(unspin-inside hypercalls $1 report 1 1000 0)
	set -- $answer $1
	[ $(($1 + $2)) = $5 ] && [ $1 -gt 50 ] && [ $1 -lt $2 ] || { echo "$*"; false; }
}
echo vcrd > $D/coscheduling
check "a guest is HIGH for as long as it says" answers "1 0 1 0" 1 report 1 900000 0
check "and no longer than a second" answers "1 0 1 0" 1 report 1 4294967295 0
check "it is LOW where it says so" answers "1 0 0 0" 1 report 0 900000 0
check "what is neither is ignored" answers "0 3 0 0" 3 report 2 900000 0
check "and programs of a guest" answers "0 3 0 0" 3 report 1 900000 3
check "and too many reports" too_many 20000
check "another hypercall is no report" answers "0 0 0 0" 3 1431196497 1 900000 0
echo observe > $D/mode
check "in mode observe no guest is heard" answers "0 0 0 0" 3 report 1 900000 0
echo aple > $D/mode
echo none > $D/coscheduling
check "nor without coscheduling" answers "0 0 0 0" 3 report 1 900000 0

# --- turns of two VMs, and one that has none of its own ---
mkdir -p /tmp/cgroup
mount -t cgroup2 cgroup2 /tmp/cgroup 2> /dev/null || mount --bind /sys/fs/cgroup /tmp/cgroup
for n in a b c; do
	start 4 /tmp/stop-turns $n
	eval "$n=$vm"
	note_threads $vm
done
echo con > $U/vms/$a-0/coscheduling
echo con > $U/vms/$b-0/coscheduling
check "turns are made" settle parks_hooked
for n in $a $b; do
	check "VM $n has turns" turns_above $U/vms/$n-0/turns 20
	check "and says that it is in them" is $U/vms/$n-0/vcrd 1
done
for n in $a $b $c; do
	check "vCPUs of VM $n are kept from running" turns_grow $U/vms/$n-0/parks
	check "and until then have run on for a while" turns_grow $U/vms/$n-0/overstay_cycles
	check "and run again" grows $U/vms/$n-0/cpu_cycles
done
check "the third has no turns of its own" is $U/vms/$c-0/turns 0
LONGEST_MS=50
check "no vCPU waits for $LONGEST_MS ms" nobody_waits 12 $a $b $c
say "longest time without CPU time in turns: $worst ms"
echo observe > $D/mode
check "in mode observe there are no turns" not parks_hooked
echo aple > $D/mode
check "in mode aple there are again" parks_hooked
late=$(($(total parks_late)))
check "hardly anybody waited in vain: $late of $(($(total parks)))" [ $late -le 3 ]

# --- a turn that does not end ---
STUCK=/sys/module/unspin/parameters/force_stuck
opened=$(value $U/fail_open_total)
echo 3 > $STUCK
check "one that lasts 0.3 s longer" settle is $STUCK 0
check "is ended in the ordinary way" is $U/fail_open_total $opened
# Waits that reach their limit while the planner is held up are no reason to refuse turns, nor are those that
# began before that or end just after it.
held_up() {
	late=$(total parks_late)
	for hold in $(seq 20); do
		echo 3 > $STUCK
		settle is $STUCK 0 || return
		sleep 0.$((hold % 5 + 2))
	done
	[ $(($(total parks_late))) -gt $((late)) ] || { echo "no wait reached its limit"; return 1; }
	for n in $a $b $c; do becomes $U/vms/$n-0/turns_refused none || { who_runs; return 1; }; done
}
check "a planner that is held up again and again costs no VM its turns" held_up
echo 80 > $STUCK
check "one that lasts 8 s is noticed" settle more $U/fail_open_total $opened
check "with a line that says what follows" sh -c "dmesg | grep -q 'a turn does not end: all vCPUs may run until one ends'"
check "everybody runs meanwhile" stays $U/vms/$c-0/parks
check "counted once" is $U/fail_open_total $((opened + 1))
for n in $a $b; do check "VM $n has turns again once it has ended" turns_grow $U/vms/$n-0/turns; done

# --- what guests and their siblings see ---
# KVM counts each time it tells a guest that a vCPU is preempted; a parked one was not before turns.
mount -t debugfs debugfs /sys/kernel/debug 2> /dev/null
reported() { cat /sys/kernel/debug/kvm/*/preemption_reported | tr '\n' '+' | sed 's/$/0/'; }
parks_are_reported() {
	parks=$(($(total parks)))
	reports=$(($(reported)))
	sleep 3
	parks=$(($(total parks) - parks))
	reports=$(($(reported) - reports))
	echo "$parks parks, $reports reports"
	[ $parks -gt 20 ] && [ $reports -ge $parks ]
}
check "each parked vCPU is seen as preempted" parks_are_reported

# --- who takes part ---
for n in $a $b $c; do check "nothing keeps VM $n from turns" becomes $U/vms/$n-0/turns_refused none; done
echo 0 > $U/vms/$c-0/wait_for_turns
check "one that takes no part says so" becomes $U/vms/$c-0/turns_refused "wait_for_turns is 0"
check "and never waits" stays $U/vms/$c-0/parks
echo 1 > $U/vms/$c-0/wait_for_turns
echo off > $U/vms/$c-0/mode
echo none > $U/vms/$b-0/coscheduling
echo off > $U/vms/$b-0/mode
check "one VM has turns beside others that are off" turns_grow $U/vms/$a-0/turns
check "and those wait for it" turns_grow $U/vms/$c-0/parks
check "and run in between" goes_on $c
echo aple > $U/vms/$c-0/mode
echo aple > $U/vms/$b-0/mode
echo con > $U/vms/$b-0/coscheduling

# --- a quota, not pinned ---
# A fifth of one of four CPUs, for a VM that has turns. Ticks are hundredths of a second.
within_quota() {
	of=$(ticks $a)
	others=$(($(ticks $b) + $(ticks $c)))
	sleep 4
	of=$(($(ticks $a) - of))
	others=$(($(ticks $b) + $(ticks $c) - others))
	echo "the VM had $of ticks, the two others $others"
	[ $of -gt 40 ] && [ $of -le ${QUOTA_TICKS_MAX:-90} ] && [ $others -ge 1350 ]
}
mkdir /tmp/cgroup/quota
if echo +cpu > /tmp/cgroup/cgroup.subtree_control && echo "20000 100000" > /tmp/cgroup/quota/cpu.max; then
	echo $a > /tmp/cgroup/quota/cgroup.procs
	check "a VM has its quota, others the rest" within_quota
	check "turns go on" turns_grow $U/vms/$b-0/turns
	echo $a > /tmp/cgroup/cgroup.procs
else
	check "this kernel has quotas" false
fi
rmdir /tmp/cgroup/quota

# --- more vCPUs parked on one CPU than it looks at ---
opened=$(value $U/fail_open_total)
echo 64 > /sys/module/unspin/parameters/looks_fewer
check "a list that is too long is counted" settle more $U/fail_open_total $opened
check "with a line that says what follows" sh -c "dmesg | grep -q 'some wait until others have left it'"
for n in $a $b $c; do check "and VM $n runs" grows $U/vms/$n-0/cpu_cycles; done
echo 0 > /sys/module/unspin/parameters/looks_fewer
check "afterwards turns go on" turns_grow $U/vms/$b-0/turns

# --- more VMs than turns are planned for ---
# One that sleeps: the time of those that are left out counts as the host's.
echo 3 > /sys/module/unspin/parameters/plan_vms_most
unspin-inside beside 'until [ -e /tmp/stop-d ]; do sleep 0.1; done' > /tmp/vm-d &
d=$!
settle [ -e $U/vms/$d-0 ]
check "a VM too many has no turns" becomes $U/vms/$d-0/turns_refused \
	"more VMs or vCPUs take part than the module supports"
sleep 2
check "older ones have" turns_grow $U/vms/$a-0/turns
check "all of them" is $U/vms/$c-0/turns_refused none
echo 0 > /sys/module/unspin/parameters/plan_vms_most
unspin-inside vm 1 --ms 200
check "once there is room it takes part" becomes $U/vms/$d-0/turns_refused none
touch /tmp/stop-d
wait $d

# --- what happens to threads that wait for their turn ---
kill -STOP $a
sleep 1
check "the others go on while one is stopped" turns_grow $U/vms/$b-0/turns
kill -CONT $a
check "and it with them" grows $U/vms/$a-0/cpu_cycles
mkdir /tmp/cgroup/frozen
echo $b > /tmp/cgroup/frozen/cgroup.procs
echo 1 > /tmp/cgroup/frozen/cgroup.freeze
check "one that waits can be frozen" settle grep -q 'frozen 1' /tmp/cgroup/frozen/cgroup.events
check "the others go on" turns_grow $U/vms/$a-0/turns
echo 0 > /tmp/cgroup/frozen/cgroup.freeze
check "and it, thawed, with them" grows $U/vms/$b-0/cpu_cycles
taskset -a -p 1 $c > /dev/null
check "one that is moved to one CPU runs there" grows $U/vms/$c-0/cpu_cycles
taskset -a -p f $c > /dev/null
# The kernel leaves others 5 % of a real-time thread's CPU.
thread=$(grep -l '^CPU' /proc/$c/task/*/comm | head -n 1 | cut -d / -f 5)
check "one vCPU becomes real-time" unspin-inside class real-time $thread
check "its VM has no turns" becomes $U/vms/$c-0/turns_refused "it has vCPUs of a real-time or deadline class"
check "and is never kept from running" stays $U/vms/$c-0/parks
check "and runs" grows $U/vms/$c-0/cpu_cycles
check "as an ordinary one it takes part again" unspin-inside class normal $thread
check "which is said" becomes $U/vms/$c-0/turns_refused none
kill -9 $b
check "one that is killed is gone" settle not [ -e $U/vms/$b-0 ]
check "and the others go on" turns_grow $U/vms/$a-0/turns

# --- tasks of the host ---
# Looked at once, after a while, as in within.
excluded_later() {
	sleep 3
	list=$(value $U/turns_excluded_cpus)
	echo "$list"
	for range in $(echo "$list" | tr , ' '); do
		[ $1 -ge ${range%-*} ] && [ $1 -le ${range#*-} ] && return
	done
	false
}
included_again() {
	for try in 1 2 3 4 5 6; do
		excluded_later $1 || return 0
	done
	false
}
taskset 2 sh -c 'while :; do :; done' &
hog=$!
check "a CPU that a task of the host uses has no turns" excluded_later 1
taskset -a -p 2 $a > /dev/null
check "nor has a VM that wants to run there" stays $U/vms/$a-0/turns
taskset -a -p d $a > /dev/null
check "nor one with more vCPUs than it may have CPUs" stays $U/vms/$a-0/turns
check "which is said" becomes $U/vms/$a-0/turns_refused "its vCPUs have too few CPUs to run together"
taskset -a -p f $a > /dev/null
kill $hog
wait $hog
check "without it that CPU has turns again" included_again 1

# --- a computer that sleeps ---
# It freezes all tasks, stops its devices and all CPUs but one and wakes up again. To write what it had in
# memory it has no place, so it goes on.
sleeps() {
	echo disk > /sys/power/state
	dmesg | grep -q 'hibernation: hibernation exit'
}
if grep -q disk /sys/power/state; then
	check "the computer sleeps in a turn, and wakes up" sleeps
	check "turns go on" turns_grow $U/vms/$a-0/turns
	check "and everybody runs" grows $U/vms/$c-0/cpu_cycles
fi

# --- CPUs that go ---
if echo 0 > /sys/devices/system/cpu/cpu3/online; then
	check "a VM with more vCPUs than CPUs has no turns" becomes $U/vms/$a-0/turns_refused \
		"its vCPUs have too few CPUs to run together"
	check "and everybody runs" grows $U/vms/$c-0/cpu_cycles
	echo 1 > /sys/devices/system/cpu/cpu3/online
	check "with as many CPUs it has turns again" turns_grow $U/vms/$a-0/turns
fi

# --- turns end ---
echo none > $U/vms/$a-0/coscheduling
check "without a VM that wants turns there are none" not parks_hooked
for n in $a $c; do
	check "VM $n runs" grows $U/vms/$n-0/cpu_cycles
	check "as it was started" same_threads $n
done
echo vcrd-ple > $D/coscheduling
check "a VM that spins is found to" turns_above $U/vms/$c-0/turns 5
echo vcrd-both > $D/coscheduling
check "by both kinds together, too" turns_grow $U/vms/$c-0/turns
echo none > $D/coscheduling

# --- spinning in user space ---
# Where each PAUSE exits, vCPUs that spin are hardly ever found in their guests. Those of this VM do not.
echo 0 > $U/parameters/force_pause_intercept
unspin-inside vm-in-user-space 4 --until /tmp/stop-user > /tmp/vm-user &
user=$!
settle [ -e $U/vms/$user-0 ]
check "nobody is looked at" not grows_soon $U/vms/$c-0/user_samples
echo hvs > $U/vms/$user-0/mode
echo vcrd-user > $U/vms/$user-0/coscheduling
check "its vCPUs are looked at" turns_above $U/vms/$user-0/user_samples 50
check "and spin" turns_above $U/vms/$user-0/user_spins 10
check "for that it has turns" turns_above $U/vms/$user-0/turns 1
check "others are not looked at" not grows_soon $U/vms/$c-0/user_samples
echo vcrd-user > $U/vms/$c-0/coscheduling
echo none > $U/vms/$user-0/coscheduling
check "one whose kernel spins is looked at" settle above $U/vms/$c-0/user_samples 200
check "and does not spin in user space" is $U/vms/$c-0/user_spins 0
echo off > $U/vms/$c-0/mode
echo vcrd-user > $U/vms/$a-0/coscheduling
check "one that is off meanwhile is not" not grows_soon $U/vms/$c-0/user_samples
check "others are" grows $U/vms/$a-0/user_samples
echo none > $U/vms/$a-0/coscheduling
echo none > $U/vms/$c-0/coscheduling
echo aple > $U/vms/$c-0/mode
check "looks end" not grows_soon $U/vms/$a-0/user_samples
touch /tmp/stop-user
check "the VM that spun worked: $(cat /tmp/vm-user)" wait $user
echo 1 > $U/parameters/force_pause_intercept

# --- guests that report ---
echo vcrd > $D/coscheduling
for cpl in 0 3; do
	unspin-inside vm-that-reports 4 $cpl --until /tmp/stop-reports > /tmp/vm-reports-$cpl &
	eval "reports$cpl=$!"
done
settle [ -e $U/vms/$reports0-0 ]
settle [ -e $U/vms/$reports3-0 ]
check "waits for a lock are reported" settle above $U/vms/$reports0-0/guest_reports 20
check "for that it has turns" turns_above $U/vms/$reports0-0/turns 10
check "its time in them is counted" settle above $U/vms/$reports0-0/turn_cycles 0
check "of user space none is heard" settle above $U/vms/$reports3-0/guest_reports_ignored 20
check "and it has no turns" is $U/vms/$reports3-0/turns 0
check "a guest is HIGH among others, too" answers "1 0 1 0" 1 report 1 900000 0
echo none > $D/coscheduling
check "who is not asked is not heard" not grows_soon $U/vms/$reports0-0/guest_reports
check "a guest that does not report is as before" is $U/vms/$c-0/guest_reports 0
touch /tmp/stop-reports
check "the VM that reported worked: $(cat /tmp/vm-reports-0)" wait $reports0
check "and the other: $(cat /tmp/vm-reports-3)" wait $reports3
echo con > $U/vms/$c-0/coscheduling
check "turns are made again" turns_grow $U/vms/$c-0/turns
echo off > $D/mode
check "mode off ends turns" not parks_hooked
for n in $a $c; do check "VM $n is as it was started" same_threads $n; done

# --- loaded, switched and unloaded, while vCPUs sleep for lack of memory on their way into the guest ---
rmmod unspin
G=/sys/fs/cgroup
echo +memory > $G/cgroup.subtree_control
mkdir $G/little
echo 1M > $G/little/memory.high
(while [ ! -e /tmp/stop-little ]; do
	sh -c "echo \$\$ > $G/little/cgroup.procs; exec unspin-inside churn 1 2" || break
done) > /tmp/little &
little=$!
throttled() { [ "$(sed -n 's/^high //p' $G/little/memory.events)" -gt 0 ]; }
cycle=0
while [ $cycle -lt $CYCLES ]; do
	load || break
	settle [ -e $U/vms/$a-0 ]
	echo con > $D/coscheduling
	if [ $((cycle % 3)) -eq 2 ]; then echo apples > $D/mode; else echo aple > $D/mode; fi
	turns_grow $U/vms/$a-0/parks || break
	case $((cycle % 3)) in
	0) echo none > $D/coscheduling ;;
	1) echo off > $D/mode ;;
	esac
	rmmod unspin || break
	cycle=$((cycle + 1))
done
check "$CYCLES times loaded and unloaded, every third time in a turn" [ $cycle -eq $CYCLES ]
check "no hook stays" gone
check "vCPUs were throttled for memory meanwhile" throttled
echo max > $G/little/memory.high
touch /tmp/stop-little
wait $little
for n in $a $c; do check "VM $n is as it was started" same_threads $n; done
touch /tmp/stop-turns
check "VM a worked" wait $a
check "VM c worked" wait $c
finish
