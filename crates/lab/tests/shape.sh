# shellcheck disable=SC2016 # a script for another shell
# `unspin shape` on a real kernel, under QEMU: weights and slices are set and put back. Sourced after
# inside.sh. What a dry run says is a line for tests/shape.rs, which judges it.
G=/sys/fs/cgroup
says() { "$@" 2>&1 | grep -q "$want" || { "$@"; false; }; }
vcpus() { grep -l 'CPU ./KVM' /proc/$1/task/*/comm | cut -d/ -f5; }
has_vcpus() { [ "$(vcpus "$1" | wc -l)" = "$2" ]; }
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
want='no cgroup each'
check "without a cgroup per vCPU it is left alone" says unspin shape $vm --dry-run --once

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
	taskset -pc $((index + 1)) "$tid" > /dev/null
	index=$((index + 1))
done
taskset -c 1 sh -c 'until [ -e /tmp/stop ]; do :; done' &
before=$(weights)
say "shape $(unspin shape $vm --dry-run --once --json 2>&1)"
check "a dry run changes nothing" as_before

check "weights are set" shaping
check "a second one is told so" sh -c "unspin shape $vm 2>&1 | grep -q 'is changing settings of this host'"
kill $shape
check "a signal ends it well" wait $shape
check "and puts back" as_before
check "it says what it did" grep -q 'are due to it' /tmp/shaped

check "weights are set again" shaping
kill -9 $shape
check "its guard puts back" settle as_before

check "weights are set once more" shaping
kill -STOP $shape
check "one that is stopped is killed, and put back" settle as_before
wait $shape

touch /tmp/stop
check "the VM worked" wait $vm
