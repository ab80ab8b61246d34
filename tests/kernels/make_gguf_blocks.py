"""Prints gguf_blocks.inc: random GGUF blocks and their values by the gguf package (0.19.0)."""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

FIELDS = {  # byte offsets of half-precision numbers in a block
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "Q2_K": [80, 82], "Q3_K": [108], "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0],
    "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52],
    "TQ2_0": [64], "MXFP4": [], "NVFP4": [],
}
random = np.random.default_rng(20)
for name, fields in FIELDS.items():
    elements, size = GGML_QUANT_SIZES[T[name]]
    data = random.integers(0, 256, size, dtype=np.uint8)
    for field in fields:
        half = np.float16(random.uniform(-1, 1))
        data[field:field + 2] = np.frombuffer(half.tobytes(), np.uint8)
    if name == "IQ1_M":  # the scale lies in the upper half of every second of the last bytes
        for nibble, byte in zip((0x5, 0x7, 0x2, 0x3), range(49, 56, 2)):
            data[byte] = data[byte] & 15 | nibble << 4
    if name == "MXFP4":
        data[0] = 120
    values = dequantize(data[None, :], T[name])[0]
    print(f"{{StorageType::{name.lower()},\n {{{', '.join(map(str, data))}}},")
    print(f" {{{', '.join(repr(float(v)) + 'F' for v in values)}}}}},")
