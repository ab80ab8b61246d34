"""How much memory of its own a server takes, from its start to a full context."""

import subprocess
import threading
from pathlib import Path

import httpx
import pytest

CONTEXT = 2048
# Of SmolLM2-135M: layers, keys and values, KV heads, elements of a head, bytes of an element.
KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2
# Code, tokenizer, activations and logits.
REST_BYTES = 60 << 20


class PeakMemory:
    """Watches the memory that a process has for itself, without files: `peak` is the most so far."""

    def __init__(self, process: int):
        self.rollup, self.peak = Path(f"/proc/{process}/smaps_rollup"), 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self.ended.wait(0.005):
            private = (int(line.split()[1]) for line in self.rollup.read_text().splitlines()
                       if line.startswith("Private_Dirty:"))
            self.peak = max(self.peak, 1024 * sum(private))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def mapped_bytes(process: int, path: str) -> int:
    """Bytes of a file's pages that a process has mapped in."""
    total, inside = 0, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            inside = line.endswith(path)
        elif inside and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


@pytest.mark.parametrize("place", ["--repack", "--no-repack"])
def test_memory_from_start_to_a_full_context(program, model, place):
    in_place = place == "--no-repack"
    command = [program, "serve", "--model", model, "--port", "0", "--context", str(CONTEXT)]
    command += [place] if in_place else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            with PeakMemory(server.pid) as memory:
                url = server.stdout.readline().split()[-1]
                loaded, mapped = memory.peak, mapped_bytes(server.pid, str(model))
                metrics = httpx.get(url + "/metrics").text
                answer = httpx.post(url + "/v1/completions", timeout=300, json={
                    "prompt": [504] * (CONTEXT - 16), "max_tokens": 15, "temperature": 0,
                    "ignore_eos": True})
        finally:
            server.terminate()
    assert answer.json()["usage"]["total_tokens"] == CONTEXT - 1
    weights = Path(model).stat().st_size
    repacked = next(float(line.split()[1]) for line in metrics.splitlines()
                    if line.startswith("espalier_repacked_weight_bytes "))
    copies = (0.1 if in_place else 1.2) * weights  # small tensors are copied in any case
    assert repacked == 0 if in_place else 0.9 * weights < repacked < copies
    assert in_place or loaded > weights / 2  # or it was not watched
    assert memory.peak <= copies + CONTEXT * KV_BYTES_PER_TOKEN + REST_BYTES
    # Resident once: what was copied is given back.
    assert in_place or mapped < weights / 4
