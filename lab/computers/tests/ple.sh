# Pause-loop exits against their definition, on one CPU: there Bochs counts one tick an instruction,
# and PLE's clock is that count. An exit comes when a PAUSE is more than the window after the first
# of its loop; a PAUSE more than the gap after the one before begins a new loop; only at CPL 0.
# Sourced after inside.sh.
SPINS=50
# A timer tick in a spin may cost it its exit.
MOST=$((SPINS - 3))

# With that window, spins of so many PAUSEs at that distance and level: exits from LOW to HIGH.
exits() {
	low=$1 high=$2
	set_window $D "$3"
	found=$(unspin-inside ple $SPINS "$4" "$5" "$6") || { echo "$found"; return 1; }
	echo "$found exits of $SPINS spins"
	say "window $3, $4 PAUSEs $5 apart, CPL $6: $found exits of $SPINS spins"
	[ "$found" -ge "$low" ] && [ "$found" -le "$high" ]
}

# Two ticks of 4 ms, and a little.
guests_lose_their_cpu 8500

insmod /modules/unspin.ko crowded_ok=1
check "the window is the module's to set" is $U/window_control vmx
echo 0 > $D/delta_cycles
echo aple > $D/mode

# From first to last PAUSE: 32 x 128 = 4096 ticks, 45 x 91 = 4095.
check "window as long as the spin" exits 0 0 4096 33 128 0
check "window one tick longer" exits 0 0 4097 33 128 0
check "window one tick shorter" exits $MOST $SPINS 4095 33 128 0
check "spin one tick shorter than that" exits 0 0 4095 46 91 0
check "that spin with a window one tick shorter" exits $MOST $SPINS 4094 46 91 0
check "a window half as long takes one exit a spin, the rest begins a new loop" \
	exits $MOST $((SPINS + 3)) 2048 33 128 0

# KVM's own gap is 128.
check "the gap is 128" is /sys/module/kvm_intel/parameters/ple_gap 128
check "PAUSEs one tick closer than the gap" exits $MOST $SPINS 4063 33 127 0
check "PAUSEs as far apart as the gap" exits $MOST $SPINS 4095 33 128 0
check "PAUSEs one tick farther apart" exits 0 0 4096 33 129 0
check "kvm_intel reloaded with a gap of 129" vendor_with ple_gap=129
check "window control is back" is $U/window_control vmx
check "PAUSEs as far apart as the new gap" exits $MOST $SPINS 4127 33 129 0
check "kvm_intel reloaded with a gap of 127" vendor_with ple_gap=127
check "PAUSEs one tick farther apart than the new gap" exits 0 0 4095 33 128 0

check "at CPL 0 a short window exits all the time" exits $SPINS 100000 512 33 100 0
check "at CPL 3 nothing ever does" exits 0 0 512 33 100 3
rmmod unspin

# What mode observe costs where nobody spins (costs.sh): the same guests run with the module in mode off
# and in observe.
# A vCPU that waits gives its CPU up at once, and polls for nothing before.
echo 0 > /sys/module/kvm/parameters/halt_poll_ns
insmod /modules/unspin.ko crowded_ok=1
# Sets the least that an exit took in each mode: now and then the kernel is about something that makes every
# exit of a round cost more, whatever the mode.
exits_in_modes() {
	exit_off='' exit_observe=''
	for round in 1 2 3; do
		for mode in off observe; do
			echo $mode > $D/mode
			sleep 2	# a key of KVM's local APIC settles a second after the last vCPU
			exits_cost || return 1
			say "round $round, mode $mode: an exit takes $exit_cost hundredths of an instruction"
			eval "least=\$exit_$mode"
			[ -n "$least" ] && [ "$least" -le "$exit_cost" ] || eval "exit_$mode=$exit_cost"
		done
	done
}
switches_in_mode() {
	echo "$1" > $D/mode
	switches_cost "mode $1"
}
check "exits in modes off and observe" exits_in_modes
exit_added=$((exit_observe - exit_off))
check "a VM alone on the CPU" alone_costs
check "switches in mode off" switches_in_mode off
switch_off=$switch_cost
check "switches in mode observe" switches_in_mode observe
switch_added=$((switch_cost - switch_off - exit_added * switch_exits / 100))
say "observe adds, hundredths of an instruction: $exit_added an exit, $switch_added a switch"
check "a VM exit costs at most 47 instructions more" [ $exit_added -le 4700 ]
check "an exit costs something" [ $exit_added -gt 0 ]
check "a vCPU switch costs at most 150 instructions more" [ $switch_added -le 15000 ]
check "a switch costs something" [ $switch_added -gt 0 ]
rmmod unspin
finish
