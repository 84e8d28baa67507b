#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far measured ratios lie off the simulator's bands: what the model's own error is chosen by
(docs/simulator.md, "Worlds"; crates/unspin/src/worlds/inputs.rs).

    for s in components fixed-sweep overall undersubscribed; do for k in 6.1 6.12; do
        unspin bench $s --machine sim --kernel $k --worlds 64 --quiet --out out/error/$s-$k
    done; done
    bench/model-error.py out/error

Measured ratios are docs/agreement.md's. Each pair of numbers (least, and what it grows by) is judged
by the likelihood of what was measured, the band taken as that of a normal distribution. The benches
must be made with an error of zeros, so that their bands are those of the costs and of chance alone."""

import json
import math
import re
import sys
from pathlib import Path

PAIRS = [(0, 0), (0.005, 0.05), (0.01, 0.05), (0.01, 0.1), (0.015, 0.05), (0.015, 0.1), (0.02, 0.05),
         (0.02, 0.1), (0.02, 0.12), (0.03, 0.1)]
# The page has two digits: so much is lost of a ratio.
ROUNDED = 0.005


def measured(page):
    found, scenario = {}, ""
    for line in page.read_text().splitlines():
        scenario = line[3:].strip() if line.startswith("## ") else scenario
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 10 and re.fullmatch(r"[0-9.]+", cells[0]):
            key = (scenario, cells[0], cells[1].strip("`"), int(cells[2]), cells[3], cells[4])
            found[key] = float(cells[5])
    return found


def bands(where, ratios):
    for path in sorted(where.glob("*/summary.json")):
        s = json.loads(path.read_text())
        kernel = s["kernel"].split()[0]
        for r in s["arms"]:
            key = (s["scenario"], kernel, r["profile"], r["vms"], r["cgroup"], r["arm"])
            band = r.get("band")
            is_arm = r["vm_index"] is None and r["arm"] != r["baseline"]
            if is_arm and band and key in ratios and band["p05"] < band["p95"]:
                yield ratios[key], band


def judge(least, grows, arms):
    covered = score = nothing = likelihood = 0
    for ratio, band in arms:
        y, middle = math.log(ratio), math.log(band["p50"])
        own = math.log(band["p95"] / band["p05"]) / (2 * 1.645)
        sd = math.hypot(own, least + grows * abs(middle)) + 1e-9
        low, high = middle - 1.645 * sd, middle + 1.645 * sd
        covered += low - ROUNDED <= y <= high + ROUNDED
        score += high - low + 20 * max(low - y, y - high, 0)
        nothing += 20 * abs(y)
        wide = sd + 0.003
        likelihood -= math.log(wide) + 0.5 * ((y - middle) / wide) ** 2
    return [x / len(arms) for x in (covered, score, nothing, likelihood)]


def main():
    root = Path(__file__).resolve().parent.parent
    arms = list(bands(Path(sys.argv[1]), measured(root / "docs/agreement.md")))
    print(f"{len(arms)} arms")
    print("least  grows  covered  score  no change  log likelihood an arm")
    for least, grows in PAIRS:
        covered, score, nothing, likelihood = judge(least, grows, arms)
        print(f"{least:5}  {grows:5}  {covered:7.3f}  {score:5.3f}  {nothing:9.3f}  {likelihood:6.3f}")


main()
