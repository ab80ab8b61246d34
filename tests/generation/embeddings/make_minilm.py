"""Makes the embeddings of embedder_test.cpp with sentence-transformers, each text by itself in float32.

Usage: make_minilm.py MODEL_FOLDER > minilm.json
"""

import json
import sys

from sentence_transformers import SentenceTransformer

TEXTS = [
    "The cat sits on the mat.",
    "A feline rests upon a rug.",
    "Stock markets fell sharply on Monday.",
    "Wie komme ich zum Bahnhof?",
    "",
    "naïve café — “quotes” & emoji 🙂",
    "def add(a, b):\n    return a + b",
    "word " * 400,
]


def ids(model: SentenceTransformer, text: str) -> list[int]:
    return model.tokenize([text])["input_ids"][0].tolist()


def main() -> None:
    model = SentenceTransformer(sys.argv[1], device="cpu")
    vectors = model.encode(TEXTS, batch_size=1, convert_to_numpy=True)
    rows = [
        {
            "text": text,
            "tokens": ids(model, text),
            "embedding": [round(float(x), 7) for x in vector],
        }
        for text, vector in zip(TEXTS, vectors, strict=True)
    ]
    json.dump(rows, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
