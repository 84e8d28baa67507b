/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs that tasks of the host use. Called by the planner of turns and at its start, "describe" by
 * any thread.
 */
#ifndef UNSPIN_HOST_TASKS_H
#define UNSPIN_HOST_TASKS_H

#include "state.h"

/* Turns begin, each about this many cycles long. */
void unspin_host_tasks_begin(u64 cycles);

/* A turn has ended. Under RCU. */
void unspin_host_tasks_judge(void);

/* The calling thread used this many cycles of its CPU; they do not count as the host's. */
void unspin_host_tasks_spare(u64 cycles);

/* Whether tasks of the host use so much of the CPU that it has no turns. */
bool unspin_host_tasks_use(u32 cpu);

/* Writes these CPUs as a list into a page. */
ssize_t unspin_host_tasks_describe(char *buf);

#endif
