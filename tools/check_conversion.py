"""Converts a model for mlx-lm and llama.cpp and compares what they compute with what Espalier does.

Usage: python check_conversion.py --program build/espalier --model MODEL --text FILE
           [--llama-perplexity PROGRAM] [--work FOLDER] [--positions 2000] [CHECK...]

Needs the Python packages mlx-lm and numpy. CHECK is any of mlx4, mlx8, mxfp4, mxfp8, nvfp4, Q4_K,
Q8_0, … (default: mlx4 mlx8 Q4_K Q8_0). MLX checks: mlx_lm loads the folder, and its logits in
float32 differ from ours by less than a hundredth of their standard deviation, with the same best
token at 99 % of the positions. GGUF checks: the perplexities differ by at most 0.5 %. Exit status 1
when one fails.
"""

import argparse
import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

ROW_TOKENS = 250
MLX_CHECKS = {
    "mlx4": ("--quantize", "affine", "--bits", "4"),
    "mlx8": ("--quantize", "affine", "--bits", "8"),
    "mxfp4": ("--quantize", "mxfp4"),
    "mxfp8": ("--quantize", "mxfp8"),
    "nvfp4": ("--quantize", "nvfp4"),
}
LIMIT_WORST, LIMIT_SAME_BEST, LIMIT_PERPLEXITY = 1e-2, 0.99, 5e-3


def run(*command, **options) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, encoding="utf-8",
                          check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout + done.stderr


def read_logits(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(length))["logits"]
    return np.memmap(path, np.float32, "r", 8 + length + entry["data_offsets"][0],
                     tuple(entry["shape"]))


def mlx_logits(folder: Path, rows: list[list[int]]):
    """Row by row, in float32."""
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm import load

    mx.set_default_device(mx.cpu)
    model, tokenizer = load(str(folder))
    assert tokenizer.encode("Hello"), "the tokenizer gives no tokens"
    model.update(tree_map(
        lambda x: x.astype(mx.float32) if mx.issubdtype(x.dtype, mx.floating) else x,
        model.parameters()))
    for row in rows:
        logits = model(mx.array([row]))
        yield np.array(logits.astype(mx.float32))[0]


def check_mlx(args, name: str, rows: list[list[int]]) -> bool:
    folder = args.work / name
    shutil.rmtree(folder, ignore_errors=True)
    run(args.program, "convert", "--model", args.model, "--output", folder, *MLX_CHECKS[name])
    source = folder
    if args.through_dequantized:
        source = args.work / f"{name}-dense"
        shutil.rmtree(source, ignore_errors=True)
        run(args.program, "convert", "--model", folder, "--output", source, "--dequantize",
            "--dtype", "float32")
    ids, output = args.work / "ids.json", args.work / "logits.safetensors"
    ids.write_text(json.dumps(rows))
    run(args.program, "logits", "--model", source, "--tokens", ids, "--output", output, "--dtype",
        "float32", "--activations", "f32")
    ours = read_logits(output)
    deviation = float(np.std(ours))
    worst, same = 0.0, 0
    for mine, theirs in zip(ours, mlx_logits(folder, rows)):
        worst = max(worst, float(np.abs(mine - theirs).max()))
        same += int((mine.argmax(-1) == theirs.argmax(-1)).sum())
    positions = sum(map(len, rows))
    good = worst < LIMIT_WORST * deviation and same >= LIMIT_SAME_BEST * positions
    print(f"{name}: largest difference {worst / deviation:.2e} of the standard deviation, same best "
          f"token at {same} of {positions} positions: {'good' if good else 'BAD'}", flush=True)
    return good


def peer_perplexity(args, path: Path) -> float:
    """llama.cpp's. Its last line is lost at times, when the program ends before its logger."""
    for _ in range(3):
        output = run(args.llama_perplexity, "-m", path, "-f", args.text, "-c", 512, "-t",
                     args.threads)
        if found := re.search(r"Final estimate: PPL = ([0-9.]+)", output):
            return float(found[1])
    sys.exit(f"{args.llama_perplexity} printed no perplexity")


def check_gguf(args, name: str) -> bool:
    path = args.work / f"{name}.gguf"
    path.unlink(missing_ok=True)
    run(args.program, "convert", "--model", args.model, "--output", path, "--gguf", name)
    peer = peer_perplexity(args, path)
    ours = json.loads(run(args.program, "perplexity", "--model", path, "--text", args.text,
                          "--context", 512, "--json", "--threads", args.threads))["perplexity"]
    good = abs(ours / peer - 1) <= LIMIT_PERPLEXITY
    print(f"{name}: perplexity {ours:.4f}, llama.cpp's {peer:.4f}: {'good' if good else 'BAD'}",
          flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default="build/espalier")
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--llama-perplexity", type=Path, default="llama-perplexity")
    parser.add_argument("--work", type=Path, default=Path("conversions"))
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--through-dequantized", action="store_true",
                        help="compute ours from the weights written as plain numbers")
    parser.add_argument("checks", nargs="*", default=["mlx4", "mlx8", "Q4_K", "Q8_0"])
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    text = args.text.read_text(encoding="utf-8")
    (ids,) = json.loads(run(args.program, "tokenize", "--model", args.model,
                            input=json.dumps([text])))
    rows = [ids[i:i + ROW_TOKENS] for i in range(0, args.positions, ROW_TOKENS)]
    good = [check_mlx(args, name, rows) if name in MLX_CHECKS else check_gguf(args, name)
            for name in args.checks]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
