# shellcheck disable=SC2016 # a script for another shell
# Sourced after inside.sh. Each diagnosis is a line for tests/diagnose.rs, which judges it.
G=/sys/fs/cgroup
diagnosis() {
	# The emulator's clock may jump in one of them.
	for again in 1 2 3; do
		say "diagnosis $1 $(unspin diagnose --json --seconds 2 "pid:$2" 2>&1)"
	done
}
start() {
	rm -f /tmp/stop
	unspin-inside "$@" --until /tmp/stop > /tmp/vm &
	vm=$!
	settle has_vcpus $vm "$2"
	sleep 0.3
}
stop() {
	touch /tmp/stop
	check "the VM worked: $1" wait $vm
}
pin_to() {
	cpus=$1
	for tid in $(vcpus $2); do taskset -pc "$cpus" "$tid" > /dev/null; done
}

want='no VM runs on this host'
check "without a VM it says so" says unspin diagnose
check "and fails" fails 1 unspin diagnose
check "a time of 0 is wrong usage" fails 2 unspin diagnose --seconds 0

start vm 2
diagnosis alone $vm
want='no VM "nobody"'
check "a VM that is not there is named" says unspin diagnose nobody
check "the table has the causes" sh -c "unspin diagnose --seconds 0.5 | grep -q 'idle-switch.*measured'"
stop alone

# Whoever is killed leaves nothing in the kernel.
start vm 1
unspin diagnose --seconds 60 > /dev/null 2>&1 &
watcher=$!
sleep 1
kill -9 $watcher
check "a diagnosis that is killed can be made again" sh -c "unspin diagnose --json --seconds 0.5 | grep -q schema"
stop killed

start vm 4
unspin-inside vm 4 --until /tmp/stop-other > /tmp/other &
other=$!
sleep 0.5
pin=0
for tid in $(vcpus $vm); do taskset -pc $pin "$tid" > /dev/null; pin=$((pin + 1)); done
pin=0
for tid in $(vcpus $other); do taskset -pc $pin "$tid" > /dev/null; pin=$((pin + 1)); done
diagnosis other-vm $vm
touch /tmp/stop-other
wait $other
stop other-vm

start vm 2
pin_to 1 $vm
diagnosis siblings $vm
stop siblings

start vm 1
pin_to 2 $vm
taskset -c 2 sh -c 'until [ -e /tmp/stop ]; do :; done' &
sleep 0.3
diagnosis host-task $vm
stop host-task

echo +cpu > $G/cgroup.subtree_control
mkdir $G/quota
start vm 1
pin_to 3 $vm
echo $vm > $G/quota/cgroup.procs
echo 30000 100000 > $G/quota/cpu.max
sleep 0.3
diagnosis quota $vm
stop quota

# The same with cgroups of version 1, as Debian 10 has them.
rmdir $G/quota
echo -cpu > $G/cgroup.subtree_control
umount $G
mount -t tmpfs none $G
mkdir $G/cpu
check "cgroups of version 1 are there" settle mount -t cgroup -o cpu none $G/cpu
mkdir $G/cpu/quota
start vm 1
pin_to 3 $vm
echo $vm > $G/cpu/quota/cgroup.procs
echo 100000 > $G/cpu/quota/cpu.cfs_period_us
echo 30000 > $G/cpu/quota/cpu.cfs_quota_us
sleep 0.3
diagnosis quota-of-version-1 $vm
want='now 0.30 CPUs'
check "its quota is known" says unspin diagnose --seconds 1 $vm
stop quota-of-version-1

# One vCPU computes, the other one sleeps most of the time. The emulator's clock may jump: it has longer
# than it needs.
unspin-inside switches 360000 1000 > /tmp/sleeper &
vm=$!
check "one that sleeps is there" settle has_vcpus $vm 2
sleep 0.3
diagnosis sleeper $vm
check "and still is" kill $vm
wait $vm

# Where every PAUSE exits, a contended lock is nothing but exits.
insmod /modules/unspin.ko crowded_ok=1 force_pause_intercept=1
echo observe > $D/mode
start vm 2
pin_to 0,1 $vm
diagnosis spinners $vm
stop spinners
echo off > $D/mode
rmmod unspin
