# shellcheck disable=SC2016 # a script for another shell
# Sourced after inside.sh. What a dry run says is a line for tests/shape.rs, which judges it.
G=/sys/fs/cgroup
weights() { cat $G/vm/cpu.weight $G/vm/vcpu*/cpu.weight | tr '\n' ' '; }
set_are() { [ "$(weights)" != "$before" ]; }
as_before() { [ "$(weights)" = "$before" ] && [ ! -s /run/unspin/journal ]; }
shaping() {
	unspin shape $vm --period-ms 50 > /tmp/shaped 2> /tmp/said &
	shape=$!
	settle set_are
}

unspin-inside switches 360000 1000 > /tmp/two &
two=$!
check "two VMs of one process are there" settle has_vcpus $two 2
want='its process has several VMs'
check "they are left alone" says unspin shape $two --dry-run --once
kill $two
wait $two

# Both of its vCPUs compute; a task of the host is beside the first.
unspin-inside vm 2 --until /tmp/stop > /tmp/vm &
vm=$!
check "a VM is there" settle has_vcpus $vm 2
pin() {
	index=0
	for tid in $(vcpus $vm); do
		taskset -pc ${1:-$((index + 1))} "$tid" > /dev/null
		index=$((index + 1))
	done
}
pin
taskset -c 1 sh -c 'until [ -e /tmp/stop ]; do :; done' &
nice_values() { for tid in $(vcpus $vm); do sed 's/.*) //' /proc/$tid/stat | cut -d' ' -f17; done | tr '\n' ' '; }
nice_are_set() { [ "$(nice_values)" != "0 0 " ]; }
nice_as_before() { [ "$(nice_values)" = "0 0 " ] && [ ! -s /run/unspin/journal ]; }
unspin shape $vm --period-ms 50 --parts time > /tmp/shaped 2> /tmp/said &
shape=$!
check "without a cgroup per vCPU nice values are set" settle nice_are_set
kill $shape
wait $shape
check "and put back" nice_as_before
check "it says so" grep -q 'set as nice values' /tmp/shaped

echo +cpu > $G/cgroup.subtree_control
mkdir $G/vm
echo $vm > $G/vm/cgroup.procs
echo +cpu > $G/vm/cgroup.subtree_control 2> /dev/null
index=0
for tid in $(vcpus $vm); do
	mkdir $G/vm/vcpu$index
	echo threaded > $G/vm/vcpu$index/cgroup.type
	index=$((index + 1))
done
echo +cpu > $G/vm/cgroup.subtree_control
index=0
for tid in $(vcpus $vm); do
	echo $tid > $G/vm/vcpu$index/cgroup.threads
	index=$((index + 1))
done
before=$(weights)
# A group's weight is divided among CPUs by averages of load, which need some 300 ms after a thread has moved.
sleep 1
say "shape $(unspin shape pid:$vm --period-ms 500 --dry-run --once --json 2>&1)"
check "a dry run changes nothing" as_before

check "weights are set" shaping
check "a second one is told so" sh -c "unspin shape $vm 2>&1 | grep -q 'is changing settings of this host'"
kill $shape
check "a signal ends it well" wait $shape
check "and puts back" as_before
check "it says what it did" grep -q ' due; weight of the VM ' /tmp/shaped

check "weights are set again" shaping
kill -9 $shape
check "its guard puts back" settle as_before

check "weights are set once more" shaping
kill -STOP $shape
check "one that is stopped is killed, and put back" settle as_before
wait $shape

pin 0-3
cpus() { for tid in $(vcpus $vm); do sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/$tid/status; done | tr '\n' ' '; }
are_placed() { case "$(cpus)" in *[-,]*) false ;; *) true ;; esac; }
all_as_before() {
	as_before && [ "$(cpus)" = "0-3 0-3 " ] && return
	echo "CPUs $(cpus), weights $(weights), journal $(cat /run/unspin/journal), said $(tail -n 2 /tmp/said)"
	false
}
placing() {
	unspin shape $vm --period-ms 50 --parts time,latency,resolver > /tmp/shaped 2> /tmp/said &
	shape=$!
	settle are_placed
}
check "vCPUs are placed" placing
say "they are on CPUs $(cpus)"
kill -9 "$(tr -d ' ' < /proc/$shape/task/$shape/children)" $shape
wait $shape
want='is 0-3 again'
check "killed with its guard, the next puts back" says unspin diagnose --put-back
check "CPUs, weights and slices" all_as_before

check "vCPUs are placed again" placing
cpu=$(cpus | tr ' ' '\n' | grep -v '^0$' | head -n 1)
echo 0 > /sys/devices/system/cpu/cpu$cpu/online
not_placed() { ! are_placed; }
check "a CPU that goes takes its vCPU's place" settle not_placed
sleep 1
echo 1 > /sys/devices/system/cpu/cpu$cpu/online
kill $shape 2> /dev/null
wait $shape
# Before 6.2 the kernel forgets a CPU that is offline when the others are set.
was_told() { as_before && grep -q 'the kernel accepts only this part of 0-3' /tmp/said; }
gone_as_before() { all_as_before || was_told; }
check "when it has gone all is put back, or told" gone_as_before

touch /tmp/stop
check "the VM worked" wait $vm
