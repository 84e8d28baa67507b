# SPDX-License-Identifier: MIT OR Apache-2.0
"""The model of crates/sim/examples/peer.rs on ns-3: equal results are checked, CPU times compared.

usage: peer.py OURS THEIRS MS   (OURS: the example, built; THEIRS: peer.cc, built)

ns-3 has several event queues: its default and the fastest here are told apart. Both programs run in
turn, and the best time of each counts, because others use the computer too.
"""
import json
import subprocess
import sys

ROUNDS = 5
DEFAULT = "ns3::MapScheduler"
QUEUES = [
    DEFAULT,
    "ns3::HeapScheduler",
    "ns3::PriorityQueueScheduler",
    "ns3::ListScheduler",
    "ns3::CalendarScheduler",
]


def run(*command):
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def check(ours, theirs):
    for name in ("units", "acquisitions"):
        if theirs[name] != ours[name]:
            sys.exit(f"{name} differ: {ours[name]} here, {theirs[name]} on ns-3")
    # Starting takes unspin an event a VM and a vCPU; stopping takes ns-3 one.
    if abs(ours["events"] - theirs["events"]) > 2 * (len(ours["seeds"]) + len(ours["units"])):
        sys.exit(f"{ours['events']} events here, {theirs['events']} on ns-3")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    program, peer, window_ms = sys.argv[1:]
    ours_s, theirs_s = [], {queue: [] for queue in QUEUES}
    for _ in range(ROUNDS):
        ours = run(program, window_ms)
        ours_s.append(ours["seconds"])
        for queue in QUEUES:
            theirs = run(peer, window_ms, queue, *map(str, ours["seeds"]))
            check(ours, theirs)
            theirs_s[queue].append(theirs["seconds"])
    best_s = min(ours_s)
    print(f"equal: {sum(ours['units'])} units of {len(ours['units'])} vCPUs in {window_ms} ms")
    print(f"unspin: {ours['events']} events in {best_s:.3f} s of CPU time")
    times = {queue: min(seconds) for queue, seconds in theirs_s.items()}
    for queue in QUEUES:
        print(f"ns-3, {queue}: {theirs['events']} events in {times[queue]:.3f} s of CPU time")
    fastest = min(times, key=times.get)
    print(f"the same simulated time takes ns-3 {times[DEFAULT] / best_s:.1f} times as long,")
    print(f"{times[fastest] / best_s:.1f} times with {fastest}, its fastest queue here")


main()
