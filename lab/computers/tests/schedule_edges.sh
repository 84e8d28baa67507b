# unspin schedule under QEMU: what must not keep threads waiting until the kernel ends the scheduler, and what must not
# end the command. Function, never time. Sourced after inside.sh and ext.sh.
mkdir -p /run
EVENTS=/sys/kernel/sched_ext/root/events
event() { sed -n "s/^$1 //p" $EVENTS; }
never() { [ "$(event $1)" = 0 ] || { cat $EVENTS; false; }; }
ticks() { field $1 $1 12; }
ticks_more() { [ "$(ticks $1)" -gt $2 ]; }
runs() { settle ticks_more $1 $(($(ticks $1) + 2)); }

# --- threads that exit beside tasks of the host: the kernel does not put them on the CPU that was taken ---
begin h 2 unspin-inside vm-that-starts 2 --until /tmp/stop-h
start 4 /tmp/stop a
bomb() { until [ -e /tmp/stop-bomb ]; do for n in 1 2 3 4; do true & done; wait; done; }
check "threads exit: the kernel takes it" schedule --cpus 0-3 --no-gangs
bomb & first=$!
for n in 1 2 3 4 5 6 7 8; do check "threads exit: VMs run" go_on $a; done
touch /tmp/stop-bomb
wait $first
check "threads exit: each came to the scheduler" never SCX_EV_ENQ_SKIP_EXITING
check "threads exit: it is on" is $STATE enabled
check "threads exit: it ends" end
end_vms /tmp/stop-h $h

# --- a VM that halts as often as it can ---
# KVM must not poll for the wake-up: each halt gives the CPU up.
echo 0 > /sys/module/kvm/parameters/halt_poll_ns
begin m 2 unspin-inside meet 2 1 --until /tmp/stop-m
halts() {
	for tid in $(vcpus $m); do
		sed -n 's/^voluntary_ctxt_switches:[^0-9]*//p' /proc/$m/task/$tid/status
	done | tr '\n' '+' | sed 's/$/0/'
}
halted() { [ $(($(halts))) -gt $1 ]; }
for gangs in --no-gangs "--gang pid:$m"; do
	check "'$gangs': halts: the kernel takes it" schedule --cpus 0-3 $gangs
	check "'$gangs': halts: its threads are taken" settle all_are $m $EXT
	before=$(($(halts)))
	sleep 1
	say "'$gangs': $(($(halts) - before)) halts in about a second"
	check "'$gangs': halts: the VM goes on" settle halted $((before + 5000))
	check "'$gangs': halts: no vCPU of the other waits" nobody_waits 4 $a
	check "'$gangs': halts: it is on" is $STATE enabled
	check "'$gangs': halts: it ends" end
done
end_vms /tmp/stop-m $m

# --- migration: vCPUs of a VM that arrives wait until all of it is there; those of one that leaves stop, and it ends ---
begin i 4 unspin-inside vm-that-arrives 4 /tmp/begin-i --until /tmp/stop-i
check "migration: the kernel takes it" schedule --cpus 0-3 --gang pid:$i
check "migration: a VM that arrives is taken" settle all_are $i $EXT
check "migration: the other runs meanwhile" nobody_waits 4 $a
touch /tmp/begin-i
check "migration: it has turns" settle turns_more $i 20
check "migration: all vCPUs run" nobody_waits 8 $a $i
kill -STOP $i
check "migration: one that leaves keeps no CPU" nobody_waits 4 $a
kill -9 $i
wait $i
check "migration: it has left" settle not of $i
check "migration: the other runs on" go_on $a
check "migration: it is on" is $STATE enabled
check "migration: it ends" end

# --- a thread that may only run on a CPU which is left, and waited for it before ---
# The kernel has a server, which gives such a thread 5 %, only for CPUs that are there when it boots: here the first.
check "a CPU is left: the kernel takes it" schedule --cpus 0-3 --no-gangs
taskset 1 unspin-inside ext 'while :; do :; done' 9>&- &
stranger=$!
check "a CPU is left: a task of SCHED_EXT runs there" runs $stranger
taskset 1 sh -c 'while :; do :; done' 9>&- &
hog=$!
check "a CPU is left" settle grep -q 'CPU 0 is left to tasks of the host' /tmp/said
for n in 1 2 3; do check "a CPU is left: the task of SCHED_EXT runs on" runs $stranger; done
check "a CPU is left: it is on" is $STATE enabled
check "a CPU is left: VMs run" go_on $a
kill $hog $stranger
check "a CPU is left: it ends" end

# --- a CPU goes offline that waiting vCPUs may not leave ---
start 2 /tmp/stop p
for tid in $(vcpus $p); do taskset -p 8 $tid > /dev/null; done
check "a CPU goes: the kernel takes it" schedule --cpus 0-3 --no-gangs
check "a CPU goes: its threads are taken" settle all_are $p $EXT
check "a CPU goes: at once" timeout 10 sh -c 'echo 0 > /sys/devices/system/cpu/cpu3/online'
check "a CPU goes: it is on" is $STATE enabled
for vm in $a $p; do check "a CPU goes: VMs run" go_on $vm; done
echo 1 > /sys/devices/system/cpu/cpu3/online
for vm in $a $p; do check "a CPU comes: VMs run" go_on $vm; done
check "a CPU comes: it ends" end

# --- nobody reads what the command says, and the file for other commands cannot be written ---
mkdir -p /run/unspin/schedule.json.part
rm -f /tmp/hold
mkfifo /tmp/hold
unspin schedule --cpus 0-3 --no-gangs --journal $J > /tmp/hold 2> /tmp/said &
command=$!
head -c 1 /tmp/hold > /tmp/first
check "nobody reads: the file is named" settle grep -q 'schedule.json.*; VMs are still scheduled' /tmp/said
start 2 /tmp/stop b
check "nobody reads: it says so" settle grep -q 'cannot write the output.*; VMs are still scheduled' /tmp/said
check "nobody reads: a VM that starts is taken" settle all_are $vm $EXT
check "nobody reads: it is on" is $STATE enabled
check "nobody reads: each is said once" [ "$(grep -c . /tmp/said)" = 2 ]
kill $command
check "nobody reads: it ends without an error" wait $command
rmdir /run/unspin/schedule.json.part
end_vms /tmp/stop $a $p $vm

# --- the journal's directory is full: a VM that is taken stays, with threads that it starts; another one is taken once
# there is room ---
mount -t tmpfs -o size=128k,mode=700 none /run/unspin
begin f 2 unspin-inside vm-that-starts 2 --until /tmp/stop-f
# On CPUs 2 and 3, or on one of them: this script may take the other one from VMs.
on_ours() {
	for tid in $(threads $1); do
		case $(cpus_of $1 $tid) in 2 | 3 | 2-3) ;; *) return 1 ;; esac
	done
}
fill() { cat /dev/zero >> /run/unspin/fill; grep -q "cannot write $J" /tmp/said; }
check "full: the kernel takes it" schedule --cpus 2-3 --no-gangs
check "full: all threads are its" settle all_are $f $EXT
check "full: the journal is named" settle fill
# Its threads need more room than the others that were not recorded. They wait: CPUs that they would use are left.
begin n 8 unspin-inside vm-that-arrives 8 /tmp/begin-n --until /tmp/stop-f
check "full: a VM that starts is not taken" settle grep -q "pid:$n: not taken, and may run on CPUs 2-3" /tmp/said
check "full: it is as before" all_are $n 0
recorded() {
	for tid in $(threads $1); do grep -q "\"tid\":${tid}[,}]" $J && return; done
	false
}
check "full: the other is recorded" recorded $f
check "full: nothing of it is recorded" not recorded $n
check "full: the other stays" all_are $f $EXT
check "full: it runs on" go_on $f
check "full: it is on" is $STATE enabled
rm /run/unspin/fill
check "room again: the VM is taken" settle all_are $n $EXT
check "room again: on these CPUs" settle on_ours $n
touch /tmp/begin-n
check "room again: it runs" go_on $n
check "room again: it was named once" [ "$(grep -c "^unspin: pid:$n: cannot write $J" /tmp/said)" = 1 ]
for again in 1 2 3; do
	cat /dev/zero >> /run/unspin/fill
	sleep $again
done 2> /dev/null
check "full again: it ends without an error" end
for vm in $f $n; do
	check "full again: threads have their policy" all_are $vm 0
	check "full again: and their CPUs" all_on $vm 0-3
done

# --- the same, and a CPU is left: threads that cannot be kept from it do not wait there ---
rm /run/unspin/fill
kill -STOP $n
# This script is elsewhere, and takes no time from the VM.
taskset -p 3 $$ > /dev/null
check "full, a CPU is left: the kernel takes it" schedule --cpus 2-3 --no-gangs pid:$f
check "full, a CPU is left: all threads are its" settle all_are $f $EXT
check "full, a CPU is left: the journal is named" settle fill
taskset 4 sh -c 'while :; do :; done' 9>&- &
hog=$!
check "full, a CPU is left: it is" settle grep -q '^unspin: CPU 2 is left' /tmp/said
# A look later.
sleep 1
worst=0
check "full, a CPU is left: all vCPUs run" nobody_waits 2 $f
say "full, a CPU is left: longest time without CPU time: $worst ms"
check "full, a CPU is left: threads may still use it" all_on $f 2-3
rm /run/unspin/fill
check "room again: no thread uses it" settle all_on $f 3
kill $hog
check "full, a CPU is left: it ends" end
check "full, a CPU is left: threads have their policy" all_are $f 0
check "full, a CPU is left: and their CPUs" all_on $f 0-3
taskset -p f $$ > /dev/null
kill -CONT $n
umount /run/unspin
end_vms /tmp/stop-f $f $n

# --- a vCPU that had a CPU to itself has to share one with a sibling that had little meanwhile: it is ahead by seconds ---
start 2 /tmp/stop-s s
s=$vm
taskset -p 3 $$ > /dev/null
check "ahead: the kernel takes it" schedule --cpus 2-3 --no-gangs pid:$s
check "ahead: all threads are its" settle all_are $s $EXT
tid=$(vcpus $s | head -n 1)
taskset -p 8 $tid > /dev/null
# For less than the time after which the CPU is left.
taskset 8 sh -c 'while :; do :; done' 9>&- &
hog=$!
sleep 2
kill $hog
for tid in $(vcpus $s); do taskset -p 8 $tid > /dev/null; done
worst=0
check "ahead: both vCPUs run" nobody_waits 2 $s
say "ahead: longest time without CPU time: $worst ms"
check "ahead: no CPU is left" not grep -q 'is left' /tmp/said
check "ahead: it ends" end
taskset -p f $$ > /dev/null
end_vms /tmp/stop-s $s
finish
