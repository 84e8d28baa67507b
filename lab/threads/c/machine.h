/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A VM of machine `threads`: what machine.c and lab/threads/src/vm.rs share. A VM's vCPUs are
 * threads of the caller, each of which calls run() once; the caller reads counters, and stops all.
 */
#ifndef UNSPIN_THREADS_MACHINE_H
#define UNSPIN_THREADS_MACHINE_H

#include "../../guest/abi.h"
#include "../../guest/types.h"

struct threads_config {
	u32 vcpus;			/* 1 to GUEST_VCPUS_MAX */
	u32 steps_count;		/* 1 to GUEST_STEPS_MAX */
	u64 seed;			/* seed of this VM; a vCPU mixes in its index */
	u64 tau_ns;			/* of the preemptable locks */
	struct guest_step steps[GUEST_STEPS_MAX];
};

struct threads_vm;

/* Memory for a VM, every lock free; NULL without it. */
struct threads_vm *MACHINE(new)(const struct threads_config *config);

/* Runs the program over and over as vCPU @index until the VM is stopped. */
void MACHINE(run)(struct threads_vm *vm, u32 index);

/* Ends every wait but those for locks, which their holders end. Returns at once. */
void MACHINE(stop)(struct threads_vm *vm);

/* Written by the vCPU's thread with plain stores; may be read at any time. */
struct guest_counters *MACHINE(counters)(struct threads_vm *vm, u32 index);

/*
 * Once every run() has returned: 1 if each critical section was alone and each lock is free again, else
 * 0. Gives the memory back.
 */
int MACHINE(free)(struct threads_vm *vm);

#endif
