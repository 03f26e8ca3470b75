"""Writes porter_stems.txt and rouge_pairs.jsonl beside this script, with Google's rouge-score and NLTK.

    python3 -m venv venv && venv/bin/pip install rouge-score==0.1.2 nltk && venv/bin/python make_rouge_golden.py

porter_stems.txt: "word stem" a line. rouge_pairs.jsonl: {"reference", "candidate", "rouge1", "rouge2", "rougeL"}, each
score [precision, recall, fmeasure], and in "unstemmed" the scores without the stemmer. The texts are made up here.
"""
import json
import pathlib
import random

from nltk.stem.porter import PorterStemmer
from rouge_score import rouge_scorer

HERE = pathlib.Path(__file__).parent

IRREGULAR = ("sky skies dying lying tying news innings inning outings outing cannings canning howe proceed exceed "
             "succeed").split()
STEMS = "a e y t st ent rel enjo fli gyre hop roll yoy trouble oat archaeo syzyg x9 geo wax controll".split()
ENDINGS = ("s sses ies ied ss ed eed ing y ly at ated bling izing al ational tional enci ency anci ancy izer bli ably "
           "alli ally rationally entli ently eli ely ousli ously ization ation ator alism iveness fulness ousness aliti "
           "ality iviti ivity biliti bility fulli fully logi logy logist icate ative alize iciti icity ical ful ness "
           "ance ence er ic able ible ant ement ment ent sion tion ion ou ism ate iti ity ous ive ize e ll l z "
           "yy").split()


def stems():
    stem = PorterStemmer().stem
    words = IRREGULAR + [s + e for s in STEMS for e in ENDINGS]
    return "".join(f"{w} {stem(w)}\n" for w in sorted(set(words)))


def pairs():
    """Corner cases first, then random texts, some longer than 64 and 128 words on either side."""
    yield "", ""
    yield "rain", ""
    yield "", "rain"
    yield "... --- !", "rain"
    yield "Two rivers flooded the old town", "Two rivers flooded the old town"
    yield "Two rivers flooded the old town", "Storms close the northern harbour"
    yield "the the the", "the dog the"
    yield "u v w x y z", "z y x w v u"
    yield "The council plans 1,200 homes", "council planned 1200 homes"
    yield "flying flies fly flew", "Fly, fly; FLYING."
    yield "caf\u00e9 na\u00efve \u00c9COLE", "cafe naive ecole"
    yield "caf\u00e9", "caf e"
    yield "5 \u212aelvin in \u0130zmir", "5 kelvin in izmir"
    yield "\u6771\u4eac 2020\u5e74", "tokyo 2020"
    yield "tab\tand\u00a0no-break\u2028space\x00zero", "tab and no break space zero"
    yield "state-of-the-art", "state of the art"
    words = ("a the of court ruled rulings ruling police say said mayor mayors vote votes voted 7 2019 storm stormy "
             "harbour near nearly city cities's open opening \u2019 \u2014 .").split()
    # The start and the end of a long reference change places; nothing fits in the 150 words between.
    yield "one two three" + " gap" * 150 + " north south east west", "north south east west one two three"
    draw = random.Random(20)
    for length in (1, 2, 5, 20, 20, 20, 63, 64, 65, 127, 128, 129, 200):
        for other in (3, 20, 64, 130):
            yield (" ".join(draw.choices(words[: draw.randint(4, len(words))], k=length)),
                   " ".join(draw.choices(words, k=other)))


def scored():
    def score(stems):
        scores = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stems).score(reference, candidate)
        return {name: list(score) for name, score in scores.items()}

    for reference, candidate in pairs():
        yield json.dumps({"reference": reference, "candidate": candidate, **score(True), "unstemmed": score(False)}) + "\n"


if __name__ == "__main__":
    (HERE / "porter_stems.txt").write_text(stems())
    (HERE / "rouge_pairs.jsonl").write_text("".join(scored()))
