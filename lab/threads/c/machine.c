// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The bench guest's program (guest/main.c) on a thread: the same steps with the same random numbers
 * and the same locks, but futex(2) where the guest halts. Compiled once per lock, with
 * -DLOCK_HEADER, -DLOCK(op)=unspin_NAME_##op, -DWITH_NODE for locks that take a node, -DWITH_TAU for those
 * that have a unspin_preemptable_class, and -DMACHINE(op)=unspin_machine_NAME_##op.
 *
 * Work is counted in loop iterations, not measured by a clock, so a preempted thread gets no credit
 * for time.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include LOCK_HEADER
#include "machine.h"
#include "../../guest/rng.h"

#ifdef WITH_NODE
#define NODE(self, lock) , &(self)->node[lock]
#else
#define NODE(self, lock)
#endif

#define PHASE_STOPPED 1u	/* the lowest bit of a barrier's phase; it counts up by 2 */

struct vcpu {
	struct guest_counters counters __attribute__((aligned(128)));
	u32 index __attribute__((aligned(128)));
	u64 rng;
	u32 barrier_phase;
	u64 protected_value[GUEST_LOCKS_MAX];	/* as read when the lock was taken */
#ifdef WITH_NODE
	struct LOCK(node) node[GUEST_LOCKS_MAX];
#endif
	atomic_uint blocked __attribute__((aligned(128)));	/* 1 from a block's start to a wake */
};

struct lock_line {
	struct LOCK(lock) lock __attribute__((aligned(128)));
	volatile u64 protected_word __attribute__((aligned(128)));
};

struct threads_vm {
	struct threads_config config;
#ifdef WITH_TAU
	struct unspin_preemptable_class class;
#endif
	atomic_uint stop __attribute__((aligned(128)));
	atomic_uint arrived __attribute__((aligned(128)));
	atomic_uint phase __attribute__((aligned(128)));
	atomic_uint sleepers;		/* how many wait for the phase asleep */
	struct lock_line locks[GUEST_LOCKS_MAX];
	struct vcpu vcpus[];
};

struct threads_vm *MACHINE(new)(const struct threads_config *config)
{
	size_t bytes = sizeof(struct threads_vm) + config->vcpus * sizeof(struct vcpu);
	struct threads_vm *vm = aligned_alloc(128, (bytes + 127) & ~(size_t)127);
	u32 index;

	if (!vm)
		return NULL;
	/* Every lock is free when it is zero. */
	memset(vm, 0, bytes);
	vm->config = *config;
	for (index = 0; index < config->vcpus; index++) {
		vm->vcpus[index].index = index;
		vm->vcpus[index].rng = rng_seed(config->seed, index);
	}
#ifdef WITH_TAU
	atomic_store_explicit(&vm->class.tau_ns, config->tau_ns, memory_order_relaxed);
#endif
	return vm;
}

struct guest_counters *MACHINE(counters)(struct threads_vm *vm, u32 index)
{
	return &vm->vcpus[index].counters;
}

static bool stop_wanted(struct threads_vm *vm)
{
	return atomic_load_explicit(&vm->stop, memory_order_relaxed);
}

/* Sleeps while *@word == @seen, until @deadline if there is one (CLOCK_MONOTONIC). */
static void sleep_while(atomic_uint *word, u32 seen, const struct timespec *deadline)
{
	syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, deadline, NULL,
		FUTEX_BITSET_MATCH_ANY);
}

static void wake(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Two instructions an iteration, as in the guest. */
static void work(struct guest_counters *counters, u64 iterations)
{
	counters->iterations += iterations;
#if defined(__x86_64__)
	if (iterations)
		__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(iterations) : : "cc");
#else
	while (iterations--)
		__asm__ volatile("" ::: "memory");
#endif
}

static u32 draw(struct vcpu *self, const struct guest_step *step)
{
	if (step->dist == GUEST_DIST_CONST)
		return step->a;
	if (step->dist == GUEST_DIST_UNIFORM)
		return draw_uniform(rng_next(&self->rng), step->a, step->b);
	return draw_exp(rng_next(&self->rng), step->a, step->b);
}

/* Whether this vCPU was the last to arrive, and so opened the barrier. */
static bool barrier_arrive(struct threads_vm *vm, struct vcpu *self)
{
	self->barrier_phase += 2;
	/* Acquire-release chains every arrival; the phase's release publishes them to all. */
	if (atomic_fetch_add_explicit(&vm->arrived, 1, memory_order_acq_rel) + 1 != vm->config.vcpus)
		return false;
	atomic_store_explicit(&vm->arrived, 0, memory_order_relaxed);
	/* Added, not stored: keeps the bit that says the VM is stopped. */
	atomic_fetch_add_explicit(&vm->phase, 2, memory_order_release);
	return true;
}

/* Open, or never to open again. */
static bool barrier_passed(struct threads_vm *vm, const struct vcpu *self)
{
	u32 phase = atomic_load_explicit(&vm->phase, memory_order_acquire);

	return phase == self->barrier_phase || phase & PHASE_STOPPED;
}

/* As pthread barriers and adaptive mutexes wait: at most @pauses spins, then asleep. */
static void barrier_asleep(struct threads_vm *vm, struct vcpu *self, u32 pauses)
{
	if (barrier_arrive(vm, self)) {
		/* Pairs with the sleepers' increment: they see the phase or are seen here. */
		atomic_thread_fence(memory_order_seq_cst);
		if (atomic_load_explicit(&vm->sleepers, memory_order_relaxed))
			wake(&vm->phase);
		return;
	}
	for (; pauses; pauses--) {
		if (barrier_passed(vm, self))
			return;
		unspin_lock_cpu_pause();
	}
	atomic_fetch_add_explicit(&vm->sleepers, 1, memory_order_seq_cst);
	while (!barrier_passed(vm, self))
		sleep_while(&vm->phase, self->barrier_phase - 2, NULL);
	atomic_fetch_sub_explicit(&vm->sleepers, 1, memory_order_relaxed);
}

static void barrier_spinning(struct threads_vm *vm, struct vcpu *self)
{
	if (barrier_arrive(vm, self))
		return;
	while (!barrier_passed(vm, self))
		unspin_lock_cpu_pause();
}

static void block(struct threads_vm *vm, struct vcpu *self, const struct guest_step *step)
{
	u32 timer_ns = draw(self, step);
	struct timespec until, *deadline = NULL;

	/* 0 means no timer, so use it only if no other length can be drawn. */
	if (!timer_ns && step->b)
		timer_ns = 1;
	if (timer_ns) {
		u64 at_ns = unspin_lock_linux_clock_ns() + timer_ns;

		until = (struct timespec){ (time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000) };
		deadline = &until;
	}
	/* Sequentially consistent with stop(): one of the two sees the other's store. */
	atomic_store_explicit(&self->blocked, 1, memory_order_seq_cst);
	while (!atomic_load_explicit(&vm->stop, memory_order_seq_cst) &&
	       atomic_load_explicit(&self->blocked, memory_order_acquire) &&
	       (!deadline || unspin_lock_linux_clock_ns() <
				     (u64)until.tv_sec * 1000000000 + (u64)until.tv_nsec))
		sleep_while(&self->blocked, 1, deadline);
	atomic_store_explicit(&self->blocked, 0, memory_order_relaxed);
}

static void wake_next(struct threads_vm *vm, struct vcpu *self)
{
	struct vcpu *next = &vm->vcpus[self->index + 1 < vm->config.vcpus ? self->index + 1 : 0];

	if (atomic_exchange_explicit(&next->blocked, 0, memory_order_acq_rel))
		wake(&next->blocked);
}

void MACHINE(stop)(struct threads_vm *vm)
{
	u32 index;

	atomic_store_explicit(&vm->stop, 1, memory_order_seq_cst);
	atomic_fetch_or_explicit(&vm->phase, PHASE_STOPPED, memory_order_seq_cst);
	wake(&vm->phase);
	for (index = 0; index < vm->config.vcpus; index++) {
		atomic_store_explicit(&vm->vcpus[index].blocked, 0, memory_order_seq_cst);
		wake(&vm->vcpus[index].blocked);
	}
}

static void lock_step(struct threads_vm *vm, struct vcpu *self, u32 lock)
{
	struct guest_counters *counters = &self->counters;
	u64 begin = unspin_lock_cpu_ticks(), wait;
	u32 bucket;

#ifdef WITH_TAU
	LOCK(lock_class)(&vm->locks[lock].lock, &vm->class);
#else
	LOCK(lock)(&vm->locks[lock].lock NODE(self, lock));
#endif
	wait = unspin_lock_cpu_ticks() - begin;
	bucket = 63 - (u32)__builtin_clzll(wait | 1);
	counters->wait_hist[bucket < GUEST_WAIT_BUCKETS ? bucket : GUEST_WAIT_BUCKETS - 1]++;
	if (wait > counters->max_wait_cycles)
		counters->max_wait_cycles = wait;
	counters->acquisitions++;
	self->protected_value[lock] = vm->locks[lock].protected_word;
}

static void unlock_step(struct threads_vm *vm, struct vcpu *self, u32 lock)
{
	vm->locks[lock].protected_word = self->protected_value[lock] + 1;
	self->counters.releases++;
	LOCK(unlock)(&vm->locks[lock].lock NODE(self, lock));
}

void MACHINE(run)(struct threads_vm *vm, u32 index)
{
	struct vcpu *self = &vm->vcpus[index];
	const struct guest_step *steps = vm->config.steps;
	const struct guest_step *end = steps + vm->config.steps_count;

	while (!stop_wanted(vm)) {
		const struct guest_step *step = steps;

		while (step < end) {
			if (step->permille < 1000 &&
			    !draw_chance(rng_next(&self->rng), step->permille)) {
				step = steps + step->skip;
				continue;
			}
			switch (step->op) {
			case GUEST_OP_COMPUTE:
			case GUEST_OP_CRITICAL:
				work(&self->counters, draw(self, step));
				break;
			case GUEST_OP_LOCK:
				lock_step(vm, self, step->lock);
				break;
			case GUEST_OP_UNLOCK:
				unlock_step(vm, self, step->lock);
				break;
			case GUEST_OP_BARRIER:
				barrier_asleep(vm, self, draw(self, step));
				break;
			case GUEST_OP_SPIN_BARRIER:
				barrier_spinning(vm, self);
				break;
			case GUEST_OP_BLOCK:
				block(vm, self, step);
				break;
			case GUEST_OP_WAKE:
				wake_next(vm, self);
				break;
			}
			step++;
		}
		self->counters.units++;
	}
}

int MACHINE(free)(struct threads_vm *vm)
{
	u64 acquired = 0, released = 0, counted = 0;
	bool is_free = true;
	u32 i;

	for (i = 0; i < vm->config.vcpus; i++) {
		acquired += vm->vcpus[i].counters.acquisitions;
		released += vm->vcpus[i].counters.releases;
	}
	for (i = 0; i < GUEST_LOCKS_MAX; i++) {
		counted += vm->locks[i].protected_word;
		is_free = is_free && !LOCK(is_locked)(&vm->locks[i].lock);
	}
	free(vm);
	/* Two in a critical section at a time lose an increment. */
	return acquired == released && acquired == counted && is_free;
}
