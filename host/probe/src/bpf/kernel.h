/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kernel's types, with only the fields that the programs read. libbpf finds their offsets in
 * the running kernel when it loads the programs (CO-RE).
 */
#ifndef UNSPIN_PROBE_KERNEL_H
#define UNSPIN_PROBE_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

/* Of include/uapi/linux/bpf.h. */
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2 };
enum { BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_NOEXIST = 1 };

/* Of arch/x86/include/asm/kvm_host.h. */
enum { VCPU_REGS_RCX = 1 };

/* Of include/linux/sched.h; the same since 4.14. */
enum { TASK_INTERRUPTIBLE = 1, TASK_STOPPED_OR_TRACED = 4 | 8, TASK_FROZEN = 0x8000 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cfs_rq {
	/* Since 6.6: how long its tasks could not run because a quota was used up. */
	__u64 throttled_clock_self_time;
	/* The same before 6.6, by a less exact clock. */
	__u64 throttled_clock_pelt_time;
	/* Its name before 5.19. */
	__u64 throttled_clock_task_time;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	unsigned int __state;
	int pid, tgid;
	struct task_struct *group_leader;
	char comm[16];
	struct sched_entity se;
};

/* Before 5.14. */
struct task_struct___before_5_14 {
	long state;
};

/* Four bytes. */
struct refcount_struct {
	struct {
		int counter;
	} refs;
};

struct kvm_vcpu_arch {
	unsigned long regs[17];
};

struct kvm_vcpu {
	struct kvm_vcpu_arch arch;
};

union vmx_exit_reason {
	__u32 full;
};

/* Up to 6.15. */
struct vcpu_vmx {
	union vmx_exit_reason exit_reason;
};

/* Later. */
struct vcpu_vt {
	union vmx_exit_reason exit_reason;
};

struct vcpu_vmx___with_vt {
	struct vcpu_vt vt;
};

struct vmcb_control_area {
	__u32 exit_code;
};

struct vmcb {
	struct vmcb_control_area control;
};

struct vcpu_svm {
	struct vmcb *vmcb;
};

#pragma clang attribute pop

#endif
