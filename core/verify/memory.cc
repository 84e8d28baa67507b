/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The memory model of memory.h. */
#include "memory.h"
#include "threads.h"
#include <algorithm>
#include <cstddef>
#include <cstdlib>

static void join(View &into, const View &from)
{
	for (unsigned int p = 0; p < PARTS_MAX; p++)
		into[p] = std::max(into[p], from[p]);
}

/* Bytes of each of an access's parts. */
static unsigned int part_bytes(const Access &access)
{
	return access.word->bytes / access.word->parts;
}

/* The value before any write. On a thread's stack there is none. */
void Memory::first_value(const Word &word)
{
	uint64_t value = 0;
	bool undefined = is_on_a_stack(word.address);

	if (!undefined)
		memcpy(&value, (const void *)word.address, word.bytes);
	for (unsigned int i = 0; i < word.parts; i++) {
		Write &write = initial[word.first + i];

		memset(&write, 0, sizeof(write));
		write.value = value >> (8 * i * word.bytes / word.parts) & mask(word.bytes / word.parts);
		write.undefined = undefined;
	}
}

/* A word that is used for the first time, or of which a half is. */
void Memory::find(uintptr_t address, unsigned int bytes, bool halved)
{
	bool known = false;

	for (Word &word : words)
		if (word.address == address) {
			known = true;
			word.parts = 2;
		}
	if (!known)
		words.push_back({ address, bytes, halved ? 2u : 1u, 0 });
	parts = 1;
	for (Word &word : words) {
		word.first = parts;
		parts += word.parts;
		if (parts > PARTS_MAX)
			abort();
		first_value(word);
	}
	throw Again();
}

Access Memory::access(const void *object, unsigned int bytes)
{
	uintptr_t address = (uintptr_t)object, base = address & ~3ul;
	bool half = bytes == 2;

	if (!half && bytes != 4 && bytes != 8)
		abort();
	for (const Word &word : words) {
		if (word.address != base)
			continue;
		if (!half)
			return { &word, word.first, word.parts };
		if (word.parts == 2)
			return { &word, word.first + unsigned(address - base) / 2, 1 };
	}
	find(base, half ? 4 : bytes, half);
	abort();
}

void Memory::start(State &state) const
{
	memset(&state, 0, sizeof(state));
	for (unsigned int p = 0; p < PARTS_MAX; p++) {
		state.part[p].count = 1;
		state.part[p].writes[0] = initial[p];
	}
	for (unsigned int t = 0; t < threads; t++)
		state.view[t][0] = 1;
}

/* Does something with all that names writes to a part: views of threads and of writes. */
template <typename Each> static void views(State &state, Each each)
{
	for (View &view : state.view)
		each(view);
	each(state.woken);
	for (Part &part : state.part)
		for (unsigned int i = 0; i < part.count; i++)
			each(part.writes[i].view);
}

void Memory::insert(State &state, unsigned int p, unsigned int at, const Write &write) const
{
	Part &part = state.part[p];

	views(state, [=](View &view) {
		if (view[p] >= at)
			view[p]++;
	});
	for (unsigned int i = part.count++; i > at; i--)
		part.writes[i] = part.writes[i - 1];
	part.writes[at] = write;
}

void Memory::drop(State &state, unsigned int p, unsigned int count) const
{
	Part &part = state.part[p];

	if (!count)
		return;
	part.count -= count;
	memmove(part.writes, part.writes + count, part.count * sizeof(part.writes[0]));
	views(state, [=](View &view) { view[p] = view[p] > count ? view[p] - count : 0; });
}

void Memory::tidy(State &state)
{
	for (unsigned int p = 1; p < parts; p++) {
		Part &part = state.part[p];
		unsigned int oldest = part.count - 1;

		for (unsigned int t = 0; t < threads; t++)
			if (state.status[t] < JOINS)
				oldest = std::min<unsigned int>(oldest, state.view[t][p]);
		if (part.count - oldest > writes_max) {
			oldest = part.count - writes_max;
			cut++;
		}
		drop(state, p, oldest);
		part.writes[0].update = false;
	}
	for (const Word &word : words) {
		uint8_t least = 255;

		for (unsigned int i = 0; i < word.parts; i++)
			least = std::min(least, state.part[word.first + i].writes[0].epoch);
		for (unsigned int i = 0; i < word.parts; i++) {
			Part &part = state.part[word.first + i];
			for (unsigned int j = 0; j < part.count; j++)
				part.writes[j].epoch = word.parts == 1 ? 0 : part.writes[j].epoch - least;
		}
	}
	for (unsigned int t = 0; t < threads; t++)
		if (state.status[t] >= JOINS)
			memset(state.view[t], 0, sizeof(View));
}

/* Only what is not as at the start is written down, so that words found later do not tell states apart. */
static void pack_view(std::string &bytes, const View &view)
{
	size_t length = bytes.size();

	bytes.push_back(0);
	for (unsigned int p = 0; p < PARTS_MAX; p++)
		if (view[p]) {
			bytes.push_back(p);
			bytes.push_back(view[p]);
			bytes[length]++;
		}
}

static const char *unpack_view(View &view, const char *from)
{
	unsigned int count = uint8_t(*from++);

	memset(view, 0, sizeof(view));
	for (; count--; from += 2)
		view[uint8_t(from[0])] = from[1];
	return from;
}

std::string Memory::pack(const State &state) const
{
	std::string bytes((const char *)&state, offsetof(State, view));

	bytes.append((const char *)&state.inside, offsetof(State, part) - offsetof(State, inside));
	for (unsigned int t = 0; t < threads; t++)
		pack_view(bytes, state.view[t]);
	pack_view(bytes, state.woken);
	for (unsigned int p = 1; p < parts; p++) {
		const Part &part = state.part[p];

		if (part.count == 1 && !memcmp(part.writes, &initial[p], sizeof(Write)))
			continue;
		bytes.push_back(p);
		bytes.push_back(part.count);
		for (unsigned int i = 0; i < part.count; i++) {
			const Write &write = part.writes[i];

			bytes.append((const char *)&write.value, sizeof(write.value));
			bytes.append((const char *)&write.epoch, sizeof(Write) - offsetof(Write, epoch));
			pack_view(bytes, write.view);
		}
	}
	return bytes;
}

void Memory::unpack(State &state, const std::string &bytes) const
{
	const char *from = bytes.data(), *end = from + bytes.size();
	const size_t checks = offsetof(State, part) - offsetof(State, inside);

	start(state);
	memcpy((char *)&state, from, offsetof(State, view));
	from += offsetof(State, view);
	memcpy((char *)&state.inside, from, checks);
	from += checks;
	for (unsigned int t = 0; t < threads; t++)
		from = unpack_view(state.view[t], from);
	from = unpack_view(state.woken, from);
	while (from < end) {
		Part &part = state.part[uint8_t(from[0])];

		part.count = from[1];
		from += 2;
		for (unsigned int i = 0; i < part.count; i++) {
			Write &write = part.writes[i];

			memcpy(&write.value, from, sizeof(write.value));
			from += sizeof(write.value);
			memcpy(&write.epoch, from, sizeof(Write) - offsetof(Write, epoch));
			from = unpack_view(write.view, from + sizeof(Write) - offsetof(Write, epoch));
		}
	}
}

/* Whether a thread may read two parts of a word at once: see memory.h. */
static bool may_read_together(const Write &low, const Write &high, unsigned int thread)
{
	return low.epoch == high.epoch || (low.epoch > high.epoch && low.own == thread + 1) ||
	       (high.epoch > low.epoch && high.own == thread + 1);
}

std::vector<Source> Memory::sources(const State &state, unsigned int thread, const Access &access,
				    const uint8_t *floor) const
{
	const Part *part = &state.part[access.first];
	std::vector<Source> found;
	unsigned int from[2] = { 0, 0 };

	for (unsigned int i = 0; i < access.parts; i++)
		from[i] = std::max(state.view[thread][access.first + i],
				   floor ? floor[access.first + i] : uint8_t(0));
	for (unsigned int i = from[0]; i < part[0].count; i++) {
		const Write &low = part[0].writes[i];

		if (access.parts == 1) {
			found.push_back({ { i, 0 }, low.value, low.undefined });
			continue;
		}
		for (unsigned int j = from[1]; j < part[1].count; j++) {
			const Write &high = part[1].writes[j];

			if (may_read_together(low, high, thread))
				found.push_back({ { i, j },
						  low.value | high.value << 8 * part_bytes(access),
						  low.undefined || high.undefined });
		}
	}
	return found;
}

bool Memory::may_update(const State &state, const Access &access, const Source &source) const
{
	const Part *part = &state.part[access.first];

	for (unsigned int i = 0; i < access.parts; i++)
		if (source.at[i] + 1 < part[i].count && part[i].writes[source.at[i] + 1].update)
			return false;
	return access.parts == 1 ||
	       part[0].writes[source.at[0]].epoch == part[1].writes[source.at[1]].epoch;
}

void Memory::load(State &state, unsigned int thread, const Access &access, const Source &source,
		  unsigned int order) const
{
	View &view = state.view[thread];

	for (unsigned int i = 0; i < access.parts; i++) {
		unsigned int p = access.first + i;

		view[p] = std::max<uint8_t>(view[p], source.at[i]);
		if (order & MODEL_ACQUIRE)
			join(view, state.part[p].writes[source.at[i]].view);
	}
}

/* @read: for an update, the writes of each part that it reads. */
void Memory::put(State &state, unsigned int thread, const Access &access, const Source &place,
		 uint64_t value, unsigned int order, const Write *read) const
{
	bool whole = access.parts == access.word->parts;

	for (unsigned int i = 0; i < access.parts; i++) {
		unsigned int p = access.first + i, at = place.at[i];
		Write write = {};

		write.value = value >> (8 * i * part_bytes(access)) & mask(part_bytes(access));
		write.update = read != nullptr;
		write.own = whole || read ? 0 : thread + 1;
		write.epoch = state.part[p].writes[at - 1].epoch + whole;
		insert(state, p, at, write);
		for (unsigned int j = at + 1; whole && j < state.part[p].count; j++)
			state.part[p].writes[j].epoch++;
		state.view[thread][p] = at;
	}
	/* All parts are in place now, so that the views are right. */
	for (unsigned int i = 0; i < access.parts; i++) {
		unsigned int p = access.first + i;
		Write &write = state.part[p].writes[place.at[i]];

		if (read)
			memcpy(write.view, state.part[p].writes[place.at[i] - 1].view, sizeof(View));
		if (order & MODEL_RELEASE)
			join(write.view, state.view[thread]);
	}
}

void Memory::update(State &state, unsigned int thread, const Access &access, const Source &source,
		    uint64_t value, unsigned int order) const
{
	Source place = source;

	load(state, thread, access, source, order);
	for (unsigned int i = 0; i < access.parts; i++)
		place.at[i]++;
	put(state, thread, access, place, value, order, state.part[access.first].writes);
}

std::vector<Source> Memory::places(const State &state, unsigned int thread, const Access &access) const
{
	const Part *part = &state.part[access.first];
	const uint8_t *view = &state.view[thread][access.first];
	std::vector<Source> found;
	auto free = [](const Part &of, unsigned int at) {
		return at == of.count || !of.writes[at].update;
	};

	for (unsigned int i = view[0] + 1u; i <= part[0].count; i++) {
		if (!free(part[0], i))
			continue;
		if (access.parts == 1) {
			found.push_back({ { i, 0 }, 0, false });
			continue;
		}
		for (unsigned int j = view[1] + 1u; j <= part[1].count; j++)
			if (free(part[1], j) && part[0].writes[i - 1].epoch == part[1].writes[j - 1].epoch)
				found.push_back({ { i, j }, 0, false });
	}
	return found;
}

void Memory::store(State &state, unsigned int thread, const Access &access, const Source &place,
		   uint64_t value, unsigned int order) const
{
	put(state, thread, access, place, value, order, nullptr);
}

uint64_t Memory::latest(const State &state, const void *object)
{
	Access all = access(object, 4);
	uint64_t value = 0;

	for (unsigned int i = 0; i < all.parts; i++)
		value |= state.part[all.first + i].last().value << (8 * i * part_bytes(all));
	return value;
}

/* Of the data only the last write counts: to have seen it is 1, anything else is a data race. */
void Memory::write_data(State &state, unsigned int thread) const
{
	views(state, [](View &view) { view[0] = 0; });
	state.view[thread][0] = 1;
}

void Memory::see_all(State &state, unsigned int thread) const
{
	for (unsigned int p = 0; p < parts; p++)
		state.view[thread][p] = state.part[p].count - 1;
	state.view[thread][0] = 1;
}
