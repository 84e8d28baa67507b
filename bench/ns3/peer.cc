// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The model of crates/sim/examples/peer.rs on the event core of ns-3: two VMs of four vCPUs, each on a
 * pCPU of its own, and a ticket lock per VM. Prints what every vCPU did, the events and the CPU time
 * of this thread as JSON.
 *
 * usage: peer MS SCHEDULER SEED...   (a seed per VM; SCHEDULER: an event queue, as ns3::MapScheduler)
 */
#include <ns3/core-module.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <iostream>
#include <memory>
#include <vector>

namespace {

const int VCPUS = 4; // of a VM
const uint64_t LOCK_NS = 1;
const uint64_t UNIT_NS = 1;

uint64_t splitmix64(uint64_t x)
{
	x += 0x9E3779B97F4A7C15;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
	return x ^ (x >> 31);
}

// The guest's random lengths (guest/rng.h: xorshift64*).
class Stream {
public:
	Stream(uint64_t vm_seed, uint64_t vcpu) : x_(splitmix64(vm_seed ^ splitmix64(vcpu + 1)))
	{
		x_ = x_ ? x_ : 1;
	}

	uint64_t uniform(uint64_t least, uint64_t most)
	{
		x_ ^= x_ >> 12;
		x_ ^= x_ << 25;
		x_ ^= x_ >> 27;
		uint64_t drawn = x_ * 0x2545F4914F6CDD1D;
		return least + (((drawn >> 32) * (most - least + 1)) >> 32);
	}

private:
	uint64_t x_;
};

class Vcpu;

struct Lock {
	bool held = false;
	std::deque<Vcpu *> queue;
};

class Vcpu {
public:
	Vcpu(Lock &lock, Stream stream) : lock_(lock), stream_(stream) {}

	void start() { compute(0); }

	uint64_t units = 0, acquisitions = 0;

private:
	void compute(uint64_t before_ns)
	{
		ns3::Simulator::Schedule(ns3::NanoSeconds(before_ns + stream_.uniform(1000, 9000)),
					 &Vcpu::want, this);
	}

	void want()
	{
		if (lock_.held) {
			lock_.queue.push_back(this);
			return;
		}
		lock_.held = true;
		own();
	}

	void own()
	{
		acquisitions++;
		ns3::Simulator::Schedule(ns3::NanoSeconds(LOCK_NS + stream_.uniform(200, 1800)),
					 &Vcpu::release, this);
	}

	void release()
	{
		if (lock_.queue.empty()) {
			lock_.held = false;
		} else {
			Vcpu *next = lock_.queue.front();

			lock_.queue.pop_front();
			next->own();
		}
		units++;
		compute(UNIT_NS);
	}

	Lock &lock_;
	Stream stream_;
};

double cpu_s()
{
	timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

void print(const char *name, const std::vector<std::unique_ptr<Vcpu>> &vcpus, uint64_t Vcpu::*count)
{
	const char *before = "[";

	std::cout << "\"" << name << "\":";
	for (const auto &vcpu : vcpus) {
		std::cout << before << (*vcpu).*count;
		before = ",";
	}
	std::cout << "],";
}

} // namespace

int main(int argc, char **argv)
{
	if (argc < 4) {
		std::cerr << "usage: peer MS SCHEDULER SEED...\n";
		return 2;
	}
	ns3::ObjectFactory queue;

	queue.SetTypeId(argv[2]);
	ns3::Simulator::SetScheduler(queue);

	std::vector<std::unique_ptr<Lock>> locks;
	std::vector<std::unique_ptr<Vcpu>> vcpus;

	for (int vm = 3; vm < argc; vm++) {
		uint64_t seed = std::strtoull(argv[vm], nullptr, 10);

		locks.push_back(std::make_unique<Lock>());
		for (int index = 0; index < VCPUS; index++) {
			vcpus.push_back(std::make_unique<Vcpu>(*locks.back(), Stream(seed, index)));
			vcpus.back()->start();
		}
	}
	ns3::Simulator::Stop(ns3::MilliSeconds(std::strtoull(argv[1], nullptr, 10)));

	double since = cpu_s();
	ns3::Simulator::Run();
	double seconds = cpu_s() - since;

	std::cout << "{";
	print("units", vcpus, &Vcpu::units);
	print("acquisitions", vcpus, &Vcpu::acquisitions);
	std::cout << "\"events\":" << ns3::Simulator::GetEventCount() << ",\"seconds\":" << seconds
		  << "}\n";
	ns3::Simulator::Destroy();
}
