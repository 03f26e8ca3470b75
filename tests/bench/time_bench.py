#!/usr/bin/env python3
"""The time of steps as planned and as measured, in turns, and their ratio.

    tests/bench/time_bench.py build/cpu-release                    every mesh of at most as many threads as cores
    tests/bench/time_bench.py build/cpu-release --paced            meshes of up to 8 ranks that wait instead of computing
    ... --rounds 5 --models 15m,wide

Without --paced each pair of ranks and threads first measures its rates with `ripstop doctor --output`. Every case then
runs once in each round; the medians count. --paced also says by how much the mesh that is planned first is slower than
the best. Measure on an idle machine. Not a test: times differ.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {
    "15m": ["--model", "15m", "--positions", "256", "--sequences", "16"],
    # Of 110m's width: few layers, so that a step is short.
    "wide": ["--model", "110m", "--layers", "3", "--positions", "512", "--sequences", "8"],
}
# Ranks, threads, replicate, fsdp, tensor.
MEASURED = [(1, 1, 1, 1, 1), (1, 2, 1, 1, 1), (2, 1, 1, 2, 1), (2, 1, 1, 1, 2), (2, 1, 2, 1, 1)]
PACED = [(2, 1, 1, 2, 1), (2, 1, 2, 1, 1), (4, 1, 1, 4, 1), (4, 1, 2, 2, 1), (4, 1, 1, 2, 2), (8, 1, 1, 8, 1),
         (8, 1, 8, 1, 1), (8, 1, 2, 4, 1), (8, 1, 4, 2, 1), (8, 1, 2, 2, 2), (8, 1, 1, 4, 2)]


def on_ranks(ranks, threads, words):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), RIPSTOP_LAUNCHER="mpirun")
    done = subprocess.run([ROOT / "slurm/launch.sh", str(ranks), *map(str, words)], env=environment, text=True,
                          stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{words[0]} ended with {done.returncode}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--paced", action="store_true")
    parser.add_argument("--paced-flops", default="1e11")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--models", default=None)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    build = given.build.resolve()
    models = (given.models or ("15m" if given.paced else "15m,wide")).split(",")
    folder = pathlib.Path(tempfile.mkdtemp())
    rates = {}
    for ranks, threads, *_ in [] if given.paced else MEASURED:
        if (ranks, threads) in rates:
            continue
        rates[ranks, threads] = folder / f"rates_{ranks}_{threads}.json"
        on_ranks(ranks, threads, [build / "ripstop", "doctor", "--output", rates[ranks, threads]])
    cases = [(model, mesh) for model in models for mesh in (PACED if given.paced else MEASURED)]
    found = {case: [] for case in cases}
    for _ in range(given.rounds):
        for model, mesh in cases:
            ranks, threads, replicate, fsdp, tensor = mesh
            how = ["--paced-flops", given.paced_flops] if given.paced else ["--rates", rates[ranks, threads]]
            out = on_ranks(ranks, threads,
                           [build / "tests/bench/training_bench", *MODELS[model], "--device", "cpu", "--dtype",
                            given.dtype, "--recompute", "none", "--replicate", replicate, "--fsdp", fsdp, "--tensor",
                            tensor, "--steps", given.steps, "--warmup", 1, *how])
            found[model, mesh].append(json.loads(out.splitlines()[-1]))
    print(f"{'model':<8}{'replicate x fsdp x tensor':>26}{'threads':>9}{'planned':>11}{'measured':>11}{'ratio':>8}"
          f"{'  waits planned, measured':>26}")
    rows = []
    for (model, mesh), lines in found.items():
        planned = statistics.median(line["planned"]["seconds"] for line in lines)
        measured = statistics.median(line["step_seconds"] for line in lines)
        waits = statistics.median(line["planned"]["exposed_seconds"] for line in lines)
        waited = statistics.median(sum(line["exposed_seconds"].values()) for line in lines)
        rows.append((mesh[0], planned, measured))
        print(f"{model:<8}{' x '.join(map(str, mesh[2:])):>26}{mesh[1]:>9}{planned:>9.3f} s{measured:>9.3f} s"
              f"{planned / measured:>8.3f}{waits:>16.3f}{waited:>10.3f}")
    for ranks in sorted({row[0] for row in rows}) if given.paced else []:
        of_size = [row for row in rows if row[0] == ranks]
        first = min(of_size, key=lambda row: row[1])
        best = min(row[2] for row in of_size)
        print(f"{ranks} ranks: the mesh planned first takes {100 * (first[2] / best - 1):.1f} % more than the best")


if __name__ == "__main__":
    main()
