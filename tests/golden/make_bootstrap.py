"""Writes bootstrap.json beside this script: intervals that tests/train/evaluate/bootstrap_test.cpp must find, to 1e-12.

    python3 -m venv venv && venv/bin/pip install numpy && venv/bin/python make_bootstrap.py

Philox 4x32-10 is written anew here, and first compared with a known answer of its authors (Random123, kat_vectors).
"""
import json
import pathlib

import numpy

MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), [key & MASK, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & MASK, a >> 32 ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


assert philox([0, 0, 0, 0], 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def intervals(rows, resamples, seed):
    count = len(rows)
    means = []
    for r in range(resamples):
        words = [word for block in range((count + 3) // 4) for word in philox([block, r, 0, 0], seed)][:count]
        means.append(rows[[word * count >> 32 for word in words]].mean(axis=0))
    return numpy.percentile(means, [2.5, 97.5], axis=0).T.tolist()


cases = []
for count, resamples, seed in [(1, 10, 1), (2, 1, 7), (37, 1000, 1), (101, 333, 2**40 + 3)]:
    rows = numpy.random.default_rng(count).normal(0.01, 0.1, (count, 3))
    cases.append({"rows": rows.tolist(), "resamples": resamples, "seed": seed, "intervals": intervals(rows, resamples, seed)})
(pathlib.Path(__file__).parent / "bootstrap.json").write_text(json.dumps(cases) + "\n")
