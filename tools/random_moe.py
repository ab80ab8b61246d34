#!/usr/bin/env python3
"""Writes a Mixtral checkpoint with random weights, to try experts larger than memory.

    tools/random_moe.py FOLDER --gigabytes 8
"""

import argparse
import json
import os
import struct
from pathlib import Path

WIDTH, HEADS, KV_HEADS, VOCABULARY, EXPERTS, LAYERS = 1024, 16, 4, 320, 32, 20


def tensors(hidden: int) -> dict[str, list[int]]:
    """Names and shapes of a checkpoint whose experts have this hidden size."""
    head = WIDTH // HEADS
    shapes = {
        "model.embed_tokens.weight": [VOCABULARY, WIDTH],
        "model.norm.weight": [WIDTH],
        "lm_head.weight": [VOCABULARY, WIDTH],
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": [WIDTH],
            prefix + "post_attention_layernorm.weight": [WIDTH],
            prefix + "self_attn.q_proj.weight": [WIDTH, WIDTH],
            prefix + "self_attn.k_proj.weight": [KV_HEADS * head, WIDTH],
            prefix + "self_attn.v_proj.weight": [KV_HEADS * head, WIDTH],
            prefix + "self_attn.o_proj.weight": [WIDTH, WIDTH],
            prefix + "block_sparse_moe.gate.weight": [EXPERTS, WIDTH],
        }
        for expert in range(EXPERTS):
            part = f"{prefix}block_sparse_moe.experts.{expert}."
            shapes |= {
                part + "w1.weight": [hidden, WIDTH],
                part + "w2.weight": [WIDTH, hidden],
                part + "w3.weight": [hidden, WIDTH],
            }
    return shapes


def random_bf16(count: int, pool: bytes) -> bytes:
    """So many bfloat16 numbers of small size, cut from a pool of random ones."""
    size = 2 * count
    start = 2 * (int.from_bytes(os.urandom(4), "little") % (len(pool) // 4))
    whole = pool[start:] + pool * (size // len(pool) + 1)
    return whole[:size]


def write(path: Path, shapes: dict[str, list[int]]) -> None:
    header, offset = {}, 0
    sizes = {}
    for name, shape in shapes.items():
        sizes[name] = shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + 2 * sizes[name]]}
        offset += 2 * sizes[name]
    text = json.dumps(header).encode()
    # Random signs and low bits under exponents around 2^-6.
    noise = os.urandom(1 << 22)
    pool = b"".join(bytes((low, (high & 0x80) | 0x3C)) for low, high in zip(noise[::2], noise[1::2]))
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, size in sizes.items():
            one = struct.pack("<H", 0x3F80)
            file.write(one * size if "norm" in name else random_bf16(size, pool))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=8)
    options = parser.parse_args()
    hidden = int(options.gigabytes * 1e9 / (LAYERS * EXPERTS * 3 * WIDTH * 2)) // 32 * 32
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "mixtral",
                "dtype": "bfloat16",
                "vocab_size": VOCABULARY,
                "hidden_size": WIDTH,
                "intermediate_size": hidden,
                "num_hidden_layers": LAYERS,
                "num_attention_heads": HEADS,
                "num_key_value_heads": KV_HEADS,
                "num_local_experts": EXPERTS,
                "num_experts_per_tok": 2,
                "max_position_embeddings": 4096,
                "rms_norm_eps": 1e-5,
                "hidden_act": "silu",
                "tie_word_embeddings": False,
            },
            indent=1,
        )
    )
    write(options.folder / "model.safetensors", tensors(hidden))


if __name__ == "__main__":
    main()
