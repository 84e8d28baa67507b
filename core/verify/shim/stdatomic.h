/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * <stdatomic.h> for the checker: the locks' headers are compiled with it as they are. An atomic object is
 * a plain one whose value the checker keeps. What no lock uses is not here: fences, seq_cst, and access
 * without an explicit order.
 */
#ifndef UNSPIN_VERIFY_STDATOMIC_H
#define UNSPIN_VERIFY_STDATOMIC_H

#include <stdbool.h>
#include <stdint.h>
#include "../model.h"

#define _Atomic(type) type
/* The checker keeps what is in this section for each of its threads. */
#undef _Thread_local
#define _Thread_local __attribute__((section("model_locals")))
typedef unsigned short atomic_ushort;
typedef unsigned int atomic_uint;

#define memory_order_relaxed MODEL_RELAXED
#define memory_order_acquire MODEL_ACQUIRE
#define memory_order_release MODEL_RELEASE
#define memory_order_acq_rel MODEL_ACQ_REL

#define MODEL_VALUE(given) ((uint64_t)(uintptr_t)(given))
#define MODEL_OP(kind_, object, given, order_) ({				\
	struct model_op model_op = {						\
		.kind = (kind_), .size = sizeof(*(object)), .order = (order_),	\
		.line = __LINE__, .file = __FILE__,				\
		.word = (object), .value = MODEL_VALUE(given),			\
	};									\
	(__typeof__(*(object)))(uintptr_t)model_do(&model_op).value;		\
})

#define atomic_load_explicit(object, order) MODEL_OP(MODEL_LOAD, object, 0, order)
#define atomic_store_explicit(object, given, order)				\
	((void)MODEL_OP(MODEL_STORE, object, given, order))
#define atomic_exchange_explicit(object, given, order)				\
	MODEL_OP(MODEL_EXCHANGE, object, given, order)
#define atomic_fetch_add_explicit(object, given, order) MODEL_OP(MODEL_ADD, object, given, order)
#define atomic_fetch_or_explicit(object, given, order) MODEL_OP(MODEL_OR, object, given, order)
#define atomic_fetch_and_explicit(object, given, order) MODEL_OP(MODEL_AND, object, given, order)
#define atomic_compare_exchange_strong_explicit(object, seen, given, order_, failed) ({	\
	__typeof__(*(object)) *model_seen = (seen);				\
	struct model_op model_op = {						\
		.kind = MODEL_CAS, .size = sizeof(*(object)), .order = (order_),	\
		.failure = (failed), .line = __LINE__, .file = __FILE__,	\
		.word = (object), .value = MODEL_VALUE(given),			\
		.expected = MODEL_VALUE(*model_seen),				\
	};									\
	struct model_result model_result = model_do(&model_op);			\
	if (!model_result.done)							\
		*model_seen = (__typeof__(*(object)))(uintptr_t)model_result.value;	\
	model_result.done != 0;							\
})

#endif
