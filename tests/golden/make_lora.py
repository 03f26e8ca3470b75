#!/usr/bin/env python3
"""Writes lora/ beside this script: adapters as peft stores them, 50 float32 steps that peft trains, and logits.

  python3 tests/golden/make_lora.py ../shared      (torch, transformers, peft and sentencepiece from PyPI; some minutes)

synthetic_start, stories_start   adapters of all seven targets as peft begins (A random, B zero), for
                                 pretrained/untied_bf16 and for stories260K of ../shared/data/models.
steps.json      50 steps from them on the pairs of finetuning.json, whose batches, schedule, betas and clipping they
                have: all seven targets or attention alone (the same adapters without the others), alpha / rank or
                alpha / sqrt(rank). Losses, gradient norms, and the norm of each target's A and B after the last step.
                `float64_differs`: the largest relative difference of a loss from the same in float64.
all_untied_f32, qv_tied_f32      trained adapters as save_pretrained of peft writes them, for pretrained/untied_bf16
                                 and pretrained/tied_f32.
logits.json     the logits of both after each token of a text, by peft in float64 from the stored weights, and how far
                float32, merged float32 weights and the base alone are from them.

Before it writes anything it proves lora_reference.py against peft: loss, gradients and weights after one step of AdamW,
for one rank and for a tensor axis of two, with dropout and without, to 1e-6.
"""
import json
import pathlib
import re
import shutil
import sys

import numpy as np
import peft
import sentencepiece
import torch
import torch.nn.functional as F
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

import lora_reference
from make_finetuning import (BETAS, CLIP, DECAY, EPS, MINIMUM, STEPS, WARMUP, article_pairs, checksum, logits_of,
                             packed, rate, synthetic_pairs)

HERE = pathlib.Path(__file__).parent
OUT = HERE / "lora"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ALL = ATTENTION + ["gate_proj", "up_proj", "down_proj"]
OURS = {"q_proj": "attention.wq", "k_proj": "attention.wk", "v_proj": "attention.wv", "o_proj": "attention.wo",
        "gate_proj": "feed_forward.w1", "up_proj": "feed_forward.w3", "down_proj": "feed_forward.w2"}


def base_model(directory, dtype):
    return LlamaForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager")


def with_adapters(directory, dtype, rank, alpha, targets, rslora):
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=targets, use_rslora=rslora,
                        bias="none", task_type="CAUSAL_LM")
    return get_peft_model(base_model(directory, dtype), config, autocast_adapter_dtype=False).to(dtype)


def adapters_of(model):
    """Name of a matrix, as layers.0.self_attn.q_proj -> its peft module."""
    return {name.removeprefix("base_model.model.model."): module for name, module in model.named_modules()
            if isinstance(module, peft.tuners.lora.LoraLayer)}


def weights_of(module):
    return module.lora_A["default"].weight, module.lora_B["default"].weight


def save(model, directory, base):
    """As peft saves, without its model card; the config names no path of this machine and has one order."""
    shutil.rmtree(directory, ignore_errors=True)
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(directory)
    (directory / "README.md").unlink(missing_ok=True)
    (directory / "adapter_model.safetensors").chmod(0o644)
    path = directory / "adapter_config.json"
    config = json.loads(path.read_text())
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def begin(name, directory, base, rank, alpha, seed):
    """The adapters from which all runs of a model start: peft's own initial values."""
    torch.manual_seed(seed)
    save(with_adapters(directory, torch.float32, rank, alpha, ALL, rslora=False), OUT / name, base)
    return load_file(OUT / name / "adapter_model.safetensors")


def set_adapters(model, stored):
    """Sets every adapter of the model; the file may have more."""
    with torch.no_grad():
        for name, module in adapters_of(model).items():
            for letter, weight in zip("AB", weights_of(module)):
                weight.copy_(stored[f"base_model.model.model.{name}.lora_{letter}.weight"])


# ---- 50 steps

def norms_after(model):
    """Target and letter -> the norm of all layers' adapters of it."""
    squared = {}
    for name, module in adapters_of(model).items():
        for letter, weight in zip("AB", weights_of(module)):
            key = f"{name.split('.')[-1]}.lora_{letter}"
            squared[key] = squared.get(key, 0.0) + weight.detach().double().square().sum().item()
    return {key: value**0.5 for key, value in squared.items()}


def train(model, sequences, of_step, peak):
    """The steps of make_finetuning.train, of the adapters alone; all of them decay."""
    weights = [w for w in model.parameters() if w.requires_grad]
    assert all(w.dim() == 2 for w in weights)
    optimizer = torch.optim.AdamW(weights, lr=peak, betas=BETAS, eps=EPS, weight_decay=DECAY)
    found = {"targets": [], "losses": [], "gradient_norms": []}
    for step in range(1, STEPS + 1):
        chosen = [((step - 1) * of_step + s) % len(sequences) for s in range(of_step)]
        token, target, position, document = sequences[chosen].unbind(-1)
        targets = (target >= 0).sum().item()
        logits = logits_of(model.base_model.model, token, position, document)
        total = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum")
        optimizer.zero_grad()
        (total / targets).backward()
        norm = torch.nn.utils.clip_grad_norm_(weights, CLIP).item()
        for group in optimizer.param_groups:
            group["lr"] = rate(step, peak)
        optimizer.step()
        for key, value in zip(found, (targets, total.item() / targets, norm)):
            found[key].append(value)
    return {**found, "norms": norms_after(model)}


def runs_of(directory, base, start_name, pairs, of_step, positions, peak, rank, alpha, seed):
    start = begin(start_name, directory, base, rank, alpha, seed)
    sequences = packed(pairs, positions)
    out = {"base": base, "start": f"lora/{start_name}", "rank": rank, "alpha": alpha, "sequences": of_step,
           "sequence_length": positions, "learning_rate": peak, "checksum": checksum(pairs), "runs": []}
    for targets in (ALL, ATTENTION):
        for rslora in (False, True):
            found = {}
            for dtype in (torch.float32, torch.float64):
                model = with_adapters(directory, dtype, rank, alpha, targets, rslora).train()
                set_adapters(model, start)
                found[dtype] = train(model, sequences, of_step, peak)
            single, exact = found[torch.float32], found[torch.float64]
            error = max(abs(a / b - 1) for a, b in zip(single["losses"], exact["losses"]))
            out["targets"] = single.pop("targets")
            out["runs"].append({"target_modules": targets, "rslora": rslora, "float64_differs": error, **single})
            print(f"{start_name}, {len(targets)} targets, rslora {rslora}: loss {single['losses'][0]:.4f} to "
                  f"{single['losses'][-1]:.4f}; float64 differs by {error:.1e}", flush=True)
    return out


# ---- adapters to import

def imported(name, base, targets, rank, alpha, rslora, seed, text):
    """An adapter whose A and B are random, as after training, and the logits with it."""
    torch.manual_seed(seed)
    model = with_adapters(HERE / base, torch.float32, rank, alpha, targets, rslora)
    with torch.no_grad():
        for module in adapters_of(model).values():
            for weight in weights_of(module):
                weight.copy_(0.5 / weight.shape[1] ** 0.5 * torch.randn_like(weight))
    save(model, OUT / name, base)

    def logits(dtype, merged=False):
        loaded = PeftModel.from_pretrained(base_model(HERE / base, dtype), OUT / name,
                                           autocast_adapter_dtype=False).to(dtype).eval()
        with torch.no_grad():
            return (loaded.merge_and_unload() if merged else loaded)(torch.tensor([text])).logits[0].double()

    exact = logits(torch.float64)
    with torch.no_grad():
        alone = base_model(HERE / base, torch.float64)(torch.tensor([text])).logits[0]
    differs = lambda other: (exact - other).abs().max().item()
    print(name, "float32 differs by", differs(logits(torch.float32)), "the base alone by", differs(alone), flush=True)
    return {"adapter": f"lora/{name}", "base": base, "target_modules": targets, "rank": rank, "alpha": alpha,
            "rslora": rslora, "float32_differs": differs(logits(torch.float32)),
            "merged_differs": differs(logits(torch.float32, merged=True)), "base_differs": differs(alone), "ids": text,
            "logits": [[float(f"{x:.8g}") for x in row] for row in exact.tolist()]}


# ---- the proof of lora_reference.py

class FixedDropout(torch.nn.Module):
    """Dropout whose mask is given: what the reference gets, too."""

    def __init__(self, mask, p):
        super().__init__()
        self.mask, self.p = mask, p

    def forward(self, x):
        return x * self.mask.view(x.shape) / (1 - self.p)


def turned_rows(matrix, head):
    """Hugging Face's rows of q or k, or of an adapter's B for it, in ripstop's order."""
    halves = matrix.reshape(-1, 2, head // 2, *matrix.shape[1:])
    return np.swapaxes(halves, 1, 2).reshape(matrix.shape)


def our_name(name):
    layers, layer, _, target = name.split(".")
    return f"{layers}.{layer}.{OURS[target]}"


def ours(name, matrix, head):
    array = matrix.detach().double().numpy()
    return turned_rows(array, head) if name.endswith(("q_proj", "k_proj")) else array


def reference_weights(model, head):
    weights = {}
    for name, parameter in model.base_model.model.named_parameters():
        if "lora_" in name:
            continue
        name = name.removeprefix("model.").removesuffix(".weight").removesuffix(".base_layer")
        if name.endswith("_proj"):
            weights[our_name(name)] = ours(name, parameter, head)
            continue
        name = name.replace("input_layernorm", "attention_norm").replace("post_attention_layernorm", "ffn_norm")
        name = name.replace("embed_tokens", "tok_embeddings").replace("lm_head", "output")
        weights[name] = parameter.detach().double().numpy()
    weights.setdefault("output", weights["tok_embeddings"])
    return weights


def largest_error(found, expected):
    """Of a matrix, relative to its norm."""
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def exact_norm(self, x):
    """transformers' norm without its step through float32."""
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def exact_angles(self, x, position_ids):
    """The same for its rotary angles."""
    config = self.config
    head = config.hidden_size // config.num_attention_heads
    turn = config.rope_parameters["rope_theta"] ** (-torch.arange(0, head, 2, dtype=x.dtype) / head)
    angle = (position_ids[..., None].to(x.dtype) * turn).repeat(1, 1, 2)
    return angle.cos(), angle.sin()


def exact_softmax(x, dim, dtype=None):
    """The same for attention, which asks for float32."""
    return torch.softmax(x, dim)


def prove_reference(targets, rslora, p, ranks, sequences):
    """One step with both. Returns the largest relative errors of loss, gradients and updated weights."""
    rank, alpha, learning_rate = 5, 8, 1e-2
    torch.manual_seed(7)
    model = with_adapters(HERE / "pretrained/untied_bf16", torch.float64, rank, alpha, targets, rslora).train()
    config = model.base_model.model.config
    head = config.hidden_size // config.num_attention_heads
    token, target, position, document = sequences.unbind(-1)
    rows, masks, adapters = token.numel(), {}, {}
    for name, module in adapters_of(model).items():
        for weight in weights_of(module):
            torch.nn.init.normal_(weight, std=0.1)
        mask = (torch.rand(rows, module.in_features, dtype=torch.float64) >= p).double()
        module.lora_dropout["default"] = FixedDropout(mask, p)
        a, b = weights_of(module)
        masks[our_name(name)] = mask.numpy()
        adapters[our_name(name)] = (a.detach().numpy().copy(), ours(name, b, head).copy())
    weights = reference_weights(model, head)
    trained = [w for w in model.parameters() if w.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate, betas=BETAS, eps=EPS, weight_decay=DECAY)
    loss = F.cross_entropy(logits_of(model.base_model.model, token, position, document).flatten(0, 1),
                           target.flatten(), reduction="sum") / (target >= 0).sum()
    loss.backward()
    optimizer.step()

    sizes = {"layers": config.num_hidden_layers, "head": head, "eps": config.rms_norm_eps,
             "theta": config.rope_parameters["rope_theta"]}
    scale = alpha / rank**0.5 if rslora else alpha / rank
    reference = lora_reference.Model(sizes, weights, adapters, masks, scale / (1 - p), ranks)
    owner = (torch.arange(len(sequences))[:, None] * 1000 + document).flatten()
    allowed = (owner[:, None] == owner[None, :]) & torch.ones(rows, rows, dtype=torch.bool).tril()
    found = reference.step(*(x.flatten().numpy() for x in (token, target, position)), allowed.numpy())
    errors = {"loss": abs(found / loss.item() - 1), "gradient": 0.0, "weight": 0.0}
    assert set(reference.gradients) == set(adapters)
    for name, module in adapters_of(model).items():
        matrices = (lambda m: m, lambda m: turned_rows(m, head) if name.endswith(("q_proj", "k_proj")) else m)
        for place, weight in enumerate(weights_of(module)):
            before, gradient = adapters[our_name(name)][place], reference.gradients[our_name(name)][place]
            theirs = lambda tensor: matrices[place](tensor.detach().numpy())
            errors["gradient"] = max(errors["gradient"], largest_error(gradient, theirs(weight.grad)))
            zero = np.zeros_like(before)
            after, *_ = lora_reference.adamw(before, gradient, zero, zero, 1, learning_rate, BETAS, EPS, DECAY)
            moved = largest_error(after - before, theirs(weight) - before)
            errors["weight"] = max(errors["weight"], moved)
    return errors


def prove_references(sequences):
    """In float64 throughout: what is left is rounding, and the first step of AdamW magnifies small differences."""
    llama = transformers.models.llama.modeling_llama
    places = ((llama.LlamaRMSNorm, "forward", exact_norm), (llama.LlamaRotaryEmbedding, "forward", exact_angles),
              (F, "softmax", exact_softmax))
    kept = [getattr(owner, name) for owner, name, _ in places]
    for owner, name, exact in places:
        setattr(owner, name, exact)
    worst = {}
    for targets, rslora, p in ((ALL, False, 0.0), (ALL, True, 0.25), (ATTENTION, False, 0.25),
                               (["v_proj", "down_proj"], False, 0.0), (["o_proj"], True, 0.25)):
        for ranks in (1, 2):
            for key, error in prove_reference(targets, rslora, p, ranks, sequences).items():
                worst[key] = max(worst.get(key, 0.0), float(error))
    for (owner, name, _), old in zip(places, kept):
        setattr(owner, name, old)
    print("lora_reference.py differs from peft by", worst, flush=True)
    assert all(error < 1e-6 for error in worst.values()), worst
    return worst


def write(name, value):
    """A line for each key of lower case; lists and the names of tensors stay in one."""
    text = json.dumps({"made_by": MADE_BY, **value}, separators=(",", ":"))
    (OUT / name).write_text(re.sub(r',(?="[a-z0-9_]+":)', ",\n", text) + "\n")


MADE_BY = {"script": "tests/golden/make_lora.py", "torch": torch.__version__,
           "transformers": transformers.__version__, "peft": peft.__version__,
           "sentencepiece": sentencepiece.__version__}


def main(shared):
    torch.set_num_threads(1)
    synthetic = synthetic_pairs()
    differs = prove_references(packed(synthetic, 64)[:2])
    draw = torch.Generator().manual_seed(5)
    text = lambda vocabulary: [1] + torch.randint(3, vocabulary, (9,), generator=draw).tolist()
    write("logits.json", {"imports": [
        imported("all_untied_f32", "pretrained/untied_bf16", ALL, 4, 8, True, 21, text(131)),
        imported("qv_tied_f32", "pretrained/tied_f32", ["q_proj", "v_proj"], 8, 16, False, 22, text(97))]})
    articles = {"file": "data/xsum/dev/validation_inferred.jsonl", "count": 128, "document_tokens": 24}
    stories = "data/models/stories260K/hf"
    write("steps.json", {
        "steps": STEPS, "warmup_steps": WARMUP, "minimum_ratio": MINIMUM, "weight_decay": DECAY, "betas": BETAS,
        "epsilon": EPS, "max_grad_norm": CLIP, "reference_differs": differs,
        "synthetic": runs_of(HERE / "pretrained/untied_bf16", "pretrained/untied_bf16", "synthetic_start", synthetic, 8,
                             64, 5e-3, rank=5, alpha=8, seed=11),
        "stories": {**runs_of(shared / stories, stories, "stories_start", article_pairs(shared, **articles), 4, 192,
                              5e-3, rank=4, alpha=8, seed=12), **articles}})


main(pathlib.Path(sys.argv[1]))
