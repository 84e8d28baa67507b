// SPDX-License-Identifier: GPL-2.0-only
/*
 * vmm VMS VCPUS CRITICAL THINK MILLISECONDS [CPU]: that many VMs with one ticket
 * lock each, run for that long. CPU: where the last vCPU of each VM is pinned.
 * Prints "ops N", the lock acquisitions of all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define VMS_MAX 64
#define VCPUS_MAX 128
#define MEMORY 0x10000
#define CODE 0x1000
#define COUNTS 0x3000
#define COUNT_STEP 64

extern const uint8_t guest_start[], guest_end[];

struct vcpu {
	int vm, index, pin;
};

static int run_size, critical, think;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void *vcpu_run(void *arg)
{
	struct vcpu *vcpu = arg;
	struct kvm_regs regs = { .rip = CODE, .rflags = 0x202, .rsp = 0x8000 };
	struct kvm_sregs sregs;
	struct kvm_run *run;
	cpu_set_t cpus;
	int fd;

	if (vcpu->pin >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET(vcpu->pin, &cpus);
		sched_setaffinity(0, sizeof(cpus), &cpus);
	}
	fd = ioctl(vcpu->vm, KVM_CREATE_VCPU, vcpu->index);
	if (fd < 0)
		die("KVM_CREATE_VCPU");
	run = mmap(NULL, run_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ioctl(fd, KVM_GET_SREGS, &sregs);
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	ioctl(fd, KVM_SET_SREGS, &sregs);
	regs.rsi = critical;
	regs.rdi = think;
	regs.rbp = COUNTS + COUNT_STEP * vcpu->index;
	ioctl(fd, KVM_SET_REGS, &regs);
	while (ioctl(fd, KVM_RUN, 0) < 0)
		;
	fprintf(stderr, "vCPU %d left with exit reason %u\n", vcpu->index, run->exit_reason);
	exit(1);
}

int main(int argc, char **argv)
{
	struct kvm_userspace_memory_region region = { .memory_size = MEMORY };
	int kvm, vms, vcpus, ms, pin, vm, v, i;
	uint8_t *memory[VMS_MAX];
	uint64_t ops = 0;
	pthread_t thread;

	if (argc < 6)
		return 2;
	vms = atoi(argv[1]);
	vcpus = atoi(argv[2]);
	critical = atoi(argv[3]);
	think = atoi(argv[4]);
	ms = atoi(argv[5]);
	pin = argc > 6 ? atoi(argv[6]) : -1;
	if (vms > VMS_MAX || vcpus > VCPUS_MAX)
		return 2;
	kvm = open("/dev/kvm", O_RDWR);
	if (kvm < 0)
		die("/dev/kvm");
	run_size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	for (v = 0; v < vms; v++) {
		vm = ioctl(kvm, KVM_CREATE_VM, 0);
		if (vm < 0)
			die("KVM_CREATE_VM");
		memory[v] = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		memcpy(memory[v] + CODE, guest_start, guest_end - guest_start);
		region.userspace_addr = (uintptr_t)memory[v];
		if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region))
			die("KVM_SET_USER_MEMORY_REGION");
		for (i = 0; i < vcpus; i++) {
			struct vcpu *vcpu = malloc(sizeof(*vcpu));

			*vcpu = (struct vcpu){ vm, i, i == vcpus - 1 ? pin : -1 };
			if (pthread_create(&thread, NULL, vcpu_run, vcpu))
				die("thread");
		}
	}
	usleep(ms * 1000);
	for (v = 0; v < vms; v++)
		for (i = 0; i < vcpus; i++)
			ops += *(volatile uint32_t *)(memory[v] + COUNTS + COUNT_STEP * i);
	printf("ops %llu\n", (unsigned long long)ops);
	fflush(stdout);
	_exit(ops ? 0 : 1);
}
