// SPDX-License-Identifier: GPL-2.0-only OR MIT
#define POLICY "gang.c"
#include "program.h"

#define VMS 4
#define VCPUS 8
#define CPUS 4

struct {
	struct gang_vm vms[VMS];
	struct gang_vcpu vcpus[VCPUS];
	struct gang_cpu cpus[CPUS];
	pol_u64 clamp;
	pol_u32 turn;
	pol_u32 vm, cpu, filler;
	pol_u8 may_run, turns;
} io;

/* The verifier follows pointers in memory on the stack only. */
#define HOST { io.vms, io.vcpus, io.cpus, VMS, VCPUS, CPUS, io.turn }

PROGRAM(account)
{
	struct gang_host host = HOST;

	gang_account(&host, io.clamp);
	return 0;
}

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
	struct gang_host host = HOST;

	io.filler = gang_fill(&host, io.cpu);
	return 0;
}
