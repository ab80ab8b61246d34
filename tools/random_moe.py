#!/usr/bin/env python3
"""Writes a Mixtral checkpoint with random weights, to try experts larger than memory.

    tools/random_moe.py FOLDER --gigabytes 8 [--bits 4]

With `--bits` the experts are quantized as MLX does and stacked; else all is bfloat16.
"""

import argparse
import json
import math
import os
import struct
from pathlib import Path

WIDTH, HEADS, KV_HEADS, VOCABULARY, EXPERTS, LAYERS = 1024, 16, 4, 320, 32, 20
GROUP = 64  # inputs that share a scale
SIZES = {"BF16": 2, "U32": 4}


def quantized(name: str, outputs: int, inputs: int, bits: int) -> dict[str, list[int]]:
    """Names and shapes of all experts' matrices of one kind."""
    return {
        name + ".weight": [EXPERTS, outputs, inputs * bits // 32],
        name + ".scales": [EXPERTS, outputs, inputs // GROUP],
        name + ".biases": [EXPERTS, outputs, inputs // GROUP],
    }


def tensors(hidden: int, bits: int | None = None) -> dict[str, list[int]]:
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
        if bits:
            part = prefix + "block_sparse_moe.switch_mlp."
            shapes |= quantized(part + "gate_proj", hidden, WIDTH, bits)
            shapes |= quantized(part + "up_proj", hidden, WIDTH, bits)
            shapes |= quantized(part + "down_proj", WIDTH, hidden, bits)
            continue
        for expert in range(EXPERTS):
            part = f"{prefix}block_sparse_moe.experts.{expert}."
            shapes |= {
                part + "w1.weight": [hidden, WIDTH],
                part + "w2.weight": [WIDTH, hidden],
                part + "w3.weight": [hidden, WIDTH],
            }
    return shapes


def cut(size: int, pool: bytes) -> bytes:
    """So many bytes from anywhere in a pool of random ones."""
    start = 4 * (int.from_bytes(os.urandom(4), "little") % (len(pool) // 8))
    whole = pool[start:] + pool * (size // len(pool) + 1)
    return whole[:size]


def write(path: Path, shapes: dict[str, list[int]]) -> None:
    """A file of bfloat16 tensors; matrices that have scales beside them hold packed bits."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        packed = name.removesuffix("weight") + "scales" in shapes
        dtype = "U32" if packed and name.endswith("weight") else "BF16"
        size = math.prod(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    bits = os.urandom(1 << 22)
    # Random signs and low bits under exponents around 2^-6.
    numbers = b"".join(bytes((low, (high & 0x80) | 0x3C)) for low, high in zip(bits[::2], bits[1::2]))
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in header.items():
            first, end = tensor["data_offsets"]
            one = struct.pack("<H", 0x3F80)
            file.write(one * ((end - first) // 2) if "norm" in name else
                       cut(end - first, bits if tensor["dtype"] == "U32" else numbers))


def write_checkpoint(folder: Path, gigabytes: float, bits: int | None = None) -> None:
    per_weight = (bits + 32 / GROUP) / 8 if bits else 2
    hidden = int(gigabytes * 1e9 / (LAYERS * EXPERTS * 3 * WIDTH * per_weight)) // GROUP * GROUP
    folder.mkdir(parents=True, exist_ok=True)
    config = {
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
    }
    if bits:
        config["quantization"] = {"group_size": GROUP, "bits": bits}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write(folder / "model.safetensors", tensors(hidden, bits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=8)
    parser.add_argument("--bits", type=int, choices=(4, 8))
    options = parser.parse_args()
    write_checkpoint(options.folder, options.gigabytes, options.bits)


if __name__ == "__main__":
    main()
