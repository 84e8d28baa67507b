# What an exit with its re-entry costs, and a switch to or from a vCPU, in instructions: on one CPU
# Bochs counts one tick an instruction. What a computing guest does less beside one that wakes up often
# than beside one that does so seldom, over the switches that are more, is what one switch costs with
# the exits and the work that go with it. What the host does at all times is in both, and falls out. How
# the sleeps fall between the host's ticks changes a switch's cost by some twenty instructions, so it is
# the mean of many lengths, each against a seldom one of its own. Sourced after inside.sh.
ALONE_MS=600
SWITCHES_MS=200
OFTEN_US=$(seq 60 3 165)
SELDOM_US=800
SELDOM_STEP_US=11
# Units, instructions, exits and switches of a VM switched out often, then of one seldom so. Adds up
# hundredths of an instruction per switch, and hundredths of an exit.
add_costs() {
	[ $4 -ge 600 ] && [ $8 -le $(($4 / 2)) ] || { echo "$4 and $8 switches"; return 1; }
	switch_cost=$((switch_cost + (($2 - $6) * 100 - ($1 - $5) * unit) / ($4 - $8)))
	switch_exits=$((switch_exits + ($3 - $7) * 100 / ($4 - $8)))
	lengths=$((lengths + 1))
}
# Sets unit: instructions that a unit of the computing guest takes, in hundredths.
alone_costs() {
	alone=$(unspin-inside switches $ALONE_MS) || { echo "$alone"; return 1; }
	set -- $alone
	[ $1 -gt 0 ] && unit=$(($2 * 100 / $1))
}
EXIT_ROUNDS=20
# Sets exit_cost, in hundredths of an instruction.
exits_cost() {
	exit_cost=$(unspin-inside exit-cycles $EXIT_ROUNDS) || { echo "$exit_cost"; return 1; }
}
# Sets switch_cost and switch_exits, in hundredths; the argument says of what.
switches_cost() {
	switch_cost=0 switch_exits=0 lengths=0
	for us in $OFTEN_US; do
		seldom_us=$((SELDOM_US + lengths * SELDOM_STEP_US))
		seldom=$(unspin-inside switches $SWITCHES_MS $seldom_us) || { echo "$seldom"; return 1; }
		often=$(unspin-inside switches $SWITCHES_MS $us) || { echo "$often"; return 1; }
		add_costs $often $seldom || return 1
	done
	switch_cost=$((switch_cost / lengths))
	switch_exits=$((switch_exits / lengths))
	say "$1, hundredths: $switch_cost instructions a switch, with $switch_exits exits"
}
