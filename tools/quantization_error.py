#!/usr/bin/env python3
"""Shows what quantizing does to the answers of each checkpoint in a folder of checkpoints.

    tools/quantization_error.py FOLDER [--program build/espalier]
        [--convert "--quantize affine --bits 4 --group 32"] [--limit 0.25] [NAME...]

Each is converted, and both run in float32 over the same tokens (those of its ref.safetensors where
there is one, else the first 64 ids). The table has the mean Kullback-Leibler divergence of the
answers from those of the original in nats, the variance of the original's logits, the first divided
by the second, and the same for the median divergence: small errors of logits make a divergence of
half their variance, so that the ratio is half the share of noise in the logits, however large these
are. A mean far above the median comes from few positions, where a router chose other experts. Needs
numpy. Exit status 1 when a checkpoint fails or its median ratio is above the limit.
"""

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TYPES = {"I64": np.int64, "I32": np.int32, "F32": np.float32}


class Failure(Exception):
    """What a program said when it failed."""


def run(*command) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, encoding="utf-8",
                          check=False)
    if done.returncode != 0:
        raise Failure(done.stderr.strip() or f"exit status {done.returncode}")
    return done.stdout


def read_tensor(path: Path, name: str) -> np.ndarray:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(length))[name]
        start, end = entry["data_offsets"]
        file.seek(8 + length + start)
        data = file.read(end - start)
    return np.frombuffer(data, TYPES[entry["dtype"]]).reshape(entry["shape"])


def tokens_of(checkpoint: Path) -> list[list[int]]:
    reference = checkpoint / "ref.safetensors"
    return read_tensor(reference, "input_ids").tolist() if reference.exists() else [[*range(64)]]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def divergences(original: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of each position, in nats."""
    a, b = (log_softmax(logits.astype(np.float64)) for logits in (original, other))
    return (np.exp(a) * (a - b)).sum(-1)


def measure(checkpoint: Path, options, work: Path) -> tuple[float, np.ndarray, float]:
    """Bits a weight, divergence of each position, variance of the logits."""
    converted, ids, output = (work / name for name in ("model", "ids.json", "out.safetensors"))
    shutil.rmtree(converted, ignore_errors=True)
    report = json.loads(run(options.program, "convert", "--model", checkpoint, "--output",
                            converted, "--json", *options.convert.split()))
    ids.write_text(json.dumps(tokens_of(checkpoint)))
    logits = []
    for model in (checkpoint, converted):
        run(options.program, "logits", "--model", model, "--tokens", ids, "--output", output,
            "--dtype", "float32", "--activations", "f32")
        logits.append(read_tensor(output, "logits"))
    return report["bits_per_weight"], divergences(*logits), float(np.var(logits[0]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="only these checkpoints")
    parser.add_argument("--program", type=Path, default=Path("build/espalier"))
    parser.add_argument("--convert", default="--quantize affine --bits 4 --group 32",
                        help="options of `espalier convert`")
    parser.add_argument("--limit", type=float, default=0.25, help="highest median ratio that is good")
    options = parser.parse_intermixed_args()
    names = options.names or sorted(path.parent.name for path in
                                    options.folder.glob("*/config.json"))
    good = True
    print(f"{'checkpoint':<20}{'bits':>7}{'divergence':>12}{'variance':>10}{'ratio':>9}{'median':>9}")
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            try:
                bits, kl, variance = measure(options.folder / name, options, Path(work))
            except Failure as failure:
                print(f"{name:<20}{failure}", flush=True)
                good = False
                continue
            mean, median = float(kl.mean()), float(np.median(kl)) / variance
            good = good and median <= options.limit
            mark = "" if median <= options.limit else "  above the limit"
            print(f"{name:<20}{bits:7.2f}{mean:12.5f}{variance:10.4f}{mean / variance:9.4f}"
                  f"{median:9.4f}{mark}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
