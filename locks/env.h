/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the locks need of the world they run in.
 *
 * A world that includes these headers may define LOCK_ENV_HEADER (a quoted file name) before; that
 * header then supplies cpu_relax(), called once in every turn of every waiting loop. Without it
 * cpu_relax() is the processor's spin hint alone.
 *
 * cpu_relax() must execute PAUSE on x86: pause-loop exiting and the pause filter see nothing else.
 * It may also not return (the bench guest leaves a wait there when its run is over).
 */
#ifndef UNSPIN_LOCKS_ENV_H
#define UNSPIN_LOCKS_ENV_H

#include <stdatomic.h>
#include <stdbool.h>

#define LOCK_CACHELINE_BYTES 64

#ifdef LOCK_ENV_HEADER
#include LOCK_ENV_HEADER
#else
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}
#endif

#endif
