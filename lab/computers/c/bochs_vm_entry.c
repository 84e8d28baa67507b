// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A library that the lab preloads into Bochs. It mends how Bochs enters a guest whose interrupts are
 * off (RFLAGS.IF = 0).
 *
 * What a processor does: with the control "external-interrupt exiting", which KVM always sets, an
 * interrupt of the host ends the guest whatever the guest's IF is (Intel SDM vol. 3, "External-interrupt
 * exiting"). So a guest that spins or holds a lock with its interrupts off still loses its CPU when the
 * host's scheduler tick says so.
 *
 * What Bochs does (2.7, 3.0 and the sources after it; cpu/vmx.cc, cpu/flag_ctrl_pro.cc): it keeps a mask of
 * events that have to wait. handleInterruptMaskChange() computes the part of it that depends on IF,
 * and knows the exception for guests. VMLAUNCH and VMRESUME call it while they load the guest's flags,
 * but set in_vmx_guest only later: it still takes IF for the host's and masks the host's interrupts. They
 * wait until the guest changes its IF or leaves for another reason.
 *
 * How it is mended: VMLAUNCH and VMRESUME are one function. After it has set in_vmx_guest it calls
 * VMenterInjectEvents(), once. This library leads that call to entered(), which computes the mask again and
 * then does what the call did. The mask depends on nothing but the state of the CPU, so computing
 * it twice changes nothing where it was right, and costs no virtual time.
 *
 * What it may touch: the four bytes of that one call, and a page of its own near Bochs's code, from where
 * a jump leads to entered(). Functions are found by the names that Bochs exports for its plugins. Where
 * one is missing, as in the shell script that starts Bochs, it does nothing. Where all are there and the
 * call is not found exactly once, it ends the program: a Bochs that is not mended must not run.
 *
 * Whatever it finds it says on standard error, before Bochs begins. The lab boots nothing with a Bochs
 * that has not said MENDED (src/vm_entry.rs).
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef __x86_64__
#error "calls are found and led elsewhere in x86-64 code only"
#endif

#define LAUNCH "_ZN8BX_CPU_C8VMLAUNCHEP15bxInstruction_c"
#define INJECT_EVENTS "_ZN8BX_CPU_C19VMenterInjectEventsEv"
#define MASK_CHANGE "_ZN8BX_CPU_C25handleInterruptMaskChangeEv"

/* What the lab looks for. */
#define MENDED "unspin: host interrupts end guests with RFLAGS.IF = 0\n"

/* call rel32, from the end of the instruction. */
#define CALL 0xe8
#define CALL_BYTES 5
/* How far such a call reaches is 2 GiB; Bochs's own code is a part of that. */
#define NEAR_BYTES ((uintptr_t)1 << 30)
#define NEAR_STEP_BYTES ((uintptr_t)1 << 20)

/* Methods: their first argument is the CPU. */
static void (*inject_events)(void *cpu);
static void (*mask_change)(void *cpu);

static void refuse(const char *why)
{
	dprintf(STDERR_FILENO, "unspin: %s\n", why);
	_exit(1);
}

/*
 * In VMLAUNCH's place. Registers that a call may change are free here: VMenterInjectEvents() calls
 * functions of other files itself, so its caller keeps nothing in them.
 */
static void entered(void *cpu)
{
	mask_change(cpu);
	inject_events(cpu);
}

static uint8_t *target_of(const uint8_t *call)
{
	int32_t distance;

	memcpy(&distance, call + 1, sizeof(distance));
	return (uint8_t *)call + CALL_BYTES + distance;
}

/* The one call of `callee` in the function at `begin`. */
static uint8_t *find_call(uint8_t *begin, const uint8_t *callee)
{
	const ElfW(Sym) *symbol = NULL;
	uint8_t *found = NULL;
	Dl_info info;

	if (!dladdr1(begin, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol || info.dli_saddr != begin)
		refuse("the length of its VMLAUNCH is not known");
	for (size_t at = 0; at + CALL_BYTES <= symbol->st_size; at++) {
		if (begin[at] != CALL || target_of(begin + at) != callee)
			continue;
		if (found)
			refuse("its VMLAUNCH calls VMenterInjectEvents more than once");
		found = begin + at;
	}
	if (!found)
		refuse("its VMLAUNCH does not call VMenterInjectEvents");
	return found;
}

/* A jump to entered() that a call in `code` reaches. */
static uint8_t *jump_near(const uint8_t *code, size_t page_bytes)
{
	/* movabs $entered, %rax; jmp *%rax */
	uint8_t jump[] = { 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0 };
	void (*to)(void *) = entered;

	memcpy(jump + 2, &to, sizeof(to));
	for (uintptr_t below = NEAR_STEP_BYTES; below < NEAR_BYTES; below += NEAR_STEP_BYTES) {
		void *want = (void *)(((uintptr_t)code - below) & ~(page_bytes - 1));
		void *page = mmap(want, page_bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (page == MAP_FAILED)
			continue;
		/* Linux before 4.17 takes the address as a wish. */
		if (page != want) {
			munmap(page, page_bytes);
			continue;
		}
		memcpy(page, jump, sizeof(jump));
		if (mprotect(page, page_bytes, PROT_READ | PROT_EXEC))
			refuse("this computer lets no page be made code");
		return page;
	}
	refuse("there is no free page near its code");
	return NULL;
}

static void lead(uint8_t *call, const uint8_t *to, size_t page_bytes)
{
	int32_t distance = (int32_t)(to - (call + CALL_BYTES));
	uintptr_t first = (uintptr_t)call & ~(page_bytes - 1);
	size_t bytes = (uintptr_t)call + CALL_BYTES - first;

	if (mprotect((void *)first, bytes, PROT_READ | PROT_WRITE))
		refuse("this computer lets no code be changed");
	memcpy(call + 1, &distance, sizeof(distance));
	if (mprotect((void *)first, bytes, PROT_READ | PROT_EXEC))
		refuse("this computer lets no page be made code");
}

/* Before Bochs's main(), while there is one thread. */
__attribute__((constructor)) static void mend(void)
{
	uint8_t *launch = dlsym(RTLD_DEFAULT, LAUNCH);
	uint8_t *inject = dlsym(RTLD_DEFAULT, INJECT_EVENTS);
	uint8_t *mask = dlsym(RTLD_DEFAULT, MASK_CHANGE);
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *call;

	if (!launch || !inject || !mask)
		return;
	memcpy(&inject_events, &inject, sizeof(inject));
	memcpy(&mask_change, &mask, sizeof(mask));
	call = find_call(launch, inject);
	lead(call, jump_near(call, page_bytes), page_bytes);
	dprintf(STDERR_FILENO, MENDED);
}
