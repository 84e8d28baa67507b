/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What core/locks/lease_turn.h decides by measurement: here each answer is possible at any time. The clock shows
 * two times (env.h).
 */
#ifndef UNSPIN_VERIFY_LEASE_TURN_H
#define UNSPIN_VERIFY_LEASE_TURN_H

static inline void unspin_lease_begin_turn(struct unspin_lease_lock *lock)
{
	(void)lock;
}

static inline void unspin_lease_offer_cpu(struct unspin_lease_lock *lock)
{
	(void)lock;
}

static inline bool unspin_lease_in_turn(struct unspin_lease_lock *lock)
{
	return unspin_lease_sharing(lock) && !unspin_lock_now();
}

static inline unsigned int unspin_lease_faster(struct unspin_lease_lock *lock, unsigned int sharing,
					       unsigned short from, unsigned long long since_ticks,
					       unsigned long long longest_ns)
{
	(void)lock, (void)sharing, (void)from, (void)since_ticks, (void)longest_ns;
	return unspin_lock_now() ? UNSPIN_LEASE_SHARED : 0;
}

static inline bool unspin_lease_renew_turn(struct unspin_lease_lock *lock)
{
	if (!unspin_lock_now())
		return true;
	if (unspin_lock_now())
		unspin_lease_stop_sharing(lock);
	return false;
}

#endif
