# The module under QEMU, whose processors have SVM and no pause filter: function, never time.
# CYCLES is set by the test. Sourced after inside.sh.
load() { insmod /modules/unspin.ko crowded_ok=1 force_pause_intercept=1 "$@"; }
no_objects() { is $U/live_objects 0 && [ -z "$(ls $U/vms)" ]; }
# Saves the code, once it is at rest: keys of KVM's local APIC settle a second after the last vCPU.
text() { check "the code is at rest, $1" text_at_rest $1; }
text_at_rest() {
	unspin-inside text save /tmp/text-$1 || return 1
	tries=0
	while [ $tries -lt 30 ]; do
		sleep 2
		unspin-inside text save /tmp/text-next || return 1
		moved=$(changed $1 next)
		mv /tmp/text-next /tmp/text-$1
		[ -n "${moved% }" ] || return 0
		tries=$((tries + 1))
	done
	echo "it changes: $moved"
	return 1
}
# Functions whose code differs between two moments, by name. ftrace_call and ftrace_regs_call are
# ftrace's own, reached from hooked functions only.
changed() {
	unspin-inside text diff /tmp/text-$1 /tmp/text-$2 | tr ' ' '\n' |
		grep -vx 'ftrace_call\|ftrace_regs_call' | sort -u | tr '\n' ' '
}
changed_are() {
	found=$(changed $1 $2)
	echo "changed: $found"
	[ "${found% }" = "$3" ]
}
any_yield() { cat $U/vms/*/yields_* | grep -qv '^0$'; }

# KVM's tracepoints and keys settle with the first VM.
check "a VM runs without the module" unspin-inside vm 2 --ms 300
text absent

# --- loading that fails at every step ---
step=1
while [ $step -lt 30 ] && ! load fail_at=$step 2> /tmp/error; do
	check "step $step fails and leaves nothing" gone
	step=$((step + 1))
done
check "at least 6 steps can fail" [ $step -gt 6 ]
rmmod unspin
check "unloads" gone
text failed
check "code after $((step - 1)) failed loads is as before" changed_are absent failed ""

# --- the module as it is installed ---
check "takes no parameter" insmod /modules/unspin-production.ko fail_at=1
check "and has none" not [ -e $U/parameters ]
rmmod unspin

# --- without a pause filter, and not told to pretend ---
insmod /modules/unspin.ko
check "says why it controls no window" grep -q '^none: ' $U/window_control
rmmod unspin

# --- off is as absent ---
load
check "window control" is $U/window_control svm
check "is in mode off" is $D/mode off
text off
check "off differs from absent in the making of a vCPU and the end of a VM alone" \
	changed_are absent off "kvm_arch_destroy_vm kvm_arch_vcpu_create"
echo apples > $D/mode
text apples
changed off apples > /tmp/changed
say "apples changes: $(cat /tmp/changed)"
check "apples hooks kvm_vcpu_on_spin" grep -qw kvm_vcpu_on_spin /tmp/changed
check "apples probes the switch" grep -qw __schedule /tmp/changed
echo off > $D/mode
text off-again
check "off after apples is off" changed_are off off-again ""
unspin-inside vm 4 --until /tmp/stop-off > /tmp/vm &
settle [ -e $U/vms/$!-0 ]
check "nothing is counted in mode off" is $U/vms/$!-0/ple_exits 0
touch /tmp/stop-off
check "a VM in mode off works" wait $!

# --- windows on AMD begin as on Intel ---
for bound in window_min_cycles=4096 window_max_cycles=32768 window_init_cycles=8192 delta_cycles=1024 delta_max_cycles=8192; do
	check "${bound%%=*}, whatever KVM starts from" is $D/${bound%%=*} ${bound#*=}
done

# --- bad values ---
for bad in mode=on hvs_variant=best window_init_cycles=x delta_cycles=-1 epoch_ple_exits=1.5 window_min_cycles=; do
	check "$bad is EINVAL" refused "${bad#*=}" $D/${bad%%=*} "Invalid argument"
done
for bad in window_init_cycles=15 window_min_cycles=0 window_max_cycles=1073741825 epoch_ple_exits=0 epoch_ple_exits=16777217 delta_cycles=32769 delta_max_cycles=32769 epoch_min_us=1000001 window_max_cycles=99999999999999999999; do
	check "$bad is ERANGE" refused "${bad#*=}" $D/${bad%%=*} "out of range"
done

# --- settings of one VM and of all ---
unspin-inside vm 2 --until /tmp/stop-set > /tmp/vm &
vm=$!
settle [ -e $U/vms/$vm-0 ]
echo apples > $U/vms/$vm-0/mode
echo hvs > $D/mode
check "a mode of its own stays where the default changes" is $U/vms/$vm-0/mode apples
echo off > $D/mode
check "off is for every VM" is $U/vms/$vm-0/mode off
echo hvs > $D/mode
check "which follows the default again" is $U/vms/$vm-0/mode hvs
echo off > $D/mode
echo 8000 > $D/window_max_cycles
check "steps follow a bound that is inherited" is $U/vms/$vm-0/delta_max_cycles 8000
check "and what has nothing to do with it can be set" sh -c "echo 500 > $U/vms/$vm-0/epoch_ple_exits"
touch /tmp/stop-set
check "the VM worked" wait $vm
rmmod unspin

# --- modes written while the module loads ---
for round in 1 2 3 4 5; do
	(tries=0; while [ $tries -lt 30000 ] && ! echo apples > $D/mode; do tries=$((tries + 1)); done) 2> /dev/null &
	writer=$!
	load
	wait $writer
	echo apples > $D/mode
	rmmod unspin
done
check "modes written while loading leave nothing" gone
load

# --- loaded twice ---
check "a second load is refused" not load
check "as existing" sh -c 'insmod /modules/unspin.ko 2>&1 | grep -qi exists'
check "and the first stays" is $U/window_control svm

# --- a VM killed during an epoch ---
unspin-inside vm 4 --until /never > /dev/null &
vm=$!
settle [ -e $U/vms/$vm-0 ]
echo 16777216 > $U/vms/$vm-0/epoch_ple_exits
echo apples > $U/vms/$vm-0/mode
check "PLE exits are counted" settle above $U/vms/$vm-0/ple_exits 1000
check "yields are directed" settle any_yield
check "the epoch is open" is $U/vms/$vm-0/epochs 0
check "reset is refused anything but 1" refused 2 $U/vms/$vm-0/reset "Invalid argument"
exec 9< $U/vms/$vm-0/ple_exits
kill -9 $vm
check "its directory goes with it" settle not [ -e $U/vms/$vm-0 ]
check "an open file of it is an error, not a crash" not cat <&9
exec 9<&-
check "nothing is kept of it" settle no_objects

# --- VMs that come and go ---
echo apples > $D/mode
echo 50 > $D/epoch_ple_exits
check "200 VMs, one after the other" unspin-inside churn 200 2
check "none of them is kept" settle no_objects
echo off > $D/mode

rmmod unspin
check "unloads after 200 VMs" gone
text used
check "and the code is as it was before the first load" changed_are absent used ""

# --- kvm_amd reloaded under the module ---
load
check "kvm_amd can be unloaded" rmmod kvm_amd
check "then there is no window control" grep -q '^none: ' $U/window_control
check "kvm_amd can be loaded again" insmod /modules/kvm-amd.ko
check "and window control is back" is $U/window_control svm
echo apples > $D/mode
unspin-inside vm 4 --until /tmp/stop-served > /tmp/vm &
vm=$!
settle [ -e $U/vms/$vm-0 ]
check "VMs are served as before" settle above $U/vms/$vm-0/ple_exits 100

# --- unloaded during a run ---
check "unloads in mode apples under a running VM" rmmod unspin
touch /tmp/stop-served
check "which works on" wait $vm
# kvm_amd's new code is placed and relocated anew.
text reloaded

# --- load, switch, read, unload, with VMs running ---
unspin-inside vm 3 --until /tmp/stop > /tmp/steady &
steady=$!
(while [ ! -e /tmp/stop ]; do unspin-inside churn 5 2 || break; sleep 0.2; done) > /tmp/churn &
churn=$!
# Hooks are only let go after they were used.
used() { settle above $U/vms/$steady-0/ple_exits 0; }
cycle=0
exercised=0
while [ $cycle -lt $CYCLES ]; do
	load || break
	settle [ -e $U/vms/$steady-0 ]
	# Off it is when it is loaded; every other time the hooks are there when it goes.
	[ $((cycle % 2)) = 0 ] && modes='observe aple hvs apples' || modes='apples hvs aple observe off'
	for mode in $modes; do
		[ $mode != off ] || used
		echo $mode > $D/mode || break 2
		cat $U/* $D/* $U/vms/*/* > /dev/null 2>&1
	done
	used && exercised=$((exercised + 1))
	rmmod unspin || break
	cycle=$((cycle + 1))
	[ $((cycle % 10)) != 0 ] || say "$cycle of $CYCLES cycles, $exercised with PLE exits"
done
check "$CYCLES load, switch, read and unload cycles" [ $cycle -eq $CYCLES ]
check "with hooks that were used each time" [ $exercised -eq $CYCLES ]
touch /tmp/stop
wait $steady
worked=$?
check "the VM beside them worked: $(cat /tmp/steady)" [ $worked = 0 ]
wait $churn
check "VMs came and went beside them, $(wc -l < /tmp/churn) times 5" [ "$(grep -vc '^5 VMs' /tmp/churn)" = 0 -a -s /tmp/churn ]

# --- nothing stays ---
load
check "no object lives" settle no_objects
rmmod unspin
check "no hook stays" gone
text end
check "the code is as it was before them" changed_are reloaded end ""
leaks=$(dmesg | grep -c 'objects left')
check "leaks: $leaks" [ "$leaks" = 0 ]
