#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What SALib says of this project's designs: the numbers that lab/worlds/tests/salib.rs compares.

    bench/salib.py DIR > lab/worlds/tests/salib.json

DIR has sobol.csv and morris.csv, which `make salib` writes: columns x1, x2, x3 (coordinates from 0 to
1) and y. Needs SALib (pip install SALib)."""

import csv
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from SALib.analyze import morris, sobol


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name != "y"]
    x = np.array([[float(row[name]) for name in names] for row in rows])
    y = np.array([float(row["y"]) for row in rows])
    problem = {"num_vars": len(names), "names": names, "bounds": [[0, 1]] * len(names)}
    return problem, x, y


def main():
    where = Path(sys.argv[1])
    problem, _, y = read(where / "sobol.csv")
    shares = sobol.analyze(problem, y, calc_second_order=False, seed=1)
    problem, x, y = read(where / "morris.csv")
    effects = morris.analyze(problem, x, y, num_levels=4, seed=1)
    said = {
        "salib": version("SALib"),
        "S1": [float(v) for v in shares["S1"]],
        "ST": [float(v) for v in shares["ST"]],
        "mu_star": [float(v) for v in effects["mu_star"]],
        "sigma": [float(v) for v in effects["sigma"]],
    }
    print(json.dumps(said, indent=1))


main()
