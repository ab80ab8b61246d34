"""Prints gguf_blocks.inc: random GGUF blocks and their values by the gguf package (0.19.0)."""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

FIELDS = {  # byte offsets of half-precision numbers in a block
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
random = np.random.default_rng(20)
for name, fields in FIELDS.items():
    elements, size = GGML_QUANT_SIZES[T[name]]
    data = random.integers(0, 256, size, dtype=np.uint8)
    for field in fields:
        half = np.float16(random.uniform(-1, 1))
        data[field:field + 2] = np.frombuffer(half.tobytes(), np.uint8)
    values = dequantize(data[None, :], T[name])[0]
    print(f"{{StorageType::{name.lower()},\n {{{', '.join(map(str, data))}}},")
    print(f" {{{', '.join(repr(float(v)) + 'F' for v in values)}}}}},")
