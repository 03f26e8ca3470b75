#!/usr/bin/env python3
"""Checks exported directories with transformers, and makes export_logits.json. For development: no test runs it.

    RIPSTOP_EXPORT_LOGITS=DIR train_test --gtest_filter=ExportLogits.*
    check_export.py logits DIR > tests/golden/export_logits.json
    check_export.py ids EXPORTED...          # ids of AutoTokenizer against those of SentencePiece itself
    check_export.py articles PROGRAM SHARED EXPORTED...  # the same for 2,000 articles, against `ripstop prepare`
    check_export.py load EXPORTED...         # from_pretrained finds every tensor; generates a few tokens

    RIPSTOP_EXPORT_ADAPTERS=DIR train_test --gtest_filter=ExportAdapters.WhatPeftMadeComesBack
    check_export.py adapters DIR             # peft loads them beside their base: logits of lora/logits.json, also merged
    check_export.py merged ADAPTERS MERGED   # both exports of one run: peft's logits beside the base, and transformers' of the merged

Needs torch, transformers, sentencepiece and xxhash (made with transformers 5.23.0 and torch 2.15.0); `articles` h5py,
`adapters` peft (0.21.2).
PROGRAM is build/cpu-release/ripstop, SHARED ../shared.
"""
import json
import os
import sys

TEXTS = [
    "hello world", " leading", "  two leading", "   ", "", "\n", "a\nb\n\nTL;DR:", "tab\there", "\t\ttabs",
    "control \x01\x02 \x7f", "emoji \U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 end", "\xfcn\xefc\xf6d\xe9 \ufb01 \xbd \uff21",
    "</s>", "<s> x </s> y", "a</s>b<unk>c", "<unk>", "trailing  ", "many   spaces   in  here", "12345 6789",
    "\u2581 real \u2581 marks", "zero\u200bwidth", "\u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8", "<0x0A> literal", "a\r\nb", "\xa0no break",
    "\ufeffmark", "e\u0301 combining", "Mr. O'Neil's \"x\"", "\n leading", "a \n b", "<s>", "x<s>", " <s>", "\u3000wide",
    "x" + " " * 100 + "y",
]


def logits(directory):
    import torch
    import xxhash
    from transformers import AutoModelForCausalLM

    ids = [1] + [3 + i * 7 % 55 for i in range(23)]
    golden = {}
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).double()
        with torch.no_grad():
            values = model(torch.tensor([ids])).logits[0].flatten().tolist()
        with open(os.path.join(path, "model.safetensors"), "rb") as file:
            digest = xxhash.xxh3_128_hexdigest(file.read())
        golden[name] = {"model.safetensors": digest, "ids": ids, "logits": [float(f"{v:.9g}") for v in values]}
    json.dump(golden, sys.stdout, separators=(",", ":"))
    print()


def ids(directories):
    import sentencepiece
    from transformers import AutoTokenizer

    bad = 0
    for directory in directories:
        ours = sentencepiece.SentencePieceProcessor(model_file=os.path.join(directory, "tokenizer.model"))
        theirs = AutoTokenizer.from_pretrained(directory)
        differ = [text for text in TEXTS if theirs(text).input_ids != [ours.bos_id()] + ours.encode(text)]
        print(f"{directory}: {len(TEXTS) - len(differ)} of {len(TEXTS)} texts have equal ids", *map(repr, differ))
        bad += len(differ)
    return bad


def articles(program, shared, *directories):
    import pathlib

    from check_tokenizer_ids import PROMPT, ids_of_ripstop, pairs_of
    from transformers import AutoTokenizer

    pairs = pairs_of(pathlib.Path(shared))
    bad = 0
    for directory in directories:
        theirs = AutoTokenizer.from_pretrained(directory)
        differ = []
        for (document, summary), (prompt_ids, summary_ids) in zip(
                pairs, ids_of_ripstop(program, directory, pairs), strict=True):
            expected = (theirs(PROMPT.format(document)).input_ids,
                        theirs(summary, add_special_tokens=False).input_ids + [theirs.eos_token_id])
            if (prompt_ids, summary_ids) != expected:
                differ.append((document[:60], summary[:60]))
        print(f"{directory}: {len(pairs) - len(differ)} of {len(pairs)} examples have equal ids",
              *map(repr, differ[:5]))
        bad += len(differ)
    return bad


def load(directories):
    import torch
    from transformers import AutoModelForCausalLM

    bad = 0
    for directory in directories:
        model, info = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
        problems = [key for key, value in info.items() if value]
        ids = torch.tensor([[1, 5, 6, 7]])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False)
        print(f"{directory}: {model.dtype}, rope {model.config.rope_parameters}, {out.tolist()}", *problems)
        bad += len(problems)
    return bad


def adapters(directories):
    """DIR/NAME/* are exports of lora/NAME, each loaded beside its base and compared with the logits of lora/logits.json."""
    import pathlib

    import torch
    from peft import PeftModel
    from transformers import LlamaForCausalLM

    golden = pathlib.Path(__file__).parent
    bad = 0
    for case in json.loads((golden / "lora/logits.json").read_text())["imports"]:
        expected, ids = torch.tensor(case["logits"], dtype=torch.float64), torch.tensor([case["ids"]])
        exported = sorted(path for of in directories for path in (pathlib.Path(of) / pathlib.Path(case["adapter"]).name).iterdir())
        bad += not exported
        for directory in exported:
            base = LlamaForCausalLM.from_pretrained(golden / case["base"], dtype=torch.float32, attn_implementation="eager")
            model = PeftModel.from_pretrained(base, directory, autocast_adapter_dtype=False).eval()
            with torch.no_grad():
                apart = (model(ids).logits[0].double() - expected).abs().max().item()
                merged = (model.merge_and_unload()(ids).logits[0].double() - expected).abs().max().item()
            fine = apart < 1e-5 and merged < 1e-5
            bad += not fine
            print(f"{directory}: logits differ by {apart:.1e}, merged by {merged:.1e}; the base alone by "
                  f"{case['base_differs']:.1e}", "" if fine else "TOO FAR")
    return bad


def merged(adapters_directory, merged_directory):
    """In float64 arithmetic the difference is that of the files alone: the one rounding of merged weights to float32. In float32
    the arithmetic's own rounding comes in, and the yardstick for it is what peft's own merge differs by."""
    import torch
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM

    def values(model):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits.double()

    apart = AutoPeftModelForCausalLM.from_pretrained(adapters_directory, dtype=torch.float32).eval()
    whole = AutoModelForCausalLM.from_pretrained(merged_directory, dtype=torch.float32).eval()
    ids = [1] + [3 + i * 7 % (whole.config.vocab_size - 3) for i in range(63)]
    expected, found = values(apart), values(whole)
    with apart.disable_adapter():
        alone = values(apart)
    exact, exactly_found = values(apart.double()), values(whole.double())
    theirs = values(AutoPeftModelForCausalLM.from_pretrained(adapters_directory, dtype=torch.float32).eval().merge_and_unload())

    def differ(a, b):
        return (a - b).abs().max().item()

    print(f"logits up to {expected.abs().max().item():.3g}: merged differs by {differ(exactly_found, exact):.1e} in float64 arithmetic, "
          f"by {differ(found, expected):.1e} in float32, where peft's own merge differs by {differ(theirs, expected):.1e} and "
          f"peft unmerged from float64 by {differ(expected, exact):.1e}; the base alone by {differ(alone, expected):.1e}")
    return differ(exactly_found, exact) > 1e-5


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("logits", "ids", "articles", "load", "adapters", "merged"):
        sys.exit(__doc__)
    if sys.argv[1] == "logits":
        logits(sys.argv[2])
    elif sys.argv[1] == "merged":
        sys.exit(1 if merged(*sys.argv[2:]) else 0)
    elif sys.argv[1] == "articles":
        sys.exit(1 if articles(*sys.argv[2:]) else 0)
    else:
        sys.exit(1 if {"ids": ids, "load": load, "adapters": adapters}[sys.argv[1]](sys.argv[2:]) else 0)
