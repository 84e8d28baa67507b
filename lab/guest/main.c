// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The bench guest: every vCPU runs the same program of steps until the VMM sets `stop`.
 *
 * Work is counted in loop iterations, not measured by a clock, so a preempted vCPU gets no credit
 * for time. Interrupts are enabled while the program runs, except between the check of a wake-up
 * condition and HLT. A vCPU writes only its own counters, with plain stores, so that the VMM can
 * read them at any time.
 */
#include <stdbool.h>
#include "lock.h"
#include "response.h"
#include "rng.h"
#ifdef GUEST_REPORTS
#include "report.h"
#endif

struct vcpu {
	u32 timer_fired;	/* first: written by timer_stub through GS */
	u32 index;		/* read through GS, as is `turns` (cpu.h) */
	u32 turns;		/* of the loop it waits in; counted where stalls are */
	u32 waits_for;		/* lock, while it waits for one */
	u64 wait_begun;		/* TSC; 0: it waits for none, or has reported that; where waits are reported */
	u64 rng;
	u32 barrier_phase;
	atomic_uint blocked;	/* 1 from the start of a block until it is woken */
	u64 protected_value[GUEST_LOCKS_MAX];	/* as read when the lock was taken */
	union guest_lock_node node[GUEST_LOCKS_MAX];
} __attribute__((aligned(128)));

_Static_assert(__builtin_offsetof(struct vcpu, timer_fired) == 0, "timer_stub writes GS:0");
_Static_assert(__builtin_offsetof(struct vcpu, index) == 4, "this_index() reads GS:4");
_Static_assert(__builtin_offsetof(struct vcpu, turns) == 8, "this_turns() reads GS:8");

struct barrier {
	atomic_uint arrived __attribute__((aligned(64)));
	atomic_uint phase __attribute__((aligned(64)));
	atomic_uint sleepers;	/* how many wait for the phase halted */
};

/* Two words, so that each is written whole, because another vCPU may be using the gate. */
struct idt_gate {
	u64 low;	/* offset 0..15, selector, IST, type, offset 16..31 */
	u64 high;	/* offset 32..63 */
};

#define IDT_INTERRUPT_GATE 0x8e
#define WAITS_FOR_NONE GUEST_LOCKS_MAX

static struct vcpu vcpus[GUEST_VCPUS_MAX];
static union guest_lock locks[GUEST_LOCKS_MAX];
static struct barrier barrier;
struct halted_at halted[GUEST_VCPUS_MAX];
static struct idt_gate idt[256] __attribute__((aligned(16)));

extern const char fault_stubs[], wake_stub[], timer_stub[], call_stub[], spurious_stub[];

static void set_gate(u32 vector, const char *stub)
{
	volatile struct idt_gate *gate = &idt[vector];
	u64 offset = (u64)stub;

	gate->high = offset >> 32;
	gate->low = (offset & 0xffff) | (u64)GUEST_CS_KERNEL << 16 |
		    (u64)IDT_INTERRUPT_GATE << 40 | (offset >> 16 & 0xffff) << 48;
}

/* Every vCPU writes the same values, so that none has to wait for another. */
static void load_idt(void)
{
	struct {
		u16 limit;
		u64 base;
	} __attribute__((packed)) idtr = { sizeof(idt) - 1, (u64)idt };
	u32 vector;

	for (vector = 0; vector < 32; vector++)
		set_gate(vector, fault_stubs + 16 * vector);
	set_gate(GUEST_VECTOR_TIMER, timer_stub);
	set_gate(GUEST_VECTOR_WAKE, wake_stub);
	set_gate(GUEST_VECTOR_CALL, call_stub);
	set_gate(GUEST_VECTOR_SPURIOUS, spurious_stub);
	__asm__ volatile("lidt %0" : : "m"(idtr));
}

static void apic_init(void)
{
	u64 base = rdmsr(MSR_IA32_APIC_BASE);

	wrmsr(MSR_IA32_APIC_BASE, base | APIC_BASE_ENABLE);
	wrmsr(MSR_IA32_APIC_BASE, base | APIC_BASE_ENABLE | APIC_BASE_X2APIC);
	if (!(rdmsr(MSR_IA32_APIC_BASE) & APIC_BASE_X2APIC))
		end_vcpu(GUEST_BAD_APIC);
	wrmsr(MSR_X2APIC_SVR, APIC_SVR_ENABLE | GUEST_VECTOR_SPURIOUS);
	wrmsr(MSR_X2APIC_TIMER_DIVIDE, APIC_TIMER_DIVIDE_BY_1);
	wrmsr(MSR_X2APIC_LVT_TIMER, GUEST_VECTOR_TIMER);
}

/* Makes the stores before it visible before the interrupt arrives: WRMSR to an x2APIC does not. */
static void send_ipi(u64 icr)
{
	__asm__ volatile("mfence; lfence" ::: "memory");
	wrmsr(MSR_X2APIC_ICR, icr);
}

static void set_memory(u32 memory)
{
	*(volatile u32 *)&calls_of(this_index())->memory = memory;
}

/* Returns the CPL to run the program at. */
u32 guest_setup(u32 index)
{
	struct vcpu *self = &vcpus[index];

	load_idt();
	if (config->magic != GUEST_ABI_MAGIC || config->version != GUEST_ABI_VERSION ||
	    index >= config->vcpus || config->vcpus > GUEST_VCPUS_MAX || !config->steps_count ||
	    config->steps_count > GUEST_STEPS_MAX || config->lock_kind >= GUEST_LOCK_KINDS ||
	    !config->lock_ticks_per_us || !config->tsc_ticks_per_us || config->report_log2_cycles > 63)
		end_vcpu(GUEST_BAD_CONFIG);
	guest_lock_times_set();
	wrmsr(MSR_GS_BASE, (u64)self);
	apic_init();
	self->index = index;
	self->waits_for = WAITS_FOR_NONE;
	self->rng = rng_seed(config->seed, index);
	set_memory(GUEST_MEMORY_USED);	/* last: before, an interrupt would be lost */
	return config->cpl;
}

/* Two instructions an iteration. */
static ALWAYS_INLINE void work(struct guest_counters *counters, u64 iterations)
{
	counters->iterations += iterations;
	if (iterations)
		__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(iterations) : : "cc");
}

static ALWAYS_INLINE u32 draw(struct vcpu *self, const struct guest_step *step)
{
	if (step->dist == GUEST_DIST_CONST)
		return step->a;
	if (step->dist == GUEST_DIST_UNIFORM)
		return draw_uniform(rng_next(&self->rng), step->a, step->b);
	return draw_exp(rng_next(&self->rng), step->a, step->b);
}

/* One interrupt ends it. @wait_over is checked with interrupts off, so that none is lost. */
#define halt_until(wait_over)                                                                      \
	do {                                                                                       \
		set_memory(GUEST_MEMORY_LAZY);                                                     \
		for (;;) {                                                                         \
			__asm__ volatile("cli" ::: "memory");                                      \
			if (wait_over)                                                             \
				break;                                                             \
			__asm__ volatile("sti; hlt" ::: "memory");                                 \
		}                                                                                  \
		set_memory(GUEST_MEMORY_USED);                                                     \
		__asm__ volatile("sti" ::: "memory");                                              \
		if (stop_wanted())                                                                 \
			end_vcpu(GUEST_STOPPED);                                                   \
	} while (0)

/* Whether this vCPU was the last to arrive, and so opened the barrier. */
static bool barrier_arrive(struct vcpu *self)
{
	self->barrier_phase++;
	/* Acquire-release chains every arrival; the phase's release publishes them to all. */
	if (atomic_fetch_add_explicit(&barrier.arrived, 1, memory_order_acq_rel) + 1 != config->vcpus)
		return false;
	atomic_store_explicit(&barrier.arrived, 0, memory_order_relaxed);
	atomic_store_explicit(&barrier.phase, self->barrier_phase, memory_order_release);
	return true;
}

static bool barrier_open(const struct vcpu *self)
{
	return atomic_load_explicit(&barrier.phase, memory_order_acquire) == self->barrier_phase;
}

/* As pthread barriers and adaptive mutexes wait: at most @pauses spins, then halted. */
static __attribute__((noinline)) void barrier_halted(struct vcpu *self, u32 pauses)
{
	if (barrier_arrive(self)) {
		/* Pairs with the sleepers' increment: they see the phase or are seen here. */
		atomic_thread_fence(memory_order_seq_cst);
		if (atomic_load_explicit(&barrier.sleepers, memory_order_relaxed))
			send_ipi(APIC_ICR_ALL_BUT_SELF | GUEST_VECTOR_WAKE);
		return;
	}
	for (; pauses; pauses--) {
		if (barrier_open(self))
			return;
		unspin_cpu_relax();
	}
	atomic_fetch_add_explicit(&barrier.sleepers, 1, memory_order_seq_cst);
	halt_until(barrier_open(self) || stop_wanted());
	atomic_fetch_sub_explicit(&barrier.sleepers, 1, memory_order_relaxed);
}

static __attribute__((noinline)) void barrier_spinning(struct vcpu *self)
{
	if (barrier_arrive(self))
		return;
	while (!barrier_open(self))
		unspin_cpu_relax();
}

static bool block_over(struct vcpu *self)
{
	return !atomic_load_explicit(&self->blocked, memory_order_acquire) ||
	       *(volatile u32 *)&self->timer_fired || stop_wanted();
}

/* Returns the TSC when its timer was due, or 0 if it had no timer. */
static __attribute__((noinline)) u64 block(struct vcpu *self, const struct guest_step *step)
{
	u32 timer_cycles = draw(self, step);
	u64 due;

	/* 0 means no timer, so use it only if no other length can be drawn. */
	if (!timer_cycles && step->b)
		timer_cycles = 1;
	*(volatile u32 *)&self->timer_fired = 0;
	atomic_store_explicit(&self->blocked, 1, memory_order_release);
	/* KVM's timer ticks once per ns. */
	due = rdtsc() + (u64)timer_cycles * config->tsc_ticks_per_us / 1000;
	wrmsr(MSR_X2APIC_TIMER_INITIAL, timer_cycles);
	halt_until(block_over(self));
	wrmsr(MSR_X2APIC_TIMER_INITIAL, 0);
	atomic_store_explicit(&self->blocked, 0, memory_order_relaxed);
	return timer_cycles && *(volatile u32 *)&self->timer_fired ? due : 0;
}

static __attribute__((noinline)) void wake_next(struct vcpu *self)
{
	u32 next = self->index + 1 < config->vcpus ? self->index + 1 : 0;

	if (atomic_exchange_explicit(&vcpus[next].blocked, 0, memory_order_acq_rel))
		send_ipi((u64)next << 32 | GUEST_VECTOR_WAKE);
}

/* Whether a shootdown waits for that vCPU (before Linux 4.15, arch/x86/mm/tlb.c: `lazy`). */
static bool is_asked(u32 index, bool lazy)
{
	u32 memory = *(volatile u32 *)&calls_of(index)->memory;

	return memory == GUEST_MEMORY_USED || (lazy && memory == GUEST_MEMORY_LAZY);
}

static atomic_uint *word_asked(u32 index)
{
	return (atomic_uint *)&calls_of(index)->asked;
}

/*
 * As smp_call_function_many() does for a TLB flush: sends an interrupt to each, then waits for each. If
 * one is pending already, the two merge, and the handler answers both senders.
 */
static __attribute__((noinline)) void shootdown(struct vcpu *self, bool lazy)
{
	u32 ticket[GUEST_VCPUS_MAX], index;
	u64 asked = 0;

	for (index = 0; index < config->vcpus; index++) {
		if (index == self->index || !is_asked(index, lazy))
			continue;
		/* Before the interrupt (send_ipi()), so that its handler sees it. */
		ticket[index] = atomic_fetch_add_explicit(word_asked(index), 1, memory_order_release) + 1;
		asked |= 1ULL << index;
	}
	for (index = 0; index < config->vcpus; index++)
		if (asked >> index & 1)
			send_ipi((u64)index << 32 | GUEST_VECTOR_CALL);
	for (index = 0; index < config->vcpus; index++)
		while (asked >> index & 1 &&
		       (int)(*(volatile u32 *)&calls_of(index)->answered - ticket[index]) < 0)
			unspin_cpu_relax();
}

#ifdef GUEST_REPORTS
/* It is time to look how long a wait, if it is one for a lock, has lasted. */
__attribute__((noinline)) void note_wait(void)
{
	struct vcpu *self = &vcpus[this_index()];

	if (self->wait_begun && report_wait(self->wait_begun))
		self->wait_begun = 0;
}

static ALWAYS_INLINE void report_begins(struct vcpu *self, u64 now)
{
	set_this_turns(0);
	self->wait_begun = now;
}

static ALWAYS_INLINE void report_ends(struct vcpu *self)
{
	note_wait();
	self->wait_begun = 0;
}
#else
#define report_begins(self, now)
#define report_ends(self)
#endif

#ifdef GUEST_STALLS
/* Whether a vCPU is between taking and releasing the lock, as in VEE 2013 section 3. */
static struct {
	atomic_uint held __attribute__((aligned(64)));
} lock_states[GUEST_LOCKS_MAX];

/* A wait has reached @turns turns of its loop, a power of two. */
__attribute__((noinline)) void note_stall(u32 turns)
{
	struct vcpu *self = &vcpus[this_index()];
	struct guest_counters *counters = counters_of(self->index);
	u32 bucket = 31 - __builtin_clz(turns);

	if (self->waits_for == WAITS_FOR_NONE)
		return;
	if (atomic_load_explicit(&lock_states[self->waits_for].held, memory_order_relaxed))
		counters->stalls_held[bucket]++;
	else
		counters->stalls_free[bucket]++;
}

static ALWAYS_INLINE void wait_begins(struct vcpu *self, u32 lock)
{
	set_this_turns(0);
	self->waits_for = lock;
}

static ALWAYS_INLINE void wait_ends(struct vcpu *self, u32 lock)
{
	self->waits_for = WAITS_FOR_NONE;
	atomic_store_explicit(&lock_states[lock].held, 1, memory_order_relaxed);
}

static ALWAYS_INLINE void lock_ends(u32 lock)
{
	atomic_store_explicit(&lock_states[lock].held, 0, memory_order_relaxed);
}
#else
#define wait_begins(self, lock)
#define wait_ends(self, lock)
#define lock_ends(lock)
#endif

static ALWAYS_INLINE void lock_step(struct vcpu *self, struct guest_counters *counters,
				    enum guest_lock_kind kind, u32 lock)
{
	u64 begin = rdtsc(), wait;
	u32 bucket;

	wait_begins(self, lock);
	report_begins(self, begin);
	guest_lock(kind, &locks[lock], &self->node[lock]);
	wait_ends(self, lock);
	wait = rdtsc() - begin;
	bucket = 63 - __builtin_clzll(wait | 1);
	counters->wait_hist[bucket < GUEST_WAIT_BUCKETS ? bucket : GUEST_WAIT_BUCKETS - 1]++;
	if (wait > counters->max_wait_cycles)
		counters->max_wait_cycles = wait;
	counters->acquisitions++;
	report_ends(self);
	self->protected_value[lock] = *(volatile u64 *)&protected_words[lock].value;
}

static ALWAYS_INLINE void unlock_step(struct vcpu *self, struct guest_counters *counters,
				      enum guest_lock_kind kind, u32 lock)
{
	*(volatile u64 *)&protected_words[lock].value = self->protected_value[lock] + 1;
	counters->releases++;
	lock_ends(lock);
	guest_unlock(kind, &locks[lock], &self->node[lock]);
}

static ALWAYS_INLINE void __attribute__((noreturn)) run(struct vcpu *self, enum guest_lock_kind kind)
{
	struct guest_counters *counters = counters_of(self->index);
	const struct guest_step *steps = config->steps;
	const struct guest_step *end = steps + config->steps_count;

	for (;;) {
		const struct guest_step *step = steps;
		u64 due = 0, block_due;
		u32 length;

		do {
			if (step->permille < 1000 &&
			    !draw_chance(rng_next(&self->rng), step->permille)) {
				step = steps + step->skip;
				continue;
			}
			switch (step->op) {
			case GUEST_OP_COMPUTE:
			case GUEST_OP_CRITICAL:
				work(counters, draw(self, step));
				break;
			case GUEST_OP_COMPUTE_FIRST:
				length = draw(self, step);
				work(counters, self->index ? 0 : length);
				break;
			case GUEST_OP_COMPUTE_ROTATING:
				length = draw(self, step);
				work(counters, counters->units % config->vcpus == self->index ? length : 0);
				break;
			case GUEST_OP_COMPUTE_MOVING:
				length = draw(self, step);
				if (counters->units / GUEST_UNITS_PER_MOVE % config->vcpus != self->index)
					length = 0;
				work(counters, length);
				break;
			case GUEST_OP_LOCK:
				lock_step(self, counters, kind, step->lock);
				break;
			case GUEST_OP_UNLOCK:
				unlock_step(self, counters, kind, step->lock);
				break;
			case GUEST_OP_BARRIER:
				barrier_halted(self, draw(self, step));
				break;
			case GUEST_OP_SPIN_BARRIER:
				barrier_spinning(self);
				break;
			case GUEST_OP_BLOCK:
				block_due = block(self, step);
				if (step == steps)
					due = block_due;
				break;
			case GUEST_OP_WAKE:
				wake_next(self);
				break;
			case GUEST_OP_SHOOTDOWN:
				shootdown(self, false);
				break;
			case GUEST_OP_SHOOTDOWN_LAZY:
				shootdown(self, true);
				break;
			default:
				end_vcpu(GUEST_BAD_CONFIG);
			}
			step++;
		} while (step < end);
		counters->units++;
		if (due)
			note_response(counters, due);
		if (stop_wanted())
			end_vcpu(GUEST_STOPPED);
	}
}

/* One copy of run() a lock. */
#define GUEST_RUN(kind, name)                                                                      \
	static __attribute__((noinline, noreturn)) void run_##name(struct vcpu *self)              \
	{                                                                                          \
		run(self, GUEST_LOCK_##kind);                                                      \
	}

GUEST_LOCKS(GUEST_RUN)
GUEST_RUN(MCS, mcs)

void __attribute__((noreturn)) guest_main(u32 index)
{
	struct vcpu *self = &vcpus[index];

	switch ((enum guest_lock_kind)config->lock_kind) {
#define GUEST_RUN_CASE(kind, name)                                                                 \
	case GUEST_LOCK_##kind:                                                                    \
		run_##name(self);
	GUEST_LOCKS(GUEST_RUN_CASE)
	GUEST_RUN_CASE(MCS, mcs)
	case GUEST_LOCK_KINDS:
		break;
	}
	end_vcpu(GUEST_BAD_CONFIG);
}
