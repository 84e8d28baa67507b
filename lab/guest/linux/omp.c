// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * omp SEED: an OpenMP program that forks and joins: every thread computes its share of a region, and all
 * wait for the last one. How they wait is libgomp's: OMP_WAIT_POLICY.
 */
#include <omp.h>
#include "piece.h"
#include "units.h"

#define THREADS_MAX 256

/* The data of a thread, in its own cache line. */
static struct share {
	uint64_t *slot;
	double sum;
} __attribute__((aligned(64))) shares[THREADS_MAX];

int main(int count, char **arguments)
{
	struct area *area;
	double seed = count == 2 ? strtod(arguments[1], NULL) : 0;

	if (count != 2 || omp_get_max_threads() > THREADS_MAX)
		units_refuse("usage: omp SEED, with at most %d threads", THREADS_MAX);
	area = units_area();
	for (;;) {
#pragma omp parallel
		{
			int me = omp_get_thread_num();

			if (!shares[me].slot)
				shares[me].slot = units_slot(area);
			for (int i = 0; i < PIECES; i++) {
				shares[me].sum += piece(seed + me);
				units_count(shares[me].slot);
			}
		}
	}
}
