#!/usr/bin/env python3
"""Writes rate_change.json: losses of 40 float32 steps of transformers and PyTorch, whose settings change after step 20.

  python3 tests/golden/make_rate_change.py      (torch, transformers, sentencepiece from PyPI; a minute)

Model, pairs and packing are those of `synthetic` in finetuning.json, with more tokens: the 400 of the tests' tokenizer.
tests/train/run/rate_change_ranks_test.cpp has the same settings; keep them alike.
"""
import json
import math

import torch
import torch.nn.functional as F
import transformers
from transformers import LlamaForCausalLM

from make_finetuning import BETAS, EPS, HERE, logits_of, packed, synthetic_pairs

STEPS, CHANGE, WARMUP, MINIMUM, SEQUENCES, POSITIONS, VOCABULARY = 40, 20, 5, 0.1, 8, 64, 400
BEFORE = {"peak": 2e-3, "shape": lambda p: 0.5 * (1 + math.cos(math.pi * p)), "decay": 0.1, "clip": 1.0}
AFTER = {"peak": 5e-4, "shape": lambda p: 1 - p, "decay": 0.5, "clip": 0.25}


def rate(step, peak, shape):
    if step <= WARMUP:
        return peak * step / WARMUP
    return peak * (MINIMUM + (1 - MINIMUM) * shape((step - 1 - WARMUP) / (STEPS - WARMUP)))


def grown(matrix):
    """With the rows that model.resize_vocabulary = "mean" adds."""
    mean = matrix.weight.detach().double().mean(0, keepdim=True).to(matrix.weight.dtype)
    matrix.weight = torch.nn.Parameter(torch.cat([matrix.weight.detach(), mean.expand(VOCABULARY - len(matrix.weight), -1)]))


def train(dtype, after):
    directory = HERE / "pretrained" / "untied_bf16"
    model = LlamaForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager").train()
    grown(model.model.embed_tokens)
    grown(model.lm_head)
    sequences, weights = packed(synthetic_pairs(), POSITIONS), list(model.parameters())
    matrices, vectors = ([w for w in weights if (w.dim() > 1) == wanted] for wanted in (True, False))
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}], betas=BETAS, eps=EPS)
    losses = []
    for step in range(1, STEPS + 1):
        now = after if step > CHANGE else BEFORE
        chosen = [((step - 1) * SEQUENCES + s) % len(sequences) for s in range(SEQUENCES)]
        token, target, position, document = sequences[chosen].unbind(-1)
        loss = F.cross_entropy(logits_of(model, token, position, document).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, now["clip"])
        optimizer.param_groups[0]["weight_decay"] = now["decay"]
        for group in optimizer.param_groups:
            group["lr"] = rate(step, now["peak"], now["shape"])
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    losses, exact, unchanged = train(torch.float32, AFTER), train(torch.float64, AFTER), train(torch.float32, BEFORE)
    error = max(abs(a / b - 1) for a, b in zip(losses, exact))
    least = min(abs(a / b - 1) for a, b in zip(losses[CHANGE + 5:], unchanged[CHANGE + 5:]))
    print(f"float64 differs by {error:.1e}; without the change losses differ by {least:.1e} at least, from 5 steps after it on")
    text = json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "losses": losses}, indent=1)
    (HERE / "rate_change.json").write_text(text + "\n")


main()
