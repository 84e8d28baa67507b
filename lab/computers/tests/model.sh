# unspin-lab model --record: VMs of 4 vCPUs on 4 CPUs, one after the other. An iteration is 2 instructions, so
# 100,000 take a millisecond. Sourced after inside.sh.
P=/tmp/profile.toml
fails() { code=$1; shift; "$@"; [ $? = "$code" ]; }
said() { grep -q "$1" /tmp/said || { cat /tmp/said; false; }; }
vcpus() { [ "$(grep -l 'CPU ./KVM' /proc/$vm/task/*/comm | wc -l)" = 4 ]; }
record() {
	unspin-lab model --record pid:$vm --for 1 -o $P > /tmp/said 2>&1 || { cat /tmp/said; false; }
}
# The type, and what all compute together, and one of them alone.
is_type() {
	rm -f /tmp/stop $P
	unspin-inside fork-join 4 $2 $3 --until /tmp/stop > /tmp/vm &
	vm=$!
	settle vcpus
	sleep 0.2
	check "type $1 is recorded" record
	while read -r line; do say "type $1: $line"; done < /tmp/said
	check "and named" said "^type $1: "
	check "what it recorded is a profile" unspin-lab model $P
	touch /tmp/stop
	check "the VM worked: type $1" wait $vm
}
check "without a VM it says so" fails 1 unspin-lab model --record web1
is_type 1 2000000 100000
is_type 2 30000 60000
check "who works alone is always the same" said "mostly the same one"
is_type 3 100000 3000
is_type 4 1300000 2400000
