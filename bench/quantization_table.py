"""What trellis codes and affine weights of as many bits do to a model: perplexity, and the
divergence of its distributions from the unquantized model's. Only the matrices that can be coded
differ; all others are affine of `--rest` bits in both. Affine weights have no setting of exactly
as many bits, so their figures are interpolated between the nearest settings (linearly in the bits,
the logarithm of the divergence, the perplexity). `--variants "" "--rotate 42"` measures trellis
codes with these options of `convert` against the same affine weights. What `--work` holds already
is not measured again. `--jobs` settings at a time share the processor's cores."""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
AFFINE = ((2, 64), (2, 32), (3, 128), (3, 64), (3, 32), (4, 128), (4, 64), (4, 32))
AFFINE_SCALE_BITS = 32  # a scale and a bias of 16 bits each
MARGIN = 0.5  # affine settings further from the bits of all codes are not measured


@dataclass
class Result:
    name: str
    bits: float  # a weight of the coded matrices
    perplexity: float
    divergence: float

    def row(self) -> str:
        return f"| {self.name} | {self.bits:.3f} | {self.perplexity:.3f} | {self.divergence:.4f} |"


def run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with status {done.returncode}")
    return done.stdout


def token_rows(options: argparse.Namespace, path: Path) -> None:
    """Evenly spaced parts of the text as ids."""
    words = [options.program, "tokenize", "--model", options.model, "--special"]
    done = subprocess.run(words, input=json.dumps([options.text.read_text()]), text=True,
                          check=True, stdout=subprocess.PIPE)
    ids = json.loads(done.stdout)[0]
    stride = len(ids) // options.rows
    rows = [ids[i * stride:i * stride + options.tokens] for i in range(options.rows)]
    path.write_text(json.dumps(rows))


def read_logits(path: Path) -> np.ndarray:
    """[rows, V], mapped."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(size))["logits"]
    shape = entry["shape"]
    return np.memmap(path, np.float32, "r", 8 + size + entry["data_offsets"][0],
                     (shape[0] * shape[1], shape[2]))


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - math.log(np.exp(shifted).sum())


def divergence(reference: np.ndarray, other: np.ndarray) -> float:
    """Mean Kullback-Leibler divergence in nats."""

    def of_row(row: int) -> float:
        p, q = log_probabilities(reference[row]), log_probabilities(other[row])
        return float((np.exp(p) * (p - q)).sum())

    with ThreadPoolExecutor() as pool:
        return sum(pool.map(of_row, range(len(reference)))) / len(reference)


class Table:
    def __init__(self, options: argparse.Namespace):
        self.options, self.work = options, options.work
        self.work.mkdir(parents=True, exist_ok=True)
        self.threads = ("--threads", str(max(1, (os.cpu_count() or 1) // options.jobs)))
        self.rest = ("--quantize", "affine", "--bits", str(options.rest), "--group", "64")
        self.ids = self.work / "ids.json"
        token_rows(options, self.ids)
        self.kept = self.work / "results.json"
        self.results = json.loads(self.kept.read_text()) if self.kept.exists() else {}
        self.inputs: set[int] = set()  # of the coded matrices
        self.pool = ThreadPoolExecutor(options.jobs)
        self.reference = self.pool.submit(self.logits, options.model, "reference")

    def logits(self, model: Path, name: str) -> np.ndarray:
        path = self.work / f"{name}.safetensors"
        run(self.options.program, "logits", "--model", model, "--tokens", self.ids, "--output",
            path, "--activations", "f32", "--dtype", "float32", *self.threads)
        return read_logits(path)

    def perplexity(self, model: Path) -> float:
        done = run(self.options.program, "perplexity", "--model", model, "--text",
                   self.options.text, "--activations", "int15", "--json", *self.threads)
        return json.loads(done)["perplexity"]

    def measure(self, name: str, bits: float, model: Path, layers: list[str]) -> Result:
        logits = self.logits(model, name)
        result = Result(name, bits, self.perplexity(model),
                        divergence(self.reference.result(), logits))
        (self.work / f"{name}.safetensors").unlink()
        shutil.rmtree(model)
        self.results[name] = asdict(result) | {"layers": layers, "inputs": sorted(self.inputs)}
        self.kept.write_text(json.dumps(self.results))
        print(result.row(), flush=True)
        return result

    def find(self, name: str) -> tuple[Result, list[str]] | None:
        """What an earlier run measured."""
        if name not in self.results:
            return None
        kept = dict(self.results[name])
        layers = kept.pop("layers")
        self.inputs.update(kept.pop("inputs"))
        print(Result(**kept).row(), flush=True)
        return Result(**kept), layers

    def convert(self, name: str, *settings: object) -> Path:
        path = self.work / name
        shutil.rmtree(path, ignore_errors=True)
        run(self.options.program, "convert", "--model", self.options.model, "--output", path,
            *self.threads, *settings)
        return path

    def trellis(self, bits: str, variant: str) -> tuple[Result, list[str]]:
        """The result, and the layers that were coded."""
        name = " ".join(["trellis", bits, *variant.split()])
        if found := self.find(name):
            return found
        path = self.convert(name, *self.rest, "--trellis", bits, *variant.split())
        settings = json.loads((path / "config.json").read_text())["quantization"]
        coded = {layer: value for layer, value in settings.items()
                 if isinstance(value, dict) and value.get("mode") == "trellis"}
        weights = scales = 0
        with (path / "model.safetensors").open("rb") as file:
            entries = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for layer, settings in coded.items():
            rows, words = entries[f"{layer}.weight"]["shape"]
            weights += rows * words * 32
            scales += rows * 16
            along_inputs = settings["trellis"]["axis"] == 1
            self.inputs.add(round(words * 32 / float(bits)) if along_inputs else rows)
        values = weights / float(bits)
        layers = list(coded)
        return self.measure(name, (weights + scales) / values, path, layers), layers

    def affine(self, bits: int, group: int, layers: list[str]) -> Result:
        name = f"affine {bits} by {group}"
        if found := self.find(name):
            return found[0]
        rules = [word for layer in layers for word in ("--rule", f"{layer}=affine:{bits}:{group}")]
        path = self.convert(name, *self.rest, *rules)
        return self.measure(name, bits + AFFINE_SCALE_BITS / group, path, layers)


def interpolate(results: list[Result], bits: float) -> Result:
    """Between the two settings around `bits`, after dropping those that fewer bits do better."""
    best: list[Result] = []
    for result in sorted(results, key=lambda r: r.bits):
        if not best or result.divergence < best[-1].divergence:
            best.append(result)
    low = max((r for r in best if r.bits <= bits), key=lambda r: r.bits)
    high = min((r for r in best if r.bits >= bits), key=lambda r: r.bits)
    share = 0.0 if low is high else (bits - low.bits) / (high.bits - low.bits)
    logarithm = (1 - share) * math.log(low.divergence) + share * math.log(high.divergence)
    return Result("affine, interpolated", bits,
                  (1 - share) * low.perplexity + share * high.perplexity, math.exp(logarithm))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "espalier")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--bits", nargs="+", default=["4", "3.5", "3"])
    parser.add_argument("--rest", type=int, default=8, help="bits of what is not coded")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--work", type=Path, default=Path("/tmp/espalier-quantization"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--variants", nargs="+", default=[""], help="more options of convert")
    options = parser.parse_args()
    options.program = options.program.resolve()
    table = Table(options)
    print("| Weights | Bits | Perplexity | Divergence |\n|---|---|---|---|")
    unquantized = table.pool.submit(table.perplexity, options.model)
    coded = list(table.pool.map(lambda setting: table.trellis(*setting),
                                ((bits, variant) for variant in options.variants
                                 for bits in options.bits)))
    print(Result("unquantized", 0, unquantized.result(), 0).row(), flush=True)
    low = min(result.bits for result, _ in coded) - MARGIN
    high = max(result.bits for result, _ in coded) + MARGIN
    affine = list(table.pool.map(lambda setting: table.affine(*setting, coded[0][1]),
                                 ((bits, group) for bits, group in AFFINE
                                  if all(inputs % group == 0 for inputs in table.inputs)
                                  and low <= bits + AFFINE_SCALE_BITS / group <= high)))
    for result, _ in coded:
        same = interpolate(affine, result.bits)
        print(same.row())
        better = same.divergence > result.divergence
        print(f"# {result.name} is {'better' if better else 'worse'} than affine at equal bits",
              flush=True)


if __name__ == "__main__":
    main()
