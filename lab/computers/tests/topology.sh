# Two sockets of two cores of two threads, as the kernel and the module see them, and where a turn puts a
# VM of two vCPUs that may run anywhere. Sourced after inside.sh.
C=/sys/devices/system/cpu
check "the second CPU is a thread of the first core" is $C/cpu1/topology/thread_siblings_list 0-1
check "the third is a core of its own" is $C/cpu2/topology/thread_siblings_list 2-3
check "a socket is a last-level cache" is $C/cpu2/cache/index3/shared_cpu_list 0-3
check "so is the other one" is $C/cpu4/cache/index3/shared_cpu_list 4-7
check "and a node" is /sys/devices/system/node/node1/cpulist 4-7

# How often both vCPUs want to run, on two cores, on two cores of one cache: the last at least that many
# times of 100.
near() {
	found=$(unspin-inside places $vm 400) || { echo "$found"; return 1; }
	say "$1: both wanted to run, on two cores, in one cache: $found"
	echo "$found"
	set -- $2 $found
	[ $2 -ge 40 ] && [ $((100 * $4)) -ge $(($1 * $2)) ]
}
insmod /modules/unspin.ko crowded_ok=1 look_always=1
unspin-inside vm 8 --until /tmp/end > /tmp/vm-large &
unspin-inside vm 2 --until /tmp/end > /tmp/vm-small &
vm=$!
settle [ -e $U/vms/$vm-0 ]
near stock 0
echo aple > $D/mode
echo con > $D/coscheduling
# A turn moves a vCPU only if a sibling is on its CPU or core: both are on one core when turns begin.
taskset -a -p 3 $vm > /dev/null
check "a VM of two vCPUs has turns" settle above $U/vms/$vm-0/turns 5
taskset -a -p ff $vm > /dev/null
check "a VM of two vCPUs has its turns on two cores of one cache" near turns 60
check "and has some" above $U/vms/$vm-0/turns 20
: > /tmp/end
wait
finish
