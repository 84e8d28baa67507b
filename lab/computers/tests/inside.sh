# Sourced first by the tests' scripts inside an emulated computer. Each check is one record; the
# last record carries how many passed and failed.
U=/sys/module/unspin
D=$U/default
HOOKS=/sys/kernel/tracing/enabled_functions
SPLAT='BUG[: ]|WARNING: |Oops|Call Trace|general protection|lockup|detected stall|hung task|refcount_t|ODEBUG: |list_(add|del) corruption'
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
# Whether so many vCPUs of VMs have CPU time all the time from now on: nobody_waits VCPUS VM... $worst becomes the
# longest time without. Looks are as far apart as is said last.
LONGEST_MS=100
worst=0
nobody_waits() {
	vcpu_count=$1
	shift
	# shellcheck disable=SC2046 # words
	set -- $(unspin-inside unserved 400 "$@")
	[ $2 -gt $worst ] && worst=$2
	[ $1 = $vcpu_count ] && [ $2 -lt $((LONGEST_MS + $3)) ] || { echo "vCPUs, ms without CPU time, ms between looks: $*"; false; }
}
hooked() { grep -q '^kvm_vcpu_on_spin' $HOOKS; }
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
