// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Reads the environment once, before the first lock, and prints counts at exit if asked to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "choice.h"
#include "list.h"

/* glibc's own. Processes of another C library load this library, too, and keep their locks. */
extern int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *object)
	__attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

struct interpose_count interpose_spins, interpose_mutexes;
atomic_uint interpose_forks;

/* Without a page that the kernel clears: only the handler of fork() changes it. */
static atomic_uint counted_without_page = INTERPOSE_COUNTED;
_Atomic(atomic_uint *) interpose_counted = &counted_without_page;

#define OVER(name)									\
	_Static_assert(sizeof(struct unspin_##name##_lock) <= INTERPOSE_BYTES_MAX,		\
		       #name " fits in front of a mutex");				\
	static struct unspin_##name##_lock *name##_of(pthread_spinlock_t *word)			\
	{										\
		return (struct unspin_##name##_lock *)(void *)word;				\
	}										\
	static int over_##name##_lock(pthread_spinlock_t *word)				\
	{										\
		unspin_##name##_lock(name##_of(word));						\
		return 0;								\
	}										\
	static int over_##name##_trylock(pthread_spinlock_t *word)			\
	{										\
		return unspin_##name##_trylock(name##_of(word)) ? 0 : EBUSY;			\
	}										\
	static int over_##name##_unlock(pthread_spinlock_t *word)			\
	{										\
		unspin_##name##_unlock(name##_of(word));						\
		return 0;								\
	}
INTERPOSE_LOCKS(OVER)

#define ENTRY(name)									\
	{ #name, sizeof(struct unspin_##name##_lock) <= sizeof(pthread_spinlock_t),		\
	  over_##name##_lock, over_##name##_trylock, over_##name##_unlock },
static const struct interpose_lock locks[] = { INTERPOSE_LOCKS(ENTRY) };

#define CHOICE(name) " " #name

/*
 * Reads a variable of the environment that the program was started with. The first functions of a
 * program (preinit_array) run before the C library knows the environment; until then the kernel is asked.
 */
static const char *setting(const char *name)
{
	static char text[1 << 16];
	size_t length = strlen(name), at;
	ssize_t bytes;
	int file;

	if (environ)
		return getenv(name);
	file = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return NULL;
	bytes = read(file, text, sizeof(text) - 1);
	close(file);
	for (at = 0; bytes > 0 && at < (size_t)bytes; at += strlen(text + at) + 1)
		if (!strncmp(text + at, name, length) && text[at + length] == '=')
			return text + at + length + 1;
	return NULL;
}

static void say_wrong(const char *name, const char *text, const char *wanted)
{
	dprintf(STDERR_FILENO, "unspin: %s=%.40s is not %s; it is ignored\n", name, text, wanted);
}

static bool is_one(const char *name)
{
	const char *text = setting(name);

	if (text && *text && strcmp(text, "0") && strcmp(text, "1"))
		say_wrong(name, text, "0 or 1");
	return text && !strcmp(text, "1");
}

static void say_unknown(const char *name)
{
	dprintf(STDERR_FILENO, "unspin: UNSPIN_LOCK=%.40s is not one of" INTERPOSE_LOCKS(CHOICE)
		"; the C library's own locks are used\n", name);
}

static const struct interpose_lock *named(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(locks) / sizeof(locks[0]); i++)
		if (!strcmp(locks[i].name, name))
			return &locks[i];
	return NULL;
}

struct interpose_choice interpose_choose(void)
{
	static struct interpose_choice chosen;
	static atomic_bool is_chosen;
	struct interpose_choice choice;
	const char *name;

	/* Do not read it again: the program may have changed its environment. */
	if (atomic_load_explicit(&is_chosen, memory_order_acquire))
		return chosen;
	choice.verbose = is_one("UNSPIN_VERBOSE");
	choice.spin = choice.front = NULL;
	if (__register_atfork) {
		name = setting("UNSPIN_LOCK");
		choice.spin = named(name && *name ? name : INTERPOSE_SPIN_DEFAULT);
		choice.front = named(name && *name ? name : INTERPOSE_MUTEX_DEFAULT);
		if (!choice.spin)
			say_unknown(name);
		else if (!choice.spin->fits_spin)
			choice.spin = NULL;
		if (!is_one("UNSPIN_MUTEX"))
			choice.front = NULL;
	}
	chosen = choice;
	atomic_store_explicit(&is_chosen, true, memory_order_release);
	return choice;
}

void *interpose_next(const char *name)
{
	void *next = dlsym(RTLD_NEXT, name);

	/* The program cannot run without this function, with or without this library. */
	if (!next) {
		dprintf(STDERR_FILENO, "unspin: %s is missing in the C library\n", name);
		abort();
	}
	return next;
}

static void forget_counts(struct interpose_count *count)
{
	atomic_store(&count->taken, 0);
	atomic_store(&count->waited, 0);
	atomic_store(&count->left, 0);
}

/* Several threads may find the process uncounted: the first counts it, the others wait. */
void interpose_count_process(void)
{
	atomic_uint *counted = atomic_load_explicit(&interpose_counted, memory_order_relaxed);
	unsigned int before = INTERPOSE_UNCOUNTED;

	if (atomic_compare_exchange_strong(counted, &before, INTERPOSE_COUNTING)) {
		atomic_fetch_add(&interpose_forks, 1);
		atomic_store(counted, INTERPOSE_COUNTED);
	}
	while (atomic_load(counted) != INTERPOSE_COUNTED)
		unspin_lock_cpu_pause();
}

static void in_child(void)
{
	if (atomic_load(&interpose_counted) == &counted_without_page)
		atomic_store(&counted_without_page, INTERPOSE_UNCOUNTED);
	interpose_process();
	forget_counts(&interpose_spins);
	forget_counts(&interpose_mutexes);
}

/* Kernels before 4.14 cannot clear a page. Then handlers of a child that run before ours see its parent. */
static void watch_forks(void)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	atomic_uint *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (__register_atfork)
		__register_atfork(NULL, NULL, in_child, &__dso_handle);
	if (page == MAP_FAILED)
		return;
	atomic_store(page, INTERPOSE_COUNTED);
	if (madvise(page, bytes, MADV_WIPEONFORK))
		munmap(page, bytes);
	else
		atomic_store(&interpose_counted, page);
}

static void read_tau(void)
{
	const char *text = setting("UNSPIN_TAU_NS");
	unsigned long long tau_ns;
	char *end;

	if (!text || !*text)
		return;
	errno = 0;
	tau_ns = strtoull(text, &end, 10);
	/* strtoull() would take spaces and signs. */
	if (*text < '0' || *text > '9' || *end || errno)
		say_wrong("UNSPIN_TAU_NS", text, "a number of nanoseconds");
	else
		atomic_store(&unspin_preemptable_default.tau_ns, tau_ns);
}

/* What standard error was at the start. A program may close it, and open a file of its own in its place. */
static struct stat stderr_at_start;

static bool stderr_is_the_same(void)
{
	struct stat now;

	return !fstat(STDERR_FILENO, &now) && now.st_dev == stderr_at_start.st_dev &&
	       now.st_ino == stderr_at_start.st_ino;
}

__attribute__((constructor)) static void start(void)
{
	fstat(STDERR_FILENO, &stderr_at_start);
	read_tau();
	watch_forks();
}

static const char *name_of(const struct interpose_lock *lock)
{
	return lock ? lock->name : "C library's";
}

__attribute__((destructor)) static void say_counts(void)
{
	struct interpose_choice choice = interpose_choose();

	if (choice.verbose && stderr_is_the_same())
		dprintf(STDERR_FILENO,
			"unspin: %s[%d]: %s spin locks %lu taken, %lu waited for; "
			"%s mutexes %lu taken, %lu waited for, %lu left to the C library\n",
			program_invocation_short_name, (int)getpid(), name_of(choice.spin),
			atomic_load(&interpose_spins.taken), atomic_load(&interpose_spins.waited),
			name_of(choice.front),
			atomic_load(&interpose_mutexes.taken), atomic_load(&interpose_mutexes.waited),
			atomic_load(&interpose_mutexes.left));
}
