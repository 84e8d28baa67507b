# VMs whose threads have a scheduler of sched_ext. Sourced after inside.sh.
STATE=/sys/kernel/sched_ext/state
EXT=7
# Starts a VM of so many vCPUs by a command: begin NAME VCPUS COMMAND... $vm and the variable NAME are its process.
begin() {
	vm_name=$1
	vm_size=$2
	shift 2
	# What holds a scheduler (hold) is not the VM's.
	"$@" > /tmp/vm-$vm_name 9>&- &
	vm=$!
	eval "$vm_name=$vm"
	settle has_vcpus $vm $vm_size
}
# start VCPUS FILE NAME
start() { begin $3 $1 unspin-inside vm $1 --until $2; }
# Fields of a thread's stat after its name: 39 is the policy, 17 the nice value.
field() { sed 's/.*) //' /proc/$1/task/$2/stat | cut -d ' ' -f $3; }
# Whether threads of a VM have a policy: are VM POLICY THREADS.
are() {
	of=$1
	wanted=$2
	shift 2
	for tid; do
		class=$(field $of $tid 39)
		[ "$class" = $wanted ] || [ ! -e /proc/$of/task/$tid ] || { echo "$tid has policy $class, not $wanted"; return 1; }
	done
}
# CPU time of a VM's vCPUs, ticks.
time_of() {
	for tid in $(vcpus $1); do
		field $1 $tid 12
	done | tr '\n' '+' | sed 's/$/0/'
}
times_of() { for of; do echo $(($(time_of $of))); done | tr '\n' ' '; }
later() { [ $(($(time_of $1))) -gt $2 ]; }
go_on() { settle later $1 $(($(time_of $1) + 5)); }
# Threads of a VM, and policy, nice value and CPUs of each.
threads() { for task in "/proc/$1/task/"*; do echo ${task##*/}; done; }
# shellcheck disable=SC2046 # words
all_are() { are $1 $2 $(threads $1); }
cpus_of() { sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/$1/task/$2/status; }
settings() { for tid in $(threads $1); do echo "$tid $(field $1 $tid 39) $(field $1 $tid 17) $(cpus_of $1 $tid)"; done; }
as_before() { [ "$(settings $1)" = "$(cat /tmp/before-$1)" ] || { settings $1; false; }; }
# Whether all threads of a VM may use these CPUs.
all_on() {
	for tid in $(threads $1); do
		cpus=$(cpus_of $1 $tid)
		[ "$cpus" = $2 ] || [ ! -e /proc/$1/task/$tid ] || { echo "$tid may use $cpus, not $2"; return 1; }
	done
}
# Ends VMs, which wait for that file: each has worked.
end_vms() {
	touch $1
	shift
	for vm; do check "a VM worked" wait $vm; done
}
J=/run/unspin/journal
schedule() { hold unspin schedule --beside --journal $J "$@"; }
# A command that holds a scheduler until its input ends; $command is its process.
hold() {
	rm -f /tmp/said /tmp/hold
	mkfifo /tmp/hold
	"$@" < /tmp/hold > /tmp/said 2>&1 &
	command=$!
	exec 9> /tmp/hold
	settle grep -q . /tmp/said
	settle grep -q '^ready$' /tmp/said || { cat /tmp/said; return 1; }
}
# What unspin schedule says of a VM.
of() { sed 's/[{}]/\n/g' < /run/unspin/schedule.json | grep "\"process\":$1,"; }
turns_of() { of $1 | sed -n 's/.*"turns":\([0-9]*\).*/\1/p'; }
turns_more() { [ "$(turns_of $1)" -gt $2 ]; }
# Ends it by a signal.
end_by() {
	kill -$1 $command
	wait $command
	exec 9>&-
}
end() {
	exec 9>&-
	wait $command
	answer=$?
	grep -v ready /tmp/said
	[ $answer = 0 ]
}
