#!/usr/bin/env python3
"""Checks with transformers that a model fine-tuned by its chat template is prompted alike there. For development: no test runs it.

    check_chat_prompts.py PROGRAM SHARED WORK

Gives a tiny model of SHARED/golden/families a tokenizer and five chat templates, once its own (`--chat-template auto`), once named beside a
foreign one, fine-tunes each on pairs of XSum by PROGRAM (build/cpu-release/ripstop), exports it, and compares: ids of `prepare --show` with those of apply_chat_template, prompt and whole;
texts of `summarize` with those of generate() behind apply_chat_template's prompt; the Python of the export's README.md with both.
Needs torch and transformers (made with transformers 4.57.6 and 5.24.0, torch 2.15.0). WORK is a directory to be made.
"""
import gzip
import json
import pathlib
import re
import shutil
import subprocess
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

# golden file -> name, end of a turn, begin token
TEMPLATES = {"qwen2.5": ("qwen2.5", "<|im_end|>", None), "llama3.1": ("llama3.1", "<|eot_id|>", "<|begin_of_text|>"),
             "tinyllama_chat": ("zephyr", "</s>", "<s>"), "llama2_cj": ("llama2-strict", "</s>", "<s>"), "qwen3": ("qwen3", "<|im_end|>", None)}
FOREIGN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>",
           "</s>"]
CONFIG = """[run]
directory = "{0}/run"
[data]
directory = "{0}/data"
sequence_length = 512
[model]
pretrained = "{0}/model"
resize_vocabulary = "mean"
[optimizer]
learning_rate = 0.01
[train]
steps = 8
global_batch_sequences = 4
[generation]
max_new_tokens = 12
"""


def make_model(directory, shared, texts, name, is_own):
    _, end, begin = TEMPLATES[name]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config["eos_token"] = "<|endoftext|>" if name == "qwen2.5" else end  # as a base model's file has it
    config["chat_template"] = json.loads((shared / f"golden/families/chat/{name}.json").read_text())["template_text"] if is_own else FOREIGN
    if begin:
        config["bos_token"] = begin
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))])
    directory.mkdir(parents=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    for file in "model.safetensors", "config.json":
        shutil.copy(shared / "golden/families/models/llama_plain" / file, directory)


def check(folder, test):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder / "export"))
    model = AutoModelForCausalLM.from_pretrained(str(folder / "export"))
    card = (folder / "export/README.md").read_text()
    names = {"tokenizer": tokenizer, "model": model}
    exec(re.search(r"^before, separator.*?^    return [^\n]*", card, re.S | re.M).group(), names)  # our own export's Python

    def ids(messages, prompts):
        return list(tokenizer.apply_chat_template(messages, add_generation_prompt=prompts, tokenize=True, return_dict=False))

    shown = {tuple(e["ids"]): e for e in json.loads((folder / "show.json").read_text())["examples"]}
    written = [json.loads(line) for line in open(folder / "summaries.jsonl")]
    for row, summary in zip(test, written):
        user = [{"role": "user", "content": "Summarize the following article in one sentence.\n\n" + row["document"]}]
        prompt, whole = ids(user, True), ids(user + [{"role": "assistant", "content": row["summary"]}], False)
        assert shown[tuple(whole)]["counted"].index(True) == len(prompt)
        assert names["prompt_ids"](row["document"]) == prompt
        output = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long))
        assert tokenizer.decode(output[0, len(prompt):], skip_special_tokens=True).strip() == summary["summary"]


if __name__ == "__main__":
    program, shared, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    work.mkdir()
    with gzip.open(shared / "data/xsum/dev/train.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    rows = [{"document": row["document"][:500], "summary": row["summary"]} for row in rows]
    for split, part in ("train", rows[:150]), ("validation", rows[150:170]), ("test", rows[170:190]):
        (work / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    for name, is_own in [(name, is_own) for name in TEMPLATES for is_own in (True, False)]:
        folder = work / (name if is_own else f"{name}-named")

        def run(*words):
            return subprocess.run([program, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout

        make_model(folder / "model", shared, [row["document"] for row in rows[:300]], name, is_own)
        run("prepare", "--input", *(work / f"{split}.jsonl" for split in ("train", "validation", "test")), "--tokenizer", folder / "model",
            "--chat-template", "auto" if is_own else TEMPLATES[name][0], "--output", folder / "data")
        (folder / "config.toml").write_text(CONFIG.format(folder))
        run("train", folder / "config.toml")
        run("checkpoint", "export", folder / "run", folder / "export", "--dtype", "float32")
        run("summarize", folder / "export", "--input", work / "test.jsonl", "--output", folder / "summaries.jsonl")
        (folder / "show.json").write_text(run("prepare", "--show", 20, "--split", "test", "--json", folder / "data"))
        check(folder, rows[170:190])
        assert (folder / "export/chat_template.jinja").exists() != is_own
        print(f"{folder.name}: ids, texts and the card's prompts are equal in 20 of 20")
