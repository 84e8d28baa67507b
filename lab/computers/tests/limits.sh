# Sourced after inside.sh. Function, in virtual time.
VMS=2000
load() { insmod /modules/unspin.ko crowded_ok=1 force_pause_intercept=1 "$@"; }
said() { dmesg | grep -q "$1" || { dmesg | grep unspin | tail -n 3; return 1; }; }
vms() {
	set -- $U/vms/*
	[ -e "$1" ] || shift
	echo $#
}
vms_are() { [ "$(vms)" = $1 ] || { echo "$(vms) VMs"; false; }; }

# --- more VMs than a host has, before the module ---
export U VMS
unspin-inside many $VMS "touch /tmp/made; until [ -e /tmp/loaded ]; do sleep 0.05; done" \
	"touch /tmp/one-more; until [ -e /tmp/others ]; do sleep 0.05; done" > /tmp/many &
many=$!
until [ -e /tmp/made ]; do
	sleep 1
	kill -0 $many || break
done
check "$VMS VMs of one process" kill -0 $many
check "the module loads" load
check "and finds each" settle vms_are $VMS
check "nothing fell back to KVM" is $U/fail_open_total 0
touch /tmp/loaded
check "one more is the next" settle [ -e $U/vms/$many-$VMS ]

# --- so many other processes that the first one is not remembered by when it made its last VM ---
settle [ -e /tmp/one-more ]
other=0
while [ $other -lt 70 ] && unspin-inside many 0 true true > /dev/null; do
	other=$((other + 1))
done
check "70 others make VMs" [ $other = 70 ]
touch /tmp/others
wait $many
check "the process worked" [ $? = 0 ]
say "us for a VM's first vCPU, before and after the others: $(cat /tmp/many)"
read -r before after < /tmp/many
# Were each VM of the process looked at for each number, it would take 2 million steps, 80 ms.
check "making a VM takes no longer after them" [ $after -lt $((2 * before + 5000)) ]
check "all are gone" settle is $U/live_objects 0
rmmod unspin

# --- a load that fails while a hook cannot be taken off; only a new start helps after this ---
last=1
while [ $last -lt 30 ] && ! load fail_at=$last 2> /dev/null; do
	last=$((last + 1))
done
rmmod unspin
last=$((last - 1))
check "a load has steps" [ $last -gt 6 ]
# A mode may be written while the module loads: it attaches at the end. And one hook is not taken off.
try=0
stays() { said 'not unloading, or the kernel would run code that is gone'; }
until stays > /dev/null || [ $try = 20 ]; do
	(until (echo apples > $D/mode && echo 1 > $U/parameters/fail_unhook); do :; done) 2> /dev/null &
	writing=$!
	load fail_at=$last 2> /dev/null &
	loading=$!
	settle sh -c "! kill -0 $loading 2> /dev/null || dmesg | grep -q 'not unloading'"
	kill $writing 2> /dev/null
	try=$((try + 1))
done
check "a load that fails and cannot take its hook off does not end, try $try" stays
sleep 1
check "its code stays" kill -0 $loading
check "and its hook" hooked
check "every VM is off" is $D/mode off
check "VMs are made and run" unspin-inside vm 2 --ms 200
finish
