// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Extended time slices: what a lock writes to the kernel's area, and when it gives the CPU up. The program
 * plays the kernel. Prints the rules that are broken.
 */
#include "expect.h"

struct unspin_slice_area;

static struct unspin_slice_area *unspin_slice_area(void);
static bool unspin_slice_enable(void);
static void unspin_slice_yield(void);

#define UNSPIN_SLICE_PLAYED
#include "lease.h"

static struct unspin_slice_area area, of_another_thread;
static bool has_area, refuses, in_another_thread;
static unsigned int enabled, yielded;

static struct unspin_slice_area *unspin_slice_area(void)
{
	return !has_area ? NULL : in_another_thread ? &of_another_thread : &area;
}

static bool unspin_slice_enable(void)
{
	enabled++;
	if (!refuses)
		unspin_slice_area()->flags |= UNSPIN_SLICE_ENABLED;
	return !refuses;
}

static void unspin_slice_yield(void)
{
	yielded++;
	area.granted = 0;
}

/* A new program. */
static void begin(bool with_area, unsigned int flags)
{
	area = (struct unspin_slice_area){ .flags = flags };
	atomic_store(&unspin_slice_state, UNSPIN_SLICE_UNKNOWN);
	has_area = with_area;
	refuses = in_another_thread = unspin_slice_refused = false;
	enabled = yielded = 0;
}

static struct unspin_lease_lock lock;

static void without(void)
{
	begin(false, 0);
	unspin_lease_lock(&lock);
	unspin_lease_unlock(&lock);
	expect(unspin_slice_now() == UNSPIN_SLICE_NONE, "no area, and it looks again each time");

	begin(true, 0);
	unspin_lease_lock(&lock);
	expect(!area.request && !enabled, "a lock asks where the extension is not available");
	unspin_lease_unlock(&lock);

	begin(true, UNSPIN_SLICE_AVAILABLE);
	refuses = true;
	unspin_lease_lock(&lock);
	unspin_lease_unlock(&lock);
	unspin_lease_lock(&lock);
	expect(!area.request && enabled == 1, "a lock asks a kernel that refuses, or again");
	unspin_lease_unlock(&lock);
}

static void with(void)
{
	begin(true, UNSPIN_SLICE_AVAILABLE);
	unspin_lease_lock(&lock);
	expect(enabled == 1 && area.flags & UNSPIN_SLICE_ENABLED, "the extension is not enabled");
	expect(area.request == 1, "a holder does not ask");
	unspin_lease_unlock(&lock);
	expect(!area.request, "a thread asks for ever");
	expect(!yielded, "a thread gives the CPU up without an extension");

	unspin_lease_lock(&lock);
	area.request = 0;
	area.granted = 1;
	unspin_lease_unlock(&lock);
	expect(yielded == 1, "a thread keeps the CPU after its extension");
	expect(enabled == 1, "the extension is enabled twice");

	expect(unspin_lease_trylock(&lock) && area.request == 1, "a holder does not ask after trylock");
	expect(!unspin_lease_trylock(&lock), "trylock takes a held lock");
	unspin_lease_unlock(&lock);

	/* Another thread: its area is not enabled yet. */
	area.flags = UNSPIN_SLICE_AVAILABLE;
	unspin_lease_lock(&lock);
	expect(enabled == 2 && area.request == 1, "the extension is not enabled in another thread");
	unspin_lease_unlock(&lock);
}

/* Two locks at a time; the slice is extended before the second one. */
static void within_an_extension(void)
{
	static struct unspin_lease_lock other;

	begin(true, UNSPIN_SLICE_AVAILABLE);
	unspin_lease_lock(&lock);
	area.request = 0;
	area.granted = 1;
	unspin_lease_lock(&other);
	expect(!area.request, "a thread asks within an extension");
	unspin_lease_unlock(&other);
	unspin_lease_unlock(&lock);
	expect(yielded == 1, "a thread gives the CPU up twice, or keeps it");
}

/* A thread under a filter is refused while another one holds a lock. */
static void refused_in_one_thread(void)
{
	static struct unspin_lease_lock other;

	begin(true, UNSPIN_SLICE_AVAILABLE);
	of_another_thread = area;
	unspin_lease_lock(&lock);
	in_another_thread = refuses = true;
	unspin_lease_lock(&other);
	unspin_lease_unlock(&other);
	unspin_lease_lock(&other);
	unspin_lease_unlock(&other);
	expect(enabled == 2, "a thread that was refused asks again");
	in_another_thread = false;
	area.granted = 1;
	unspin_lease_unlock(&lock);
	expect(!area.request, "a thread asks for ever because another one was refused");
	expect(yielded == 1, "a thread keeps the CPU because another one was refused");
}

/* The object that releases the lock has taken none yet. */
static void released_by_another_object(void)
{
	begin(true, UNSPIN_SLICE_AVAILABLE);
	unspin_lease_lock(&lock);
	atomic_store(&unspin_slice_state, UNSPIN_SLICE_UNKNOWN);
	area.granted = 1;
	unspin_lease_unlock(&lock);
	expect(!area.request, "a thread asks for ever after another object released its lock");
	expect(yielded == 1, "a thread keeps the CPU after another object released its lock");

	begin(false, 0);
	atomic_store(&lock.uses, 1);
	unspin_lease_unlock(&lock);
}

int main(void)
{
	without();
	with();
	within_an_extension();
	refused_in_one_thread();
	released_by_another_object();
	return failures != 0;
}
