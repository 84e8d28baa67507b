/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The records of the programs. src/layout.rs has the structures for user space. */
#ifndef UNSPIN_PROBE_KEPT_H
#define UNSPIN_PROBE_KEPT_H

#include "kernel.h"
#include "states.h"
#include "ready.h"

enum {
	CPUS_MAX = 1024,
	VMS_MAX = 2048,
	/* Pairs of a VM and a process that had its CPUs. */
	TAKERS_MAX = 16384,
	/* A default; user space sets the actual value. */
	VCPUS_MAX = 1024,
	/* The slot of a thread that is not watched. */
	NO_SLOT = 0,
	ISA_VMX = 1,
	/*
	 * Number of entries of a vCPU's times, a power of 2, so that a mask keeps an index within
	 * them.
	 */
	TIMES = 32,
	/*
	 * On a CPU since an exit for HLT. The end of this time shows whether it was polling or
	 * exit.
	 */
	PENDING = TIMES - 1,
	/* On a CPU since it is watched, without any event: the state stays unknown. */
	UNSEEN = TIMES - 2,
	/* Value of `wants`: no longer watched. */
	GONE = 2,
	/* Number of places in `places`. */
	PLACES = 16384,
	HYPERCALL_SEND_IPI = 10, /* KVM_HC_SEND_IPI */
	X2APIC_FIRST = 0x800,
	X2APIC_LAST = 0x8ff,
	/* Limit of ports, registers and pages of a VM that are distinguished. */
	ACCESSES_OF_VM = 512,
	ACCESSES_MAX = 32768,
	APIC_PAGE = 0xfee00000, /* the default page of the interrupt controller */
};

/* Whose task a CPU runs. */
enum kind { IDLE, HOST, VCPU, VMM, KINDS };

/* A CPU. Only its own switches, entries and exits write to it; they cannot be preempted. */
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

/* By what a wait for a CPU is split: how long each of these has had the CPU, in ns. */
struct sums {
	__u64 sibling, own_vmm, vm, host;
};

/* Where a vCPU's thread is. */
enum place { ON, READY, ASLEEP };

_Static_assert(STATES <= UNSEEN, "UNSEEN is a state");

/* The purpose of an exit. */
enum access_kind { NO_ACCESS, PORT, MSR, MMIO };

/* A vCPU. Times are of CLOCK_MONOTONIC, in ns. */
struct vcpu {
	__u64 ended;	/* number of finished changes; first, so that it is read first */
	__u64 since;	/* time before this is counted */
	__u64 woken_at;	/* the last time that its thread was woken */
	__u32 vm;
	__u32 place;
	/* The state of its present or last time on a CPU; may be PENDING or UNSEEN. */
	__u32 counts;
	__u32 reason;	/* the state of its last exit */
	__u32 asleep;	/* the state of its sleep */
	__u32 cpu;	/* where it waits */
	struct sums before; /* when the wait began */
	__u64 cfs_rq, throttled; /* the queue it waits in, and for how long that had been throttled */
	__u64 exit_at;
	__u64 pending_asleep; /* pending time before the sleep; -1: it has not slept */
	/* Notes. */
	__u64 vmm_at;	/* the way to user space began */
	__u64 halt_began, halt_ended; /* KVM's halting, polling included */
	__u64 time[TIMES];  /* in each state */
	__u64 exits[TIMES]; /* how many of each kind */
	__u64 switches, wakes;
	__u64 number;	/* of its VM's, below 64; 64: it is in no mask */
	__u64 wakers, wakers_before; /* bit i: number i woke it since wakers_at, and in such a time before */
	__u64 wakers_at;
	__u64 costop; /* for how long it was ready while a sibling had a CPU, in ns */
	__u64 ran_before; /* for how long siblings had one when its wait began, or NO_WAIT */
	/* Where `detailed`. */
	__u64 wants;	/* 1: it wants a CPU, which a vCPU that polls after HLT does not; GONE */
	__u64 served;	/* for how long it had a CPU since its exit, before it last left one */
	__u64 access;	/* what its exit is for */
	__u64 address;	/* of the port, the register or the page */
	__u64 unused[2]; /* the next vCPU begins a cache line */
	__u64 begun;	/* number of started changes; last. If it equals `ended`, the copy is consistent */
};

/* Records that different CPUs write are in different cache lines. */
_Static_assert(sizeof(struct cpu) % 64 == 0 && sizeof(struct vcpu) % 64 == 0 &&
		       sizeof(struct runs) % 64 == 0 && sizeof(struct together) % 64 == 0,
	       "a cache line of two");

/* The first thread in a place. */
struct thread {
	__u32 tid; /* 0: none */
	__u32 slot;
	__u32 others; /* other threads in this place; they are in `slots` */
	__u32 vms;    /* processes of VMs whose ids have this place: they are in `vms` */
};

#define MAP(name, kind, entries, index, entry)			\
	struct {						\
		__uint(type, kind);				\
		__uint(max_entries, entries);			\
		__type(key, index);				\
		__type(value, entry);				\
	} name SEC(".maps")

/* An array that user space reads without a system call. */
#define MAPPED(name, entries, entry)				\
	struct {						\
		__uint(type, BPF_MAP_TYPE_ARRAY);		\
		__uint(map_flags, BPF_F_MMAPABLE);		\
		__uint(max_entries, entries);			\
		__type(key, __u32);				\
		__type(value, entry);				\
	} name SEC(".maps")

/* Finding a thread here takes a few instructions, in a hash a hundred. */
MAP(places, BPF_MAP_TYPE_ARRAY, PLACES, __u32, struct thread); /* by thread id % PLACES */
MAP(slots, BPF_MAP_TYPE_HASH, VCPUS_MAX, __u32, __u32); /* by thread id */

/* An array, because finding an entry of it takes a few instructions. */
MAPPED(vcpus, VCPUS_MAX, struct vcpu); /* by slot */
MAP(vms, BPF_MAP_TYPE_HASH, VMS_MAX, __u32, __u32); /* numbers of VMs by process id */
MAPPED(cpus, CPUS_MAX, struct cpu);
MAPPED(shares, VMS_MAX, struct share); /* by CPU * VMS_MAX + VM; user space sets its size */
MAPPED(together, VMS_MAX, struct together); /* by VM */

/* A VM. All CPUs write. */
struct vm {
	__u64 lost;	/* if `naming`: how long its vCPUs waited for unknown processes, in ns */
	/* Where `detailed`. */
	__u64 wanting;	/* how many of its vCPUs want a CPU */
	__u64 accesses;	/* entries that it has in `accesses` */
	__u64 accesses_lost; /* how many found no room there */
	__u64 time[WANTING_MAX + 1]; /* for how long 0, 1, 2, ... wanted one: sums */
	__u64 unused[3]; /* the next VM begins a cache line */
};

MAPPED(runs, CPUS_MAX, struct runs);

/* A process that had a CPU for which a vCPU of that VM waited. */
struct taker {
	__u32 vm, tgid;
};

struct taken {
	__u64 time; /* in ns */
	__u64 command[2];
};

/* Times without room for an entry are in `lost` of the VM. */
MAP(takers, BPF_MAP_TYPE_HASH, TAKERS_MAX, struct taker, struct taken);
MAPPED(vm_sums, VMS_MAX, struct vm); /* by VM */

/* An emulated access of a guest. */
struct access_key {
	__u32 vm, kind;
	__u64 address; /* OTHERS: of those that are not told apart */
};

#define OTHERS (-1ULL)

struct access {
	__u64 count;
	__u64 ns;     /* on a CPU, from the exit to the entry after it */
	__u64 visits; /* how many of them went to the VMM */
};
MAP(accesses, BPF_MAP_TYPE_HASH, ACCESSES_MAX, struct access_key, struct access);

/*
 * Set by user space before the programs are loaded: count the processes that had the CPUs for which
 * vCPUs waited.
 */
const volatile __u32 naming SEC(".rodata.naming");

/* Also set before loading: count what detail.h is for. */
const volatile __u32 detailed SEC(".rodata.detailed");

/* Written by user space at any time. */
struct {
	__u64 registrations; /* how often threads were entered */
	__u64 may_park;	     /* whether vCPUs may sleep for a turn of another VM */
	__u64 wakers_ns;     /* how long wakers are kept; 0: not at all */
} settings;

#endif
