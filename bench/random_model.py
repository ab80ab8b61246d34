"""Writes a GGUF file of 1.5 billion random weights, so that memory is what limits decoding:

    .venv/bin/python bench/random_model.py MODEL.gguf --type Q4_K --tokenizer SMALL.gguf

The tokenizer is that of a GGUF file at hand; all matrices have the one type."""

import argparse
from pathlib import Path

import gguf
import numpy as np

WIDTH, LAYERS, HIDDEN, HEADS, KV_HEADS = 1536, 30, 8960, 12, 2
CONTEXT = 8192
# Type: where its f16 scales lie in a block, and the mean size of a code.
TYPES = {
    "Q4_0": ((0,), 4.6),
    "Q4_1": ((0, 2), 8.8),
    "Q8_0": ((0,), 74.0),
    "Q4_K": ((0, 2), 8.8 * 32),
    "Q6_K": ((208,), 18.5 * 74),
}


class RandomBlocks:
    """Blocks of one type with random codes and such a scale that layers keep their size."""

    def __init__(self, name: str, generator: np.random.Generator):
        self.kind = gguf.GGMLQuantizationType[name]
        self.scales, self.code = TYPES[name]
        self.elements, self.bytes = gguf.GGML_QUANT_SIZES[self.kind]
        self.generator = generator
        self.pool = generator.integers(0, 256, (1 << 16, self.bytes), dtype=np.uint8)

    def matrix(self, rows: int, columns: int) -> np.ndarray:
        count = rows * columns // self.elements
        first = int(self.generator.integers(0, len(self.pool)))
        blocks = np.resize(np.roll(self.pool, -first, axis=0), (count, self.bytes))
        scale = np.array([1 / (self.code * columns**0.5)], np.float16).view(np.uint8)
        for offset in self.scales:
            blocks[:, offset : offset + 2] = scale
        return blocks.reshape(rows, -1)


def copy_tokenizer(source: str, writer: gguf.GGUFWriter) -> int:
    """Copies a file's tokenizer settings; returns the size of its vocabulary."""
    reader = gguf.GGUFReader(source)
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    return len(reader.fields["tokenizer.ggml.tokens"].data)


def shapes(vocabulary: int) -> dict[str, tuple[int, int]]:
    head = WIDTH // HEADS
    layer = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (KV_HEADS * head, WIDTH),
        "attn_v": (KV_HEADS * head, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (HIDDEN, WIDTH),
        "ffn_up": (HIDDEN, WIDTH),
        "ffn_down": (WIDTH, HIDDEN),
    }
    matrices = {"token_embd": (vocabulary, WIDTH)}
    return matrices | {f"blk.{i}.{name}": shape for i in range(LAYERS)
                       for name, shape in layer.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--type", choices=TYPES, default="Q4_K")
    parser.add_argument("--tokenizer", required=True, help="GGUF file whose tokenizer is taken")
    options = parser.parse_args()
    writer = gguf.GGUFWriter(options.output, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e6)
    vocabulary = copy_tokenizer(options.tokenizer, writer)
    writer.add_vocab_size(vocabulary)
    blocks = RandomBlocks(options.type, np.random.default_rng(1))
    for name, (rows, columns) in shapes(vocabulary).items():
        writer.add_tensor(f"{name}.weight", blocks.matrix(rows, columns), raw_dtype=blocks.kind)
    ones = np.ones(WIDTH, np.float32)
    for name in ["output_norm"] + [f"blk.{i}.{norm}" for i in range(LAYERS)
                                   for norm in ("attn_norm", "ffn_norm")]:
        writer.add_tensor(f"{name}.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()


if __name__ == "__main__":
    main()
