# shellcheck disable=SC2016,SC3038 # a script for another shell; busybox's exec has -a
# Sourced after inside.sh.
conf() { printf '%b' "$1" > /tmp/unspin.toml; }
apply() { unspin apply --config /tmp/unspin.toml --run-dir /tmp/run --every-ms 100 "$@"; }
start() {
	(
		export PATH=/tmp/bin:$PATH
		exec unspin apply --config /tmp/unspin.toml --run-dir /tmp/run --every-ms 100 --stay 2> /tmp/said
	) &
	service=$!
}
signal() { kill "-$1" $service; }
said() { grep -q "$1" /tmp/said || { cat /tmp/said; false; }; }
no_module() { [ ! -e $U ]; }
# A VM by that name, as its process's command line has it.
named() {
	(exec -a qemu-system-x86_64 /bin/unspin-inside vm 2 --until /tmp/stop -name "guest=$1,debug-threads=on") > /tmp/vm-$1 &
	vm=$!
}
mkdir -p /tmp/bin /tmp/run
printf '#!/bin/sh\n[ "$1" = unspin ] && exec insmod /modules/unspin.ko force_pause_intercept=1\n' > /tmp/bin/modprobe
busybox chmod 755 /tmp/bin/modprobe

named web,,1
web=$vm
named other
other=$vm
check "VMs run before the service" settle grep -q guest=other /proc/$other/cmdline
conf '[default]\nmode = "observe"\n[vm."name:web,1"]\nmode = "apples"\nwindow_max_cycles = 16384\n'
start
check "the module is loaded" settle [ -e $D/mode ]
check "the defaults are set" settle is $D/mode observe
check "a VM is set by name" settle is $U/vms/$web-0/mode apples
check "with all that its table says" is $U/vms/$web-0/window_max_cycles 16384
check "others follow the defaults" settle is $U/vms/$other-0/mode observe
check "PLE exits are counted" settle above $U/vms/$web-0/ple_exits 100
check "status knows names" sh -c "unspin status | grep -q ' web,1 '"

# --- where a VM's vCPUs spin ---
# The guest has no operating system; its addresses are of the half that Linux gives to programs.
counted() { sed "s/.*\"$1\":\([0-9]*\).*/\1/" /tmp/spinners; }
counts_now() { [ -n "$(ls /sys/kernel/tracing/instances)" ]; }
check "exits of a VM are counted by its name" sh -c "unspin spinners web,1 --seconds 1 --json > /tmp/spinners"
check "it is that VM" grep -q '"name":"web,1"' /tmp/spinners
check "its vCPUs were watched" [ "$(counted threads)" = 2 ]
check "its pause-loop exits are there" [ "$(counted pause_loop_exits)" -gt 100 ]
check "both VMs, as tables" sh -c "unspin spinners --seconds 0.5 > /tmp/spinners"
check "have both names" [ "$(grep -c -E '(web,1|other) \(process' /tmp/spinners)" = 2 ]
unspin spinners --seconds 600 --json > /tmp/spinners &
counting=$!
check "all VMs are counted" settle counts_now
sleep 0.3
kill -INT $counting
wait $counting
check "counting that was interrupted leaves nothing" not counts_now
check "a VM that is not there is named" fails 1 unspin spinners nobody

named web,,1
late=$vm
check "a VM that comes later is set" settle is $U/vms/$late-0/mode apples
check "one name, two VMs: set changes none" fails 2 unspin set --vm web,1 mode=off
check "one VM by its name" unspin set --vm other mode=hvs
check "has what was set" is $U/vms/$other-0/mode hvs
check "a second service is refused" fails 1 apply --stay

# --- the file is read again ---
conf '[default]\nmode = "aple"\n[vm."name:web,1"]\nmode = "on"\n'
check "a wrong file is named" fails 2 apply --check
signal HUP
check "it is refused" settle said 'the settings are unchanged.*unspin.toml:4:8'
check "and changes nothing" is $D/mode observe
conf "[default]\nmode = \"off\"\n[pid.$late]\nmode = \"hvs\"\n"
signal HUP
check "VMs are set by process" settle is $U/vms/$late-0/mode hvs
check "a VM not named any more follows the defaults" settle is $U/vms/$web-0/mode off
check "its other settings, too" is $U/vms/$web-0/window_max_cycles "$(cat $D/window_max_cycles)"
signal TERM
check "the service ends well" wait $service
check "and takes the module out" no_module

# --- killed ---
conf '[default]\nmode = "apples"\n'
start
check "it starts again" settle is $U/vms/$web-0/mode apples
signal KILL
wait $service
check "killed, it leaves the module" is $D/mode apples
check "what it left is cleared" apply --stop
check "the module is out" no_module

# --- the module is others' ---
/tmp/bin/modprobe unspin
start
check "with a module that was there" settle is $D/mode apples
signal TERM
check "it ends well" wait $service
check "and leaves it, off" is $D/mode off
check "for every VM" is $U/vms/$web-0/mode off
start
check "it runs" settle is $D/mode apples
rmmod unspin
check "it ends where the module goes" wait $service
touch /tmp/stop
check "the first VM worked all the time" wait $web
check "the second" wait $other
check "the third" wait $late
