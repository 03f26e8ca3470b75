#!/usr/bin/env python3
"""Writes pretrained/ beside this script: three small models as Hugging Face stores them, and their logits.

  python3 tests/golden/make_pretrained.py        (torch, transformers and safetensors from PyPI; seconds)

untied_bf16   what save_pretrained of transformers 5 writes of a grouped-query model: three files and their index.
tied_f32      one file, embeddings tied and stored once, one key-value head.
old_f16       as a transformers of 2023 wrote: rotary angles among the tensors, the tied table twice, rope_theta and
              torch_dtype at the top of config.json.

pretrained/logits.json has, for each model, two texts as ids, the logits after each of their tokens and the negative
log-likelihood of each next token. transformers computes them in float64 from the stored weights; its rotary angles and
norms are float32 even then. `float32_differs` is the largest difference of the same in float32.
"""
import json
import pathlib
import shutil

import safetensors
import safetensors.torch
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent / "pretrained"
TEXT_LENGTHS = (20, 12)

MODELS = {
    "untied_bf16": (torch.bfloat16, "56KB", dict(
        hidden_size=64, intermediate_size=84, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        vocab_size=131, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0})),
    "tied_f32": (torch.float32, "5GB", dict(
        hidden_size=32, intermediate_size=84, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
        vocab_size=97, max_position_embeddings=128, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "old_f16": (torch.float16, "5GB", dict(
        hidden_size=32, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=113, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
}


def fill(model):
    """Weights that make every part count: norms differ from 1, attention from a mean, logits from each other."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
            else:
                parameter.copy_(1.5 / parameter.shape[1] ** 0.5 * torch.randn_like(parameter))


def make_old(directory, config):
    """Rewrites a directory of transformers 5 as one of 2023."""
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    head = config.hidden_size // config.num_attention_heads
    for layer in range(config.num_hidden_layers):
        tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = (
            1.0 / 10000.0 ** (torch.arange(0, head, 2).float() / head))
    safetensors.torch.save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    written = json.loads((directory / "config.json").read_text())
    keep = ("architectures", "bos_token_id", "eos_token_id", "hidden_act", "hidden_size", "initializer_range",
            "intermediate_size", "max_position_embeddings", "model_type", "num_attention_heads", "num_hidden_layers",
            "num_key_value_heads", "rms_norm_eps", "tie_word_embeddings", "use_cache", "vocab_size")
    old = {key: written[key] for key in keep} | {
        "pretraining_tp": 1, "rope_scaling": None, "rope_theta": 10000.0, "torch_dtype": "float16",
        "transformers_version": "4.31.0"}
    (directory / "config.json").write_text(json.dumps(dict(sorted(old.items())), indent=2) + "\n")
    (directory / "generation_config.json").unlink(missing_ok=True)


def write(name, seed, dtype, shard_size, sizes):
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    torch.manual_seed(seed)
    config = LlamaConfig(bos_token_id=1, eos_token_id=2, **sizes)
    model = LlamaForCausalLM(config)
    fill(model)
    model.to(dtype).save_pretrained(directory, max_shard_size=shard_size)
    if name.startswith("old"):
        make_old(directory, config)


def logits_of(name, texts, dtype):
    model = LlamaForCausalLM.from_pretrained(HERE / name, dtype=dtype, attn_implementation="eager").eval()
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0].double() for ids in texts]


def golden(name, seed, vocabulary):
    draw = torch.Generator().manual_seed(1000 + seed)
    texts = [[1] + torch.randint(3, vocabulary, (length - 1,), generator=draw).tolist() for length in TEXT_LENGTHS]
    exact, single = logits_of(name, texts, torch.float64), logits_of(name, texts, torch.float32)
    rounded = [[[float(f"{x:.8g}") for x in row] for row in logits.tolist()] for logits in exact]
    nll = [torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none").tolist()
           for logits, ids in zip(exact, texts)]
    return {"float32_differs": max((a - b).abs().max().item() for a, b in zip(exact, single)),
            "texts": [{"ids": ids, "nll": n, "logits": l} for ids, n, l in zip(texts, nll, rounded)]}


def main():
    torch.set_num_threads(1)
    out = {"made_by": {"script": "tests/golden/make_pretrained.py", "torch": torch.__version__,
                       "transformers": transformers.__version__, "safetensors": safetensors.__version__},
           "models": {}}
    for seed, (name, (dtype, shard_size, sizes)) in enumerate(MODELS.items(), start=1):
        write(name, seed, dtype, shard_size, sizes)
        out["models"][name] = golden(name, seed, sizes["vocab_size"])
        print(name, "float32 differs by", out["models"][name]["float32_differs"])
    (HERE / "logits.json").write_text(json.dumps(out, separators=(",", ":")).replace('"ids"', '\n"ids"') + "\n")


main()
