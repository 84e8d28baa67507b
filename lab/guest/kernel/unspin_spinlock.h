/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * asm/unspin_spinlock.h of the guests' kernel: arch_spin_...() are locks of core/locks if spinlock= names
 * one at boot, and the kernel's own otherwise. asm/spinlock.h includes this after the queued lock.
 */
#ifndef _ASM_X86_UNSPIN_SPINLOCK_H
#define _ASM_X86_UNSPIN_SPINLOCK_H

DECLARE_STATIC_KEY_FALSE(unspin_spinlocks);

void unspin_spin_lock(arch_spinlock_t *lock);
bool unspin_spin_trylock(arch_spinlock_t *lock);
void unspin_spin_unlock(arch_spinlock_t *lock);
bool unspin_spin_is_locked(arch_spinlock_t *lock);
bool unspin_spin_is_contended(arch_spinlock_t *lock);
void unspin_spinlocks_init(void);

static __always_inline void x86_spin_lock(arch_spinlock_t *lock)
{
	if (static_branch_unlikely(&unspin_spinlocks))
		unspin_spin_lock(lock);
	else
		queued_spin_lock(lock);
}

static __always_inline int x86_spin_trylock(arch_spinlock_t *lock)
{
	if (static_branch_unlikely(&unspin_spinlocks))
		return unspin_spin_trylock(lock);
	return queued_spin_trylock(lock);
}

static __always_inline void x86_spin_unlock(arch_spinlock_t *lock)
{
	if (static_branch_unlikely(&unspin_spinlocks))
		unspin_spin_unlock(lock);
	else
		queued_spin_unlock(lock);
}

static __always_inline int x86_spin_is_locked(arch_spinlock_t *lock)
{
	if (static_branch_unlikely(&unspin_spinlocks))
		return unspin_spin_is_locked(lock);
	return queued_spin_is_locked(lock);
}

static __always_inline int x86_spin_is_contended(arch_spinlock_t *lock)
{
	if (static_branch_unlikely(&unspin_spinlocks))
		return unspin_spin_is_contended(lock);
	return queued_spin_is_contended(lock);
}

/* A ticket lock that is free is not 0 once it was used. */
static __always_inline int x86_spin_value_unlocked(arch_spinlock_t lock)
{
	if (static_branch_unlikely(&unspin_spinlocks))
		return !unspin_spin_is_locked(&lock);
	return queued_spin_value_unlocked(lock);
}

#undef arch_spin_lock
#undef arch_spin_trylock
#undef arch_spin_unlock
#undef arch_spin_is_locked
#undef arch_spin_is_contended
#undef arch_spin_value_unlocked
#define arch_spin_lock(l)		x86_spin_lock(l)
#define arch_spin_trylock(l)		x86_spin_trylock(l)
#define arch_spin_unlock(l)		x86_spin_unlock(l)
#define arch_spin_is_locked(l)		x86_spin_is_locked(l)
#define arch_spin_is_contended(l)	x86_spin_is_contended(l)
#define arch_spin_value_unlocked(l)	x86_spin_value_unlocked(l)

#endif
