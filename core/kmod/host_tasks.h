/* SPDX-License-Identifier: GPL-2.0-only */
/* CPUs that tasks of the host use. All but describe: the planner of turns, or before it starts. */
#ifndef UNSPIN_HOST_TASKS_H
#define UNSPIN_HOST_TASKS_H

#include "state.h"

/* Turns begin, of about so many cycles each. */
void unspin_host_tasks_begin(u64 cycles);

/* A turn has ended. Under RCU. */
void unspin_host_tasks_judge(void);

/* This thread used so many cycles of its CPU, which do not count as host tasks'. */
void unspin_host_tasks_spare(u64 cycles);

/* Tasks of the host take so much of the CPU that it has no turns. */
bool unspin_host_tasks_use(u32 cpu);

/* Those CPUs as a list, into a page. */
ssize_t unspin_host_tasks_describe(char *buf);

#endif
