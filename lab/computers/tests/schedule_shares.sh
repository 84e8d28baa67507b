# unspin schedule under QEMU: who gets how much. CPU time in proportion, never in seconds. Sourced after inside.sh and
# ext.sh.
mkdir -p /run
# --- shares: three VMs that want all of four CPUs, in cgroups of weights ---
G=/sys/fs/cgroup
echo +cpu > $G/cgroup.subtree_control
mkdir -p $G/s.slice
echo +cpu > $G/s.slice/cgroup.subtree_control
mkdir -p $G/1.scope $G/2.scope $G/4.scope $G/s.slice/1.scope $G/s.slice/3.scope $G/4.scope/1.scope
for n in 1 2 4; do echo ${n}00 > $G/$n.scope/cpu.weight; done
for n in 1 3; do echo ${n}00 > $G/s.slice/$n.scope/cpu.weight; done
echo 200 > $G/s.slice/cpu.weight
for n in 1 2 3; do start 4 /tmp/stop-shares w$n; done
near() {
	off=$(($1 - total * $2 / parts))
	[ ${off#-} -le $((total / 40)) ]
}
# Whether they have CPU time in this proportion, each within 2.5 % of all: the third has 4 s meanwhile.
proportion() {
	before=$(times_of $w1 $w2 $w3)
	settle later $w3 $(($(time_of $w3) + 400))
	# shellcheck disable=SC2046 # words
	set -- $before $(times_of $w1 $w2 $w3) $1 $2 $3
	parts=$(($7 + $8 + $9))
	set -- $(($4 - $1)) $(($5 - $2)) $(($6 - $3)) $7 $8 $9
	total=$(($1 + $2 + $3))
	say "ticks $1 $2 $3 for shares $4 $5 $6"
	near $1 $4 && near $2 $5 && near $3 $6 || { echo "ticks $1 $2 $3, not $4 : $5 : $6"; false; }
}
move() { for at; do echo $1 > $G/$2/cgroup.procs; shift 2; [ $# -gt 0 ] || return 0; done; }
move $w1 1.scope $w2 2.scope $w3 4.scope
for gangs in --no-gangs "--gang pid:$w1 --gang pid:$w2 --gang pid:$w3"; do
	check "'$gangs': the kernel takes it" schedule --cpus 0-3 $gangs
	check "'$gangs': CPU time goes by weight" proportion 1 2 4
	move $w1 s.slice/1.scope $w2 s.slice/3.scope $w3 1.scope
	sleep 2
	check "'$gangs': a slice has its share, whatever is in it" proportion 1 3 2
	move $w1 4.scope $w2 4.scope/1.scope $w3 2.scope
	sleep 2
	check "'$gangs': a VM in a cgroup inside another VM's shares its weight" proportion 1 1 1
	move $w1 1.scope $w2 2.scope $w3 4.scope
	check "'$gangs': it ends" end
done
end_vms /tmp/stop-shares $w1 $w2 $w3

for n in a b; do
	start 4 /tmp/stop $n
	settings $vm > /tmp/before-$vm
done

# --- threads of SCHED_EXT that are no VM's want all of each CPU ---
strangers=""
for cpu in 0 1 2 3; do
	taskset $((1 << cpu)) unspin-inside ext 'while :; do :; done' &
	strangers="$strangers $!"
done
ticks() { for of; do field $of $of 12; done | tr '\n' '+' | sed 's/$/0/'; }
# They have a little while two VMs have 8 s together.
a_little() {
	before=$(($(ticks $strangers)))
	had=$(($(time_of $a) + $(time_of $b)))
	settle later $a $(($(time_of $a) + 400))
	theirs=$(($(ticks $strangers) - before))
	had=$(($(time_of $a) + $(time_of $b) - had))
	say "strangers $theirs ticks, VMs $had"
	[ $theirs -gt 0 ] && [ $((5 * theirs)) -lt $had ] || { echo "strangers $theirs ticks, VMs $had"; false; }
}
for gangs in --no-gangs "--gang pid:$a --gang pid:$b"; do
	check "'$gangs': strangers: the kernel takes it" schedule --cpus 0-3 $gangs
	check "'$gangs': strangers have a little" a_little
	check "'$gangs': strangers: it ends" end
done
kill $strangers

# --- a gang whose vCPUs may use some of the CPUs: a core each, beside a gang that wants all ---
start 2 /tmp/stop-g g
for tid in $(vcpus $g); do taskset -p c $tid > /dev/null; done
check "some CPUs: the kernel takes it" schedule --cpus 0-3 --gang pid:$a --gang pid:$g pid:$a pid:$g
check "some CPUs: threads are its" settle all_are $g $EXT
kill -STOP $b
together() {
	# shellcheck disable=SC2046 # words
	set -- $(unspin-inside places $g 400)
	say "both wanted to run, on two cores: $*"
	[ $((100 * $2)) -ge $((70 * $1)) ] || { echo "both wanted to run, on two cores: $*"; false; }
}
check "some CPUs: its vCPUs run together" together
check "some CPUs: it ends" end
# Another one that may use the same CPUs: they have turns there one after the other.
start 2 /tmp/stop-g h
for tid in $(vcpus $h); do taskset -p c $tid > /dev/null; done
check "the same CPUs: the kernel takes it" schedule --cpus 0-3 --gang pid:$g --gang pid:$h pid:$a pid:$g pid:$h
# A turn of 2 CPUs for 6 ms is 12 ms of CPU time: at least half of it is in turns.
in_turns() {
	ran_ns=$(of $1 | sed -n 's/.*"ran_ns":\([0-9]*\).*/\1/p')
	turns=$(turns_of $1)
	[ -n "$ran_ns" ] && [ -n "$turns" ] || { echo "VM $1 is not taken"; return 1; }
	ran_ms=$((ran_ns / 1000000))
	[ $ran_ms -gt 2000 ] || return 1
	[ $((24 * turns)) -ge $ran_ms ] || { echo "$turns turns in $ran_ms ms of CPU time"; false; }
}
for of in $g $h; do check "the same CPUs: both run in turns" within 60 in_turns $of; done
check "the same CPUs: it ends" end
kill -CONT $b
end_vms /tmp/stop-g $g $h
end_vms /tmp/stop $a $b

# --- a VM had more than two that wait for a single CPU, and is not kept from running once another starts ---
start 2 /tmp/stop-ahead narrow
start 1 /tmp/stop-ahead single
for of in $narrow $single; do
	for tid in $(threads $of); do taskset -p 8 $tid > /dev/null; done
done
start 3 /tmp/stop-ahead ahead
check "ahead: the kernel takes it" schedule --cpus 0-3 --no-gangs
settle later $ahead $(($(time_of $ahead) + 1500))
start 4 /tmp/stop-ahead more
check "ahead: a VM that starts later is taken" settle all_are $vm $EXT
worst=0
check "ahead: those on one CPU and the one that had more run on" nobody_waits 6 $ahead $narrow $single
say "ahead: longest time without CPU time: $worst ms"
check "ahead: it ends" end
end_vms /tmp/stop-ahead $narrow $single $ahead $vm

# --- a vCPU whose only CPU another VM wants, which is owed more for ever because it can use only that: it has its part of
# its VM's weight there ---
start 4 /tmp/stop-wide wide
mask=1
for tid in $(vcpus $wide); do
	[ $mask != 1 ] || first=$tid
	taskset -p "$(printf %x $mask)" $tid > /dev/null
	mask=$((2 * mask))
done
start 1 /tmp/stop-small small
for tid in $(threads $small); do taskset -p 1 $tid > /dev/null; done
# On the first CPU the wide VM's vCPU has at least one of so many parts, and another VM, with a CPU for each of its
# vCPUs, at least half: beside PARTS VM VCPUS.
beside() {
	mine=$(field $wide $first 12)
	theirs=$(($(time_of $2)))
	settle later $2 $((theirs + 200 * $3)) || { echo "VM $2 does not run"; return 1; }
	mine=$(($(field $wide $first 12) - mine))
	theirs=$(( ($(time_of $2) - theirs) / $3 ))
	say "ticks $mine, beside $theirs"
	[ $(($1 * mine)) -ge $((mine + theirs)) ] && [ $theirs -ge $mine ] || { echo "ticks $mine, beside $theirs"; false; }
}
# 4 vCPUs have two thirds of the weights, so each is due half as much as the other VM's.
move $wide 2.scope $small 1.scope
for gangs in --no-gangs "--gang pid:$wide"; do
	check "owed more, '$gangs': the kernel takes it" schedule --cpus 0-3 $gangs
	check "owed more, '$gangs': threads are its" settle all_are $small $EXT
	check "owed more, '$gangs': the vCPU there has its part" beside 5 $small 1
	check "owed more, '$gangs': it ends" end
done
end_vms /tmp/stop-small $small
# Beside a gang of two: 4 vCPUs have a third, so each is due a quarter as much as one of the gang's.
start 2 /tmp/stop-wide pair
mask=1
for tid in $(vcpus $pair); do
	taskset -p $mask $tid > /dev/null
	mask=$((2 * mask))
done
move $wide 1.scope $pair 2.scope
check "owed more, beside a gang: the kernel takes it" schedule --cpus 0-3 --gang pid:$pair
check "owed more, beside a gang: threads are its" settle all_are $pair $EXT
check "owed more, beside a gang: the vCPU there has its part" beside 8 $pair 2
check "owed more, beside a gang: the gang runs in turns" within 60 in_turns $pair
check "owed more, beside a gang: it ends" end
end_vms /tmp/stop-wide $wide $pair

# --- a VM that may only run on one CPU, beside a gang that ran there, and may run on the others ---
start 1 /tmp/stop-one one
for tid in $(threads $one); do taskset -p 1 $tid > /dev/null; done
start 3 /tmp/stop-one gang
for tid in $(threads $gang); do taskset -p 7 $tid > /dev/null; done
kill -STOP $one
check "one CPU: the kernel takes it" schedule --cpus 0-3 --gang pid:$gang
check "one CPU: threads are its" settle all_are $gang $EXT
go_on $gang
for tid in $(threads $gang); do taskset -p f $tid > /dev/null; done
kill -CONT $one
check "one CPU: threads are its" settle all_are $one $EXT
sleep 1
worst=0
check "one CPU: each has the CPUs that it needs" nobody_waits 4 $one $gang
say "one CPU: longest time without CPU time: $worst ms"
check "one CPU: it ends" end
end_vms /tmp/stop-one $one $gang
finish
