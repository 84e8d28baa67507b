/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The locks that programs use today, with the interface of core/locks/, for comparison: the C
 * library's, Concurrency Kit's, those of C++ (through cxx.cc) and parking_lot (through
 * src/parking.rs).
 */
#ifndef UNSPIN_BENCH_LOCKS_PEERS_H
#define UNSPIN_BENCH_LOCKS_PEERS_H

#include <pthread.h>

#include <ck_spinlock.h>

#include "cxx.h"

#define PEER(name, type, field, call_lock, call_unlock)					\
	struct peer_##name##_lock { type field; };						\
	static inline void peer_##name##_lock(struct peer_##name##_lock *lock)			\
	{											\
		call_lock(&lock->field);							\
	}											\
	static inline void peer_##name##_unlock(struct peer_##name##_lock *lock)		\
	{											\
		call_unlock(&lock->field);							\
	}

PEER(pthread_spin, pthread_spinlock_t, spin, pthread_spin_lock, pthread_spin_unlock)
PEER(pthread_mutex, pthread_mutex_t, mutex, pthread_mutex_lock, pthread_mutex_unlock)
PEER(pthread_adaptive, pthread_mutex_t, mutex, pthread_mutex_lock, pthread_mutex_unlock)

static inline void peer_pthread_spin_init(struct peer_pthread_spin_lock *lock)
{
	pthread_spin_init(&lock->spin, PTHREAD_PROCESS_PRIVATE);
}

static inline void peer_pthread_mutex_init(struct peer_pthread_mutex_lock *lock)
{
	pthread_mutex_init(&lock->mutex, NULL);
}

static inline void peer_pthread_adaptive_init(struct peer_pthread_adaptive_lock *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&lock->mutex, &attr);
	pthread_mutexattr_destroy(&attr);
}

PEER(ck_fas, ck_spinlock_fas_t, spin, ck_spinlock_fas_lock, ck_spinlock_fas_unlock)
PEER(ck_ticket, ck_spinlock_ticket_t, spin, ck_spinlock_ticket_lock, ck_spinlock_ticket_unlock)

static inline void peer_ck_fas_init(struct peer_ck_fas_lock *lock)
{
	ck_spinlock_fas_init(&lock->spin);
}

static inline void peer_ck_ticket_init(struct peer_ck_ticket_lock *lock)
{
	ck_spinlock_ticket_init(&lock->spin);
}

struct peer_ck_mcs_lock { struct ck_spinlock_mcs *queue; };
struct peer_ck_mcs_node { struct ck_spinlock_mcs node; };

static inline void peer_ck_mcs_init(struct peer_ck_mcs_lock *lock)
{
	ck_spinlock_mcs_init(&lock->queue);
}

static inline void peer_ck_mcs_lock(struct peer_ck_mcs_lock *lock, struct peer_ck_mcs_node *node)
{
	ck_spinlock_mcs_lock(&lock->queue, &node->node);
}

static inline void peer_ck_mcs_unlock(struct peer_ck_mcs_lock *lock, struct peer_ck_mcs_node *node)
{
	ck_spinlock_mcs_unlock(&lock->queue, &node->node);
}

/* Of a type of C++. */
#define CXX_PEER(name)									\
	void unspin_peer_##name##_init(struct cxx_lock *lock);				\
	void unspin_peer_##name##_lock(struct cxx_lock *lock);				\
	void unspin_peer_##name##_unlock(struct cxx_lock *lock);			\
	PEER(name, struct cxx_lock, lock, unspin_peer_##name##_lock, unspin_peer_##name##_unlock)	\
	static inline void peer_##name##_init(struct peer_##name##_lock *lock)		\
	{										\
		unspin_peer_##name##_init(&lock->lock);					\
	}

CXX_PEER(abseil)
CXX_PEER(abseil_mutex)
CXX_PEER(std_mutex)

void unspin_peer_parking_lot_lock(unsigned char *byte);
void unspin_peer_parking_lot_unlock(unsigned char *byte);

PEER(parking_lot, unsigned char, byte, unspin_peer_parking_lot_lock,
     unspin_peer_parking_lot_unlock)

static inline void peer_parking_lot_init(struct peer_parking_lot_lock *lock)
{
	lock->byte = 0;
}

#endif
