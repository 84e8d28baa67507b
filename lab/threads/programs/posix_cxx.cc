// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* C++'s mutexes, conditions, futures and statics, before and in main(). */
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

static void expect(bool is, const char *what)
{
	if (!is) {
		std::printf("%s\n", what);
		std::_Exit(1);
	}
}

template <typename Mutex> static void excludes(const char *what)
{
	constexpr int threads = 6, rounds = 5000;
	std::vector<std::thread> all;
	long counter = 0;
	Mutex mutex;

	for (int i = 0; i < threads; i++)
		all.emplace_back([&] {
			for (int round = 0; round < rounds; round++) {
				std::lock_guard<Mutex> guard(mutex);
				counter++;
			}
		});
	for (auto &thread : all)
		thread.join();
	expect(counter == threads * rounds, what);
}

/* Items pass from producers to consumers, some by timed waits. */
template <typename Condition> static void passes_items(const char *what)
{
	std::deque<int> items;
	bool end = false;
	long sum = 0, expected = 0;
	Condition changed;
	std::mutex mutex;
	std::vector<std::thread> consumers;

	for (int i = 0; i < 3; i++)
		consumers.emplace_back([&] {
			std::unique_lock<std::mutex> guard(mutex);
			while (!end || !items.empty()) {
				changed.wait_for(guard, std::chrono::milliseconds(5),
						 [&] { return end || !items.empty(); });
				if (!items.empty()) {
					sum += items.front();
					items.pop_front();
				}
			}
		});
	for (int item = 1; item <= 3000; item++) {
		std::lock_guard<std::mutex> guard(mutex);
		items.push_back(item);
		expected += item;
		changed.notify_one();
	}
	{
		std::lock_guard<std::mutex> guard(mutex);
		end = true;
	}
	changed.notify_all();
	for (auto &thread : consumers)
		thread.join();
	expect(sum == expected, what);
}

static std::mutex early;
static bool is_early_fine = [] {
	std::lock_guard<std::mutex> guard(early);

	return !std::async(std::launch::async, [] { return early.try_lock(); }).get();
}();

int main()
{
	std::timed_mutex timed;

	expect(is_early_fine, "a mutex of a static's constructor");
	excludes<std::mutex>("std::mutex");
	excludes<std::recursive_mutex>("std::recursive_mutex");
	excludes<std::timed_mutex>("std::timed_mutex");
	excludes<std::shared_mutex>("std::shared_mutex");
	passes_items<std::condition_variable>("std::condition_variable");
	passes_items<std::condition_variable_any>("std::condition_variable_any");
	timed.lock();
	expect(!std::async(std::launch::async, [&] {
		return timed.try_lock_for(std::chrono::milliseconds(5));
	}).get(), "a timed mutex that is held");
	timed.unlock();
	return 0;
}
