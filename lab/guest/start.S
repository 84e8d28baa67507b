/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Entry of every vCPU, the way to CPL 3, and the interrupt stubs.
 *
 * Interrupts only end a HLT, note that the timer fired, or answer a sibling's call; exceptions end the vCPU through
 * GUEST_PORT_FAULT. GS holds the vCPU's state at every CPL: no SWAPGS anywhere.
 */
#include "cpu.h"

#define RFLAGS_IF 0x200
#define RFLAGS_ALWAYS_1 0x2

	.section .text.start, "ax"
	.globl guest_start
guest_start:				/* RDI = index of this vCPU */
	cld
	mov %rdi, %rbx
	call guest_setup		/* EAX = CPL to run at */
	mov %rbx, %rdi
	test %eax, %eax
	jnz 1f
	sti
	call guest_main
1:	mov %rsp, %rax
	pushq $GUEST_DS_USER
	push %rax
	pushq $(RFLAGS_IF | RFLAGS_ALWAYS_1)
	pushq $GUEST_CS_USER
	pushq $2f
	iretq
2:	call guest_main

	.text
	.globl wake_stub
wake_stub:
	push %rax
	push %rcx
	push %rdx
end_of_interrupt:
	mov $MSR_X2APIC_EOI, %ecx
	xor %eax, %eax
	xor %edx, %edx
	wrmsr
	pop %rdx
	pop %rcx
	pop %rax
	iretq

	.globl timer_stub
timer_stub:
	push %rax
	push %rcx
	push %rdx
	movl $1, %gs:0			/* struct vcpu: timer_fired */
	jmp end_of_interrupt

/* Of a shootdown. Gives the program's memory up before it answers, so that nobody asks again for it. */
	.globl call_stub
call_stub:
	push %rax
	push %rcx
	push %rdx
	mov %gs:4, %ecx			/* struct vcpu: index */
	shl $GUEST_CALLS_SHIFT, %ecx
	cmpl $GUEST_MEMORY_LAZY, GUEST_CALLS_ADDR + GUEST_CALLS_MEMORY(%rcx)
	jne 1f
	movl $GUEST_MEMORY_LEFT, GUEST_CALLS_ADDR + GUEST_CALLS_MEMORY(%rcx)
1:	mov GUEST_CALLS_ADDR + GUEST_CALLS_ASKED(%rcx), %eax
	mov %eax, GUEST_CALLS_ADDR + GUEST_CALLS_ANSWERED(%rcx)
	jmp end_of_interrupt

	.globl spurious_stub
spurious_stub:
	iretq

/*
 * void end_vcpu(u32 code). The trap at end_trap leads to CPL 0 from anywhere: where KVM emulates
 * instructions, it has neither INT nor SYSCALL from CPL 3.
 */
	.globl end_vcpu
end_vcpu:
end_trap:
	ud2

#define VECTOR_UD 6

/* Stack: error code, RIP, CS, ... below the vector. */
fault:
	mov 16(%rsp), %r8
	cmp $end_trap, %r8
	jne 1f
	cmpl $VECTOR_UD, (%rsp)
	jne 1f
	mov %edi, %eax
	mov $GUEST_PORT_END, %edx
	jmp 2f
1:	pop %rdi
	pop %rsi
	mov 8(%rsp), %r10
	mov %cr2, %r9
	mov $GUEST_PORT_FAULT, %edx
2:	out %eax, %dx
	jmp 2b

/* Stub i at fault_stubs + 16 i. */
	.balign 16
	.globl fault_stubs
fault_stubs:
	.set vector, 0
	.rept 32
	.balign 16
	.if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30)
	pushq $0
	.endif
	pushq $vector
	jmp fault
	.set vector, vector + 1
	.endr

	.section .note.GNU-stack, "", @progbits
