/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What peers.h and cxx.cc share: room for a lock of C++. */
#ifndef UNSPIN_BENCH_LOCKS_CXX_H
#define UNSPIN_BENCH_LOCKS_CXX_H

struct cxx_lock {
	unsigned long words[5];
};

#endif
