/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The scheduler's settings before it is loaded, and its counts. src/shared.rs has the same. */
#ifndef UNSPIN_SCX_CONFIG_H
#define UNSPIN_SCX_CONFIG_H

#include "ending.h"

#define VCPUS_MAX 16
#define VMS_MAX 8
#define PCPUS_MAX 8

/* Whose vCPUs run together. */
#define GANG_NOBODY 0
#define GANG_NAMED 1	/* those that the scenario names, always */
#define GANG_REPORTED 2	/* those whose guests say so, for as long as they say */

struct vcpu_config {
	unsigned int tid;
	unsigned int vm;
	unsigned int pcpu;
	unsigned int pinned;
};

struct vm_config {
	unsigned int weight;
	unsigned int named;
};

struct config {
	unsigned long long slot_ns;
	unsigned long long phase_ns[PCPUS_MAX];	/* how long each pCPU's first slot is */
	unsigned int gang;
	unsigned int vcpu_count, vm_count, pcpu_count;
	unsigned int capped;	/* no VM gets more than its weight's share */
	unsigned int slots_per_assignment;	/* credits are handed out after as many slots */
	struct vm_config vms[VMS_MAX];
	struct vcpu_config vcpus[VCPUS_MAX];
};

struct report {
	unsigned long long picks;	/* decisions for a pCPU */
	unsigned long long switches;	/* switches to another vCPU */
	unsigned long long gangs;	/* choices that raised siblings */
	unsigned long long reports;	/* of guests that want to run together */
	unsigned long long lost_locks;
	unsigned long long run_ns[VMS_MAX];
	struct ending ending;
};

#endif
