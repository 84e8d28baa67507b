// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What POSIX asks of pthread_spin_*(), whoever provides it. With the argument `ours` the provider must
 * be locks/interpose: a held lock's word says so.
 *
 * Contention lasts for a time, not for a number of rounds: with more threads than CPUs a lock that is
 * handed on in strict order (a large tau) waits some time slices at every hand-over, where one that is
 * not passes millions of times a second.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 6
#define CONTENTION_NS 100000000L

#define EXPECT(is)									\
	do {										\
		if (!(is)) {								\
			printf("line %d: %s\n", __LINE__, #is);				\
			return 1;							\
		}									\
	} while (0)

struct shared {
	pthread_spinlock_t spin;
	atomic_int started;
	long long until_ns;
	unsigned long counter;
	unsigned long rounds[THREADS + 1];
};

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *add(void *argument)
{
	struct shared *shared = argument;
	int me = atomic_fetch_add(&shared->started, 1);
	unsigned long round = 0;

	/* All at once; a thread that is started late still takes its turn. */
	while (atomic_load(&shared->started) <= THREADS && now_ns() < shared->until_ns)
		;
	do {
		if (round % 4 || pthread_spin_trylock(&shared->spin))
			pthread_spin_lock(&shared->spin);
		shared->counter++;
		pthread_spin_unlock(&shared->spin);
		round++;
	} while (now_ns() < shared->until_ns);
	shared->rounds[me] = round;
	return NULL;
}

static int excludes(struct shared *shared)
{
	unsigned long rounds = 0;
	pthread_t thread[THREADS];
	int i, status;
	pid_t child;

	shared->until_ns = now_ns() + CONTENTION_NS;
	for (i = 0; i < THREADS; i++)
		EXPECT(!pthread_create(&thread[i], NULL, add, shared));
	/* Another process, by the same memory. */
	child = fork();
	EXPECT(child >= 0);
	if (!child) {
		add(shared);
		_exit(0);
	}
	for (i = 0; i < THREADS; i++)
		EXPECT(!pthread_join(thread[i], NULL));
	EXPECT(waitpid(child, &status, 0) == child && !status);
	for (i = 0; i <= THREADS; i++)
		rounds += shared->rounds[i];
	EXPECT(rounds > THREADS && shared->counter == rounds);
	return 0;
}

int main(int argc, char **argv)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned int word;

	alarm(100);
	EXPECT(shared != MAP_FAILED);
	EXPECT(!pthread_spin_init(&shared->spin, PTHREAD_PROCESS_SHARED));
	EXPECT(!pthread_spin_lock(&shared->spin));
	EXPECT(pthread_spin_trylock(&shared->spin) == EBUSY);
	memcpy(&word, (void *)&shared->spin, sizeof(word));
	/* One request made, none granted, held. */
	EXPECT((argc > 1 && !strcmp(argv[1], "ours")) == (word == 0x10001));
	EXPECT(!pthread_spin_unlock(&shared->spin));
	EXPECT(!pthread_spin_trylock(&shared->spin));
	EXPECT(!pthread_spin_unlock(&shared->spin));
	if (excludes(shared))
		return 1;
	EXPECT(!pthread_spin_destroy(&shared->spin));
	return 0;
}
