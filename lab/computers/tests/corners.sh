# Sourced after inside.sh. Function, never time. /modules/patched.ko is a livepatch of kvm_vcpu_on_spin().
load() { insmod /modules/unspin.ko crowded_ok=1 force_pause_intercept=1; }
said() { dmesg | grep -q "$1" || { dmesg | grep unspin | tail -n 3; return 1; }; }
yields() { echo $(($(cat $1/yields_resource_waiter $1/yields_lock_waiter $1/yields_yielded $1/yields_woken $1/yields_gave_way | tr '\n' '+')0)); }
yields_more() { [ "$(yields $1)" -gt $2 ]; }
any_yield() { yields_more $1 0; }

# --- type information that is not this kernel's ---
BTF=/sys/kernel/btf
mkdir /tmp/btf
for name in vmlinux kvm kvm_amd; do cat $BTF/$name > /tmp/btf/$name; done
mount -t tmpfs tmpfs $BTF
check "without type information it does not load" not load
check "and says why" said 'not loading: kvm has no type information'
cat /tmp/btf/vmlinux > $BTF/vmlinux
cat /tmp/btf/kvm_amd > $BTF/kvm
check "nor with that of another module" not load
check "and says what differs" said "not loading: kvm's type information has no kvm_vcpu_on_spin"
head -c 5000 /tmp/btf/kvm > $BTF/kvm
check "nor with a part of it" not load
cat /tmp/btf/kvm > $BTF/kvm
check "another build has a longer structure" unspin-inside btf $BTF/vmlinux $BTF/kvm kvm_vcpu
check "it does not load there" not load
check "and says which" said 'not loading: the size of struct kvm_vcpu is not what this module was built for; build it'
for name in vmlinux kvm; do cat /tmp/btf/$name > $BTF/$name; done
check "that of kvm_amd alone is not needed" load
check "but windows are KVM's" is $U/window_control \
	"none: kvm_amd's type information does not describe vcpu_svm.vmcb01.ptr"
rmmod unspin
umount $BTF
check "and nothing stays" gone

# --- vCPUs that KVM refuses, at addresses where another VM's come next ---
load
echo observe > $D/mode
echo 16 > $U/parameters/slots_made_most
not_counted() { cycles=$(unspin-inside refused 20) && [ "$cycles" = 0 ] || { echo "$cycles cycles"; false; }; }
check "a VM at the module's limit of vCPUs is not taken for another" not_counted
rmmod unspin

# --- a livepatch in the way ---
load
check "a livepatch of what the module hooks" insmod /modules/patched.ko
check "is in force" settle is /sys/kernel/livepatch/patched/transition 0
unspin-inside beside 'until [ -e /tmp/stop-idle ]; do sleep 0.1; done' > /tmp/idle &
idle=$!
unspin-inside beside 'until [ -e /tmp/stop-idle ]; do sleep 0.1; done' > /tmp/own &
own=$!
settle [ -e $U/vms/$idle-0 -a -e $U/vms/$own-0 ]
echo off > $U/vms/$own-0/mode
check "mode apples is refused as busy" refused apples $D/mode busy
check "with a line that says why" said 'cannot hook kvm_vcpu_on_spin (-16): a livepatch redirects it'
check "for one VM, too" refused hvs $U/vms/$idle-0/mode busy
echo 0 > /sys/kernel/livepatch/patched/enabled
check "the livepatch goes" settle rmmod patched
check "mode hvs is then taken" sh -c "echo hvs > $D/mode"
check "and the VM follows it, as if nothing had been refused" is $U/vms/$idle-0/mode hvs
check "and one that was set to off stays" is $U/vms/$own-0/mode off

# --- a livepatch that comes later: it goes first ---
in_force() { is /sys/kernel/livepatch/patched/transition 0; }
check "a livepatch of something else loads beside mode hvs" insmod /modules/patched.ko other=1
check "is in force" settle in_force
check "and shows" grep -q patched /proc/cmdline
check "the mode stays" is $D/mode hvs
check "and so does the hook" hooked
echo 0 > /sys/kernel/livepatch/patched/enabled
check "it goes" settle rmmod patched
check "nothing fell back to KVM" is $U/fail_open_total 0
check "a livepatch of what the module has hooked loads, too" insmod /modules/patched.ko
check "is in force" settle in_force
check "every VM is off" is $D/mode off
check "this one too" is $U/vms/$idle-0/mode off
check "counted" is $U/fail_open_total 1
check "with a line that names it" said 'all VMs set to off: livepatch patched redirects a function'
check "mode hvs is refused as busy" refused hvs $D/mode busy
echo 0 > /sys/kernel/livepatch/patched/enabled
check "it goes" settle rmmod patched
check "mode hvs is taken again" sh -c "echo hvs > $D/mode"
check "and hooks" hooked
echo off > $D/mode
check "while all is off a livepatch loads" insmod /modules/patched.ko
check "is in force" settle in_force
check "and counts for nothing" is $U/fail_open_total 1
echo 0 > /sys/kernel/livepatch/patched/enabled
check "it goes" settle rmmod patched
touch /tmp/stop-idle
check "the VM worked" wait $idle
check "the other too" wait $own

# --- VMs of different modes beside each other ---
for mode in apples off observe; do
	unspin-inside vm 3 --until /tmp/stop-mixed > /tmp/mixed-$mode &
	eval "$mode=\$!"
	settle [ -e $U/vms/$!-0 ]
	echo $mode > $U/vms/$!-0/mode
done
check "the one in apples yields" settle any_yield $U/vms/$apples-0
check "the one in observe counts" settle above $U/vms/$observe-0/ple_exits 100
check "and directs no yield" not any_yield $U/vms/$observe-0
check "the one in off counts nothing" is $U/vms/$off-0/ple_exits 0
touch /tmp/stop-mixed
for mode in apples off observe; do
	eval "pid=\$$mode"
	check "the VM in $mode worked" wait $pid
done

# --- a VM with more vCPUs than CPUs ---
echo 0 > $U/parameters/crowded_ok
echo hvs > $D/mode
before=$(value $U/fail_open_total)
unspin-inside vm 6 --until /tmp/stop-crowd > /tmp/crowd &
vm=$!
settle [ -e $U/vms/$vm-0 ]
check "a VM of six vCPUs on four CPUs is counted" settle is $U/fail_open_total $((before + 1))
check "with a line that says so" said 'more vCPUs than CPUs they may run on'
echo 1 > $U/vms/$vm-0/reset
check "it exits" settle above $U/vms/$vm-0/ple_exits 100
check "and no yield is directed" not any_yield $U/vms/$vm-0
check "its mode is what was written" is $U/vms/$vm-0/mode hvs
echo 1 > $U/parameters/crowded_ok
check "where they are not too many yields are directed" settle any_yield $U/vms/$vm-0
touch /tmp/stop-crowd
check "the VM worked" wait $vm

# --- CPUs that go and come under load ---
CPU=/sys/devices/system/cpu
unspin-inside vm 6 --until /tmp/stop-plug > /tmp/plug &
vm=$!
settle [ -e $U/vms/$vm-0 ]
# Where every PAUSE exits, vCPUs that are three to a CPU may starve, and the VM is left to KVM until its
# mode is written again: each look writes it.
yields_now() {
	before=$(yields $U/vms/$vm-0)
	echo apples > $D/mode
	sleep 0.1
	yields_more $U/vms/$vm-0 $before
}
yields_go_on() { settle yields_now; }
for round in 1 2; do
	for cpu in 3 2; do
		check "CPU $cpu goes" sh -c "echo 0 > $CPU/cpu$cpu/online"
		check "and yields go on" yields_go_on
	done
	check "both come back" unspin-inside online
	check "and yields go on, round $round" yields_go_on
done
echo 0 > $CPU/cpu3/online
check "off with a CPU gone" sh -c "echo off > $D/mode"
echo apples > $D/mode
check "it unloads with a CPU gone" rmmod unspin
check "and leaves nothing" gone
check "the CPU comes back" unspin-inside online
touch /tmp/stop-plug
check "the VM worked" wait $vm

# --- a vCPU that goes from thread to thread ---
load
echo apples > $D/mode
check "thirty threads run a vCPU, one after the other" sh -c "unspin-inside hand-over 30 > /tmp/hand-over"
say "$(cat /tmp/hand-over)"
check "and were yielded to" [ "$(cut -d' ' -f1 /tmp/hand-over)" -gt 0 ]
check "nothing fell back to KVM" is $U/fail_open_total 0

# --- more vCPUs than a yield looks at ---
echo 50 > $D/epoch_ple_exits
echo 1000 > $D/epoch_min_us
unspin-inside vm 65 --until /tmp/stop-large > /tmp/large &
vm=$!
settle [ -e $U/vms/$vm-0 ]
# vCPUs so crowded may starve, and the VM is left to KVM until its mode is written again. What looks often
# is slow among so many.
check "65 vCPUs exit" settle above $U/vms/$vm-0/ple_exits 500
yielded_to() {
	[ $(($(value $1/yields_lock_waiter) + $(value $1/yields_resource_waiter))) -gt 50 ]
}
large_gets_to() {
	for try in 1 2 3 4 5 6 7 8 9 10; do
		echo apples > $U/vms/$vm-0/mode
		sleep 2
		"$@" && return
	done
	false
}
check "and are yielded to" large_gets_to yielded_to $U/vms/$vm-0
check "epochs end" large_gets_to above $U/vms/$vm-0/epochs 5
check "and APLE's rounds" large_gets_to above $U/vms/$vm-0/rounds 0
check "KVM's selection is not kept" not said "it keeps KVM.s selection"
touch /tmp/stop-large
check "the VM worked" wait $vm

# --- a vCPU that does not get its CPU ---
# Nobody else may take it from the real-time thread. (Kernels with fair servers have none on CPUs that
# came up late, and refuse to be told so.)
echo -1 > /proc/sys/kernel/sched_rt_runtime_us
for runtime in /sys/kernel/debug/sched/fair_server/cpu*/runtime; do
	(echo 0 > $runtime) 2> /dev/null
done
# The emulator's clock may jump when the host is busy: so much sooner or later it may be.
fell_back() {
	found=$(unspin-inside starve $1 2000) || { echo "$found"; return 1; }
	say "$1: $found"
	echo "$found"
	ms=$(echo "$found" | sed -n 's/^fell back after \([0-9]*\) ms,.*/\1/p')
	jumped=${found##*jumped }
	jumped=${jumped% ms}
	[ -n "$ms" ] && [ $ms -ge $((700 - jumped)) ] && [ $ms -le $((1300 + jumped)) ]
}
before=$(value $U/fail_open_total)
check "a preempted vCPU that starves is seen in time" fell_back preempted
check "counted" is $U/fail_open_total $((before + 1))
check "and said" said 'falls back to KVM.s own behaviour: a ready vCPU has not run for 750 ms'
check "a woken one too" fell_back woken
check "and counted" is $U/fail_open_total $((before + 2))
# Where the clock jumps, whoever waits has then waited as long. A sleep that were taken for a wait would
# fall back in every try.
slept_is_no_reason() {
	for try in 1 2 3 4 5; do
		before=$(value $U/fail_open_total)
		found=$(unspin-inside starve slept 500) || { echo "$found"; return 1; }
		say "slept, try $try: $found"
		if [ "${found%%,*}" = "did not fall back in 500 ms" ]; then
			is $U/fail_open_total "$before"
			return
		fi
	done
	echo "fell back in every try"
	return 1
}
check "one that slept long and waited 500 ms is no reason, and not counted" slept_is_no_reason

# --- the hook of turns, which the kernel keeps at first ---
unspin-inside vm 3 --until /tmp/stop-turns > /tmp/turns &
vm=$!
settle [ -e $U/vms/$vm-0 ]
echo con > $D/coscheduling
check "turns are made" settle parks_hooked
echo 1 > $U/parameters/fail_unhook
check "off says that the hook stays" not sh -c "echo off > $D/mode"
check "it is there" parks_hooked
touch /tmp/stop-turns
check "the VM worked: $(cat /tmp/turns)" wait $vm
check "unloading takes it off" rmmod unspin
check "nothing stays" gone
load
echo hvs > $D/mode

# --- a hook that cannot be taken off; only a new start helps after this ---
unspin-inside vm 3 --until /tmp/stop-stuck > /tmp/stuck &
vm=$!
settle [ -e $U/vms/$vm-0 ]
check "yields are directed" settle any_yield $U/vms/$vm-0
echo 100 > $U/parameters/fail_unhook
check "off says that the hook stays" not sh -c "echo off > $D/mode"
check "in the log too" said 'the kernel does not take a hook off (-5); it stays'
check "the mode is off nevertheless" is $D/mode off
check "and the VM's" is $U/vms/$vm-0/mode off
before=$(yields $U/vms/$vm-0)
sleep 1
check "no yield is directed any more" is $U/vms/$vm-0/yields_failed "$(value $U/vms/$vm-0/yields_failed)"
check "none at all" [ $before = "$(yields $U/vms/$vm-0)" ]
check "the hook is there" hooked
rmmod unspin &
unloading=$!
check "unloading says that it does not end" settle said 'not unloading, or the kernel would run code that is gone'
sleep 1
check "and does not" kill -0 $unloading
check "VMs are made and run" unspin-inside vm 2 --ms 200
touch /tmp/stop-stuck
check "the one that was there worked: $(cat /tmp/stuck)" wait $vm
finish
