#!/usr/bin/env python3
"""Writes finetuning.json: losses and gradient norms of 50 float32 steps that transformers and PyTorch take from
pretrained weights.

  python3 tests/golden/make_finetuning.py ../shared      (torch, transformers, sentencepiece from PyPI; two minutes)

synthetic   pretrained/untied_bf16 on pairs of ids that are in the file.
stories     stories260K of ../shared/data/models on articles of ../shared/data/xsum, as its own tokenizer encodes them.
            The ids give the text, which is not ours to copy: the file has their checksum.

tests/train/exchange/finetuning_ranks_test.cpp packs the pairs by the same rule; keep them alike. Examples share a sequence,
positions restart with each, attention stays inside (a block-diagonal 4-D mask), and only the tokens of summaries count.
The loss is divided by the targets of the whole step.
"""
import json
import math
import pathlib
import sys

import sentencepiece
import torch
import torch.nn.functional as F
import transformers
from transformers import LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
BOS, EOS = 1, 2
STEPS, WARMUP, MINIMUM = 50, 10, 0.1
CLIP, BETAS, EPS, DECAY = 1.0, (0.9, 0.95), 1e-8, 0.1


def synthetic_pairs():
    """Summaries that follow from their documents: every third id and one more."""
    draw = torch.Generator().manual_seed(11)
    pairs = []
    for _ in range(200):
        length = torch.randint(8, 25, (1,), generator=draw).item()
        document = torch.randint(3, 131, (length,), generator=draw).tolist()
        pairs.append([document, [(i + 1) % 128 + 3 for i in document[::3]]])
    return pairs


def article_pairs(shared, file, count, document_tokens):
    encode = sentencepiece.SentencePieceProcessor(
        model_file=str(shared / "data/models/stories260K/tok512.model")).encode
    pairs = []
    with open(shared / file, encoding="utf-8") as lines:
        for line, _ in zip(lines, range(count)):
            pair = json.loads(line)
            pairs.append([encode(pair["document"])[:document_tokens], encode(pair["summary"])])
    return pairs


def checksum(pairs):
    value = 0
    for document, summary in pairs:
        for i in document + [BOS] + summary + [EOS]:
            value = (value * 31 + i) % 2**32
    return value


def packed(pairs, positions):
    """Sequences of rows (token, target, position, document), filled in order; padding is a document of its own."""
    sequences, rows, number = [], [], 0

    def close():
        start = len(rows)
        rows.extend((0, -100, i, -1) for i in range(positions - start))
        sequences.append(rows.copy())
        rows.clear()

    for number, (document, summary) in enumerate(pairs):
        ids = [BOS] + document + summary + [EOS]
        assert len(ids) - 1 <= positions
        if len(rows) + len(ids) - 1 > positions:
            close()
        for i in range(len(ids) - 1):
            rows.append((ids[i], ids[i + 1] if i >= len(document) else -100, i, number))
    close()
    return torch.tensor(sequences)


def rate(step, peak):
    if step <= WARMUP:
        return peak * step / WARMUP
    progress = (step - 1 - WARMUP) / (STEPS - WARMUP)
    return peak * (MINIMUM + (1 - MINIMUM) * 0.5 * (1 + math.cos(math.pi * progress)))


def logits_of(model, token, position, document):
    causal = torch.ones(token.shape[1], token.shape[1], dtype=torch.bool).tril()
    allowed = (document[:, :, None] == document[:, None, :]) & causal
    mask = torch.zeros(allowed.shape, dtype=model.dtype).masked_fill(~allowed, torch.finfo(model.dtype).min)
    return model(input_ids=token, position_ids=position, attention_mask=mask[:, None], use_cache=False).logits


def train(directory, sequences, of_step, peak, dtype):
    model = LlamaForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager").train()
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [w for w in weights if w.dim() > 1], "weight_decay": DECAY},
                                   {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0.0}],
                                  lr=peak, betas=BETAS, eps=EPS)
    found = {"targets": [], "losses": [], "gradient_norms": []}
    for step in range(1, STEPS + 1):
        chosen = [((step - 1) * of_step + s) % len(sequences) for s in range(of_step)]
        token, target, position, document = sequences[chosen].unbind(-1)
        targets = (target >= 0).sum().item()
        total = F.cross_entropy(logits_of(model, token, position, document).flatten(0, 1), target.flatten(),
                                reduction="sum")
        optimizer.zero_grad()
        (total / targets).backward()
        norm = torch.nn.utils.clip_grad_norm_(weights, CLIP).item()
        for group in optimizer.param_groups:
            group["lr"] = rate(step, peak)
        optimizer.step()
        for key, value in zip(found, (targets, total.item() / targets, norm)):
            found[key].append(value)
    return found


def case(directory, pairs, of_step, positions, peak):
    sequences = packed(pairs, positions)
    found = train(directory, sequences, of_step, peak, torch.float32)
    exact = train(directory, sequences, of_step, peak, torch.float64)
    error = max(abs(a / b - 1) for a, b in zip(found["losses"], exact["losses"]))
    print(f"{directory}: {len(sequences)} sequences, loss {found['losses'][0]:.4f} to {found['losses'][-1]:.4f}; "
          f"float64 differs by {error:.1e}")
    return {"sequences": of_step, "sequence_length": positions, "learning_rate": peak, "float64_differs": error,
            "checksum": checksum(pairs), **found}


def main(shared):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    synthetic = synthetic_pairs()
    articles = {"file": "data/xsum/dev/validation_inferred.jsonl", "count": 128, "document_tokens": 24}
    out = {
        "made_by": {"script": "tests/golden/make_finetuning.py", "torch": torch.__version__,
                    "transformers": transformers.__version__, "sentencepiece": sentencepiece.__version__},
        "steps": STEPS, "warmup_steps": WARMUP, "minimum_ratio": MINIMUM,
        "synthetic": {**case(HERE / "pretrained" / "untied_bf16", synthetic, 8, 64, 1e-3), "pairs": synthetic},
        "stories": {**case(shared / "data/models/stories260K/hf", article_pairs(shared, **articles), 4, 192, 5e-4),
                    **articles}}
    text = json.dumps(out, separators=(",", ":")).replace(']],[[', ']],\n[[').replace(',"', ',\n"')
    (HERE / "finetuning.json").write_text(text + "\n")


if __name__ == "__main__":  # make_lora.py takes the same steps
    main(pathlib.Path(sys.argv[1]))
