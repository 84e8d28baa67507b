// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "gang_turn.c"
#include "program.h"

#define VMS 4
#define VCPUS 8
#define CPUS 4

struct {
	struct gang_vm vms[VMS];
	struct gang_vcpu vcpus[VCPUS];
	struct gang_cpu cpus[CPUS];
	pol_u32 order[VMS];
	pol_u64 free[GANG_WORDS(CPUS)];
	struct gang_filler candidates[GANG_FILLERS_MAX];
	struct gang_pool pools[GANG_POOLS_MAX];
	pol_u32 turn;
	pol_u32 vm, cpu, filler;
	pol_u8 may_run, turns;
} io;

/* The verifier follows pointers in memory on the stack only. */
#define HOST { io.vms, io.vcpus, io.cpus, io.order, io.free, io.pools, VMS, VCPUS, CPUS, io.turn, 0, 0 }

PROGRAM(turn)
{
	struct gang_host host = HOST;
	pol_u32 i;

	for (i = 0; i < VCPUS; i++)
		io.vcpus[i].allowed = (void *)0;
	io.turns = gang_turn(&host);
	io.turn = host.turn;
	return 0;
}

PROGRAM(may_run)
{
	struct gang_host host = HOST;

	io.may_run = gang_may_run(&host, io.vm, io.cpu);
	return 0;
}

PROGRAM(fill)
{
	io.filler = gang_fill(io.candidates, GANG_FILLERS_MAX);
	return 0;
}
