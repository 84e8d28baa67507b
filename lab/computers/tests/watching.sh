# What it costs to be watched (host/probe), on one CPU and without the module. The same guests run as
# they are, then while BPF programs are loaded that watch others, then watched. Sourced after inside.sh
# and costs.sh.
# A vCPU that waits gives its CPU up at once, and polls for nothing before.
echo 0 > /sys/module/kvm/parameters/halt_poll_ns
OFTEN_US="60 170"
# In each of 20 rounds there may be something of the host's: then some 60 instructions more are counted.
EXIT_ROUNDS=60
check "a VM alone on the CPU" alone_costs
check "exits as they are" exits_cost
exit_plain=$exit_cost
check "switches as they are" switches_cost "as they are"
switch_plain=$switch_cost

mkfifo /tmp/ask
unspin-watch < /tmp/ask > /tmp/watched &
exec 3> /tmp/ask
check "the programs are loaded" settle grep -q ready /tmp/watched
check "exits of others than the watched" exits_cost
others_added=$((exit_cost - exit_plain))
export UNSPIN_WATCH=/tmp/ask
check "exits that are watched" exits_cost
exit_added=$((exit_cost - exit_plain))
sleep 5	# until that window has passed
check "switches that are watched" switches_cost "watched"

# What a vCPU was in the guest for, as its own clock says, and as it is watched.
watched_us() { sed -n '$p' /tmp/watched | grep -o '"guest":[0-9]*' | cut -d: -f2 | sort -n | tail -n 1 | sed 's/...$//'; }
lines() { [ "$(wc -l < /tmp/watched)" = $1 ]; }
clocks_agree() {
	answers=$(wc -l < /tmp/watched)
	own=$(unspin-inside clock "$@") || { echo "$own"; return 1; }
	settle lines $((answers + 1)) || return 1
	seen=$(watched_us)
	say "guest of clock $*: $own us by the guest's clock, $seen us watched"
	[ "$own" -gt 0 ] && [ $((seen - own)) -le $((own / 50)) ] && [ $((own - seen)) -le $((own / 50)) ]
}
check "time in the guest is what the guest's clock says" clocks_agree 600
check "also beside a thread that takes the CPU at times" clocks_agree 600 1500
check "and beside one that does so often" clocks_agree 600 150

exec 3>&-
wait
switch_added=$((switch_cost - switch_plain - exit_added * switch_exits / 100))

# What other programs add: how they are loaded, what loads them, how they watch. Sets added_exit, and
# added_switch with what exits add in it.
watched_by() {
	unspin-watch $1 < /tmp/ask > /tmp/watched_by &
	exec 3> /tmp/ask
	check "the programs of $2 are loaded" settle grep -q ready /tmp/watched_by
	check "exits that are watched $3" exits_cost
	added_exit=$((exit_cost - exit_plain))
	sleep 5
	check "switches that are watched $3" switches_cost "watched $3"
	exec 3>&-
	wait
	added_switch=$((switch_cost - switch_plain))
}
watched_by --brief "unspin shape" briefly
brief_exit=$added_exit brief_switch=$added_switch
cp /tmp/watched_by /tmp/briefly
watched_by --takers "unspin top" "with takers"
takers_exit=$added_exit
takers_switch=$((added_switch - takers_exit * switch_exits / 100))
say "watching with takers adds, hundredths of an instruction: $takers_exit an exit, $takers_switch a switch"
say "watching briefly adds, hundredths of an instruction: $brief_exit an exit, $brief_switch a switch"
say "hundredths of an instruction an exit: $exit_plain; added $others_added, watched $exit_added"
say "watching adds, hundredths of an instruction: $exit_added an exit, $switch_added a switch"
check "the watched exits were seen" [ "$(grep -c '"exit:cpuid"' /tmp/watched)" -ge 1 ]
check "an exit that is watched costs something" [ $exit_added -gt 0 ]
check "a switch that is watched costs something" [ $switch_added -gt 0 ]
check "an exit that is not watched costs less" [ $others_added -lt $exit_added ]
check "no exit was counted briefly" [ "$(grep -c '"exit:cpuid"' /tmp/briefly)" -eq 0 ]
check "to watch briefly costs nothing at an exit" [ $brief_exit -lt 2000 ]
check "to count takers costs something at a switch" [ $takers_switch -gt $switch_added ]
check "a switch costs less that is watched briefly" [ $brief_switch -gt 0 -a $brief_switch -lt $switch_added ]
finish
