#!/usr/bin/env python3
"""Writes generation.json: the ids that Hugging Face's generate() continues 50 prompts with, in several ways.

  python3 tests/golden/make_generation.py tests/golden/generation.json     (torch and transformers from PyPI, a minute)

Weights and prompts are rules that tests/train/generate/generation_golden_test.cpp states again; keep them alike.
"""
import json
import math
import sys

import torch
import transformers

C, FFN, LAYERS, H, K, V = 32, 48, 2, 4, 2, 97
D = C // H
END, PROMPTS, CONTEXT = 2, 50, 96
MASK64 = (1 << 64) - 1

BEAMS = {"num_beams": 4, "max_new_tokens": 24}
SETTINGS = [
    {"max_new_tokens": 24},
    {"max_new_tokens": 24, "no_repeat_ngram_size": 3},
    {"max_new_tokens": 24, "no_repeat_ngram_size": 2, "min_new_tokens": 10},
    {"max_new_tokens": 24, "min_new_tokens": 24},
    {**BEAMS},
    {**BEAMS, "length_penalty": 0.6},
    {**BEAMS, "length_penalty": 2.0},
    {**BEAMS, "length_penalty": -1.0},
    {**BEAMS, "no_repeat_ngram_size": 3},
    {**BEAMS, "length_penalty": 0.6, "no_repeat_ngram_size": 3, "min_new_tokens": 8},
    {**BEAMS, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "min_new_tokens": 8},
    {**BEAMS, "early_stopping": "true"},
    {**BEAMS, "early_stopping": "never", "length_penalty": 2.0},
    {"num_beams": 7, "max_new_tokens": 5, "length_penalty": 0.6},
]


def mixed(z):
    """The finalizer of SplitMix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def uniform(number, index):
    """-1 to 1, a multiple of 2^-23: exact in float32."""
    return (mixed(((number << 32) + index + 1) * 0x9E3779B97F4A7C15 & MASK64) >> 40) / 2.0**23 - 1


def weight(number, rows, columns, scale):
    return torch.tensor([uniform(number, i) * scale for i in range(rows * columns)]).reshape(rows, columns)


def halves(w):
    """Rotary pairs as Hugging Face has them: (i, i + D/2) instead of (2i, 2i + 1)."""
    return w.reshape(-1, D // 2, 2, C).transpose(1, 2).reshape(-1, C)


def weights():
    scale = 0.5
    state = {"model.embed_tokens.weight": weight(0, V, C, scale), "lm_head.weight": weight(1, V, C, scale),
             "model.norm.weight": torch.ones(C)}
    for layer in range(LAYERS):
        at, n = f"model.layers.{layer}.", 10 * (layer + 1)
        state[at + "self_attn.q_proj.weight"] = halves(weight(n, H * D, C, scale))
        state[at + "self_attn.k_proj.weight"] = halves(weight(n + 1, K * D, C, scale))
        state[at + "self_attn.v_proj.weight"] = weight(n + 2, K * D, C, scale)
        state[at + "self_attn.o_proj.weight"] = weight(n + 3, C, C, scale)
        state[at + "mlp.gate_proj.weight"] = weight(n + 4, FFN, C, scale)
        state[at + "mlp.down_proj.weight"] = weight(n + 5, C, FFN, scale)
        state[at + "mlp.up_proj.weight"] = weight(n + 6, FFN, C, scale)
        state[at + "input_layernorm.weight"] = state[at + "post_attention_layernorm.weight"] = torch.ones(C)
    state["lm_head.weight"][END] *= 2  # often among the best, so that texts end at many lengths
    return state


def prompts():
    return [[1] + [3 + mixed(1000 * i + p) % (V - 3) for p in range(i * 7 % 41)] for i in range(PROMPTS)]


def main(path):
    torch.set_num_threads(1)
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=C, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=H,
        num_key_value_heads=K, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=False,
        bos_token_id=1, eos_token_id=END, pad_token_id=0)
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict(weights())
    cases = []
    for settings in SETTINGS:
        given = {k: {"true": True, "never": "never"}.get(v, v) if k == "early_stopping" else v for k, v in settings.items()}
        texts = []
        for prompt in prompts():
            with torch.no_grad():
                ids = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                                     do_sample=False, **given)[0, len(prompt):].tolist()
            texts.append(ids)
        ended = sum(END in t for t in texts)
        print(settings, "ended", ended, "lengths", sorted(map(len, texts))[::10])
        cases.append({"settings": settings, "texts": texts})
    with open(path, "w") as out:
        out.write('{"transformers": "%s", "torch": "%s", "cases": [\n' % (transformers.__version__, torch.__version__))
        out.write(",\n".join(json.dumps(case) for case in cases))
        out.write("\n]}\n")


if __name__ == "__main__":
    main(sys.argv[1])
