"""Writes golden_blocks.json: values of GGUF quantization blocks by the `gguf` Python package.

Usage: python make_golden.py > golden_blocks.json

Block 0 has all bits clear, block 1 all set, block 2 every byte 0x80; the others are random bytes,
among them infinite, subnormal and undefined scales. `hash` covers the bits of all values, `sample`
holds some for a readable failure.
"""

import json

import gguf
import numpy as np

BLOCKS = 80
SEED = 20240229
MASK = (1 << 64) - 1


def random_bytes(count):
    state, result = SEED, bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        result.append(state >> 56)
    return result


def hash_words(words):
    value = 0xCBF29CE484222325
    for word in words:
        value = ((value ^ word) * 0x100000001B3) & MASK
    return value


def main():
    entries = []
    for quant_type in gguf.quants._type_traits:
        elements, size = gguf.GGML_QUANT_SIZES[quant_type]
        if quant_type.name in ("BF16", "Q1_0"):
            continue
        data = random_bytes(BLOCKS * size)
        for block, byte in enumerate((0x00, 0xFF, 0x80)):
            data[block * size : (block + 1) * size] = bytes([byte]) * size
        with np.errstate(all="ignore"):
            values = gguf.dequantize(np.frombuffer(bytes(data), np.uint8), quant_type)
        assert values.dtype == np.float32 and values.size == BLOCKS * elements
        # The bits of "not a number" are nobody's promise.
        bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
        entries.append(
            {
                "type": quant_type.name.lower(),
                "hash": f"{hash_words(bits.tolist()):016x}",
                "sample": [f"{word:08x}" for word in bits[3 * elements :][:32].tolist()],
            }
        )
    golden = {"gguf": "0.19.0", "seed": SEED, "blocks": BLOCKS, "types": entries}
    print(json.dumps(golden, indent=1))


if __name__ == "__main__":
    main()
