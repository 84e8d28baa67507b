# The module on VT-x, whose windows are real: that they come back, that a guest which runs guests of
# its own harms nobody, and what a window that is not where it was thought leads to.
# Two CPUs, on which Bochs counts time only roughly: nothing here is exact to the tick.
# Sourced after inside.sh.
load() { insmod /modules/unspin.ko crowded_ok=1 "$@"; }
# One window for all, and KVM's far from it.
fixed() {
	echo 0 > "$1/delta_cycles"
	set_window "$1" $2
}
OURS=24000-44000
KVMS=3000-6000
OTHER_KVMS=6000-11000
# Windows before and after a command, of a vCPU that runs and of one that is outside KVM_RUN.
windows_are() {
	found=$(unspin-inside windows "$3")
	say "'$3': $found"
	echo "$found"
	[ "$found" = "running $1 then $2, sleeping $1 then $2" ]
}
total() { value $U/fail_open_total; }

# --- windows come back ---
# KVM's own stays where it starts, so that exits tell it.
check "kvm_intel without growing windows" vendor_with ple_window_grow=0
load
check "the windows are the module's to set" is $U/window_control vmx
fixed $D 32768
check "in mode off they are KVM's" windows_are $KVMS $KVMS true
echo aple > $D/mode
check "in mode aple they are the module's" windows_are $OURS $OURS true
check "and KVM's again in mode off" windows_are $OURS $KVMS "echo off > $D/mode"
echo aple > $D/mode
check "and where the VM alone is off" windows_are $OURS $KVMS "echo off > $U/vms/\$PPID-0/mode"
check "in mode hvs they are KVM's" windows_are $OURS $KVMS "echo hvs > $D/mode"
echo apples > $D/mode
check "in mode apples the module's" windows_are $OURS $OURS true
check "and KVM's again without the module" windows_are $OURS $KVMS "rmmod unspin"
check "which has gone" gone

# --- what guests say of themselves ---
load
echo aple > $D/mode
echo vcrd > $D/coscheduling
check "a guest is HIGH while it says so" answers "1 0 1 0" 1 report 1 900000 0
check "its programs are not heard" answers "0 3 0 0" 3 report 1 900000 3
check "what is neither HIGH nor LOW is ignored" answers "0 3 0 0" 3 report 2 900000 0
rmmod unspin

# --- an experiment of `unspin diagnose`, whose B has nearly no exits ---
if command -v unspin > /dev/null; then
	load
	echo observe > $D/mode
	unspin-inside vm 2 --until /tmp/stop-ab > /tmp/vm-ab &
	vm=$!
	check "one that spins is there" settle test -e $U/vms/$vm-0/mode
	files="mode delta_cycles window_init_cycles window_min_cycles window_max_cycles"
	settings() { for file in $files; do value $U/vms/$vm-0/$file; done; }
	before=$(settings)
	say "ab spin-switch $(unspin diagnose $vm --ab spin-switch --seconds 0.4 --rounds 2 --json 2> /tmp/said || cat /tmp/said)"
	check "the VM's settings are as before" [ "$(settings)" = "$before" ]
	check "the journal is empty" test ! -s /run/unspin/journal
	touch /tmp/stop-ab
	check "it worked" wait $vm
	rmmod unspin
fi

# --- a window that is not where it was thought, played ---
load force_mismatches=3
fixed $D 32768
echo aple > $D/mode
check "three mismatches keep no vCPU from its window" windows_are $OURS $OURS true
check "they are over" is $U/parameters/force_mismatches 0
check "counted once" is $U/fail_open_total 1
check "and leave window control as it is" is $U/window_control vmx
echo 100 > $U/parameters/force_mismatches
check "a hundred, once a window was where it was thought, keep their vCPU from it" \
	windows_are $KVMS $KVMS true
check "but window control as it is" is $U/window_control vmx
# No vCPU of the reloaded kvm_intel has agreed yet.
check "kvm_intel reloaded with another window" vendor_with ple_window_grow=0 ple_window=8192
echo 100 > $U/parameters/force_mismatches
before=$(total)
check "with none that ever agreed they are KVM's" windows_are $OTHER_KVMS $OTHER_KVMS \
	"cat $U/vms/\$PPID-0/window_cycles > /tmp/window"
check "and none is claimed" is /tmp/window 0
check "nobody's windows are the module's" is $U/window_control \
	"none: vcpu_vmx.ple_window is not what the VMCS holds"
# Once for each of the two vCPUs, which did not agree, and once for all.
check "which is counted" is $U/fail_open_total $((before + 3))
check "and said" sh -c "dmesg | grep -q 'falling back to KVM.s own behaviour: vcpu_vmx.ple_window is not what the VMCS holds'"
echo 0 > $U/parameters/force_mismatches
check "and stays so" windows_are $OTHER_KVMS $OTHER_KVMS true
check "and counted no more" is $U/fail_open_total $((before + 3))
check "until kvm_intel is another" vendor_with ple_window_grow=0 ple_window=8192
check "then windows are the module's to set" is $U/window_control vmx
check "and go back to where that one starts" windows_are $OURS $OTHER_KVMS "echo off > $D/mode"
echo aple > $D/mode
before=$(total)
check "where another VM's is nowhere, windows that are set go back" windows_are $OURS $OTHER_KVMS \
	"echo 1 > $U/parameters/force_broken; unspin-inside vm 1 --ms 100"
check "and say why" is $U/window_control "none: a test wants it so"
check "counted once" is $U/fail_open_total $((before + 1))
rmmod unspin
check "kvm_intel as it comes" vendor_with

# --- a guest that runs guests, beside others ---
# The others have the first CPU.
taskset 1 unspin-inside vm 2 --until /tmp/stop > /tmp/vm-two &
two=$!
load
echo 50 > $D/epoch_ple_exits
settle [ -e $U/vms/$two-0 ]
# It loses its CPU in its own guest: KVM keeps one window then, and its processor has another. The
# module comes at this moment: on its first look they differ.
cat > /tmp/on << 'END'
echo 0 > $1/delta_cycles
for file in window_init_cycles window_min_cycles window_max_cycles; do echo 32768 > $1/$file; done
echo aple > $1/../../default/mode
END
looked_again() { dmesg | grep -c 'the processor and KVM have different windows for a vCPU; checking again'; }
looked=$(looked_again)
unspin-inside nested "sh /tmp/on $U/vms/\$PPID-0" "echo off > $U/vms/\$PPID-0/mode" > /tmp/nested
nested=$?
say "nested: $(cat /tmp/nested)"
check "a guest runs a guest: $(cat /tmp/nested)" [ $nested = 0 ]
part() { grep -q "$1" /tmp/nested || { cat /tmp/nested; return 1; }; }
check "in mode off its windows were KVM's" part '^10,'
check "what its processor had was not what KVM kept" is $U/fail_open_total 1
check "with a line that says so" [ "$(looked_again)" = $((looked + 1)) ]
check "and in mode aple they are the module's soon" part 'on . at once and 0 of 10,'
check "and in mode off KVM's at once" part 'off 1 at once and 10 of 10'
check "nobody else's window control suffered" is $U/window_control vmx
echo 1 > $U/vms/$two-0/reset
check "windows of the other VM adapt" settle above $U/vms/$two-0/rounds 1

# --- every mode, and unloading, under running VMs ---
unspin-inside vm 3 --until /tmp/stop > /tmp/vm-three &
three=$!
settle [ -e $U/vms/$three-0 ]
for mode in observe aple hvs apples; do
	echo $mode > $D/mode
	for vm in $two $three; do
		echo 1 > $U/vms/$vm-0/reset
		check "mode $mode counts PLE exits of a VM" settle above $U/vms/$vm-0/ple_exits 100
	done
done
check "epochs end" settle above $U/vms/$three-0/epochs 2
check "nothing fell back to KVM since" is $U/fail_open_total 1
check "unloads in mode apples under running VMs" rmmod unspin
check "and has gone" gone
touch /tmp/stop
wait $two
worked=$?
check "the first worked on: $(cat /tmp/vm-two)" [ $worked = 0 ]
wait $three
worked=$?
check "the other too: $(cat /tmp/vm-three)" [ $worked = 0 ]
finish
