# unspin schedule under QEMU beside the module, which finds out which VMs spin in user space. Sourced after
# inside.sh and ext.sh.
mkdir -p /run
# The module needs a processor that can intercept PAUSE. The vCPUs' PAUSEs do not exit: they are found in their guests.
insmod /modules/unspin.ko force_pause_intercept=1 look_always=1
echo 0 > $U/parameters/force_pause_intercept
begin u 4 unspin-inside vm-in-user-space 4 --until /tmp/stop
start 4 /tmp/stop a
for vm in $u $a; do
	echo hvs > $U/vms/$vm-0/mode
	echo vcrd-user > $U/vms/$vm-0/coscheduling
	settings $vm > /tmp/before-$vm
done
refusal() { is $U/vms/$1-0/turns_refused "$2"; }
gang() { of $1 | grep -q "\"gang\":\"$2\"" || { of $1; false; }; }
check "the module makes turns of its own" settle refusal $a none
check "the kernel takes the scheduler" schedule --cpus 0-3
for vm in $u $a; do
	check "threads are its" settle all_are $vm $EXT
	check "the module leaves them to it" settle refusal $vm "sched_ext schedules its vCPUs"
done
check "the module sees that one spins" settle above $U/vms/$u-0/user_spins 10
check "it is a gang" settle gang $u "spins in user space"
check "and has turns" settle turns_more $u 20
check "the other does not spin there" gang $a auto
for vm in $u $a; do check "VMs run" go_on $vm; done
check "the module is unloaded" rmmod unspin
check "then it is no gang after some time" settle gang $u auto
for vm in $u $a; do check "VMs run" go_on $vm; done
check "it ends" end
for vm in $u $a; do check "threads are as before" settle as_before $vm; done
end_vms /tmp/stop $u $a
finish
