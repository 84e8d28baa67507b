// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * mpi LIBRARY SEED, started by mpiexec: ranks of MPI that compute, add their results up, and so wait for the
 * last one. MPICH waits by polling memory that the ranks share.
 */
#include "library.h"
#include "piece.h"

/* Handles of MPICH's binary interface. */
#define COMM_WORLD 0x44000000
#define DOUBLE 0x4c00080b
#define SUM 0x58000003

int main(int count, char **arguments)
{
	int (*init)(int *, char ***);
	int (*allreduce)(const void *, void *, int, int, int, int);
	double x, own = 0, all = 0;
	uint64_t *slot;

	if (count != 3)
		units_refuse("usage: mpi LIBRARY SEED");
	init = library_function(arguments[1], "MPI_Init");
	allreduce = library_function(arguments[1], "MPI_Allreduce");
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
