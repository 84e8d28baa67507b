/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the command sets, and what it reads. src/shared.rs has the same. */
#ifndef UNSPIN_SCHEDULE_SHARED_H
#define UNSPIN_SCHEDULE_SHARED_H

#include "ending.h"
#include "decide.h"

#define VMS_MAX 64
#define STRANGERS 0	/* the number of all threads of SCHED_EXT that are no VM's, as if they were a VM */
#define UNITS 64	/* of a VM: vCPUs by their numbers, and all its other threads as one */
#define OTHERS 63	/* the unit of the other threads */
#define CPUS_MAX 512
#define THREADS_MAX 8192
#define WEIGHT_USUAL 10000	/* of a VM whose share is that of the average VM */

/* Whether a VM's vCPUs run together. */
#define GANG_NEVER 0
#define GANG_AUTO 1	/* while they spin, as pause-loop exits show */
#define GANG_ALWAYS 2
/* Others: it spins in user space for now, as the command says. */

/* Before it is loaded. */
struct config {
	unsigned long long turn_ns;	/* how long a gang runs */
	unsigned long long cpu_count;
	unsigned short cpus[CPUS_MAX];	/* its CPUs; the others are the kernel's alone. The best come first */
	unsigned short places[CPUS_MAX];	/* by CPU: CPUs of one number are one cache's whole cores, or its second threads */
};

/* Of a VM; the command may change it at any time. */
struct setting {
	unsigned int weight;	/* 0: no VM has this number */
	unsigned int gang;
	unsigned int vcpus;	/* its units below this number are vCPUs */
};

struct settings {
	unsigned int count;	/* VMs have numbers below it */
	struct setting vms[VMS_MAX];
	unsigned char left[CPUS_MAX];	/* it has left this CPU to tasks of the host */
};

struct vm_report {
	unsigned long long ran_ns;	/* CPU time of all its threads */
	unsigned long long filled_ns;	/* of that, in holes, which it does not pay for */
	unsigned long long waited_ns;	/* how long its vCPUs were ready without a CPU */
	unsigned long long spins;	/* pause-loop exits */
	unsigned long long gangs;	/* turns in which its vCPUs ran together */
};

struct report {
	struct vm_report vms[VMS_MAX];
	unsigned long long turns;	/* turns of gangs */
	unsigned long long returned;	/* holes given back to a vCPU that woke up */
	unsigned long long yields;	/* CPUs that a vCPU which spun gave to a sibling */
	unsigned long long gave_way;	/* CPUs that it left to others: too few siblings ran */
	unsigned long long pushed;	/* times that a task of a higher class took a CPU from a thread */
	unsigned long long host_ns[CPUS_MAX];	/* time of tasks of the host, by CPU */
	struct ending ending;
};

/* The kinds of decisions in a trace. */
#define DECIDES_NEXT 1	/* which unit runs next on a CPU */
#define DECIDES_TURN 2	/* which VM is next in a plan */
#define DECIDES_YIELD 3	/* which vCPU gets a CPU from a sibling that spins */

/* What the VM that is next in a plan gets. */
#define TURN_HOLDS 0	/* it is not a gang: CPUs are kept free for those of its vCPUs that may use only some */
#define TURN_BEGINS 1
#define TURN_WAITS 2	/* fewer CPUs remain than it has ready vCPUs */
#define TURN_APART 3	/* its vCPUs cannot run together on those that remain */

#define TRACE_BYTES (8 << 20)

/* A decision and its input. src/trace.rs has the same offsets. */
struct decision {
	unsigned long long at_ns;	/* CLOCK_MONOTONIC */
	unsigned long long beside;	/* NEXT: vnow. TURN: how many CPUs it needs. YIELD: excluded vCPUs */
	unsigned int kind;
	unsigned int at;	/* the CPU; TURN: how many CPUs remain */
	unsigned int who;	/* NEXT: the unit that ran there, or NOBODY. TURN: TURN_*. YIELD: the unit that spins */
	unsigned int answer;	/* NEXT: a unit. TURN: a VM. YIELD: as hvs_pick() returns it */
	unsigned int count;	/* of the wishes or slots that follow */
	unsigned int flags;	/* YIELD: of hvs_pick() */
	union {
		struct wish wishes[VMS_MAX];
		unsigned char slots[UNITS][16];	/* YIELD: struct hvs_slot */
	};
};

#define DECISION_HEAD 40

_Static_assert(sizeof(struct decision) == DECISION_HEAD + VMS_MAX * sizeof(struct wish), "entries follow the head");

#endif
