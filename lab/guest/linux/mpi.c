// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * mpi LIBRARY SEED, started by mpiexec: ranks of MPI that compute, add their results up, and so wait for the
 * last one. MPICH waits by polling memory that the ranks share.
 *
 * A share is about 40,000 instructions, as omp's. The handles are those of MPICH's binary interface, so that
 * its headers are not needed.
 */
#include <dlfcn.h>
#include "units.h"

#define PIECES 16
#define STEPS 500		/* per piece; about five instructions each */

#define COMM_WORLD 0x44000000
#define DOUBLE 0x4c00080b
#define SUM 0x58000003

static double piece(double x)
{
	double sum = 0;

	for (int step = 0; step < STEPS; step++) {
		x = x * 0.75 + 0.125;
		sum += x;
		__asm__ volatile("" : "+x"(sum));
	}
	return sum;
}

static void *function(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		units_refuse("the library of MPI has no %s", name);
	return found;
}

int main(int count, char **arguments)
{
	int (*init)(int *, char ***);
	int (*allreduce)(const void *, void *, int, int, int, int);
	double x, own = 0, all = 0;
	uint64_t *slot;
	void *library;

	if (count != 3)
		units_refuse("usage: mpi LIBRARY SEED");
	library = dlopen(arguments[1], RTLD_NOW);
	if (!library)
		units_refuse("%s", dlerror());
	init = function(library, "MPI_Init");
	allreduce = function(library, "MPI_Allreduce");
	if (init(&count, &arguments) != 0)
		units_refuse("MPI_Init failed");
	x = strtod(arguments[2], NULL);
	slot = units_slot(units_area());
	for (;;) {
		for (int i = 0; i < PIECES; i++) {
			own += piece(x);
			units_count(slot);
		}
		if (allreduce(&own, &all, 1, DOUBLE, SUM, COMM_WORLD) != 0)
			units_refuse("MPI_Allreduce failed");
	}
}
