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

/*
 * The verifier judges a function that others could call by itself: an array is one element to
 * it. One that is hidden it judges where it is called, with what the caller knows.
 */
#pragma GCC visibility push(hidden)
#include POLICY
#pragma GCC visibility pop

#endif
