#!/bin/sh
# First process of an emulated computer: load KVM and the module, run the plan, report, power off.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/shm && mount -t tmpfs -o size=100% tmpfs /dev/shm
echo 1 > /proc/sys/kernel/printk
echo "lab: init on $(uname -r)"
insmod /modules/irqbypass.ko && insmod /modules/kvm.ko || echo "lab: kvm did not load"
if grep -q ' svm' /proc/cpuinfo; then vendor=kvm-amd; else vendor=kvm-intel; fi
# Kernels for any PC build it with AMD's secure processor.
if [ $vendor = kvm-amd ] && [ -e /modules/ccp.ko ]; then
	insmod /modules/ccp.ko || echo "lab: ccp did not load"
fi
insmod /modules/$vendor.ko || echo "lab: $vendor did not load"
# shellcheck source=/dev/null
. /lab-init
