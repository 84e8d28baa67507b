// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * causes KIND THREADS: threads, each on a CPU of its own, that lose time to one cause, or to none.
 *
 * compute	they compute, and never wait
 * spin		they take turns at one pthread_spin_lock(), and spin in user space for it
 * write	they write to one file of memory, and spin in the kernel for its lock
 * membarrier	they compute, and the first one interrupts the others again and again, by membarrier()
 * mprotect	they compute, and the first one has the others forget a page's translation, by mprotect()
 * ping-pong	pairs pass a byte to and fro through pipes; whoever waits for it sleeps
 *
 * One unit is 2,000 steps of computing: alone, inside the lock, or by whoever has the byte. Of "write" it is
 * 16 KiB written.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include "units.h"

#define STEPS 2000
#define BYTES 16384
#define PAGE 4096
#define THREADS_MAX 256

static struct area *area;
static pthread_spinlock_t lock;
static volatile char *page;
/* All threads write to it. */
static int file;
/* [i]: thread i reads from it. */
static int pipes[THREADS_MAX][2];

static void compute(uint64_t *slot)
{
	static __thread volatile uint32_t state = 1;

	for (int step = 0; step < STEPS; step++)
		state = state * 1103515245u + 12345u;
	units_count(slot);
}

static void *computes(void *number)
{
	uint64_t *slot = units_slot(area);

	(void)number;
	for (;;)
		compute(slot);
	return NULL;
}

static void *spins(void *number)
{
	uint64_t *slot = units_slot(area);

	(void)number;
	for (;;) {
		pthread_spin_lock(&lock);
		compute(slot);
		pthread_spin_unlock(&lock);
	}
	return NULL;
}

static void *writes(void *number)
{
	static const char bytes[BYTES];
	uint64_t *slot = units_slot(area);

	(void)number;
	for (;;) {
		if (pwrite(file, bytes, sizeof(bytes), 0) != sizeof(bytes))
			units_refuse("causes: pwrite: %s", strerror(errno));
		units_count(slot);
	}
	return NULL;
}

static void *interrupts(void *number)
{
	uint64_t *slot = units_slot(area);

	for (;;) {
		compute(slot);
		if (!number && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
			units_refuse("causes: membarrier: %s", strerror(errno));
	}
	return NULL;
}

static void *protects(void *number)
{
	uint64_t *slot = units_slot(area);

	for (;;) {
		compute(slot);
		if (number)
			continue;
		*page = 1;
		if (mprotect((void *)page, PAGE, PROT_READ) || mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE))
			units_refuse("causes: mprotect: %s", strerror(errno));
	}
	return NULL;
}

static void *passes(void *number)
{
	int own = (int)(intptr_t)number, other = own ^ 1;
	uint64_t *slot = units_slot(area);
	char byte = 0;

	for (;;) {
		if (own & 1 && read(pipes[own][0], &byte, 1) != 1)
			units_refuse("causes: read: %s", strerror(errno));
		compute(slot);
		if (write(pipes[other][1], &byte, 1) != 1)
			units_refuse("causes: write: %s", strerror(errno));
		if (!(own & 1) && read(pipes[own][0], &byte, 1) != 1)
			units_refuse("causes: read: %s", strerror(errno));
	}
	return NULL;
}

static void start(void *(*thread)(void *), int number)
{
	pthread_attr_t attributes;
	pthread_t started;
	cpu_set_t cpus;
	int error;

	CPU_ZERO(&cpus);
	CPU_SET(number, &cpus);
	error = pthread_attr_init(&attributes);
	if (!error)
		error = pthread_attr_setaffinity_np(&attributes, sizeof(cpus), &cpus);
	if (!error)
		error = pthread_create(&started, &attributes, thread, (void *)(intptr_t)number);
	if (error)
		units_refuse("causes: thread %d: %s", number, strerror(error));
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void *(*thread)(void *);
	} kinds[] = { { "compute", computes }, { "spin", spins }, { "write", writes },
		    { "membarrier", interrupts }, { "mprotect", protects }, { "ping-pong", passes } };
	int threads = count == 3 ? atoi(arguments[2]) : 0;
	void *(*thread)(void *) = NULL;

	for (size_t kind = 0; threads && kind < sizeof(kinds) / sizeof(*kinds); kind++)
		if (!strcmp(kinds[kind].name, arguments[1]))
			thread = kinds[kind].thread;
	if (!thread || threads < 2 || threads > THREADS_MAX || threads % 2)
		units_refuse("usage: causes compute|spin|write|membarrier|mprotect|ping-pong THREADS, "
			     "with an even number up to %d", THREADS_MAX);
	area = units_area();
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
		units_refuse("causes: membarrier: %s", strerror(errno));
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		units_refuse("causes: mmap: %s", strerror(errno));
	file = memfd_create("causes", 0);
	if (file < 0)
		units_refuse("causes: memfd_create: %s", strerror(errno));
	pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
	for (int i = 0; i < threads; i++)
		if (pipe(pipes[i]))
			units_refuse("causes: pipe: %s", strerror(errno));
	for (int i = 0; i < threads; i++)
		start(thread, i);
	for (;;)
		pause();
}
