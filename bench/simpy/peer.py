# SPDX-License-Identifier: MIT OR Apache-2.0
"""The model of crates/sim/examples/peer.rs on SimPy: equal results are checked, CPU times compared.

usage: peer.py PROGRAM MS   (PROGRAM: the example, built)
"""
import json
import subprocess
import sys
import time
from collections import deque

import simpy

MASK = (1 << 64) - 1
COMPUTE = (1000, 9000)
CRITICAL = (200, 1800)
LOCK_NS = 1
UNIT_NS = 1


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def stream(vm_seed, vcpu):
    """The guest's random lengths (guest/rng.h: xorshift64*)."""
    x = max(1, splitmix64(vm_seed ^ splitmix64(vcpu + 1)))

    def uniform(least, most):
        nonlocal x
        x ^= x >> 12
        x ^= (x << 25) & MASK
        x ^= x >> 27
        drawn = (x * 0x2545F4914F6CDD1D) & MASK
        return least + (((drawn >> 32) * (most - least + 1)) >> 32)

    return uniform


class Lock:
    def __init__(self):
        self.held = False
        self.queue = deque()


class Counts:
    def __init__(self):
        self.units = 0
        self.acquisitions = 0
        self.timeouts = 0


def vcpu(env, lock, uniform, counts):
    length = uniform(*COMPUTE)
    while True:
        yield env.timeout(length)
        counts.timeouts += 1
        if lock.held:
            turn = env.event()
            lock.queue.append((turn, counts))
            yield turn
        else:
            lock.held = True
            counts.acquisitions += 1
        yield env.timeout(LOCK_NS + uniform(*CRITICAL))
        counts.timeouts += 1
        if lock.queue:
            turn, next_counts = lock.queue.popleft()
            # It owns the lock from now on, as the model counts.
            next_counts.acquisitions += 1
            turn.succeed()
        else:
            lock.held = False
        counts.units += 1
        length = UNIT_NS + uniform(*COMPUTE)


def run(seeds, window_ns):
    env = simpy.Environment()
    all_counts = []
    for seed in seeds:
        lock = Lock()
        for index in range(4):
            counts = Counts()
            all_counts.append(counts)
            env.process(vcpu(env, lock, stream(seed, index), counts))
    since = time.process_time()
    env.run(until=window_ns)
    return all_counts, time.process_time() - since


def main():
    program, window_ms = sys.argv[1], int(sys.argv[2])
    ours = json.loads(subprocess.run([program, str(window_ms)], check=True, capture_output=True).stdout)
    theirs, seconds = run(ours["seeds"], window_ms * 1_000_000)
    for name in ("units", "acquisitions"):
        counted = [getattr(c, name) for c in theirs]
        if counted != ours[name]:
            sys.exit(f"{name} differ: {ours[name]} here, {counted} on SimPy")
    events = sum(c.timeouts for c in theirs)
    print(f"equal: {sum(ours['units'])} units of {len(theirs)} vCPUs in {window_ms} ms")
    print(f"unspin: {ours['events']} events in {ours['seconds']:.3f} s of CPU time")
    print(f"SimPy {simpy.__version__}: {events} timeouts in {seconds:.3f} s of CPU time")
    # Starting takes unspin an event a VM and a vCPU.
    if not 0 <= ours["events"] - events <= 2 * (len(ours["seeds"]) + len(theirs)):
        sys.exit("the two do not have the same events")
    print(f"the same simulated time takes SimPy {seconds / ours['seconds']:.0f} times as long")


main()
