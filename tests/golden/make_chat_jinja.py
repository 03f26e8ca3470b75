"""Writes chat_jinja.json beside this script: by the name of each chat template, chat_template.jinja of an export, which
tests/data/chat/chat_template_test.cpp must give. Fails unless transformers renders the conversations of chat_templates.json by these texts as
by the template's own, refuses where that does, and makes the ids of `prepare`.

    python3 -m venv venv && venv/bin/pip install transformers jinja2 && venv/bin/python make_chat_jinja.py PROGRAM

PROGRAM is build/cpu-release/ripstop.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

ROLES = {"s": "system", "u": "user", "a": "assistant"}
SPECIAL = ["<B>", "<E>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
CONFIG = """[run]
directory = "{0}/run"
device = "cpu"
[data]
directory = "{0}/pairs"
sequence_length = 256
[model]
preset = "debug"
[train]
steps = 1
global_batch_sequences = 2
[optimizer]
learning_rate = 1e-3
"""


def make_tokenizer(directory):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<B>", "eos_token": "<E>", "clean_up_tokenization_spaces": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def check(name, row, conversations, work, run):
    """Returns the text."""
    prepare = ["prepare", "--tokenizer", work / "tokenizer", "--chat-template", name]
    run(*prepare, "--input", work / "pairs.jsonl", "--output", work / "pairs")
    run("train", work / "config.toml")
    run("checkpoint", "export", work / "run", work / "export")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(work / "export"))
    seen = []
    for messages, wanted in zip(conversations, row["rendered"]):
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False)
            asked = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:
            assert wanted is None, (name, messages, error)
            continue
        assert text == wanted and asked == wanted + row["prompt"], (name, messages, text, wanted)
        if messages[-1]["role"] == "assistant":
            seen.append(messages)
    # Of equal conversations `prepare` takes one.
    (work / "train.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in seen))
    run(*prepare, "--input", work / "train.jsonl", "--output", work / "messages")
    shown = json.loads(run("prepare", "--show", len(seen), "--loss-on", "last", "--json", work / "messages"))["examples"]
    ids = {tuple(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)) for messages in seen}
    assert {tuple(example["ids"]) for example in shown} <= ids and len(shown) >= 1, name
    print(f"{name}: {len(conversations)} conversations, ids of {len(shown)}")
    return (work / "export/chat_template.jinja").read_text()


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    golden = json.loads((here / "chat_templates.json").read_text())
    conversations = [[{"role": ROLES[turn[0]], "content": turn[1:]} for turn in turns] for turns in golden["conversations"]]
    rows = {row["name"]: row for row in golden["templates"]}
    texts = {}
    for name, row in rows.items():
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            make_tokenizer(work / "tokenizer")
            (work / "config.toml").write_text(CONFIG.format(folder))
            (work / "pairs.jsonl").write_text("".join(json.dumps({"document": f"one {i}", "summary": f"two {i}"}) + "\n" for i in range(8)))

            def run(*words):
                return subprocess.run([sys.argv[1], *map(str, words)], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

            if isinstance(row["rendered"], str):  # the texts of that template
                row = row | {"rendered": rows[row["rendered"]]["rendered"]}
            texts[name] = check(name, row, conversations, work, run)
    (here / "chat_jinja.json").write_text(json.dumps(texts, indent=1) + "\n")
