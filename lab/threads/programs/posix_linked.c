// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What a wait for a condition owes to the dynamic linker: dlerror(), and versions of the functions. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "posix.h"

/* The first wait of the process. */
static void dlerror_stays_over_a_wait(void)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
	struct timespec past = { 0, 0 };

	EXPECT(!dlopen("libthere-is-none.so", RTLD_NOW));
	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(pthread_cond_timedwait(&cond, &mutex, &past) == ETIMEDOUT);
	EXPECT(!pthread_mutex_unlock(&mutex));
	EXPECT(dlerror());
}

#if defined(__x86_64__) && defined(__GLIBC__)
/* Those that programs from before glibc 2.3.2 call. Their condition is a pointer. */
int old_wait(void **cond, pthread_mutex_t *mutex);
int old_timedwait(void **cond, pthread_mutex_t *mutex, const struct timespec *until);
int old_signal(void **cond);
__asm__(".symver old_wait, pthread_cond_wait@GLIBC_2.2.5");
__asm__(".symver old_timedwait, pthread_cond_timedwait@GLIBC_2.2.5");
__asm__(".symver old_signal, pthread_cond_signal@GLIBC_2.2.5");

static struct {
	void *cond;
	unsigned long after[8];
} old;
static pthread_mutex_t old_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool old_ready;

static void *signal_old(void *nothing)
{
	EXPECT(!pthread_mutex_lock(&old_mutex));
	old_ready = true;
	EXPECT(!old_signal(&old.cond));
	EXPECT(!pthread_mutex_unlock(&old_mutex));
	return nothing;
}

static void conditions_may_be_old(void)
{
	static const unsigned long zero[8];
	struct timespec past = { 0, 0 };
	pthread_t other;

	EXPECT(!pthread_mutex_lock(&old_mutex));
	EXPECT(!pthread_create(&other, NULL, signal_old, NULL));
	while (!old_ready)
		EXPECT(!old_wait(&old.cond, &old_mutex));
	EXPECT(old_timedwait(&old.cond, &old_mutex, &past) == ETIMEDOUT);
	EXPECT(!pthread_mutex_unlock(&old_mutex));
	EXPECT(!pthread_join(other, NULL));
	EXPECT(!memcmp(old.after, zero, sizeof(zero)));
}
#else
static void conditions_may_be_old(void)
{
}
#endif

TESTS(TEST(dlerror_stays_over_a_wait), TEST(conditions_may_be_old))
