#!/usr/bin/env python3
"""Compares JsonTokenizer with Python's `tokenizers` (0.23) on random texts of code points assigned in Unicode 14.

usage: json_tokenizer_check.py PROGRAM [--seeds N] [--texts N] [--components N] [--articles PAIRS.jsonl ...] [TOKENIZER.json ...]
PROGRAM: build/cpu-release/tests/bench/json_tokenizer_bench. Each file is compared on --texts texts of each seed, and on the first
2,000 documents of --articles with their summaries; besides, --components small tokenizers of each seed are put together from
random components. Prints what differs, and a line a file.
Needs: pip install tokenizers, and Python 3.11, whose unicodedata is that of Unicode 14.
"""
import argparse, gzip, json, os, random, subprocess, sys, tempfile, unicodedata
import tokenizers

assert unicodedata.unidata_version == "14.0.0"
ASSIGNED = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
BY_CATEGORY = {}
for c in ASSIGNED: BY_CATEGORY.setdefault(unicodedata.category(chr(c)), []).append(c)
COMMON = list("  \n\t\r\u00a0\u3000'.,:;-_/<>[]|(){}0123456789aeiotnsrhlEKS\u017f\u212a\u00e9\u0301\u0323\u4e2d\u3042\uac00\u2581\u0120\u200d")
WORDS = ["the", " the", "'s", "'LL", " don't", "\n\n", "  ", " 123", "4567", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<0x0A>", "...",
         "\u2581", "caf\u00e9", "cafe\u0301", "\U0001f468\u200d\U0001f469", "\u0e2a\u0e27\u0e31", "\r\n", "[INST]", "<unk>", "if(x){", "\t\t"]

def text_of(r, names=()):
    kind, parts = r.random(), []
    for _ in range(r.choice([1, 2, 5, 10, 20, 40])):
        p = r.random()
        if p < 0.3: parts.append(chr(r.choice(BY_CATEGORY[r.choice(list(BY_CATEGORY))])))
        elif p < 0.4 or kind < 0.2: parts.append(chr(r.choice(ASSIGNED)))
        elif p < 0.6: parts.append(r.choice(COMMON) * r.choice([1, 1, 1, 2, 5]))
        elif p < 0.65 and names: parts.append(r.choice(names))
        elif p < 0.9: parts.append(r.choice(WORDS))
        else: parts.append("".join(chr(r.choice(BY_CATEGORY[r.choice(["Ll", "Lu", "Mn", "Lo"])])) for _ in range(r.randint(1, 8))))
    return "".join(parts)

def read(path): return (gzip.open if path.endswith(".gz") else open)(path, "rb").read().decode()

def compare(program, raw, texts, label):
    """Returns how many texts differ, or None if the program refuses what `tokenizers` reads."""
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/tokenizer.json", "w") as f: f.write(raw)
        with open(f"{d}/texts.jsonl", "w") as f: f.writelines(json.dumps(t) + "\n" for t in texts)
        out = subprocess.run([program, f"{d}/tokenizer.json", f"{d}/texts.jsonl", "ids"], capture_output=True, text=True, check=False)
    try: theirs = tokenizers.Tokenizer.from_str(raw)
    except BaseException as e:
        if "index out of bounds" in str(e): return None  # a fault of theirs
        if out.returncode != 65: print(label, "tokenizers refuses:", str(e)[:200], "program:", out.returncode); return 1
        return None
    if out.returncode == 65: print(label, "refused:", out.stdout[:300]); return None
    if out.returncode != 0: print(label, "PROGRAM FAILED", out.returncode, out.stderr[:300]); return 1
    theirs.no_truncation(); theirs.no_padding()
    lines = out.stdout.split("\n")[:-1]
    assert len(lines) == len(texts)
    different = 0
    for text, line in zip(texts, lines):
        ours, want = json.loads(line), {}
        try:
            for key, special in [("ids", False), ("plain", True)]:
                theirs.encode_special_tokens = special
                want[key] = theirs.encode(text, add_special_tokens=False).ids
            want["decoded"] = theirs.decode(want["ids"], skip_special_tokens=False)
            want["skipped"] = theirs.decode(want["ids"], skip_special_tokens=True)
        except BaseException as e: want = {"error": str(e)}
        wrong = [k for k in want if want[k] != ours.get(k)] if "error" not in want else []
        ends = ours.get("ends", [])
        if ends != sorted(ends) or any(e > len(text.encode()) for e in ends): wrong.append("ends")
        if wrong:
            different += 1
            if different <= 3: print(label, wrong, repr(text), "theirs", {k: want.get(k) for k in wrong}, "ours", {k: ours.get(k, ours.get("error")) for k in wrong})
    return different

def random_tokenizer(r):
    """A small tokenizer.json of random components."""
    flip = lambda: r.random() < 0.5
    byte_level = {"type": "ByteLevel", "add_prefix_space": flip(), "trim_offsets": flip(), "use_regex": flip()}
    letters = [tokenizers.pre_tokenizers.ByteLevel.alphabet(), list("abcdefghinorstABEK 019.,'\n\u2581\u00e9e\u0301\u4e2d\u0120<>/")][r.random() < 0.5]
    vocabulary = {}
    def piece(t): vocabulary.setdefault(t, len(vocabulary))
    fallback = flip()
    if flip(): piece("<unk>")
    if fallback:
        for b in range(256):
            if r.random() < 0.98 or b < 128: piece(f"<0x{b:02X}>")
    for l in sorted(letters):
        if r.random() < 0.95: piece(l)
    merges, pool = [], [p for p in vocabulary if len(p) == 1]
    for _ in range(r.choice([0, 10, 100, 300])):
        a, b = r.choice(pool), r.choice(pool)
        if len(a + b) > 8: continue
        piece(a + b); pool.append(a + b)
        if [a, b] not in merges: merges.append([a, b])
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>" if "<unk>" in vocabulary and flip() else None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": flip(), "byte_fallback": fallback, "ignore_merges": r.random() < 0.3, "vocab": vocabulary,
             "merges": merges if flip() or any(" " in a + b for a, b in merges) else [f"{a} {b}" for a, b in merges]}
    added, next_id = [], len(vocabulary)
    for content in r.sample(["<s>", "</s>", "<|x|>", "the", "  ", " a", "\u00e9", "<|x|>y", "A", "\n\n", "\u2581\u2581", "e\u0301", "Th"], r.randint(0, 6)):
        known = vocabulary.get(content)
        added.append({"id": next_id if known is None else known, "content": content, "single_word": r.random() < 0.2, "lstrip": r.random() < 0.3,
                      "rstrip": r.random() < 0.3, "normalized": flip(), "special": flip()})
        next_id += known is None
    pattern = lambda: r.choice([{"String": r.choice([" ", "a", "\u2581", "ab", "."])}, {"Regex": r.choice(
        [r"\s+", r"[a-e]+", r"\p{N}{1,3}", r"\d", r"[^\s\p{L}]+|\s*[\r\n]+|\s+(?!\S)", r"(?i:'s|'t|ll)|\p{L}+", r"\p{Lu}\p{Ll}*", r"a?", r"(?<=a)b", r"\S+$",
         r" ?[\p{P}\p{S}]+", "[\u4e00-\u9fa5\u3040-\u309f]+", r"^.", r"(ab|a)(c|bc)?", r"x*+a", r"\p{Han}+|\p{Latin}+"])}])
    normalizer = lambda: r.choice([{"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"},
        {"type": "Strip", "strip_left": flip(), "strip_right": flip()}, {"type": "Prepend", "prepend": r.choice(["\u2581", " ", "ab"])},
        {"type": "Replace", "pattern": pattern(), "content": r.choice(["\u2581", "", " ", "xy"])}, {"type": "ByteLevel"}])
    behavior = lambda: r.choice(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
    metaspace = {"type": "Metaspace", "replacement": r.choice(["\u2581", "_"]), "prepend_scheme": r.choice(["always", "never", "first"]), "split": flip()}
    pre = lambda: r.choice([byte_level, byte_level, metaspace, {"type": "Split", "pattern": pattern(), "behavior": behavior(), "invert": flip()},
        {"type": "Digits", "individual_digits": flip()}, {"type": "Punctuation", "behavior": behavior()}, {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
        {"type": "CharDelimiterSplit", "delimiter": r.choice(" a-")}])
    decode = lambda: r.choice([byte_level, metaspace, {"type": "Replace", "pattern": pattern(), "content": r.choice([" ", "", "z"])}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": r.choice(" a"), "start": r.randint(0, 2), "stop": 0}])
    def some(make, key, most):
        n = r.choice([0, 1, 1] + list(range(most + 1)))
        return None if n == 0 else make() if n == 1 else {"type": "Sequence", key: [make() for _ in range(n)]}
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": some(normalizer, "normalizers", 4),
                       "pre_tokenizer": some(pre, "pretokenizers", 4), "post_processor": None, "decoder": some(decode, "decoders", 4), "model": model})

def main():
    p = argparse.ArgumentParser()
    p.add_argument("program"); p.add_argument("files", nargs="*"); p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--texts", type=int, default=1000); p.add_argument("--components", type=int, default=100)
    p.add_argument("--articles", nargs="+", default=[])
    a = p.parse_intermixed_args()
    total = 0
    pairs = [json.loads(line) for path in a.articles for line in read(path).split("\n") if line][:2000]
    for path in a.files if pairs else []:
        different = compare(a.program, read(path), [pair[key] for pair in pairs for key in ("document", "summary")], path)
        print(path, len(pairs), "articles,", different, "texts differ", flush=True)
        total += 1 if different is None else different
    for seed in range(a.seeds):
        for path in a.files:
            raw = read(path)
            names = [t["content"] for t in json.loads(raw)["added_tokens"]]
            r = random.Random(f"{seed} {path}")
            different = compare(a.program, raw, [text_of(r, names) for _ in range(a.texts)], path)
            print("seed", seed, path, a.texts, "texts,", different, "differ", flush=True)
            total += 1 if different is None else different
        r, done, refused, different = random.Random(seed), 0, 0, 0
        for i in range(a.components):
            raw = random_tokenizer(r)
            found = compare(a.program, raw, [text_of(r, ["<s>", "</s>", "<|x|>", "the", "Th"]) for _ in range(30)], f"random {seed}.{i}")
            if found: print({k: v for k, v in json.loads(raw).items() if k in ("normalizer", "pre_tokenizer", "decoder", "added_tokens")}, flush=True)
            done, refused, different = done + 1, refused + (found is None), different + bool(found)
        print("seed", seed, done, "random tokenizers,", refused, "refused by either,", different, "differ", flush=True)
        total += different
    sys.exit(1 if total else 0)

main()
