# Credit by sched_ext under QEMU: it is loaded, vCPUs run and take turns, and everything is as it was
# afterwards, whatever ends it. Function, never time. Sourced after inside.sh and ext.sh.
schedule() { hold unspin-scx "$@"; }
# shellcheck disable=SC2046 # words
vcpus_are() { are $1 $2 $(vcpus $1); }
# With commas between.
list() { vcpus $1 | tr '\n' , | sed 's/,$//'; }
counted() { [ "$(sed -n "s/.* \([0-9]*\) $1.*/\1/p" /tmp/said)" -ge $2 ] || { cat /tmp/said; false; }; }

start 4 /tmp/stop a
start 4 /tmp/stop b
A=100:1:$(list $a)
B=100:0:$(list $b)
for gang in none con; do
	check "$gang: the kernel takes it" schedule $gang 0 4000 4 1 $A $B
	say "$(head -c 2000 /tmp/said | tr '\n' ';')"
	check "$gang: it is on" is $STATE enabled
	for vm in $a $b; do
		check "$gang: vCPUs are its" vcpus_are $vm $EXT
		check "$gang: and run" go_on $vm
	done
	sleep 1
	check "$gang: it ends" end
	say "$(tail -n 1 /tmp/said)"
	check "$gang: vCPUs were switched" counted switches 20
	check "$gang: it is off" settle is $STATE disabled
	for vm in $a $b; do
		check "$gang: vCPUs are ordinary threads" vcpus_are $vm 0
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
check "another beside it is refused" refuses "another sched_ext scheduler" none 0 4000 4 1 $A
check "which changes nothing" go_on $b
end_by KILL
check "one that is killed is off" settle is $STATE disabled
for vm in $a $b; do check "and its vCPUs run on" go_on $vm; done
touch /tmp/stop
check "VM a worked" wait $a
check "VM b worked" wait $b
finish
