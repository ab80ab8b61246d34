#!/usr/bin/env python3
"""Decodes with a mixture of experts that is larger than the memory it may take.

    tools/experts_beyond_memory.py [--program build/espalier] [--gigabytes 8] [--bits 4]
        [--limit 4] [--tokens 32] [--runs 3] [--work FOLDER]

Writes a checkpoint with random weights, runs `espalier bench` in a memory control group with the
limit (so it must be allowed to make one: root, version 1 or 2) and prints tokens per second, page
faults, bytes read and the group's peak of each run. The first begins with nothing of the file in
memory. Everything that was written is removed. Exit status 1 when a run fails or is killed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from random_moe import write_checkpoint

MOUNT = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A control group with a limit in bytes, removed in the end."""

    def __init__(self, limit: int):
        self.version_2 = (MOUNT / "cgroup.controllers").exists()
        self.folder = (MOUNT if self.version_2 else MOUNT / "memory") / f"experts-{os.getpid()}"
        self.folder.mkdir()
        name = "memory.max" if self.version_2 else "memory.limit_in_bytes"
        (self.folder / name).write_text(str(limit))
        swap = self.folder / "memory.swap.max"
        if swap.exists():
            swap.write_text("0")

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self) -> int | None:
        name = "memory.peak" if self.version_2 else "memory.max_usage_in_bytes"
        path = self.folder / name
        return int(path.read_text()) if path.exists() else None

    def statistics(self) -> dict[str, int]:
        """Bytes by kind, and counts of events."""
        lines = (self.folder / "memory.stat").read_text().splitlines()
        events = self.folder / ("memory.events" if self.version_2 else "memory.oom_control")
        lines += events.read_text().splitlines()
        return {name: int(number) for name, number in (line.split() for line in lines)}

    def remove(self) -> None:
        self.folder.rmdir()


def watch(process: subprocess.Popen, group: MemoryGroup) -> tuple[int, int]:
    """The most anonymous memory and page cache that the group held at once."""
    own = cache = 0
    while process.poll() is None:
        numbers = group.statistics()
        own = max(own, numbers.get("anon", numbers.get("rss", 0)))
        cache = max(cache, numbers.get("file", numbers.get("cache", 0)))
        time.sleep(0.1)
    return own, cache


def run(program: str, model: Path, group: MemoryGroup, tokens: int) -> bool:
    read_before = read_bytes()
    start = time.monotonic()
    command = [program, "bench", "--model", str(model), "--prompt", "16", "--gen", str(tokens),
               "--repeat", "1", "--json"]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, preexec_fn=group.enter)
        try:
            own, cache = watch(process, group)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        text = output.read()
    numbers = group.statistics()
    if process.returncode != 0 or numbers.get("oom_kill", 0) > 0:
        print(f"failed: status {process.returncode}, {numbers.get('oom_kill')} killed")
        return False
    speeds = json.loads(text)
    print(f"{time.monotonic() - start:.0f} s: "
          f"{speeds['decode_tokens_per_s']:.2f} tokens/s decoding, "
          f"{speeds['prefill_tokens_per_s']:.2f} prefilling; "
          f"{numbers['pgmajfault']} major faults so far, "
          f"{(read_bytes() - read_before) / 1e9:.1f} GB read from disk; "
          f"memory of its own up to {own / 1e9:.2f} GB, page cache up to {cache / 1e9:.2f} GB, "
          f"the group's peak {(group.peak() or 0) / 1e9:.2f} GB", flush=True)
    return True


def read_bytes() -> int:
    """Bytes that this machine's disks gave so far."""
    sector = 512
    total = 0
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if Path("/sys/block", fields[2]).exists():
            total += int(fields[5]) * sector
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/espalier")
    parser.add_argument("--gigabytes", type=float, default=8)
    parser.add_argument("--bits", type=int, choices=(4, 8))
    parser.add_argument("--limit", type=float, default=4, help="gigabytes")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, help="where to write (default: the temporary folder)")
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        model = Path(work) / "model"
        write_checkpoint(model, options.gigabytes, options.bits)
        weights = model / "model.safetensors"
        with weights.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        print(f"checkpoint of {weights.stat().st_size / 1e9:.2f} GB", flush=True)
        group = MemoryGroup(int(options.limit * 1e9))
        try:
            for _ in range(options.runs):
                good = run(options.program, model, group, options.tokens) and good
        finally:
            group.remove()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
