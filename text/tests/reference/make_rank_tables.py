"""Trains a small byte-pair vocabulary and encodes texts with tiktoken.

Run: python make_rank_tables.py > ../data/ranks.json
Needs tiktoken and regex (the committed table: tiktoken 0.14.0). Holds the vocabulary as a *.tiktoken
file, the same one as tekken.json, and the ids that tiktoken gives for each text.
"""

import base64
import json

import tiktoken
from tiktoken._educational import bpe_train

# Qwen's expression, which its tokenization code has.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
TRAINING = (
    "The theory of the thing is that the other things are there. Aaaah, haha, hahaha! "
    "In the beginning there were numbers: 123, 1234 and 12345.\n\n  Then came the rest.\n"
    "Wörter, Größe, naïve café. 日本語の日本語。 😀😀😀 ===== ------ ((())) "
) * 4
TEXTS = [
    "",
    "The other thing",
    " the  the   the",
    "haha hahahaha aaaaaaa",
    "12 1234 123456",
    "Größe naïve 日本語日本 😀😀",
    "=====---(())\n\n\n  x\t\t\r\n",
    "It's they'LL we'Ve <s>[INST] hi",
    "\u00e9 e\u0301 \ufeff\u200b",
    "theotherthingsarethere" * 3,
]


def main() -> None:
    ranks = bpe_train(data=TRAINING, vocab_size=330, pat_str=PATTERN, visualise=None)
    encoding = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    ordered = sorted(ranks, key=ranks.get)
    lines = [f"{base64.b64encode(token).decode()} {ranks[token]}" for token in ordered]
    tekken = {
        "config": {
            "pattern": PATTERN,
            "num_vocab_tokens": len(ordered) + 10,
            "default_vocab_size": len(ordered) + 8,
            "default_num_special_tokens": 8,
            "version": "v7",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for rank, token in enumerate(ordered)
        ],
        "special_tokens": [
            {"rank": rank, "token_str": name, "is_control": True}
            for rank, name in enumerate(SPECIAL)
        ],
    }
    cases = [{"text": text, "ids": encoding.encode_ordinary(text)} for text in TEXTS]
    table = {"tiktoken": "\n".join(lines) + "\n", "tekken": tekken, "cases": cases}
    print(json.dumps(table, indent=0))


if __name__ == "__main__":
    main()
