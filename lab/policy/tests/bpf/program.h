/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the programs here have in common. Each .c file includes a policy and calls its functions on
 * one global structure, io. It is compiled twice: for BPF, where a program is of the type that
 * user space runs by a system call, and as it is for this computer. Whatever bytes io has before,
 * both must leave the same.
 */
#ifndef UNSPIN_BPF_PROGRAM_H
#define UNSPIN_BPF_PROGRAM_H

#ifdef __bpf__
#define SECTION(name) __attribute__((section(name), used))
#define PROGRAM(name) SECTION("syscall") int name(void *context __attribute__((unused)))
char _license[] SECTION("license") = "Dual MIT/GPL";
#else
#define PROGRAM(name) int name(void *context __attribute__((unused)))
#endif

#if defined(__bpf__) && defined(KERNEL_LOOPS)
/* Loops of the kernel: the verifier checks one round, from numbers that it does not know. */
struct bpf_iter_num {
	__UINT64_TYPE__ opaque;
};
int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) SECTION(".ksyms");
int *bpf_iter_num_next(struct bpf_iter_num *it) SECTION(".ksyms");
void bpf_iter_num_destroy(struct bpf_iter_num *it) SECTION(".ksyms");

#define POL_FOR(i, count)                                                                          \
	for (struct bpf_iter_num it __attribute__((cleanup(bpf_iter_num_destroy))),                \
	     *begun __attribute__((unused)) =                                                      \
		     (bpf_iter_num_new(&it, 0, count), (void)bpf_iter_num_destroy, (void *)0);     \
	     ({                                                                                    \
		     int *next = bpf_iter_num_next(&it);                                           \
		     next && ((i) = (pol_u32)*next, (i) < (count));                                \
	     });)
SECTION(".data.zero") volatile __UINT32_TYPE__ zero;
#define POL_ZERO zero
#endif

/*
 * The verifier judges a function that others could call by itself: an array is one element to
 * it. One that is hidden it judges where it is called, with what the caller knows.
 */
#pragma GCC visibility push(hidden)
#include POLICY
#pragma GCC visibility pop

#endif
