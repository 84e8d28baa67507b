/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The work of omp and mpi: a thread's or rank's share is about 40,000 instructions, 0.2 ms at 200 MHz. One unit is
 * one of its 16 pieces, so that short measurements have enough of them.
 */
#ifndef UNSPIN_LINUX_PIECE_H
#define UNSPIN_LINUX_PIECE_H

#define PIECES 16
#define STEPS 500		/* per piece; about five instructions each */

static inline double piece(double x)
{
	double sum = 0;

	for (int step = 0; step < STEPS; step++) {
		x = x * 0.75 + 0.125;
		sum += x;
		__asm__ volatile("" : "+x"(sum));
	}
	return sum;
}

#endif
