# Sourced first by the tests' scripts inside an emulated computer. Each check is one record; the
# last record carries how many passed and failed.
U=/sys/module/unspin
D=$U/default
HOOKS=/sys/kernel/tracing/enabled_functions
SPLAT='BUG[: ]|WARNING: |Oops|Call Trace|general protection|lockup|detected stall|hung task|blocked for more than|refcount_t|ODEBUG: |list_(add|del) corruption'
passed=0
failed=0

say() { unspin-inside say "$*"; }
check() {
	what=$1
	shift
	if "$@" > /tmp/check 2>&1; then
		passed=$((passed + 1))
		say "ok $what"
	else
		failed=$((failed + 1))
		say "FAILED $what: $(head -c 300 /tmp/check | tr '\n' ' ')"
	fi
}
not() { ! "$@"; }
value() { cat "$1" 2>&1; }
is() { [ "$(value "$1")" = "$2" ] || { echo "$1: $(value "$1"), not $2"; false; }; }
above() { [ "$(value "$1")" -gt "$2" ] || { echo "$1: $(value "$1"), not above $2"; false; }; }
# Until a condition holds, for at most a minute.
settle() {
	tries=0
	while [ $tries -lt 3000 ]; do
		"$@" > /dev/null 2>&1 && return 0
		sleep 0.02
		tries=$((tries + 1))
	done
	"$@"
}
# The same, looked at once a second, so many times at most: a script that looks often is a task of
# the host, which keeps VMs from turns.
within() {
	tries=$1
	shift
	while [ $tries -gt 0 ]; do
		sleep 1
		"$@" > /dev/null 2>&1 && return
		tries=$((tries - 1))
	done
	"$@"
}
# Whether so many vCPUs of VMs have CPU time all the time from now on: nobody_waits VCPUS VM... $worst becomes the
# longest time without. Looks are as far apart as is said next; then comes how much of that time the vCPU was ready.
LONGEST_MS=100
worst=0
nobody_waits() {
	vcpu_count=$1
	shift
	# shellcheck disable=SC2046 # words
	set -- $(unspin-inside unserved 400 "$@")
	[ $2 -gt $worst ] && worst=$2
	[ $1 = $vcpu_count ] && [ $2 -lt $((LONGEST_MS + $3)) ] || { echo "vCPUs, ms without CPU time, ms between looks, ms ready: $*"; false; }
}
hooked() { grep -q '^kvm_vcpu_on_spin' $HOOKS; }
parks_hooked() { grep -q '^xfer_to_guest_mode_handle_work' $HOOKS; }
# Whether the module has been unloaded, and has left no hook.
gone() { [ ! -e $U ] && [ ! -s $HOOKS ]; }
# Whether a command ends with that code, and whether it says $want.
fails() { code=$1; shift; "$@"; [ $? = "$code" ]; }
says() { "$@" 2>&1 | grep -q "$want" || { "$@"; false; }; }
# Threads of a VM's vCPUs.
vcpus() { grep -l '^CPU [0-9]*/KVM' /proc/$1/task/*/comm | cut -d/ -f5; }
has_vcpus() { [ "$(vcpus "$1" | wc -l)" = "$2" ]; }
# KVM's module for this processor (init.sh), loaded again with these parameters.
vendor_with() { rmmod kvm_${vendor#kvm-} && insmod /modules/$vendor.ko "$@"; }
# One window for all, in a directory of settings.
set_window() {
	for file in window_init_cycles window_min_cycles window_max_cycles; do
		echo $2 > $1/$file || return
	done
}
# A guest computes for ten ticks of the host beside a thread on its CPU, which waits for so many us
# at most.
loses_its_cpu() {
	found=$(unspin-inside rival "$1") || { echo "$found"; return 1; }
	say "interrupts $1: ${found% *} exits for the host's, the thread waited ${found#* } us at most"
	echo "$found"
	[ "${found% *}" -ge 8 ] && [ "${found#* }" -le $2 ]
}
guests_lose_their_cpu() {
	check "a guest with its interrupts on loses its CPU at the host's tick" loses_its_cpu on $1
	check "a guest entered with its interrupts off does too" loses_its_cpu off $1
	check "and one that turned them off itself" loses_its_cpu turned-off $1
}
# Refused with that error, and the value stays.
refused() {
	before=$(value "$2")
	answer=$( (echo "$1" > "$2") 2>&1) && { echo "$1 was taken"; return 1; }
	echo "$answer" | grep -q "$3" || { echo "$answer, not $3"; return 1; }
	[ "$before" = "$(value "$2")" ] || { echo "$before became $(value "$2")"; return 1; }
}
# What becomes of reports of a guest: how many are taken and ignored, and whether the VM was HIGH soon
# after them and 2 s later.
answers() {
	wanted=$1
	shift
	answer=$(unspin-inside hypercalls "$@")
	[ "$answer" = "$wanted" ] || { echo "$answer, not $wanted"; false; }
}
finish() {
	dmesg | grep -E "$SPLAT" > /tmp/splats
	check "no splat in the kernel's log" [ ! -s /tmp/splats ]
	[ -s /tmp/splats ] && say "$(head -n 5 /tmp/splats | tr '\n' ';')"
	[ $failed = 0 ] || dmesg | tail -n 10 | while read -r line; do say "log: $line"; done
	unspin-inside say --end $passed $failed
	poweroff -f
}
check "all CPUs are online" unspin-inside online
# What the kernel found wrong with the emulated computer before this is not the module's.
dmesg -c > /tmp/boot-log
echo 5 > /proc/sys/kernel/printk
