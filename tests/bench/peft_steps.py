#!/usr/bin/env python3
"""Training steps of LoRA as a user of peft writes them well, to compare `training_bench --lora-rank` with.

    python3 tests/bench/peft_steps.py --preset 110m --batch 4 --sequence 512 --dtype bfloat16 --rank 16 [--all] [--compile]

The model is transformers' LlamaForCausalLM with random weights and SDPA, its frozen weights in the compute dtype; the
adapters are float32 and autocast as peft makes them. --rank 0 trains all weights under autocast. Prints one JSON line:
tokens per second of the median step, parameters trained, loss. Needs torch, transformers and peft.
"""
import argparse
import json
import statistics
import time

import peft
import torch
import transformers

PRESETS = {  # hidden, intermediate, layers, heads
    "15m": (288, 768, 6, 6),
    "110m": (768, 2048, 12, 12),
}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]


def make_model(a):
    hidden, intermediate, layers, heads = PRESETS[a.preset]
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads, vocab_size=32000, max_position_embeddings=a.sequence, tie_word_embeddings=False,
        use_cache=False)
    config._attn_implementation = "sdpa"
    model = transformers.LlamaForCausalLM(config)
    if a.rank == 0:
        return model
    model = model.to(torch.bfloat16 if a.dtype == "bfloat16" else torch.float32)
    return peft.get_peft_model(model, peft.LoraConfig(
        r=a.rank, lora_alpha=2 * a.rank, lora_dropout=a.dropout, target_modules=ATTENTION + (MLP if a.all else []),
        task_type="CAUSAL_LM"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="110m", choices=PRESETS)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--all", action="store_true", help="all seven targets, else the four of attention")
    parser.add_argument("--compile", action="store_true")
    a = parser.parse_args()
    torch.manual_seed(1)
    model = make_model(a)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model) if a.compile else model
    times, loss = [], None
    for step in range(a.warmup + a.steps):
        ids = torch.randint(0, 32000, (a.batch, a.sequence + 1))
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bfloat16"):
            logits = forward(input_ids=ids[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if step >= a.warmup:
            times.append(time.perf_counter() - begin)
    median = statistics.median(times)
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
                      "preset": a.preset, "dtype": a.dtype, "rank": a.rank, "compile": a.compile,
                      "trained_parameters": sum(p.numel() for p in trained), "step_seconds": median,
                      "tokens_per_second": a.batch * a.sequence / median, "loss": float(loss.detach())}))


if __name__ == "__main__":
    main()
