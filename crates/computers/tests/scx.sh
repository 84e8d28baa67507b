# Credit by sched_ext under QEMU: it is loaded, vCPUs run and take turns, and everything is as it was
# afterwards, whatever ends it. Function, never time. Sourced after inside.sh.
STATE=/sys/kernel/sched_ext/state
EXT=7
start() {
	unspin-inside vm $1 --until $2 > /tmp/vm-$3 &
	vm=$!
	settle has_vcpus $vm $1
}
# Threads of a VM's vCPUs, with commas.
vcpus() {
	for task in "/proc/$1/task/"*; do
		case $(cat $task/comm) in CPU*) echo ${task##*/} ;; esac
	done | tr '\n' , | sed 's/,$//'
}
has_vcpus() { [ "$(vcpus $1 | tr , '\n' | grep -c .)" = $2 ]; }
# Whether all vCPUs of a VM have a class.
are() {
	for tid in $(vcpus $1 | tr , ' '); do
		class=$(sed 's/.*) //' /proc/$1/task/$tid/stat | cut -d ' ' -f 39)
		[ "$class" = $2 ] || { echo "$tid has class $class, not $2"; return 1; }
	done
}
# CPU time of a VM's vCPUs, ticks.
time_of() {
	for tid in $(vcpus $1 | tr , ' '); do
		sed 's/.*) //' /proc/$1/task/$tid/stat | cut -d ' ' -f 12
	done | tr '\n' '+' | sed 's/$/0/'
}
runs() {
	before=$(($(time_of $1)))
	settle [ $(($(time_of $1))) -gt $before ] || return 1
}
later() { [ $(($(time_of $1))) -gt $2 ]; }
go_on() { settle later $1 $(($(time_of $1) + 5)); }
# The scheduler, with its input held open; $scheduler is its process.
schedule() {
	rm -f /tmp/said /tmp/hold
	mkfifo /tmp/hold
	unspin-scx "$@" < /tmp/hold > /tmp/said 2>&1 &
	scheduler=$!
	exec 9> /tmp/hold
	settle grep -q . /tmp/said
	grep -q '^ready$' /tmp/said || { cat /tmp/said; return 1; }
}
end() {
	exec 9>&-
	wait $scheduler
	answer=$?
	grep -v ready /tmp/said
	[ $answer = 0 ]
}
counted() { [ "$(sed -n "s/.* \([0-9]*\) $1.*/\1/p" /tmp/said)" -ge $2 ] || { cat /tmp/said; false; }; }

for n in a b; do
	start 4 /tmp/stop $n
	eval "$n=$vm"
done
A=100:1:$(vcpus $a)
B=100:0:$(vcpus $b)
for gang in none con; do
	check "$gang: the kernel takes it" schedule $gang 0 4000 4 1 $A $B
	say "$(head -c 2000 /tmp/said | tr '\n' ';')"
	check "$gang: it is on" is $STATE enabled
	for vm in $a $b; do
		check "$gang: vCPUs are its" are $vm $EXT
		check "$gang: and run" go_on $vm
	done
	sleep 1
	check "$gang: it ends" end
	say "$(tail -n 1 /tmp/said)"
	check "$gang: vCPUs were switched" counted switches 20
	check "$gang: it is off" settle is $STATE disabled
	for vm in $a $b; do
		check "$gang: vCPUs are ordinary threads" are $vm 0
		check "$gang: and run on" go_on $vm
	done
done
check "siblings came together" counted gangs 10


# --- caps ---
# A VM with a tenth of the weight gets a tenth of the host, with the rest idle: its sibling in weight is stopped.
capped_share() {
	before=$(($(time_of $b)))
	sleep 2
	after=$(($(time_of $b)))
	echo $((after - before))
	[ $((after - before)) -gt 20 ] && [ $((after - before)) -lt 160 ]
}
check "caps: the kernel takes it" schedule none 1 4000 4 1 900:0:${A##*:} 100:0:${B##*:}
kill -STOP $a
check "caps: the other's time is nobody's" capped_share
kill -CONT $a
check "caps: it ends" end

# --- what it does not take, and what becomes of threads ---
refuses() {
	wanted=$1
	shift
	answer=$(unspin-scx "$@" < /dev/null 2>&1) && { echo "$* was taken: $answer"; return 1; }
	echo "$answer" | grep -q "$wanted" || { echo "$answer"; false; }
}
sleeper=$(taskset 3 sh -c 'sleep 100 > /dev/null & echo $!')
check "a VM whose vCPUs may run on two of four pCPUs is refused" refuses "2 of 4 pCPUs" \
	none 0 4000 4 1 100:0:$sleeper
check "the kernel takes it once more" schedule con 0 4000 4 1 $A $B
check "another beside it is refused" refuses "another scheduler" none 0 4000 4 1 $A
check "which changes nothing" go_on $b
kill -9 $scheduler
wait $scheduler
exec 9>&-
check "one that is killed is off" settle is $STATE disabled
for vm in $a $b; do check "and its vCPUs run on" go_on $vm; done
touch /tmp/stop
check "VM a worked" wait $a
check "VM b worked" wait $b
finish
