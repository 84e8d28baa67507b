# Indirect branch tracking: a processor with CET, and a kernel that has every call through a pointer end at
# an ENDBR64. ibt=warn has the kernel log a call that does not, and go on. Sourced after inside.sh.
load() { insmod /modules/unspin.ko crowded_ok=1 look_always=1; }
# Calls since the log was cleared that ended elsewhere.
bad_calls() { dmesg | grep 'Missing ENDBR'; }
# The call of behind.ko, which is given its parameters.
call_ends_well() { insmod /modules/behind.ko "$@" && rmmod behind && not bad_calls; }
# A VM of two vCPUs, until the file is there; $vm is its process.
start() {
	unspin-inside $1 2 --until $2 > /tmp/vm-$3 &
	vm=$!
	settle [ -e $U/vms/$vm-0 ]
}

# --- a bad call is seen ---
check "the kernel tracks indirect branches" grep -q 'Indirect Branch Tracking enabled' /tmp/boot-log
check "its indirect calls are no retpolines" grep -q Vulnerable /sys/devices/system/cpu/vulnerabilities/spectre_v2
check "a call of a function where it begins ends well" call_ends_well skip=0
check "one behind its ENDBR64 does not" not call_ends_well skip=1
check "and the kernel names it" bad_calls
dmesg -c > /dev/null
echo "<3>lab: no bad call on purpose from here on" > /dev/kmsg
# Errors reach the console, not their stack traces, which take a second each there.
echo 4 > /proc/sys/kernel/printk

# --- the module makes none ---
# Of this model Bochs enters no guest with posted interrupts: it wants a whole page for their descriptor.
check "kvm_intel without posted interrupts" vendor_with enable_apicv=0
check "the module loads" load
echo aple > $D/mode
echo con > $D/coscheduling
for n in a b; do
	start vm /tmp/stop $n
	eval "$n=$vm"
done
check "turns are made" within 10 parks_hooked
for n in $a $b; do
	check "vCPUs of VM $n wait for their turns" within 10 above $U/vms/$n-0/parks 50
done
start vm-in-user-space /tmp/stop c
echo hvs > $U/vms/$vm-0/mode
echo vcrd-user > $U/vms/$vm-0/coscheduling
check "a guest's code is read" within 10 above $U/vms/$vm-0/user_spins 0
check "the module unloads under running VMs" rmmod unspin
check "and has gone" gone
touch /tmp/stop
wait
check "no call ended behind an ENDBR64" not bad_calls
finish
