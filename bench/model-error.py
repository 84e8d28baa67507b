#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fits the model's own error to the distance of measured ratios from the simulator's worlds
(docs/simulator.md, "Worlds"; lab/unspin-lab/src/worlds/inputs.rs).

    unspin-lab agree --known results/known.jsonl --worlds 32 --json | bench/model-error.py

Only known arms are used; held-out arms judge the result. The error of familiar arms is `least` +
`grows` x the size of the ratio's logarithm, and that of other arms `strange` times as much. The most
likely numbers are chosen, with the worlds taken as normally distributed. Leave one out: each scenario
is judged by the error that the others give."""

import json
import math
import sys

LEAST = [0, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03]
GROWS = [0, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2]
STRANGE = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8]
# Ratios have 2 digits. This is the standard deviation of what rounding loses.
ROUNDED = 0.003


def spread(row, least, grows, strange):
    middle, costs = row["costs_alone"]
    error = (1 if row["familiar"] else strange) * (least + grows * abs(middle))
    return math.hypot(costs, error, ROUNDED)


def likelihood(rows, *error):
    total = 0
    for row in rows:
        sd = spread(row, *error)
        off = (math.log(row["measured"]) - row["costs_alone"][0]) / sd
        total -= math.log(sd) + 0.5 * off * off
    return total / max(len(rows), 1)


def chosen(rows):
    familiar = [row for row in rows if row["familiar"]]
    others = [row for row in rows if not row["familiar"]]
    pairs = [(least, grows) for least in LEAST for grows in GROWS]
    least, grows = max(pairs, key=lambda pair: likelihood(familiar, *pair, 1))
    return least, grows, max(STRANGE, key=lambda s: likelihood(others, least, grows, s))


def judged(row, error):
    """Whether the band covers, its interval score, and that of no change."""
    y, middle, half = math.log(row["measured"]), row["costs_alone"][0], 1.645 * spread(row, *error)
    outside = max(abs(y - middle) - half, 0)
    return outside == 0, 2 * half + 20 * outside, 20 * abs(y)


def said(what, rows, errors):
    if not rows:
        return
    all = [judged(row, error) for row, error in zip(rows, errors)]
    means = [sum(x[i] for x in all) / len(all) for i in range(3)]
    print(f"{what:38} {len(rows):4} arms  covered {means[0]:.3f}  score {means[1]:.3f}  no change {means[2]:.3f}")


def main():
    rows = json.load(sys.stdin)["rows"]
    kinds = [("familiar", True), ("others", False)]
    whole = chosen(rows)
    for name, kind in kinds:
        of = [row for row in rows if row["familiar"] == kind]
        said(f"{name}, no error", of, [(0, 0, 1)] * len(of))
        said(f"{name}, error {whole}", of, [whole] * len(of))
    left = []
    for scenario in sorted({row["scenario"] for row in rows}):
        error = chosen([row for row in rows if row["scenario"] != scenario])
        of = [row for row in rows if row["scenario"] == scenario]
        said(f"{scenario} by the others: {error}", of, [error] * len(of))
        left += [(row, error) for row in of]
    for name, kind in kinds:
        of = [(row, error) for row, error in left if row["familiar"] == kind]
        said(f"{name}, each scenario by the others", [row for row, _ in of], [error for _, error in of])


main()
