// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * lu: the waits of NAS's LU with OpenMP, which solves a system on a cube by symmetric successive
 * over-relaxation. Each iteration computes the residual, then sweeps up and down the cube. In a sweep a
 * thread has a range of rows in every plane, and begins a plane when the thread before it has done its
 * rows there: it spins on a flag, as LU does. Other waits are barriers and a reduction, and are libgomp's.
 *
 * A unit is a thread's rows of one plane.
 */
#include <omp.h>
#include "units.h"

#define N 32
#define THREADS_MAX 32

static double u[N][N][N], residual[N][N][N];
/* The planes that each thread has finished in this sweep, in its own cache line. */
static struct {
	int planes;
} __attribute__((aligned(64))) done[THREADS_MAX];

static void wait_for(int thread, int planes)
{
	while (__atomic_load_n(&done[thread].planes, __ATOMIC_ACQUIRE) < planes)
		;
}

static double relaxed(int i, int j, int k)
{
	return u[i - 1][j][k] + u[i + 1][j][k] + u[i][j - 1][k] + u[i][j + 1][k] + u[i][j][k - 1] +
	       u[i][j][k + 1];
}

/* The residual in rows `first` to `end` of all planes; its square's sum. */
static double residual_of(int first, int end)
{
	double sum = 0;

	for (int i = 1; i < N - 1; i++) {
		for (int j = first; j < end; j++) {
			for (int k = 1; k < N - 1; k++) {
				residual[i][j][k] = 1 + relaxed(i, j, k) - 6 * u[i][j][k];
				sum += residual[i][j][k] * residual[i][j][k];
			}
		}
	}
	return sum;
}

static void plane(int i, int first, int end)
{
	for (int j = first; j < end; j++)
		for (int k = 1; k < N - 1; k++)
			u[i][j][k] += 1.2 / 6 * (1 + relaxed(i, j, k) - 6 * u[i][j][k]);
}

/* All planes, upwards or downwards. Rows are handed from thread to thread in the same order. */
static void sweep(int up, int me, int threads, int first, int end, uint64_t *slot)
{
	int before = up ? me - 1 : me + 1;

	for (int n = 1; n < N - 1; n++) {
		if (before >= 0 && before < threads)
			wait_for(before, n);
		plane(up ? n : N - 1 - n, first, end);
		__atomic_store_n(&done[me].planes, n, __ATOMIC_RELEASE);
		units_count(slot);
	}
#pragma omp barrier
	done[me].planes = 0;
#pragma omp barrier
}

int main(void)
{
	struct area *area = units_area();
	double norm = 0;

	if (omp_get_max_threads() > THREADS_MAX)
		units_refuse("lu: at most %d threads", THREADS_MAX);
#pragma omp parallel
	{
		int me = omp_get_thread_num(), threads = omp_get_num_threads();
		int first = 1 + (N - 2) * me / threads, end = 1 + (N - 2) * (me + 1) / threads;
		uint64_t *slot = units_slot(area);

		for (;;) {
#pragma omp single
			norm = 0;
#pragma omp for reduction(+ : norm)
			for (int t = 0; t < threads; t++)
				norm += residual_of(1 + (N - 2) * t / threads,
						    1 + (N - 2) * (t + 1) / threads);
			sweep(1, me, threads, first, end, slot);
			sweep(0, me, threads, first, end, slot);
		}
	}
}
