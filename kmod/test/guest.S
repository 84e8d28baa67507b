/* SPDX-License-Identifier: GPL-2.0-only */
/* Real mode, every vCPU: think, take a ticket lock with PAUSE, hold it, count, for ever. */
	.code16
	.globl	guest_start, guest_end
guest_start:
1:	mov	%di, %cx		/* di: think */
2:	loop	2b
	mov	$1, %ax
	lock xadd %ax, 0x2000		/* next ticket */
3:	cmp	%ax, 0x2040		/* now served */
	je	4f
	pause
	jmp	3b
4:	mov	%si, %cx		/* si: critical section */
5:	loop	5b
	incw	0x2040
	incl	(%bp)			/* bp: this vCPU's count */
	jmp	1b
guest_end:
	.section .note.GNU-stack, "", @progbits
