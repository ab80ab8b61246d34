"""Writes golden_encoded.json: GGUF quantization blocks that the `gguf` Python package encodes.

Usage: python make_encoded.py > golden_encoded.json

The values of a type come from the generator below: sums of uniform numbers, scaled block by block;
among them a block of zeros, one of equal values and one with a single value. `hash` covers all
bytes, `sample` holds the first block with random values for a readable failure.
"""

import json

import gguf
import numpy as np

from make_golden import MASK, hash_words

BLOCKS = 200
SEED = 77
TYPES = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
ELEMENTS = 32


def random_values():
    """BLOCKS x 32 f32 values."""
    state, values = SEED, []

    def uniform():
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        return (state >> 40) / 2**24 - 0.5

    for block in range(BLOCKS):
        scale = 2.0 ** (block % 23 - 12)
        row = [(uniform() + uniform() + uniform() + 0.25 * (block % 3)) * scale
               for _ in range(ELEMENTS)]
        values.append(row)
    values[0] = [0.0] * ELEMENTS
    values[1] = [0.375] * ELEMENTS
    values[2] = [0.0] * 17 + [-3.25] + [0.0] * 14
    return np.array(values, np.float64).astype(np.float32)


def main():
    values = random_values()
    entries = []
    for name in TYPES:
        qtype = gguf.GGMLQuantizationType[name]
        data = gguf.quantize(values, qtype).view(np.uint8).reshape(BLOCKS, -1)
        entries.append({"type": name.lower(), "hash": f"{hash_words(data.reshape(-1).tolist()):016x}",
                        "sample": data[3].tobytes().hex()})
    print(json.dumps({"gguf": "0.19.0", "seed": SEED, "blocks": BLOCKS, "types": entries}, indent=1))


if __name__ == "__main__":
    main()
