#!/usr/bin/env python3
"""Compares the ids of `ripstop prepare` with those of Hugging Face's LlamaTokenizer, article by article.

  python3 tests/golden/check_tokenizer_ids.py build/cpu-release/ripstop ../shared
                                      (transformers below 5, sentencepiece, protobuf, h5py from PyPI; a minute)

LLaMA's own tokenizer.model encodes up to 2,000 articles of ../shared/data and the odd texts below. An example must be
BOS, the ids of the prompt, the ids of the summary, EOS, each as transformers has them: exit code 1 and the first
differences if not. What is only said: how often the summary gets other ids if it is encoded in one text with the
prompt, and for how many documents AutoTokenizer, which takes "<s>" in a text for BOS, gives other ids.

Below 5, because LlamaTokenizer of transformers 5.23 encodes two spaces otherwise than SentencePiece if it has only
LLaMA's tokenizer.model: "Hello  world" is 15043 259 11526 there, 15043 29871 3186 here and in transformers 4.
"""
import gzip
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import h5py
import transformers
from transformers import AutoTokenizer, LlamaTokenizer

PROMPT = "{}\n\nTL;DR:"
MOST_ARTICLES = 2000
ODD = [
    "plain", "  two spaces before", "two  spaces   three    four inside", "a line\nand\n\n\ntwo more",
    "tab\tand\ttab\t\tend", "carriage\r\nreturn", "trailing space ", "trailing lines\n\n\n",
    "\u2581 a real \u2581underline\u2581", "\ufeffbyte order mark",
    "no\u00a0break \u2003em \u3000ideographic \u200bzero \u00adsoft",
    "caf\u00e9 cafe\u0301 \u212b \u00c5 \ufb01 \u2460 \uff21", "\u4e1c\u4eac 2020\u5e74 \u65e5\u672c\u8a9e",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u1e9e\u0130\u0131",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0010ffff \ue000",
    "it\u00e2\u20ac\u2122s \u00c3\u00a9 mojibake", "1234567890 3.14159 1,000,000 0x1F 1e-9",
    "<0x0A> <0x41> &amp; <b>tag</b>", "a" * 300, "-" * 200, " " * 50 + "x", "\n" * 40 + "x",
    "\\n \\t \\u0041 \"quoted\" 'single'", "http://example.org/a?b=c&d=%20#e",
    "def f(x):\n    return x  # four\n\tone tab", "bell\u0007 escape\u001b[31m delete\u007f",
    "line\u2028separator\u2029paragraph \u0085next", "TL;DR: inside\n\nTL;DR:",
    "\u0915\u094d\u0937\u093f \u1100\u1161\u11a8 \uac01", "x\u0301\u0302\u0303\u0304\u0305", "\ufffd replacement",
    "\u00bd \u00b2 \u2126 \u2167",
]
SPECIAL = ["<s> at the front", "in the </s> middle", "<unk> and <s></s>"]


def articles(shared):
    for name in ("test_public.jsonl.gz", "not_test_superni.jsonl.gz", "validation_inferred.jsonl"):
        file = pathlib.Path("xsum/dev") / name
        opened = gzip.open if name.endswith(".gz") else open
        with opened(shared / "data" / file, "rt", encoding="utf-8") as lines:
            for line in lines:
                pair = json.loads(line)
                yield pair["document"], pair["summary"]


def pairs_of(shared):
    pairs = [pair for pair, _ in zip(articles(shared), range(MOST_ARTICLES))]
    for number, text in enumerate(ODD + SPECIAL):
        pairs.append((f"{text} document {number}", f"{text} summary"))
        pairs.append((text + f"{number}", f"{number}" + text))
    return list(dict.fromkeys(pairs))


def ids_of_ripstop(program, tokenizer, pairs):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        with open(scratch / "all.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps({"document": d, "summary": s}) + "\n" for d, s in pairs)
        subprocess.run([program, "prepare", "--input", scratch / "all.jsonl", "--tokenizer", tokenizer, "--strict",
                        "--output", scratch / "data"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with h5py.File(scratch / "data" / "train.h5") as file:
            tokens, offset, target = file["tokens"][:], file["example_offset"][:], file["target_begin"][:]
    return [(tokens[a:t].tolist(), tokens[t:b].tolist()) for a, t, b in zip(offset, target, offset[1:])]


def main(program, shared):
    model = shared / "data" / "models" / "llama_tokenizer"
    pairs = pairs_of(shared)
    theirs = LlamaTokenizer.from_pretrained(model, legacy=False)

    def encode(text):  # a text's "</s>" is text, as ripstop has it
        return theirs.encode(text, add_special_tokens=False, split_special_tokens=True)

    different = whole_differs = 0
    for (document, summary), (prompt_ids, summary_ids) in zip(pairs, ids_of_ripstop(program, model, pairs), strict=True):
        prompt = PROMPT.format(document)
        expected = [theirs.bos_token_id] + encode(prompt), encode(summary) + [theirs.eos_token_id]
        if (prompt_ids, summary_ids) != expected:
            different += 1
            if different <= 5:
                print("differs:", repr(document[:80]), repr(summary[:80]))
                for found, wanted in zip((prompt_ids, summary_ids), expected):
                    same = sum(1 for _ in itertools.takewhile(lambda two: two[0] == two[1], zip(found, wanted)))
                    print("   from", same, "ripstop", found[same:same + 8], "transformers", wanted[same:same + 8])
        whole_differs += prompt_ids[1:] + summary_ids[:-1] != encode(f"{prompt} {summary}")
    print(f"transformers {transformers.__version__}: {len(pairs)} examples, {different} with other ids; "
          f"{whole_differs} would be other ids if prompt and summary were one text")

    with tempfile.TemporaryDirectory() as scratch:  # AutoTokenizer may write beside the file
        shutil.copyfile(model / "tokenizer.model", pathlib.Path(scratch) / "tokenizer.model")
        (pathlib.Path(scratch) / "config.json").write_text('{"model_type": "llama"}')
        auto = AutoTokenizer.from_pretrained(scratch)
        other = sum(auto.encode(d, add_special_tokens=False) != encode(d) for d, _ in pairs)
    print(f"{type(auto).__name__} of AutoTokenizer gives {other} documents other ids than LlamaTokenizer")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2])))
