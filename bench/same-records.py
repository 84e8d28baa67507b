#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether two builds of unspin make the same records on machine sim, byte by byte.

    bench/same-records.py BEFORE AFTER [CASE...]

BEFORE and AFTER are the two commands. Every case is one `unspin-lab bench` on machine sim, with all of
its runs. Only what names the build may differ: the fields of PROVENANCE in the first record of each kernel.
Fails where anything else differs, or where a case is made by neither.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The scenario's hash depends on how a build hashes files; what was asked stands in every record.
PROVENANCE = ("commit", "version", "image", "scenario_hash")

# Name: the scenario and what else `unspin-lab bench` is told.
CASES = {
    "smoke": ["smoke"],
    "demo": ["demo", "--repeats", "1"],
    "demo-3.19": ["demo", "--repeats", "1", "--kernel", "3.19"],
    "demo-2012": ["demo", "--repeats", "1", "--kernel", "2012"],
    "components": ["components", "--repeats", "1", "--vms", "3"],
    "components-6.1": ["components", "--repeats", "1", "--vms", "3", "--kernel", "6.1"],
    "cgroups": ["overall", "--repeats", "1", "--vms", "3", "--cgroup", "vm", "--kernel", "6.12"],
    "cgroups-6.1": ["overall", "--repeats", "1", "--vms", "3", "--cgroup", "vcpu", "--kernel", "6.1"],
    "eight": ["eight", "--repeats", "1"],
    "uneven": ["uneven", "--repeats", "1"],
    "woken": ["woken", "--repeats", "1"],
    "locks": ["one-vm-locks", "--repeats", "1"],
    "large-vm": ["large-vm", "--repeats", "1"],
    "table1": ["table1", "--repeats", "1"],
    "windows": ["window-traces", "--repeats", "1"],
    "undersubscribed": ["undersubscribed", "--repeats", "1"],
    "credit": ["papers/asman/scenarios/asman-one-vm", "--repeats", "1"],
    "coscheduling": ["papers/asman/scenarios/asman-four-vms", "--repeats", "1"],
    "asym": ["papers/dissertation/scenarios/dissertation-asym", "--repeats", "1"],
    "factors": ["papers/dissertation/scenarios/dissertation-factors", "--repeats", "1", "--attribute"],
    "yields": ["papers/beyond/scenarios/beyond-oticket-ple", "--repeats", "1"],
}


def records(command, arguments, out):
    """The records made, without what names the build; None: there are none."""
    scenario, *others = arguments
    path = str(ROOT / (scenario if "/" in scenario else f"scenarios/{scenario}")) + ".toml"
    made = subprocess.run(
        [command, "bench", path, "--machine", "sim", "--quiet", "--out", out, *others],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    results = pathlib.Path(out) / "results.jsonl"
    if made.returncode != 0 or not results.exists():
        print(made.stderr, file=sys.stderr)
        return None
    return [without_build(line) for line in results.read_bytes().splitlines(keepends=True)]


def without_build(line):
    """A record, where it is the first of a kernel without what names the build."""
    if not line.startswith(b'{"record":"begin"'):
        return line
    begin = json.loads(line)
    for field in PROVENANCE:
        del begin[field]
    # In the file's order: a key that moved is a difference too.
    return json.dumps(begin).encode()


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: same-records.py BEFORE AFTER [CASE...]")
    before, after, *names = sys.argv[1:]
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"no case {unknown[0]}; there are {', '.join(CASES)}")
    total, differ = 0, []
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            old = records(before, CASES[name], f"{folder}/before")
            new = records(after, CASES[name], f"{folder}/after")
        runs = sum(line.startswith(b'{"record":"run"') for line in old or [])
        same = old is not None and old == new and runs > 0
        total += runs
        if not same:
            differ.append(name)
            if old and new:
                first = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), None)
                at = "their lengths" if first is None else f"line {first + 1}"
                print(f"{name}: {at} differ", file=sys.stderr)
        size, verdict = sum(map(len, old or [])), "same" if same else "DIFFER"
        print(f"{name}: {runs} runs, {size} bytes: {verdict}", flush=True)
    if differ:
        sys.exit(f"different: {', '.join(differ)}")
    print(f"{total} runs of {len(names or CASES)} cases are the same")


if __name__ == "__main__":
    main()
