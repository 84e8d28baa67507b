#!/bin/sh
# Init of the test computer: each check says "ok" or "FAIL"; the verdict is counted by
# the host from the lines on port 0xE9, the last of which is "end".
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tracefs tracefs /sys/kernel/tracing
U=/sys/module/unspin
HOOKS=/sys/kernel/tracing/enabled_functions

say() { echo "$*"; tool say "$*"; }
check() { what=$1; shift; if "$@" > /tmp/check 2>&1; then say "ok $what"; else say "FAIL $what: $(head -c 200 /tmp/check | tr '\n' ' ')"; fi; }
not() { ! "$@"; }
load() { insmod /lib/unspin.ko "$@"; }
vm() { ls -d $U/vms/* 2>/dev/null | head -1; }
get() { cat "$(vm)/$1"; }
above() { [ "$(get "$1")" -gt "$2" ]; }
is() { [ "$(cat "$1")" = "$2" ] || { cat "$1"; false; }; }
refused() { ! (echo "$1" > "$2") 2>/dev/null; }
hooked() { grep -q "^kvm_vcpu_on_spin" $HOOKS; }
settle() { i=0; while [ $i -lt 50 ]; do "$@" && return 0; sleep 0.1; i=$((i + 1)); done; "$@"; }
empty() { is $U/live_objects 0 && [ -z "$(vm)" ]; }

insmod /lib/irqbypass.ko && insmod /lib/kvm.ko && insmod /lib/kvm-amd.ko || say "FAIL kvm does not load"

# A processor without a pause filter: loads, controls no window, skips VMs
check "loads without a pause filter" load
check "says why it controls no window" grep -q "^none: " $U/window_control
check "unloads" rmmod unspin

step=1
while [ $step -le 6 ]; do
	check "refuses to load when step $step fails" not load fail_at=$step
	check "leaves nothing after step $step" [ ! -d $U -a ! -s $HOOKS ]
	step=$((step + 1))
done

check "loads" load force_pause_intercept=1
check "window control" is $U/window_control svm
check "nothing attached" not hooked
check "ftrace cannot be switched off" refused 0 /proc/sys/kernel/ftrace_enabled
for bad in "1 window_init_cycles" "9999999999 window_max_cycles" "x delta_cycles" "0 epoch_ple_exits" "on mode" "best hvs_variant" "-1 window_min_cycles"; do
	check "refuses $bad" refused "${bad% *}" "$U/default/${bad#* }"
done
echo 65536 > $U/default/window_min_cycles
check "bounds move along" is $U/default/window_max_cycles 65536
echo 8192 > $U/default/window_init_cycles; echo 4096 > $U/default/window_min_cycles; echo 32768 > $U/default/window_max_cycles

vmm 1 4 100 100 1000000 > /dev/null &
check "a VM gets its directory" settle [ -d $U/vms/$!-0 ]
echo 200 > $U/default/epoch_ple_exits
check "default epoch reaches the VM" is "$(vm)/epoch_ple_exits" 200
sleep 0.5
check "counts nothing in mode off" is "$(vm)/ple_exits" 0
for mode in observe aple hvs apples; do
	echo $mode > $U/default/mode
	check "$mode attaches" hooked
	echo 1 > "$(vm)/reset"
	check "$mode counts exits" settle above ple_exits 1000
	check "$mode charges spinning" above wasteful_spin_cycles 0
	check "$mode charges switches" above wasteful_switch_cycles 0
	check "$mode charges CPU time" above cpu_cycles 0
	check "$mode ends epochs" settle above epochs 3
	case $mode in
	aple|apples) check "$mode ends rounds" settle above rounds 1 ;;
	observe|hvs) check "$mode adapts nothing" is "$(vm)/rounds" 0 ;;
	esac
	case $mode in
	hvs|apples) check "$mode directs yields" settle sh -c "cat $(vm)/yields_*_waiter | grep -qv '^0'" ;;
	observe|aple) check "$mode directs no yields" sh -c "! cat $(vm)/yields_* | grep -qv '^0'" ;;
	esac
done
for f in window_init_cycles window_min_cycles window_max_cycles; do echo 12345 > "$(vm)/$f"; done
check "a fixed window" is "$(vm)/window_cycles" 12345
echo aple > "$(vm)/mode"; echo off > $U/default/mode
check "own mode stays" is "$(vm)/mode" aple
check "attached for one VM" hooked
echo off > "$(vm)/mode"
check "nothing attached again" not hooked

# Switched on under a VM that runs: each of its vCPUs takes part, wherever its thread was then
callers() { [ "$(grep -o 'caller=[0-9]*' /sys/kernel/tracing/trace | sort -u | wc -l)" -eq 8 ]; }
vmm 1 8 100 100 1000000 > /dev/null & many=$!
settle [ -d $U/vms/$many-0 ]; sleep 1
echo 1 > /sys/kernel/tracing/events/unspin/unspin_pick/enable
echo hvs > $U/vms/$many-0/mode
check "all 8 vCPUs of a running VM are seen" settle callers
echo 0 > /sys/kernel/tracing/events/enable
echo > /sys/kernel/tracing/trace
kill $many

# A vCPU that is ready but kept from running, while its siblings are given the core
echo -1 > /proc/sys/kernel/sched_rt_runtime_us
vmm 1 4 100 100 1000000 3 > /dev/null & starved=$!
settle [ -d $U/vms/$starved-0 ]
echo hvs > $U/vms/$starved-0/mode
tool hog 3 & hog=$!
check "the watchdog gives a starved VM back to KVM" settle not grep -q "^0" $U/vms/$starved-0/fail_open_events
kill $hog $starved
echo 950000 > /proc/sys/kernel/sched_rt_runtime_us

killall vmm; wait
check "no state after the VMs" settle empty
check "kvm_amd unloads under the module" rmmod kvm-amd
check "no window control without it" grep -q "^none: " $U/window_control
insmod /lib/kvm-amd.ko
check "window control is back" is $U/window_control svm
vmm 1 70 50 50 1000000 > /dev/null & large=$!
settle [ -d $U/vms/$large-0 ]; echo apples > "$(vm)/mode"
check "70 vCPUs keep KVM's selection" settle above fail_open_events 0
check "and are counted" settle above ple_exits 100
check "by nobody's pick" is "$(vm)/yields_none" 0
kill $large; wait
rmmod unspin

# VMs that come and go, modes that change, the module loaded and unloaded among them
(while [ ! -e /tmp/stop ]; do vmm 2 3 100 200 700; done) > /tmp/ops 2>&1 &
vmm 1 4 50 50 1000000 > /dev/null &
cycle=0
while [ $cycle -lt "${CYCLES:-10}" ]; do
	load force_pause_intercept=1 || break
	for mode in apples off observe hvs aple apples; do
		echo $mode > $U/default/mode
		for d in $U/vms/*; do echo $mode > "$d/mode"; cat "$d"/* > /dev/null; done 2> /dev/null
	done
	rmmod unspin || break
	cycle=$((cycle + 1))
done
check "$cycle load and unload cycles" [ $cycle -eq "${CYCLES:-10}" ]
touch /tmp/stop; killall vmm; wait
check "VMs made progress" not grep -q "ops 0" /tmp/ops

dmesg > /tmp/dmesg
check "no object left" not grep "objects left" /tmp/dmesg
check "no splat" not grep -E "BUG|WARNING:|Oops|Call Trace|general protection|soft lockup|rcu.*stall|hung task" /tmp/dmesg
say end
poweroff -f
