// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Detects spinning in user space by samples of a vCPU's state.
 */
#include "userspin.h"

_Static_assert(sizeof(struct userspin_sample) == 24, "as in Rust");
_Static_assert(sizeof(struct userspin_state) == 392, "as in Rust");
_Static_assert(sizeof(struct userspin_verdict) == 24, "as in Rust");

int userspin_params_check(const struct userspin_params *params)
{
	if (!params->samples || params->samples > USERSPIN_SAMPLES_MAX)
		return 1;
	if (!params->threshold || params->threshold > params->samples)
		return 2;
	if (!params->still || params->still > params->samples)
		return 3;
	if (!params->range_bytes || params->range_bytes > USERSPIN_RANGE_MAX_BYTES)
		return 4;
	return 0;
}

void userspin_init(struct userspin_state *state)
{
	state->next = 0;
	state->count = 0;
}

void userspin_add(struct userspin_state *state, const struct userspin_sample *sample)
{
	pol_u32 next = state->next % USERSPIN_SAMPLES_MAX;

	state->samples[next] = *sample;
	state->next = (next + 1) % USERSPIN_SAMPLES_MAX;
	state->count = pol_clamp_u32((pol_u64)state->count + 1, 1, USERSPIN_SAMPLES_MAX);
}

/* The last sample is 0, the one before it is 1, and so on. */
static const struct userspin_sample *sample_at(const struct userspin_state *state, pol_u32 age)
{
	pol_u32 next = state->next % USERSPIN_SAMPLES_MAX;

	return &state->samples[(next + USERSPIN_SAMPLES_MAX - 1 - age) % USERSPIN_SAMPLES_MAX];
}

static pol_u8 is_within(const struct userspin_sample *sample, pol_u64 low, pol_u32 range_bytes)
{
	return sample->user && sample->address >= low && sample->address - low < range_bytes;
}

/* How many of the last count samples lie within range_bytes from low on, and the last of them. */
static pol_u32 count_from(const struct userspin_state *state, pol_u32 count, pol_u64 low,
			  pol_u32 range_bytes, pol_u64 *high)
{
	pol_u32 age, found = 0;

	*high = low;
	for (age = 0; age < count; age++) {
		const struct userspin_sample *sample = sample_at(state, age);

		if (!is_within(sample, low, range_bytes))
			continue;
		found++;
		if (sample->address > *high)
			*high = sample->address;
	}
	return found;
}

/* The largest number of samples in a range with the same registers. */
static pol_u32 most_alike(const struct userspin_state *state, pol_u32 count, pol_u64 low,
			  pol_u32 range_bytes)
{
	pol_u32 age, other, alike, most = 0;

	for (age = 0; age < count; age++) {
		const struct userspin_sample *sample = sample_at(state, age);

		if (!is_within(sample, low, range_bytes) || !sample->registers)
			continue;
		alike = 0;
		for (other = 0; other < count; other++)
			alike += is_within(sample_at(state, other), low, range_bytes) &&
				 sample_at(state, other)->registers == sample->registers;
		if (alike > most)
			most = alike;
	}
	return most;
}

void userspin_judge(const struct userspin_state *state, const struct userspin_params *params,
		    struct userspin_verdict *verdict)
{
	pol_u32 count = pol_clamp_u32(params->samples, 1, USERSPIN_SAMPLES_MAX);
	pol_u32 range_bytes = pol_clamp_u32(params->range_bytes, 1, USERSPIN_RANGE_MAX_BYTES);
	pol_u32 age;

	verdict->low = 0;
	verdict->high = 0;
	verdict->in_range = 0;
	verdict->kind = USERSPIN_NO;
	if (state->count < count)
		return;
	for (age = 0; age < count; age++) {
		const struct userspin_sample *sample = sample_at(state, age);
		pol_u64 high;
		pol_u32 found;

		if (!sample->user)
			continue;
		found = count_from(state, count, sample->address, range_bytes, &high);
		if (found < verdict->in_range ||
		    (found == verdict->in_range && sample->address >= verdict->low))
			continue;
		verdict->low = sample->address;
		verdict->high = high;
		verdict->in_range = found;
	}
	if (!verdict->in_range || verdict->in_range < params->threshold)
		return;
	verdict->kind = USERSPIN_LOOP;
	if (params->still && most_alike(state, count, verdict->low, range_bytes) >= params->still)
		verdict->kind = USERSPIN_STILL_LOOP;
}

pol_u32 userspin_code(const struct userspin_verdict *verdict, pol_u64 *from)
{
	pol_u64 before = pol_clamp_u32(verdict->low, 0, USERSPIN_MARGIN_BYTES);
	pol_u64 loop_bytes = verdict->high > verdict->low ? verdict->high - verdict->low : 0;

	*from = verdict->low - before;
	if (verdict->kind == USERSPIN_NO)
		return 0;
	return pol_clamp_u32(pol_sat_add(loop_bytes, before + USERSPIN_MARGIN_BYTES), 0,
			     USERSPIN_CODE_MAX_BYTES);
}

/*
 * 0F AE /6 with a register operand is TPAUSE after prefix 66, and UMWAIT after F2. A REX prefix
 * between them selects one of the upper eight registers.
 */
static pol_u8 is_timed_pause(const pol_u8 *code, pol_u32 left)
{
	pol_u32 rex = left > 1 && (code[1] & 0xf0) == 0x40;

	if (left < 4 + rex)
		return 0;
	return (code[0] == 0x66 || code[0] == 0xf2) && code[1 + rex] == 0x0f &&
	       code[2 + rex] == 0xae && (code[3 + rex] & 0xf8) == 0xf0;
}

pol_u8 userspin_has_pause(const pol_u8 *code, pol_u32 bytes)
{
	pol_u32 at;

	for (at = 0; at < bytes; at++) {
		pol_u32 left = bytes - at;

		if (left >= 2 && code[at] == 0xf3 && code[at + 1] == 0x90)
			return 1;
		if (is_timed_pause(code + at, left))
			return 1;
	}
	return 0;
}

pol_u64 userspin_digest(const pol_u64 *registers, pol_u32 count)
{
	pol_u64 digest = 0x9e3779b97f4a7c15ull;
	pol_u32 i;

	for (i = 0; i < count; i++) {
		digest ^= registers[i];
		digest ^= digest << 13;	/* xorshift64, Marsaglia 2003 */
		digest ^= digest >> 7;
		digest ^= digest << 17;
	}
	return digest ? digest : 1;
}
