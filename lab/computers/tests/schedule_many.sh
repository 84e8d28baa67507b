# unspin schedule on more CPUs than the verifier follows one by one. Sourced after inside.sh and ext.sh.
mkdir -p /run
start 4 /tmp/stop a
settings $a > /tmp/before-$a
check "the kernel takes the scheduler" schedule --cpus 0-39
check "threads are its" settle all_are $a $EXT
check "the VM runs" go_on $a
check "it ends" end
check "threads are as before" settle as_before $a
end_vms /tmp/stop $a
finish
