#!/usr/bin/env python3
"""The time of steps as planned and as measured, in turns, and their ratio.

    tests/bench/time_bench.py build/cpu-release                    every mesh of at most as many threads as cores
    tests/bench/time_bench.py build/cpu-release --paced            meshes of up to 8 ranks that wait instead of computing
    tests/bench/time_bench.py build/cpu-release --links 100mbit,300mbit,1gbit    paced ranks on four simulated nodes
    ... --rounds 5 --models 15m,wide

Without --paced each pair of ranks and threads first measures its rates with `ripstop doctor --output`. Every case then
runs once in each round; the medians count. --paced also says by how much the mesh that is planned first is slower than
the best. --links starts the cluster of tests/slurm (root, Slurm), whose nodes have links of that rate each way. Then
--simulator PATH adds a column: `PATH run FILE` prints {"seconds": ...} for the pipeline in FILE, which has the key
`pipeline` of training_bench. Measure on an idle machine. Not a test: times differ.
"""
import argparse
import atexit
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {
    "15m": ["--model", "15m", "--positions", "256", "--sequences", "16"],
    # A small vocabulary, so that stages of equal length are possible.
    "deep": ["--model", "15m", "--layers", "12", "--vocabulary", "2000", "--positions", "256", "--sequences", "32"],
    # Of 110m's width: few layers, so that a step is short.
    "wide": ["--model", "110m", "--layers", "3", "--positions", "512", "--sequences", "8"],
}
# Threads, replicate, pipeline, fsdp, tensor.
MEASURED = [(1, 1, 1, 1, 1), (2, 1, 1, 1, 1), (1, 1, 1, 2, 1), (1, 1, 1, 1, 2), (1, 2, 1, 1, 1)]
PACED = [(1, 1, 1, 2, 1), (1, 2, 1, 1, 1), (1, 1, 1, 4, 1), (1, 2, 1, 2, 1), (1, 1, 1, 2, 2), (1, 1, 1, 8, 1),
         (1, 8, 1, 1, 1), (1, 2, 1, 4, 1), (1, 4, 1, 2, 1), (1, 2, 1, 2, 2), (1, 1, 1, 4, 2)]
# On four nodes, of one rank and of two.
LINKED = [(1, 1, 4, 1, 1), (1, 2, 2, 1, 1), (1, 2, 1, 2, 1), (1, 1, 1, 4, 1),
          (1, 1, 4, 2, 1), (1, 2, 2, 2, 1), (1, 4, 1, 2, 1), (1, 1, 1, 8, 1)]
# Over TCP, Open MPI asks the receiver before it sends a long message, and the answer waits behind other data.
EAGER = ["OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit", "OMPI_MCA_btl_tcp_max_send_size"]
CLUSTER = ROOT / "tests/slurm/cluster/cluster.sh"


def cluster(*words):
    subprocess.run([CLUSTER, *words], check=True, stdout=subprocess.DEVNULL)


def on_ranks(ranks, threads, words, on_cluster=False):
    launch = [ROOT / "slurm/launch.sh", str(ranks)]
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), RIPSTOP_LAUNCHER="mpirun")
    if on_cluster:  # there are more ranks than cores, and each must wake in time
        launch = [CLUSTER, "on", "ctl", "srun", "--mpi=pmix", "--nodes=4", f"--ntasks-per-node={ranks // 4}"]
        launch += ["chrt", "-r", "1"]
        environment.update(dict.fromkeys(EAGER, str(1 << 25)))
    done = subprocess.run([*launch, *map(str, words)], env=environment, text=True, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{words[0]} ended with {done.returncode}")
    return done.stdout


def simulated(simulator, folder, line):
    if not simulator or not line["pipeline"]:
        return None
    (folder / "pipeline.json").write_text(json.dumps(line["pipeline"]))
    out = subprocess.run([simulator, "run", folder / "pipeline.json"], check=True, text=True, stdout=subprocess.PIPE)
    return json.loads(out.stdout)["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--paced", action="store_true")
    parser.add_argument("--paced-flops", default="1e11")
    parser.add_argument("--links", default="")
    parser.add_argument("--simulator", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--models", default=None)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    build = given.build.resolve()
    links = given.links.split(",") if given.links else [""]
    paced = given.paced or given.links
    models = (given.models or ("deep" if given.links else "15m" if paced else "15m,wide")).split(",")
    meshes = LINKED if given.links else PACED if paced else MEASURED
    folder = pathlib.Path(tempfile.mkdtemp())
    rates = {}
    for threads, *sizes in [] if paced else meshes:
        ranks = math.prod(sizes)
        if (ranks, threads) in rates:
            continue
        rates[ranks, threads] = folder / f"rates_{ranks}_{threads}.json"
        on_ranks(ranks, threads, [build / "ripstop", "doctor", "--output", rates[ranks, threads]])
    if given.links:
        cluster("up", "4", "--while", str(os.getpid()))
        atexit.register(cluster, "down")
        for node in ("n1", "n2", "n3", "n4"):  # bbr, the default of some, leaves a link half idle if all send to all
            cluster("on", node, "sh", "-c", "echo reno >/proc/sys/net/ipv4/tcp_congestion_control")
    found = {case: [] for case in itertools.product(models, links, meshes)}
    for _, case in itertools.product(range(given.rounds), found):
        model, link, (threads, *sizes) = case
        ranks = math.prod(sizes)
        if link:
            cluster("net", "rate", link)
        how = ["--paced-flops", given.paced_flops] if paced else ["--rates", rates[ranks, threads]]
        if sizes[1] > 1:
            how += ["--micro-batch", 2]
        for axis, size in zip(("replicate", "pipeline", "fsdp", "tensor"), sizes):
            how += [f"--{axis}", size]
        out = on_ranks(ranks, threads,
                       [build / "tests/bench/training_bench", *MODELS[model], "--device", "cpu", "--dtype", given.dtype,
                        "--recompute", "none", "--steps", given.steps, "--warmup", 1, *how], bool(link))
        line = json.loads(out.splitlines()[-1])
        found[case].append(dict(line, simulated=simulated(given.simulator, folder, line)))
    print(f"{'model':<8}{'link':>8}{'replicate x pipeline x fsdp x tensor':>38}{'threads':>9}{'planned':>11}"
          f"{'measured':>11}{'ratio':>8}{'  waits planned, measured':>26}{'simulated':>13}")
    rows = []
    for (model, link, (threads, *sizes)), lines in found.items():
        planned = statistics.median(line["planned"]["seconds"] for line in lines)
        measured = statistics.median(line["step_seconds"] for line in lines)
        waits = statistics.median(line["planned"]["exposed_seconds"] for line in lines)
        waited = statistics.median(sum(line["exposed_seconds"].values()) for line in lines)
        simulation = lines[0]["simulated"] and statistics.median(line["simulated"] for line in lines)
        rows.append((link, math.prod(sizes), planned, measured))
        print(f"{model:<8}{link:>8}{' x '.join(map(str, sizes)):>38}{threads:>9}{planned:>9.3f} s{measured:>9.3f} s"
              f"{planned / measured:>8.3f}{waits:>16.3f}{waited:>10.3f}"
              f"{f'{simulation:>11.3f} s' if simulation else ''}")
    for size in dict.fromkeys(row[:2] for row in rows) if paced else []:
        of_size = [row for row in rows if row[:2] == size]
        first = min(of_size, key=lambda row: row[2])
        best = min(row[3] for row in of_size)
        print(f"{size[1]} ranks {size[0]}: the mesh planned first takes {100 * (first[3] / best - 1):.1f} % more than "
              "the best")


if __name__ == "__main__":
    main()
