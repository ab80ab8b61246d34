"""How long a start takes: from the process to the first token of `espalier generate`, and to the
first `/health` 200 of `serve`, with the file in the page cache; beside llama.cpp's programs where
their folder is given. Prints wall and processor time, medians (least to most), or with `--json`
the samples. Processor time does not depend on what else the machine does."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from peer_build import ROOT
from peer_servers import Server

PROMPT = "Why is the sky blue?"
TICKS = os.sysconf("SC_CLK_TCK")

Sample = tuple[float, float]  # seconds on the wall and of the processors


def processor_seconds(process: int) -> float:
    """What all threads of a process took so far, those that ended included."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def first_token(command: list[str]) -> Sample:
    """Until the first byte on standard output."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        byte = os.read(process.stdout.fileno(), 1)
        wall = time.perf_counter() - start
        used = processor_seconds(process.pid)
        process.kill()
    if not byte:
        sys.exit(f"bench start: {command[0]} wrote nothing")
    return wall, used


def health(command: list[str]) -> Sample:
    server = Server(command)
    used = processor_seconds(server.process.pid)
    server.stop()
    return server.start_s, used


def cases(options: argparse.Namespace) -> list[tuple[str, Callable[[], Sample]]]:
    ours = [str(options.espalier)]
    shared = ["--model", options.model, "--threads", str(options.threads)]
    plan = [("espalier generate, first token", lambda: first_token(
                [*ours, "generate", *shared, "--prompt", options.prompt, "--max-tokens", "2",
                 *(["--raw"] if options.raw else [])])),
            ("espalier serve, /health 200", lambda: health([*ours, "serve", *shared]))]
    if options.peer:
        peer_shared = ["-m", options.model, "-t", str(options.threads)]
        plan += [("llama-completion, first token", lambda: first_token(
                     [str(options.peer / "llama-completion"), *peer_shared, "-p", options.prompt,
                      "-n", "2", "-no-cnv" if options.raw else "-st", "--no-display-prompt",
                      "--no-warmup"])),
                 ("llama-server, /health 200", lambda: health(
                     [str(options.peer / "llama-server"), *peer_shared, "--no-webui"]))]
    return plan


def row(name: str, samples: list[Sample]) -> str:
    cells = [f"{statistics.median(v) * 1000:.0f} ({min(v) * 1000:.0f}–{max(v) * 1000:.0f})"
             for v in zip(*samples)]
    return f"| {name} | {cells[0]} | {cells[1]} |"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--espalier", type=Path, default=ROOT / "build" / "espalier")
    parser.add_argument("--peer", type=Path, help="folder with llama.cpp's programs")
    parser.add_argument("--runs", type=int, default=9, help="of each, in turns")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--raw", action="store_true", help="the prompt as it is, without the chat"
                        " template")
    parser.add_argument("--json", action="store_true", help="print the samples, in seconds")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    plan = cases(options)
    samples: dict[str, list[Sample]] = {name: [] for name, _ in plan}
    for _, measure in plan:  # the file and the programs come into the page cache
        measure()
    for _ in range(options.runs):
        for name, measure in plan:
            samples[name].append(measure())
    if options.json:
        print(json.dumps(samples))
        return
    print("| Case | wall, ms | processors, ms |\n|---|---|---|")
    for name, measured in samples.items():
        print(row(name, measured))


if __name__ == "__main__":
    main()
