"""Our speed beside llama.cpp's on the same files, measured in turns in one run, with what the
machine allows. Speeds of a shared machine drift, so only the ratios count."""

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from peer_build import ROOT, VERSION, build_peer, run
from peer_plot import plot
from peer_servers import Server

OURS = ROOT / "build" / "espalier"
LIMITS = ROOT / "build" / "bench" / "machine_limits"
CLIENTS = 8
SERVER_CONTEXT = 2048
BUSY_LIMIT_S = 120
MLX_FORMATS = {"MLX-4bit": 4, "MLX-8bit": 8}


@dataclass
class Case:
    """One thing measured. `samples` grows by one of each side per pair; where `lower_is_better`,
    the ratio is turned round, so that more than 1 always is in our favour."""

    name: str
    unit: str = "tokens/s"
    lower_is_better: bool = False
    samples: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "peer": []})

    def ratio(self) -> float:
        """0 where only one side was measured."""
        if not all(self.samples.values()):
            return 0.0
        ours, peer = (statistics.median(self.samples[who]) for who in ("ours", "peer"))
        return (peer / ours if self.lower_is_better else ours / peer) if ours and peer else 0.0

    def row(self) -> str:
        cells = [f"{statistics.median(v):.4g} ({min(v):.4g}–{max(v):.4g})" if v else "not measured"
                 for v in (self.samples["ours"], self.samples["peer"])]
        return f"| {self.name}, {self.unit} | {cells[0]} | {cells[1]} | {self.ratio():.2f} |"


class Programs:
    """Runs the two programs with the settings that both share."""

    def __init__(self, binaries: Path, options: argparse.Namespace, model: str):
        self.binaries, self.options, self.model = binaries, options, model
        # A folder with a checkpoint is nothing that the peer reads.
        self.sides = ("ours",) if Path(model).is_dir() else ("peer", "ours")

    def bench(self, who: str, prompt: int, gen: int, depth: int, limit_s: float | None = None):
        """Tokens per second of a prefill (gen 0) or of decoding (prompt 0)."""
        threads = str(self.options.threads)
        if who == "ours":
            output = run([OURS, "bench", "--model", self.model, "--json", "--threads", threads,
                          "--prompt", prompt, "--gen", gen, "--depth", depth, "--repeat", 1],
                         limit_s=limit_s)
            kind = "prefill" if gen == 0 else "decode"
            return json.loads(output)[f"{kind}_tokens_per_s"] if output else 0.0
        output = run([self.binaries / "llama-bench", "-m", self.model, "-t", threads, "-r", 1,
                      "-p", prompt, "-n", gen, "-d", depth, "-o", "json",
                      "-fa", self.options.flash_attention], limit_s=limit_s)
        return json.loads(output)[0]["avg_ts"] if output else 0.0

    def server(self, who: str, slots: int) -> Server:
        threads = str(self.options.threads)
        if who == "ours":
            return Server([str(OURS), "serve", "--model", self.model, "--threads", threads,
                           "--context", str(SERVER_CONTEXT), "--max-running", str(slots)])
        # The peer divides its context among its slots.
        return Server([str(self.binaries / "llama-server"), "-m", self.model, "-t", threads,
                       "-c", str(SERVER_CONTEXT * slots), "-np", str(slots), "--no-webui"])


@contextlib.contextmanager
def busy_loops(count: int):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def in_turns(case: Case, pairs: int, measure, sides: tuple[str, ...] = ("peer", "ours")) -> Case:
    """Fills the case by calling measure(who) for the peer and for us, `pairs` times each."""
    for pair in range(pairs):
        for who in sides:
            print(f"\r\033[K  {case.name}: {pair + 1} of {pairs}, {who}", end="", file=sys.stderr)
            case.samples[who].append(measure(who))
    print("\r\033[K", end="", file=sys.stderr)
    print(case.row(), flush=True)
    return case


def bench_cases(programs: Programs, options: argparse.Namespace) -> list[Case]:
    gen = 32 if options.quick else 128
    prompts, depths = (64, 512, 2048), (0, 2048, 7936 - gen)
    if options.formats:
        prompts, depths = (512,), (0,)
    plan = [(f"prefill {n}", n, 0, 0) for n in prompts]
    plan += [(f"decode {gen} at depth {d}", 0, gen, d) for d in depths]
    cases = []
    for name, prompt, count, depth in plan:
        # The deepest case takes the peer most of a minute each time.
        pairs = 1 if options.quick and depth > 2048 else options.pairs
        sizes = (prompt, count, depth)
        cases.append(in_turns(Case(name), pairs,
                              lambda who, sizes=sizes: programs.bench(who, *sizes),
                              programs.sides))
    return cases


def busy_case(programs: Programs, options: argparse.Namespace) -> Case:
    """Decoding while as many other programs as threads want the processors. A run that is not
    done in time counts as done then."""
    gen = 16

    def measure(who: str) -> float:
        return programs.bench(who, 0, gen, 0, limit_s=BUSY_LIMIT_S) or gen / BUSY_LIMIT_S

    with busy_loops(options.threads):
        return in_turns(Case(f"decode {gen} beside {options.threads} busy loops"),
                        1 if options.quick else options.pairs, measure)


def server_cases(programs: Programs, options: argparse.Namespace) -> list[Case]:
    def start_and_memory(who: str) -> float:
        server = programs.server(who, 1)
        try:
            server.complete("word " * (SERVER_CONTEXT - 64), 16)
            memory.samples[who].append(server.private_mb())
            return server.start_s
        finally:
            server.stop()

    memory = Case(f"private memory after a prompt of {SERVER_CONTEXT - 64} words", "MB", True)
    start = in_turns(Case("start to the first /health 200", "s", True), options.pairs,
                     start_and_memory)
    print(memory.row())
    tokens = 32 if options.quick else 128
    with contextlib.ExitStack() as stack:
        servers = {who: programs.server(who, CLIENTS) for who in ("peer", "ours")}
        for server in servers.values():
            stack.callback(server.stop)
            server.complete("Warm up", 4)
        together = in_turns(Case(f"{CLIENTS} clients decoding {tokens} each, all together"),
                            options.pairs,
                            lambda who: servers[who].complete_together(CLIENTS, tokens))
    return [start, memory, together]


def perplexity_case(programs: Programs, text: str) -> Case:
    def measure(who: str) -> float:
        if who == "ours":
            output = run([OURS, "perplexity", "--model", programs.model, "--text", text,
                          "--context", 512, "--json"])
            return json.loads(output)["perplexity"]
        output = run([programs.binaries / "llama-perplexity", "-m", programs.model, "-f", text,
                      "-c", 512, "-t", programs.options.threads], merge_errors=True)
        return float(output.rsplit("PPL = ", 1)[1].split()[0])

    return in_turns(Case("perplexity", "lower is better", True), 1, measure)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe_limits(limits: dict) -> str:
    one, all_threads = limits["read_gb_per_s"]
    one_dot, all_dot = limits["int8_gop_per_s"]
    return (f"This machine reads {one} GB/s with one thread and {all_threads} with "
            f"{limits['threads']}, and does {one_dot} and {all_dot} G int8 operations/s "
            f"({limits['int8_instructions']}).")


def busy_share(cases: list[Case]) -> str:
    """What is left of each side's own speed beside busy loops."""
    alone, beside = (next(case for case in cases if text in case.name)
                     for text in ("at depth 0", "busy loops"))
    shares = {who: statistics.median(beside.samples[who]) / statistics.median(alone.samples[who])
              for who in ("ours", "peer")}
    return (f"Beside busy loops we keep {shares['ours']:.2f} of our own speed, "
            f"the peer {shares['peer']:.2f} of its.")


def limit_shares(model: str, cases: list[Case], limits: dict) -> dict[str, float]:
    """How much of what the machine allows we use: a token read reads all weights, one of a prompt
    multiplies and adds with all but the head's. For dense models whose head is the embedding."""
    needs = json.loads(run([OURS, "fit", "--model", model, "--json"]))
    shape = json.loads(run([OURS, "inspect", "--model", model, "--json"]))["description"]
    speed = {case.name: statistics.median(case.samples["ours"]) for case in cases}
    decode = next(rate for name, rate in speed.items() if "at depth 0" in name)
    layers = needs["parameters"] - shape["vocabulary"] * shape["width"]
    return {"bandwidth": decode * needs["weight_bytes"] / 1e9 / limits["read_gb_per_s"][1],
            "int8": speed["prefill 512"] * 2 * layers / 1e9 / limits["int8_gop_per_s"][1]}


def measure_model(binaries: Path, options: argparse.Namespace, model: str, limits: dict) -> dict:
    programs = Programs(binaries, options, model)
    print(f"\n{Path(model).name}\n\n| Case | Espalier | llama.cpp | Ratio |\n|---|---|---|---|",
          flush=True)
    cases = bench_cases(programs, options)
    cases.append(busy_case(programs, options))
    cases += server_cases(programs, options)
    if options.text:
        cases.append(perplexity_case(programs, options.text))
    shares = limit_shares(model, cases, limits)
    print(f"\n{busy_share(cases)} {describe_shares(shares)}")
    return record_of(Path(model), cases) | {"shares": shares}


def describe_shares(shares: dict[str, float]) -> str:
    return (f"Our decoding reads {shares['bandwidth']:.0%} of the bytes that the machine can, our "
            f"prefill does {shares['int8']:.0%} of its int8 operations.")


def record_of(model: Path, cases: list[Case]) -> dict:
    files = [model] if model.is_file() else [file for file in model.iterdir() if file.is_file()]
    return {"model": model.name, "bytes": sum(file.stat().st_size for file in files),
            "cases": [{"name": case.name, "unit": case.unit, "samples": case.samples,
                       "ratio": case.ratio()} for case in cases]}


def measure_formats(binaries: Path, options: argparse.Namespace, limits: dict) -> list[dict]:
    """Prefill and decoding alone, on each model in each of the wanted types."""
    models = []
    for model in options.model:
        for name in options.formats.split(","):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{Path(model).stem}-as-{name}"
                if name in MLX_FORMATS:
                    how = ["--quantize", "affine", "--bits", MLX_FORMATS[name]]
                else:
                    path = path.with_name(path.name + ".gguf")
                    how = ["--gguf", name]
                run([OURS, "convert", "--model", model, "--output", path, *how])
                programs = Programs(binaries, options, str(path))
                print(f"\n{path.name}\n\n| Case | Espalier | llama.cpp | Ratio |\n"
                      "|---|---|---|---|", flush=True)
                cases = bench_cases(programs, options)
                shares = limit_shares(str(path), cases, limits)
                print(f"\n{describe_shares(shares)}")
                models.append(record_of(path, cases) | {"shares": shares})
    return models


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench peers", description=__doc__)
    parser.add_argument("--default-model", help=argparse.SUPPRESS)
    parser.add_argument("--model", action="append", help="GGUF file that both read; may be repeated"
                        " (default: the default model)")
    parser.add_argument("--pairs", type=int, help="runs of each, in turns (default: 5; quick: 3)")
    parser.add_argument("--quick", action="store_true", help="shorter cases, about 10 minutes")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--flash-attention", type=int, choices=(0, 1), default=1,
                        help="the peer's setting")
    parser.add_argument("--formats", metavar="TYPE,...",
                        help="convert each model to these types (Q4_0,Q4_K,Q6_K,Q8_0,IQ4_XS of GGUF;"
                        " MLX-4bit and MLX-8bit, which the peer does not read) and measure prefill"
                        " of 512 tokens and decoding alone")
    parser.add_argument("--text", help="also compare the perplexity of this file")
    parser.add_argument("--peer", type=Path, help="folder with the peer's programs already built")
    parser.add_argument("--build-only", action="store_true", help="only fetch and build the peer")
    options = parser.parse_args()
    options.pairs = options.pairs or (3 if options.quick else 5)
    options.model = options.model or [options.default_model]
    return options


def main() -> None:
    options = parse_options()
    if not options.peer and not shutil.which("cmake"):
        sys.exit("bench peers: cmake is missing; run ./dev build first.")
    binaries = options.peer or build_peer()
    if options.build_only:
        print(binaries)
        return
    limits = json.loads(run([LIMITS, options.threads]))
    now = datetime.datetime.now(datetime.timezone.utc)
    record = {"date": now.isoformat(timespec="seconds"),
              "commit": run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]).strip(),
              "processor": processor(), "threads": options.threads, "limits": limits,
              "peer": f"llama.cpp of llama-cpp-python {VERSION}",
              "flash_attention": options.flash_attention,
              "models": measure_formats(binaries, options, limits) if options.formats else
                        [measure_model(binaries, options, model, limits)
                         for model in options.model]}
    results = ROOT / "bench" / "results"
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"peers-{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    path.with_suffix(".svg").write_text(plot(record), encoding="utf-8")
    print(f"\n{processor()}, {options.threads} threads, median (least–most) of {options.pairs} "
          f"runs of each in turns. {describe_limits(limits)}\nSamples and a plot: "
          f"{path.relative_to(ROOT)}, .svg")


if __name__ == "__main__":
    main()
