// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * mapper THREADS SEED: threads that map 16 KiB, touch every page, compute a little in it and unmap it,
 * over and over. They share one address space, so that every mapping takes its lock for writing and
 * every unmapping has the translations of all vCPUs flushed.
 *
 * It notes how long each unmapping takes: all vCPUs that run have to answer, or to be seen not to run.
 *
 * ebizzy.c maps more at a time, and copies and searches instead of computing. One unit is one mapping.
 */
#include "units.h"

#define BYTES 16384
#define PAGE 4096
#define STEPS 200		/* of computing, per mapping */
#define THREADS_MAX 256

static struct area *area;

static void *map_and_unmap(void *seed)
{
	uint64_t *slot = units_slot(area);
	uint32_t state = (uint32_t)(uintptr_t)seed;

	for (;;) {
		volatile unsigned char *chunk = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
						     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (chunk == MAP_FAILED)
			units_refuse("mapper: mmap: %s", strerror(errno));
		for (int at = 0; at < BYTES; at += PAGE)
			chunk[at] = 1;
		for (int step = 0; step < STEPS; step++) {
			state = state * 1103515245u + 12345u;
			chunk[state % BYTES]++;
		}
		uint64_t begin = units_tsc();
		munmap((void *)chunk, BYTES);
		units_respond(area, units_tsc() - begin);
		units_count(slot);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	int threads = count == 3 ? atoi(arguments[1]) : 0;

	if (threads < 1 || threads > THREADS_MAX)
		units_refuse("usage: mapper THREADS SEED, with 1 to %d threads", THREADS_MAX);
	area = units_area();
	units_run_threads("mapper", threads, map_and_unmap, arguments[2], THREADS_MAX);
}
