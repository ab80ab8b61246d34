#!/usr/bin/env python3
"""Says how much memory `espalier convert` takes for a large checkpoint.

    tools/conversion_memory.py [--gigabytes 4] [--program build/espalier] [--work FOLDER]
        [CONVERSION...]

Writes a Llama checkpoint with random weights (an embedding and a head of a gigabyte each in front
of layers of 4,096), converts it by the options of each CONVERSION (default: "--quantize affine",
"--gguf Q4_K", "--dtype float16") and prints peak resident memory and time. Everything that was
written is removed. Exit status 1 when the peak is above --limit gigabytes.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from multiprocessing import Process
from pathlib import Path

from random_moe import write

WIDTH, HIDDEN, HEADS, KV_HEADS, VOCABULARY = 4096, 14336, 32, 8, 128000
DEFAULT = ["--quantize affine", "--gguf Q4_K", "--dtype float16"]


def tensors(layers: int) -> dict[str, list[int]]:
    """Names and shapes."""
    kv_width = KV_HEADS * WIDTH // HEADS
    shapes = {"model.embed_tokens.weight": [VOCABULARY, WIDTH], "lm_head.weight": [VOCABULARY, WIDTH],
              "model.norm.weight": [WIDTH]}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": [WIDTH],
            prefix + "post_attention_layernorm.weight": [WIDTH],
            prefix + "self_attn.q_proj.weight": [WIDTH, WIDTH],
            prefix + "self_attn.k_proj.weight": [kv_width, WIDTH],
            prefix + "self_attn.v_proj.weight": [kv_width, WIDTH],
            prefix + "self_attn.o_proj.weight": [WIDTH, WIDTH],
            prefix + "mlp.gate_proj.weight": [HIDDEN, WIDTH],
            prefix + "mlp.up_proj.weight": [HIDDEN, WIDTH],
            prefix + "mlp.down_proj.weight": [WIDTH, HIDDEN],
        }
    return shapes


def size(layers: int) -> int:
    """Bytes of all tensors."""
    return sum(2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
               for shape in tensors(layers).values())


def write_checkpoint(folder: Path, layers: int) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "dtype": "bfloat16", "vocab_size": VOCABULARY, "hidden_size": WIDTH,
        "intermediate_size": HIDDEN, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": False}))
    write(folder / "model.safetensors", tensors(layers))


def peak_of(command: list[str]) -> float:
    """Runs it and returns its peak resident memory in gigabytes."""
    process = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(process, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_maxrss * 1024 / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("conversions", nargs="*", default=DEFAULT)
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--program", default="build/espalier")
    parser.add_argument("--work", type=Path, help="where to write (default: the temporary folder)")
    parser.add_argument("--limit", type=float, default=1.5)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        source = Path(work) / "source"
        layers = 1
        while size(layers) < options.gigabytes * 1e9:
            layers += 1
        # In a process of its own: a child's peak begins with that of the process it was made by.
        writer = Process(target=write_checkpoint, args=(source, layers))
        writer.start()
        writer.join()
        print(f"checkpoint of {size(layers) / 1e9:.2f} GB", flush=True)
        for conversion in options.conversions:
            output = Path(work) / ("out.gguf" if "--gguf" in conversion else "out")
            start = time.monotonic()
            peak = peak_of([options.program, "convert", "--model", str(source), "--output",
                            str(output), *conversion.split()])
            print(f"{conversion}: peak {peak:.3f} GB, {time.monotonic() - start:.0f} s", flush=True)
            good = good and peak <= options.limit
            shutil.rmtree(output) if output.is_dir() else output.unlink()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
