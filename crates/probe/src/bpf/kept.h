/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the programs keep. src/layout.rs has the structures for user space. */
#ifndef UNSPIN_PROBE_KEPT_H
#define UNSPIN_PROBE_KEPT_H

#include "kernel.h"
#include "states.h"

enum {
	CPUS_MAX = 1024,
	VMS_MAX = 512,
	/* A default; user space sets what it needs. */
	VCPUS_MAX = 1024,
	/* Of a thread that is not watched. */
	NO_SLOT = 0,
	ISA_VMX = 1,
	ISA_SVM = 2,
	HYPERCALL_SEND_IPI = 10, /* KVM_HC_SEND_IPI */
	X2APIC_FIRST = 0x800,
	X2APIC_LAST = 0x8ff,
};

/* Whose task a CPU runs. */
enum kind { IDLE, HOST, VCPU, VMM, KINDS };

/* A CPU; only its own switches write. */
struct cpu {
	__u64 since; /* when the task that runs was switched in */
	__u32 kind;  /* of it */
	__u32 vm;    /* the number of its VM */
	__u64 registrations; /* that were known when it was looked at */
	__u64 had[KINDS]; /* for how long tasks of each kind had the CPU, in ns */
	__u64 slot; /* of the vCPU that runs, or NO_SLOT */
};

/* How long a VM's vCPUs and its VMM's other threads had a CPU, in ns. */
struct share {
	__u64 vcpus, vmm;
};

/* What a wait for a CPU is split by: sums of the CPU when it began. */
struct before {
	__u64 vcpus, vmm, host, own_vcpus, own_vmm;
};

/* Where a vCPU's thread is. */
enum place { ON, READY, ASLEEP };
/* What it does there, or did when it was last there. */
enum phase { IN_GUEST, IN_EXIT, WAKING, IN_VMM };

/* A vCPU. Times are of CLOCK_MONOTONIC, in ns. */
struct vcpu {
	__u64 ended;	/* changes that have ended: first, so that it is read first */
	__u64 since;	/* all before is counted */
	__u64 woken_at;	/* the last time that its thread was woken */
	__u32 vm;
	__u32 place, phase;
	__u32 reason;	/* the state of its last exit */
	__u32 asleep;	/* the state of its sleep */
	__u32 cpu;	/* where it waits */
	struct before before;
	__u64 cfs_rq, throttled; /* the queue it waits in, and for how long that had been throttled */
	__u64 exit_at;
	__u64 pending;	/* since the exit for HLT, on a CPU: poll or exit, which its end says */
	__u64 pending_asleep; /* of it, before the sleep; -1: it has not slept */
	/* Notes. */
	__u64 vmm_at;	/* the way to user space began */
	__u64 halt_began, halt_ended; /* KVM's halting, polling included */
	__u64 time[STATES];
	__u64 exits[STATES]; /* how many of each kind */
	__u64 switches, wakes;
	__u64 begun;	/* changes that have begun: last; as many where what was read is of one time */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, VCPUS_MAX);
	__type(key, __u32); /* thread id */
	__type(value, __u32); /* its slot */
} slots SEC(".maps");

/* An array: to find an entry of it takes a few instructions. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VCPUS_MAX);
	__type(key, __u32); /* slot */
	__type(value, struct vcpu);
} vcpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, VMS_MAX);
	__type(key, __u32); /* process id */
	__type(value, __u32);
} vms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS_MAX);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VMS_MAX); /* times the number of CPUs */
	__type(key, __u32); /* CPU * VMS_MAX + VM */
	__type(value, struct share);
} shares SEC(".maps");

/* Written by user space. */
struct {
	__u64 registrations; /* how often threads were entered */
	__u64 may_park;	     /* whether vCPUs may sleep for a turn of another VM */
} settings;

#endif
