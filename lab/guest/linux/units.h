/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Counts units of work in the shared area (area.h). The preloaded library uses it for unmodified
 * programs; the project's own programs include it.
 *
 * A thread has its own slot as long as there are no more threads than slots.
 */
#ifndef UNSPIN_LINUX_UNITS_H
#define UNSPIN_LINUX_UNITS_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "area.h"

/* The area is this file's, which tests make; of the computer's memory if it is not set. */
#define AREA_ENV "UNSPIN_AREA"
#define AREA_MEMORY "/dev/mem"

/* A program must not run uncounted: it ends here. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void units_refuse(const char *format, ...)
{
	char text[512];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(text, sizeof(text) - 1, format, args);
	va_end(args);
	if (length > (int)sizeof(text) - 2)
		length = sizeof(text) - 2;
	text[length] = '\n';
	/* The message's reader has other means to see that a program failed. */
	if (write(STDERR_FILENO, text, length + 1) < 0)
		_exit(1);
	_exit(1);
}

/* Map the area at any address. NULL and `errno` on failure. */
static inline struct area *area_map(const char *file)
{
	struct stat stat;
	struct area *area;
	int fd = open(file, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	if (fstat(fd, &stat) != 0 || (S_ISREG(stat.st_mode) && (size_t)stat.st_size != AREA_BYTES)) {
		close(fd);
		errno = EINVAL;
		return NULL;
	}
	area = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    S_ISREG(stat.st_mode) ? 0 : AREA_ADDR);
	close(fd);
	return area == MAP_FAILED ? NULL : area;
}

/* The area of a program that counts. Ends the program if the area is missing. */
static inline struct area *units_area(void)
{
	const char *file = getenv(AREA_ENV) ? getenv(AREA_ENV) : AREA_MEMORY;
	struct area *area = area_map(file);

	if (!area && errno == EINVAL)
		units_refuse("unspin: %s is no shared area: it must be %lu bytes long", file, AREA_BYTES);
	if (!area)
		units_refuse("unspin: the shared area in %s cannot be mapped: %s; the guest's kernel "
			     "must be started with " AREA_RESERVE, file, strerror(errno));
	if (area->guest.magic != AREA_MAGIC || area->guest.version != AREA_VERSION)
		units_refuse("unspin: %s is no shared area of version %u: its runner has not come up "
			     "(magic %#llx, version %u)", file, AREA_VERSION,
			     (unsigned long long)area->guest.magic, area->guest.version);
	return area;
}

static inline uint64_t *units_slot(struct area *area)
{
	uint32_t slot = __atomic_fetch_add(&area->next_slot, 1, __ATOMIC_RELAXED);

	return &area->slot[slot % AREA_SLOTS].units;
}

/* One unit. Another thread may count in the same slot. */
static inline void units_count(uint64_t *slot)
{
	__asm__ volatile("lock incq %0" : "+m"(*slot) : : "cc", "memory");
}

static inline uint64_t units_tsc(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static inline void units_add(uint64_t *sum, uint64_t more)
{
	__asm__ volatile("lock addq %1, %0" : "+m"(*sum) : "er"(more) : "cc", "memory");
}

/* A time, in TSC cycles. A negative time, from clocks that differ, counts as 0. */
static inline void units_respond(struct area *area, uint64_t cycles)
{
	if (cycles > (uint64_t)INT64_MAX)
		cycles = 0;
	units_add(&area->responses.hist[response_bucket(cycles)], 1);
	units_add(&area->responses.cycles, cycles);
	units_add(&area->responses.count, 1);
}

/* Runs so many threads, and never returns. A thread's argument is a number that no other of these has, from the seed. */
__attribute__((noreturn)) static inline void units_run_threads(const char *program, int threads,
							       void *(*run)(void *), const char *seed, int most)
{
	for (int i = 0; i < threads; i++) {
		uintptr_t number = strtoul(seed, NULL, 10) * most + i;
		pthread_t thread;
		int error = pthread_create(&thread, NULL, run, (void *)number);

		if (error)
			units_refuse("%s: thread %d: %s", program, i, strerror(error));
	}
	for (;;)
		pause();
}

#endif
