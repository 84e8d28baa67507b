// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Two threads count to 200,000: c++ -std=c++17 -pthread counter.cc
#include <iostream>
#include <mutex>
#include <thread>
#include <unspin/locks.hpp>

static unspin::lease lock;
static long counter;

static void count()
{
	for (int i = 0; i < 100000; i++) {
		std::lock_guard guard(lock);
		counter++;
	}
}

int main()
{
	std::thread other(count);

	count();
	other.join();
	std::cout << counter << '\n';
}
