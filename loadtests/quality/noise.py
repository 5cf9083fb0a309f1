"""What comes of noisy input: loops, absurd lengths, retries, over 1,000 inputs that are the same in every run.

    gossamer serve --port 8000
    python -m loadtests.quality.noise --url http://127.0.0.1:8000

Kinds of noise: random letters, keyboard rows, one word or phrase many times, sentences with typos, without vowels, in
capitals, cut in the middle of a word, words run together, signs, digits, other scripts, mixed scripts, tables, code,
emoji.

A *loop* is judged here without the server's own code: a block of up to six words that the translation has at least
four times in a row and twice as often as the source has any block, or a block of characters ten times in a row within a
word that the source does not repeat so. *Over 3 times*: more than three characters for each of the source.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence

SENTENCES = (
    "The old man went down to the river to catch a fish.",
    "Could you tell me where the train station is, please?",
    "I have never seen such a beautiful garden in my life.",
    "She said that she would come back before it gets dark.",
    "We need more bread, two bottles of milk and some cheese.",
    "If it rains tomorrow, the match will be played on Sunday.",
    "He forgot his umbrella at the restaurant last night.",
    "My brother works in a hospital and lives near the park.",
)
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_SCRIPTS = (
    "абвгдежзиклмнопрст",
    "αβγδεζηθικλμνξο",
    "あいうえおかきくけこ",
    "אבגדהוזחטיכלמ",
    "ابتثجحخدذر",
    "中文字漢語言學習",
)


def noisy_texts(count: int, seed: int = 5) -> list[str]:
    """Texts of all kinds in turn; the same for the same arguments, and the first ones the same for every count."""
    rng = random.Random(seed)
    kinds = list(_KINDS)
    return [kinds[index % len(kinds)](rng) for index in range(count)]


def is_loop(source: str, target: str) -> bool:
    """Whether the target goes round in circles where the source does not."""
    words, source_words = target.casefold().split(), source.casefold().split()
    times = max(_times(words, size) for size in range(1, 7))
    source_times = max(_times(source_words, size) for size in range(1, 7))
    run = re.search(r"(\w{1,8}?)\1{9,}", target.casefold())
    source_run = re.search(r"(\w{1,8}?)\1{3,}", source.casefold())
    return (times >= 4 and times > 2 * source_times) or (run is not None and source_run is None)


def _times(words: Sequence[str], size: int) -> int:
    """The most times that a block of this many words stands in a row."""
    best = 1
    for start in range(len(words) - size + 1):
        times = 1
        while words[start : start + size] == words[start + times * size : start + (times + 1) * size]:
            times += 1
        best = max(best, times)
    return best


def _letters(rng: random.Random, alphabet: str, longest: int = 10) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, longest)))


def _random_letters(rng: random.Random) -> str:
    return " ".join(_letters(rng, "abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(1, 15)))


def _consonants(rng: random.Random) -> str:
    return " ".join(_letters(rng, "bcdfghjklmnpqrstvwxz", 6) for _ in range(rng.randint(1, 12)))


def _keyboard(rng: random.Random) -> str:
    return " ".join(_letters(rng, rng.choice(_ROWS), 14) for _ in range(rng.randint(1, 5)))


def _repeated_word(rng: random.Random) -> str:
    word = rng.choice(("no", "ha", "salad", "la", "bla", "very", "please", "buffalo", "the", "x"))
    return " ".join([word] * rng.randint(2, 80))


def _repeated_phrase(rng: random.Random) -> str:
    words = rng.choice(SENTENCES).split()
    start = rng.randrange(len(words) - 3)
    return " ".join(words[start : start + 3] * rng.randint(2, 20))


def _typos(rng: random.Random) -> str:
    chars = list(rng.choice(SENTENCES))
    for _ in range(rng.randint(3, 15)):
        place = rng.randrange(len(chars))
        chars[place] = rng.choice(("", chars[place] * 2, rng.choice("abcdefghij"), chars[place].swapcase()))
    return "".join(chars)


def _without_vowels(rng: random.Random) -> str:
    return re.sub("[aeiou]", "", rng.choice(SENTENCES))


def _capitals(rng: random.Random) -> str:
    return "".join(char.upper() if rng.random() < 0.6 else char for char in rng.choice(SENTENCES))


def _cut(rng: random.Random) -> str:
    sentence = rng.choice(SENTENCES)
    start = rng.randrange(len(sentence) - 4)
    return sentence[start : start + rng.randint(3, 25)].strip()


def _run_together(rng: random.Random) -> str:
    return rng.choice(SENTENCES).replace(" ", "" if rng.random() < 0.5 else "_")


def _signs(rng: random.Random) -> str:
    return "".join(rng.choice("!?.,;:-()[]{}<>/\\|@#$%^&*+=~`'\" ab") for _ in range(rng.randint(3, 60)))


def _digits(rng: random.Random) -> str:
    return " ".join(_letters(rng, "0123456789.,-:/ax", 12) for _ in range(rng.randint(1, 10)))


def _one_script(rng: random.Random) -> str:
    return " ".join(_letters(rng, rng.choice(_SCRIPTS)) for _ in range(rng.randint(1, 6)))


def _mixed_scripts(rng: random.Random) -> str:
    words = rng.choice(SENTENCES).split()
    for _ in range(rng.randint(1, 4)):
        words[rng.randrange(len(words))] = _letters(rng, rng.choice(_SCRIPTS))
    return " ".join(words)


def _table(rng: random.Random) -> str:
    cells = [rng.choice(("N/A", "0.0", "-", "Yes", "No", "Total", "item", "€ 5", "x")) for _ in range(12)]
    return " | ".join(cells)


def _code(rng: random.Random) -> str:
    return rng.choice(
        (
            "for (int i = 0; i < n; i++) { sum += a[i]; }",
            "SELECT name FROM users WHERE id = 42 ORDER BY name;",
            'if x == "yes": print(foo(bar[3])) else: return None',
            "curl -X POST https://api.example.com/v1 -d '{\"a\": 1}'",
            "<div class='a'><p>hello</p></div>",
        )
    )


def _emoji(rng: random.Random) -> str:
    words = rng.choice(SENTENCES).split()
    for _ in range(rng.randint(1, 6)):
        words.insert(rng.randrange(len(words)), rng.choice("🎉😂🔥❤👍🏽🇫🇷✨") * rng.randint(1, 4))
    return " ".join(words)


def _stretched(rng: random.Random) -> str:
    return "".join(char * (rng.randint(2, 9) if rng.random() < 0.1 else 1) for char in rng.choice(SENTENCES))


def _shuffled(rng: random.Random) -> str:
    words = " ".join(rng.sample(SENTENCES, 2)).split()
    rng.shuffle(words)
    return " ".join(words)


_KINDS: tuple[Callable[[random.Random], str], ...] = (
    _random_letters,
    _consonants,
    _keyboard,
    _repeated_word,
    _repeated_phrase,
    _typos,
    _without_vowels,
    _capitals,
    _cut,
    _run_together,
    _signs,
    _digits,
    _one_script,
    _mixed_scripts,
    _table,
    _code,
    _emoji,
    _stretched,
    _shuffled,
)


def main() -> None:
    """Prints the figures; exits with 1 if there are more loops than 0.1 %, or anything over three times its input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--beam-size", type=int, default=4)
    arguments = parser.parse_args()
    texts = noisy_texts(arguments.count, arguments.seed)
    loops, long, warnings, seconds = [], [], Counter[str](), []
    for start in range(0, len(texts), 20):
        batch = texts[start : start + 20]
        body = json.dumps({"text": batch, "target": "fr", "decoding": {"beam_size": arguments.beam_size}}).encode()
        request = urllib.request.Request(arguments.url + "/v1/translate", body, {"Content-Type": "application/json"})
        started = time.monotonic()
        with urllib.request.urlopen(request, timeout=120) as response:
            answer = json.loads(response.read())
        seconds.append(time.monotonic() - started)
        for source, item in zip(batch, answer["translations"], strict=True):
            target = item["text"]
            warnings.update({warning["code"] for warning in item.get("warnings", ())})
            if is_loop(source, target):
                loops.append((source, target))
            if len(target) > 3 * len(source):
                long.append((source, target))
    for name, found in (("loop", loops), ("over 3 times", long)):
        for source, target in found:
            sys.stdout.write(f"{name}: {source!r} -> {target!r}\n")
    share = len(loops) / len(texts)
    sys.stdout.write(
        f"{len(texts)} inputs: {len(loops)} loops ({share:.2%}), {len(long)} over 3 times their length; "
        f"texts with warnings: {dict(warnings)}; 20 at once took {max(seconds):.1f} s at most\n"
    )
    sys.exit(1 if share > 0.001 or long else 0)


if __name__ == "__main__":
    main()
