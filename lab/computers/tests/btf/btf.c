// SPDX-License-Identifier: GPL-2.0-only
/*
 * Properties of kmod/btf.c, over type information made by chance: SEED ROUNDS. What it is compiled with
 * (tests/btf.rs) ends it at the first access outside of what it has.
 */
#include "kernel.h"
#include "../../../../core/kmod/btf.c"

struct file files[2];
char said[400];

static u64 seed;

static u32 chance(u32 below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)(seed >> 33) % below;
}

#define fail(...) (printf(__VA_ARGS__), printf("; seed %llu\n", (unsigned long long)start), exit(1))

#define TYPES_MAX 40
#define KINDS 32	/* more than there are */
#define STRINGS "\0kvm_vcpu\0ready\0kvm_vcpu_on_spin\0other\0"
enum { N_NONE = 0, N_VCPU = 1, N_READY = 10, N_ON_SPIN = 16, N_OTHER = 33 };

/* One generated file. */
struct made {
	u8 bytes[1 << 16];
	u32 at;			/* end of the types */
	u32 types;
	u32 type_at[TYPES_MAX];
	u32 total;
};

static const struct { u8 info, elem; } known[KINDS] = {
	[BTF_KIND_INT] = { 4, 0 }, [BTF_KIND_ARRAY] = { 12, 0 }, [BTF_KIND_STRUCT] = { 0, 12 },
	[BTF_KIND_UNION] = { 0, 12 }, [BTF_KIND_ENUM] = { 0, 8 }, [BTF_KIND_FUNC_PROTO] = { 0, 8 },
	[BTF_KIND_VAR] = { 4, 0 }, [BTF_KIND_DATASEC] = { 0, 12 }, [BTF_KIND_DECL_TAG] = { 4, 0 },
	[BTF_KIND_ENUM64] = { 0, 12 },
};
/* The size of kinds that the reader does not know, as the layout gives it. */
#define LATER_INFO 8
#define LATER_ELEM 20

static void *put(struct made *made, u32 bytes)
{
	void *at = made->bytes + made->at;

	made->at += bytes;
	return at;
}

static u32 type_put(struct made *made, u32 kind, u32 vlen, u32 name, u32 of)
{
	struct btf_type *type;

	made->type_at[made->types++] = made->at;
	type = put(made, sizeof(*type));
	type->name_off = name;
	type->info = kind << 24 | vlen;
	type->size = of;
	if (kind > BTF_KIND_MAX)
		put(made, LATER_INFO + vlen * LATER_ELEM);
	else
		put(made, known[kind].info + vlen * known[kind].elem);
	return made->types;
}

static void begin(struct made *made, bool layout)
{
	memset(made, 0, sizeof(*made));
	made->at = sizeof(struct btf_header) + (layout ? 8 : 0);
}

static void end(struct made *made, bool layout, bool own)
{
	struct btf_header *header = (struct btf_header *)made->bytes;
	u32 *found = (u32 *)(header + 1), kind;

	*header = (struct btf_header){ .magic = BTF_MAGIC, .version = BTF_VERSION,
				       .hdr_len = sizeof(*header) + (layout ? 8 : 0) };
	header->type_len = header->str_off = made->at - header->hdr_len;
	header->str_len = sizeof(STRINGS);
	memcpy(put(made, sizeof(STRINGS)), own ? "\0\0" : STRINGS, own ? 2 : sizeof(STRINGS));
	if (layout) {
		made->at = (made->at + 3) & ~3u;
		found[0] = made->at - header->hdr_len;
		found[1] = KINDS * 4;
		for (kind = 0; kind < KINDS; kind++) {
			u8 *of = put(made, 4);

			of[0] = kind > BTF_KIND_MAX ? LATER_INFO : known[kind].info;
			of[1] = kind > BTF_KIND_MAX ? LATER_ELEM : known[kind].elem;
		}
	}
	made->total = made->at;
}

/* Any types of kinds up to a last one, of which nothing is asked. */
static void others_put(struct made *made, u32 last_kind)
{
	u32 n, kinds = chance(12);

	for (n = 0; n < kinds; n++)
		type_put(made, 1 + chance(last_kind), chance(5), N_OTHER, chance(8));
}

/*
 * A module's types: struct kvm_vcpu with a member "ready" of 4 bytes at 24, and kvm_vcpu_on_spin(struct
 * kvm_vcpu *, int). Their numbers go on from the kernel's.
 */
static void module_make(struct made *own, u32 before, u32 last_kind, bool layout)
{
	struct btf_member *member;
	struct btf_param *params;
	u32 number, vcpu, pointer;

	begin(own, layout);
	others_put(own, last_kind);
	number = before + type_put(own, BTF_KIND_INT, 0, N_OTHER, 4);
	others_put(own, last_kind);
	vcpu = before + type_put(own, BTF_KIND_STRUCT, 1, N_VCPU, 64);
	member = (struct btf_member *)(own->bytes + own->at) - 1;
	*member = (struct btf_member){ .name_off = N_READY, .type = number, .offset = 24 * 8 };
	pointer = before + type_put(own, BTF_KIND_PTR, 0, N_NONE, vcpu);
	others_put(own, last_kind);
	type_put(own, BTF_KIND_FUNC_PROTO, 2, N_NONE, 0);
	params = (struct btf_param *)(own->bytes + own->at) - 2;
	params[0] = (struct btf_param){ .type = pointer };
	params[1] = (struct btf_param){ .type = number };
	type_put(own, BTF_KIND_FUNC, 0, N_ON_SPIN, before + own->types);
	end(own, layout, true);
}

/* Looks up everything the module asks for. */
static bool all_found(const struct unspin_btf *btf)
{
	struct unspin_btf_want want = { .member = "ready", .size = 4 };
	bool found = !unspin_btf_members(btf, "kvm_vcpu", &want, 1) && want.offset == 24;

	found &= unspin_btf_size(btf, "kvm_vcpu") == 64;
	found &= unspin_btf_knows(btf, "kvm_vcpu_on_spin");
	found &= unspin_btf_takes(btf, "kvm_vcpu_on_spin", 0, "kvm_vcpu", 0);
	found &= unspin_btf_takes(btf, "kvm_vcpu_on_spin", 1, NULL, 4);
	found &= !unspin_btf_takes(btf, "kvm_vcpu_on_spin", 2, NULL, 4);
	found &= !unspin_btf_takes(btf, "kvm_vcpu_on_spin", 1, NULL, 8);
	return found;
}

static void file_is(u32 at, const char *path, const struct made *made, u32 bytes)
{
	static void *copy[2];

	/* In memory of its very size, so that a byte behind it is noticed. */
	free(copy[at]);
	copy[at] = malloc(bytes ?: 1);
	memcpy(copy[at], made->bytes, bytes);
	files[at] = (struct file){ path, copy[at], bytes };
}

static struct unspin_btf *opened(const struct made *base, const struct made *own)
{
	file_is(0, "/sys/kernel/btf/vmlinux", base, base->total);
	file_is(1, "/sys/kernel/btf/kvm", own, own->total);
	said[0] = 0;
	return unspin_btf_open("kvm");
}

/* Kinds that this module knows, and with a layout others too: everything is found. */
static void found_among_all_kinds(u64 start)
{
	static struct made base, own;
	bool layout = chance(2), own_layout = layout && chance(2);
	u32 last = layout ? KINDS - 1 : BTF_KIND_MAX;
	struct unspin_btf *btf;

	begin(&base, layout);
	others_put(&base, last);
	end(&base, layout, false);
	module_make(&own, base.types, last, own_layout);
	btf = opened(&base, &own);
	if (IS_ERR(btf))
		fail("refused (%ld): %s", PTR_ERR(btf), said);
	if (!all_found(btf))
		fail("not found among %u and %u types", base.types, own.types);
	unspin_btf_close(btf);
}

/* Without a layout, a kind not known refuses the whole, and the line names it. */
static void unknown_kind_is_named(u64 start)
{
	static struct made base, own;
	bool in_base = chance(2);
	struct made *in = in_base ? &base : &own;
	struct unspin_btf *btf;
	struct btf_type *type;
	char words[100];
	u32 which, kind;

	begin(&base, false);
	others_put(&base, BTF_KIND_MAX);
	type_put(&base, BTF_KIND_INT, 0, N_OTHER, 4);
	end(&base, false, false);
	module_make(&own, base.types, BTF_KIND_MAX, false);
	which = chance(in->types);
	kind = BTF_KIND_MAX + 1 + chance(KINDS - 1 - BTF_KIND_MAX);
	type = (struct btf_type *)(in->bytes + in->type_at[which]);
	type->info = kind << 24;
	btf = opened(&base, &own);
	if (!IS_ERR(btf))
		fail("kind %u is taken", kind);
	snprintf(words, sizeof(words), "of %s cannot be used: type %u has the unknown kind %u\n",
		 in_base ? "vmlinux" : "kvm", which + 1 + (in_base ? 0 : base.types), kind);
	if (PTR_ERR(btf) != -EINVAL || !strstr(said, words))
		fail("error %ld, and '%s' does not have '%s'", PTR_ERR(btf), said, words);
}

/* Cut off where types end, with a header that does not know: named. */
static void cut_types_are_named(u64 start)
{
	static struct made base, own;
	struct btf_header *header = (struct btf_header *)own.bytes;
	struct unspin_btf *btf;
	u32 cut;

	begin(&base, false);
	end(&base, false, false);
	module_make(&own, 0, BTF_KIND_MAX, false);
	cut = own.type_at[own.types - 1] + 1 + chance(11);
	header->type_len = cut - header->hdr_len;
	btf = opened(&base, &own);
	if (!IS_ERR(btf) || !strstr(said, "kvm cannot be used: it ends inside type "))
		fail("cut types: %ld, '%s'", PTR_ERR(btf), said);
}

/* Whatever the bytes: an answer, and nothing read that is not there. */
static void damaged_is_survived(u64 start)
{
	static struct made base, own;
	struct made *in = chance(2) ? &base : &own;
	struct unspin_btf *btf;
	u32 n;

	(void)start;
	begin(&base, false);
	others_put(&base, BTF_KIND_MAX);
	end(&base, false, false);
	module_make(&own, base.types, BTF_KIND_MAX, chance(2));
	for (n = chance(4); n; n--)
		in->bytes[chance(in->total)] ^= 1 << chance(8);
	if (chance(3) == 0)
		in->total = chance(in->total);
	btf = opened(&base, &own);
	if (IS_ERR(btf))
		return;
	all_found(btf);
	unspin_btf_close(btf);
}

int main(int argc, char **argv)
{
	static void (*const properties[])(u64 start) = {
		found_among_all_kinds, unknown_kind_is_named, cut_types_are_named, damaged_is_survived,
	};
	u64 first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, n;
	u64 rounds = argc > 2 ? strtoull(argv[2], NULL, 0) : 1000;
	u32 p;

	for (n = first; n < first + rounds; n++) {
		for (p = 0; p < ARRAY_SIZE(properties); p++) {
			seed = n * 2654435761u;
			chance(2);
			properties[p](n);
		}
	}
	printf("%llu rounds\n", (unsigned long long)rounds);
	return 0;
}
