#!/usr/bin/env python3
"""Writes wsd.json: factors of the learning rate of warm-up, stable part and decay, from PyTorch's LambdaLR.

  python3 tests/golden/make_wsd.py tests/golden/wsd.json      (torch from PyPI, seconds)

The rule of the decay is that of Hugging Face's get_wsd_schedule: step s of N has progress (s - 1 - b) / (N - b), with b
the last step before the decay. The warm-up is that of torchtitan: step s of w has s / w.
"""
import json
import math
import sys

import torch

SHAPES = {"linear": lambda p: 1 - p, "1-sqrt": lambda p: 1 - math.sqrt(p), "cosine": lambda p: 0.5 * (1 + math.cos(math.pi * p))}
CASES = [(40, 5, 0.1, 0.0), (50, 10, 0.3, 0.1), (25, 0, 0.1, 0.25), (20, 4, 0.8, 0.05)]  # steps, warm-up, ratio, minimum


def factors(steps, warmup, ratio, minimum, shape):
    begin = steps - math.floor(ratio * steps + 0.5)

    def factor(done):  # LambdaLR counts the steps before
        if done < warmup:
            return (done + 1) / warmup
        if done < begin:
            return 1.0
        return minimum + (1 - minimum) * shape((done - begin) / (steps - begin))

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def main(path):
    cases = [{"steps": n, "warmup_steps": w, "decay_ratio": r, "minimum_ratio": m, "decay": name,
              "factors": factors(n, w, r, m, shape)} for n, w, r, m in CASES for name, shape in SHAPES.items()]
    lines = ",\n".join(json.dumps(case) for case in cases)
    with open(path, "w") as out:
        out.write(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}]}}\n')


main(sys.argv[1])
