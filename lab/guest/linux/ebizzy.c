// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * ebizzy THREADS SEED: threads that copy a chunk of memory, search in the copy and free it, over and
 * over, as a server does that answers requests from memory.
 *
 * Written anew from what the papers and the manual say about ebizzy 0.3 (Valerie Henson, GPL-2), with its
 * defaults: 10 chunks of 256 KiB, of which each thread takes any. malloc() maps each copy, and free()
 * unmaps it: so all pages of a copy are faulted in again, and all vCPUs flush their translations. One unit
 * is one copy, which ebizzy calls a record.
 */
#include <malloc.h>
#include <string.h>
#include "units.h"

#define CHUNKS 10
#define CHUNK_BYTES (256 << 10)
#define ENTRIES (CHUNK_BYTES / sizeof(uint32_t))
#define THREADS_MAX 256

static struct area *area;
static uint32_t *chunk[CHUNKS];

static uint32_t next(uint32_t *state)
{
	*state = *state * 1103515245u + 12345u;
	return *state >> 8;
}

static int compare(const void *key, const void *entry)
{
	uint32_t left = *(const uint32_t *)key, right = *(const uint32_t *)entry;

	return (left > right) - (left < right);
}

static void *copy_and_search(void *seed)
{
	uint64_t *slot = units_slot(area);
	uint32_t state = (uint32_t)(uintptr_t)seed;

	for (;;) {
		uint32_t *copy = malloc(CHUNK_BYTES), key;

		if (!copy)
			units_refuse("ebizzy: no memory for %d bytes", CHUNK_BYTES);
		memcpy(copy, chunk[next(&state) % CHUNKS], CHUNK_BYTES);
		key = next(&state) % ENTRIES;
		if (bsearch(&key, copy, ENTRIES, sizeof(*copy), compare) != copy + key)
			units_refuse("ebizzy: entry %u is not in its place", key);
		free(copy);
		units_count(slot);
	}
	return NULL;
}

static void fill_chunks(void)
{
	for (int i = 0; i < CHUNKS; i++) {
		chunk[i] = malloc(CHUNK_BYTES);
		if (!chunk[i])
			units_refuse("ebizzy: no memory for %d bytes", CHUNK_BYTES);
		for (uint32_t entry = 0; entry < ENTRIES; entry++)
			chunk[i][entry] = entry;
	}
}

int main(int count, char **arguments)
{
	int threads = count == 3 ? atoi(arguments[1]) : 0;

	if (threads < 1 || threads > THREADS_MAX)
		units_refuse("usage: ebizzy THREADS SEED, with 1 to %d threads", THREADS_MAX);
	area = units_area();
	/* Otherwise the first free() raises the limit, and later copies stay in a heap. */
	if (!mallopt(M_MMAP_THRESHOLD, CHUNK_BYTES / 2))
		units_refuse("ebizzy: mallopt() failed");
	fill_chunks();
	units_run_threads("ebizzy", threads, copy_and_search, arguments[2], THREADS_MAX);
}
