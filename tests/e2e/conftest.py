"""What every end-to-end test needs: the program, the real model, the reference data, a server."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1"
LISTENING = re.compile(r"^listening on (http://\S+)$", re.MULTILINE)
START_LIMIT_S = 60


@pytest.fixture(scope="session")
def program() -> str:
    path = Path(os.environ.get("ESPALIER_PROGRAM", ROOT / "build" / "espalier"))
    if not path.exists():
        pytest.fail(f"{path} is missing; ./dev test builds it")
    return str(path)


@pytest.fixture(scope="session")
def model() -> str:
    """The default model's file."""
    home = Path(os.environ.get("ESPALIER_HOME", Path.home() / ".espalier"))
    path = Path(os.environ.get("ESPALIER_TEST_MODEL", home / "models" / f"{MODEL_NAME}.gguf"))
    if not path.exists():
        pytest.skip(f"{path} is missing; ./dev test fetches it")
    return str(path)


@pytest.fixture(scope="session")
def gemma() -> str:
    """A model in K-quantized blocks, which `./dev models` fetches."""
    home = Path(os.environ.get("ESPALIER_HOME", Path.home() / ".espalier"))
    path = home / "models" / "gemma-3-270m-q4_k_m.gguf"
    if not path.exists():
        pytest.skip(f"{path} is missing; ./dev models fetches it")
    return str(path)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with reference data."""
    path = Path(os.environ.get("ESPALIER_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"the reference data is missing: {path}")
    return path


@pytest.fixture(scope="session")
def espalier(program):
    """Runs the program to its end: espalier(argument, ..., input=text)."""

    def run(*arguments, input: str = "", **options) -> subprocess.CompletedProcess:
        return subprocess.run([program, *map(str, arguments)], input=input, capture_output=True,
                              encoding="utf-8", timeout=900, check=False, **options)

    return run


@pytest.fixture(scope="session")
def succeed(espalier):
    """As `espalier`, for commands that must succeed; returns standard output."""

    def run(*arguments, input: str = "") -> str:
        done = espalier(*arguments, input=input)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


class Server:
    """A running `espalier serve`; `base_url` is where it answers, `process` its process."""

    def __init__(self, program: str, arguments: list[str], folder: Path):
        self.output, self.errors = folder / "stdout", folder / "stderr"
        with self.output.open("w") as output, self.errors.open("w") as errors:
            port = () if "--port" in arguments else ("--port", "0")
            self.process = subprocess.Popen([program, "serve", *port, *arguments],
                                            stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        self.base_url = self._wait_for_address()

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if match := LISTENING.search(self.output.read_text()):
                return match[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        self.stop()
        raise AssertionError(f"the server did not start: {self.errors.read_text()[-2000:]}")

    def stop(self) -> int:
        """Asks the server to end and returns its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@pytest.fixture
def start_server(program, model, tmp_path_factory):
    """Starts servers with options of the test's own; they end with the test."""
    servers = []

    def start(*arguments: str) -> Server:
        folder = tmp_path_factory.mktemp("server")
        servers.append(Server(program, ["--model", model, *arguments], folder))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def server(program, model, tmp_path_factory):
    """One server with default options that all tests share."""
    running = Server(program, ["--model", model], tmp_path_factory.mktemp("server"))
    yield running
    running.stop()
