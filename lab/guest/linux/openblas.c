// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * openblas LIBRARY SEED: multiplies matrices of 96 x 96 one after the other, as numpy's dot does. OpenBLAS
 * divides each product among its threads, and its threads poll between two products.
 */
#include "library.h"

#define SIZE 96

static double left[SIZE * SIZE], right[SIZE * SIZE], product[SIZE * SIZE];

typedef void multiply_t(const char *, const char *, const int *, const int *, const int *, const double *,
			const double *, const int *, const double *, const int *, const double *, double *,
			const int *);

int main(int count, char **arguments)
{
	const int size = SIZE;
	const double one = 1, zero = 0;
	multiply_t *multiply;
	uint64_t *slot;

	if (count != 3)
		units_refuse("usage: openblas LIBRARY SEED");
	/* Fortran's interface. */
	multiply = library_function(arguments[1], "dgemm_");
	srand48(strtol(arguments[2], NULL, 10));
	for (int i = 0; i < SIZE * SIZE; i++) {
		left[i] = drand48();
		right[i] = drand48();
	}
	slot = units_slot(units_area());
	for (;;) {
		multiply("N", "N", &size, &size, &size, &one, left, &size, right, &size, &zero, product, &size);
		units_count(slot);
	}
}
