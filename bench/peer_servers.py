"""Servers side by side: ours and the peer's, from start to several requests at once."""

import http.client
import json
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

START_LIMIT_S = 120
ANSWER_LIMIT_S = 600


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server that has just become ready. `command` gets ` --port N` added."""

    def __init__(self, command: list[str]):
        self.port = free_port()
        start = time.perf_counter()
        self.process = subprocess.Popen([*command, "--port", str(self.port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self._healthy():
            if self.process.poll() is not None or time.perf_counter() - start > START_LIMIT_S:
                self.stop()
                raise RuntimeError(f"{command[0]} did not become ready")
            time.sleep(0.002)
        self.start_s = time.perf_counter() - start

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def complete(self, prompt: str, tokens: int) -> int:
        """Greedy completion of exactly `tokens` tokens; returns how many came."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_LIMIT_S)
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer["usage"]["completion_tokens"]

    def complete_together(self, clients: int, tokens: int) -> float:
        """Tokens per second of that many completions at once, all together."""
        counts = []
        threads = [threading.Thread(target=lambda number=number: counts.append(
            self.complete(f"Chapter {number}. Once upon a time", tokens)))
            for number in range(clients)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.perf_counter() - start)

    def private_mb(self) -> float:
        """Memory of its own: what no other process shares."""
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text(encoding="ascii")
        return sum(int(line.split()[1]) for line in rollup.splitlines()
                   if line.startswith("Private_")) / 1024

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
