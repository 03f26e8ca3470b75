#!/usr/bin/env python3
"""Writes pytorch_steps.json: losses and gradient norms of 50 float32 training steps of a small LLaMA-2 in PyTorch.

  python3 tests/golden/make_pytorch_steps.py tests/golden/pytorch_steps.json      (torch from PyPI, one minute)

Weights, batches and schedule are rules that tests/train/step/parity_ranks_test.cpp states again; keep them alike.
"""
import json
import math
import sys

import torch
import torch.nn.functional as F

C, FFN, LAYERS, H, K, V, T, PACKS, STEPS = 64, 172, 2, 8, 4, 131, 64, 8, 50
D = C // H
LR, WARMUP, MINIMUM, CLIP, BETAS, EPS, DECAY = 3e-3, 20, 0.1, 1.0, (0.9, 0.95), 1e-8, 0.1
MASK64 = (1 << 64) - 1


def names():
    order = ["tok_embeddings"]
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        order += [at + n for n in ("attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1",
                                   "feed_forward.w2", "feed_forward.w3", "attention_norm", "ffn_norm")]
    return [n + ".weight" for n in order + ["norm", "output"]]


def shape(name):
    last = name.split(".")[-2]
    return {"tok_embeddings": (V, C), "output": (V, C), "wq": (C, C), "wk": (K * D, C), "wv": (K * D, C), "wo": (C, C),
            "w1": (FFN, C), "w3": (FFN, C), "w2": (C, FFN)}.get(last, (C,))


def fill(number, name):
    size = shape(name)
    i = torch.arange(math.prod(size), dtype=torch.float64)
    wave = torch.sin(0.37 * i + 1.7 * number)
    return (1 + 0.1 * wave if "norm" in name else 0.05 * wave).float().reshape(size)


def sequences_of_step(step):
    state = (0x9E3779B97F4A7C15 * (step + 1)) & MASK64

    def draw():
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK64
        return state >> 33

    token, target, position, document = [], [], [], []
    for _ in range(PACKS):
        now, inside, length, number = draw() % V, 0, 10 + draw() % 30, 0
        for i in range(T):
            if i == 0 or inside == length:
                number, inside, length = number + 1, 0, 10 + draw() % 30
            follows = draw() % V if draw() % 5 == 0 else (now * 3 + 7) % V
            token.append(now)
            target.append(-100 if inside < 3 else follows)
            position.append(inside)
            document.append(number)
            now, inside = follows, inside + 1
    return [torch.tensor(x).reshape(PACKS, T) for x in (token, target, position, document)]


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def rotate(x, cosine, sine):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)


def logits(p, token, position, document):
    angle = position[..., None].double() * 10000.0 ** (-torch.arange(0, D, 2).double() / D)
    cosine, sine = angle.cos().float()[:, :, None], angle.sin().float()[:, :, None]
    allowed = (document[:, :, None] == document[:, None, :]) & torch.ones(T, T, dtype=torch.bool).tril()
    x = p["tok_embeddings.weight"][token]
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        h = norm(x, p[at + "attention_norm.weight"])
        q, k, v = ((h @ p[at + f"attention.{w}.weight"].T).unflatten(-1, (-1, D)) for w in ("wq", "wk", "wv"))
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        q, k, v = (y.transpose(1, 2) for y in (q, k.repeat_interleave(H // K, 2), v.repeat_interleave(H // K, 2)))
        score = (q @ k.transpose(-1, -2) / math.sqrt(D)).masked_fill(~allowed[:, None], -torch.inf)
        x = x + (score.softmax(-1) @ v).transpose(1, 2).flatten(2) @ p[at + "attention.wo.weight"].T
        h = norm(x, p[at + "ffn_norm.weight"])
        hidden = F.silu(h @ p[at + "feed_forward.w1.weight"].T) * (h @ p[at + "feed_forward.w3.weight"].T)
        x = x + hidden @ p[at + "feed_forward.w2.weight"].T
    return norm(x, p["norm.weight"]) @ p["output.weight"].T


def rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    progress = (step - 1 - WARMUP) / (STEPS - WARMUP)
    return LR * (MINIMUM + (1 - MINIMUM) * 0.5 * (1 + math.cos(math.pi * progress)))


def main(path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    p = {n: fill(i, n).requires_grad_() for i, n in enumerate(names())}
    optimizer = torch.optim.AdamW([{"params": [w for w in p.values() if w.dim() > 1], "weight_decay": DECAY},
                                   {"params": [w for w in p.values() if w.dim() == 1], "weight_decay": 0.0}],
                                  lr=LR, betas=BETAS, eps=EPS)
    losses, gradient_norms = [], []
    for step in range(1, STEPS + 1):
        token, target, position, document = sequences_of_step(step)
        loss = F.cross_entropy(logits(p, token, position, document).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        gradient_norms.append(torch.nn.utils.clip_grad_norm_(p.values(), CLIP).item())
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        losses.append(loss.item())
    with open(path, "w") as out:
        json.dump({"torch": torch.__version__, "losses": losses, "gradient_norms": gradient_norms}, out, indent=1)
        out.write("\n")


main(sys.argv[1])
