// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Locks that are taken before any constructor has run, locks in a handler of fork() that was registered
 * then, and locks in a library that is loaded later: this program as a shared object (argument: its
 * path), whose constructor takes locks, too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>

#include "posix.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;

static void take_all(void)
{
	EXPECT(!pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(!pthread_spin_lock(&spin));
	EXPECT(pthread_mutex_trylock(&mutex) == EBUSY);
	EXPECT(pthread_spin_trylock(&spin) == EBUSY);
}

/* Other libraries of this program may call it. */
__attribute__((visibility("default"))) void *wait_for_both(void *unused)
{
	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(!pthread_spin_lock(&spin));
	EXPECT(!pthread_spin_unlock(&spin));
	EXPECT(!pthread_mutex_unlock(&mutex));
	return unused;
}

/* The locks are held since before the program began. Now they have waiters, and are released. */
__attribute__((visibility("default"))) void give_up_all(void)
{
	pthread_t thread[2];

	EXPECT(pthread_mutex_trylock(&mutex) == EBUSY);
	EXPECT(pthread_spin_trylock(&spin) == EBUSY);
	start(thread, 2, wait_for_both, NULL);
	sleep_ms(30);
	EXPECT(!pthread_spin_unlock(&spin));
	EXPECT(!pthread_mutex_unlock(&mutex));
	join(thread, 2);
	wait_for_both(NULL);
}

#ifdef LOADED_LATE

__attribute__((constructor)) static void loaded(void)
{
	running = "loaded_late";
	take_all();
}

#else

static pthread_mutex_t over_fork = PTHREAD_MUTEX_INITIALIZER;

static void *wait_over_fork(void *unused)
{
	EXPECT(!pthread_mutex_lock(&over_fork));
	EXPECT(!pthread_mutex_unlock(&over_fork));
	return unused;
}

/* The first of all handlers of a child. The threads that waited are in the parent. */
static void in_child(void)
{
	pthread_t waiter;

	EXPECT(!pthread_create(&waiter, NULL, wait_over_fork, NULL));
	sleep_ms(30);
	EXPECT(!pthread_mutex_unlock(&over_fork));
	EXPECT(!pthread_join(waiter, NULL));
}

static void fork_with_an_early_handler(void)
{
	pthread_t waiter[2];
	pid_t child;

	EXPECT(!pthread_mutex_lock(&over_fork));
	start(waiter, 2, wait_over_fork, NULL);
	sleep_ms(30);
	child = fork();
	EXPECT(child >= 0);
	if (!child)
		_exit(0);
	EXPECT(!pthread_mutex_unlock(&over_fork));
	join(waiter, 2);
	reap(child);
}

/* The earliest code of a program: before the constructors of all shared objects. */
static void first(int argc, char **argv, char **environment)
{
	(void)argc;
	(void)argv;
	(void)environment;
	running = "taken_before_constructors";
	take_all();
	pthread_atfork(NULL, NULL, in_child);
}

__attribute__((section(".preinit_array"), used)) static void (*at_first)(int, char **, char **) = first;

int main(int argc, char **argv)
{
	int turn;

	watch("taken_before_constructors");
	give_up_all();
	watch("fork_with_an_early_handler");
	fork_with_an_early_handler();
	watch("loaded_late");
	for (turn = 0; argc > 1 && strchr(argv[1], '/') && turn < 2; turn++) {
		void *object = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (turn ? RTLD_DEEPBIND : 0));
		void (*give_up)(void);

		EXPECT(object);
		give_up = (void (*)(void))dlsym(object, "give_up_all");
		EXPECT(give_up);
		give_up();
		EXPECT(!dlclose(object));
	}
	return 0;
}

#endif
