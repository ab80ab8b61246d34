"""The peer: the llama.cpp source that the package of requirements/peer-source.txt carries, built
natively once under .cache/peers."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENT = ROOT / "requirements" / "peer-source.txt"
VERSION = REQUIREMENT.read_text(encoding="utf-8").split("==")[1].split()[0]
PEER = ROOT / ".cache" / "peers" / VERSION
PROGRAMS = ("llama-bench", "llama-perplexity", "llama-server", "llama-completion")
# No code for a curl, TLS, web page or test that the comparison does not need.
SETTINGS = ("-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF",
            "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
            "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_UI=OFF", "-DGGML_CCACHE=OFF")


def run(command: list, log: Path | None = None, limit_s: float | None = None,
        merge_errors: bool = False) -> str:
    """The command's standard output (empty when it ran past `limit_s`); ends the program when the
    command fails, with the tail of `log` if its output goes there."""
    command = [str(part) for part in command]
    if log is None:
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False,
                                  stderr=subprocess.STDOUT if merge_errors else subprocess.DEVNULL,
                                  timeout=limit_s)
        except subprocess.TimeoutExpired:
            return ""
        if done.returncode != 0:
            sys.exit(f"bench peers: this ended with status {done.returncode}: {' '.join(command)}")
        return done.stdout
    with log.open("w", encoding="utf-8") as output:
        code = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    if code != 0:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        sys.exit("\n".join([*tail, f"bench peers: {command[0]} failed; all of it: {log}"]))
    return ""


def fetch_source() -> None:
    """Unpacks vendor/llama.cpp of the pinned source package to PEER/source."""
    source = PEER / "source"
    if source.exists():
        return
    print(f"* Fetching the peer's source (llama-cpp-python {VERSION})", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=PEER) as scratch:
        run([sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps",
             "--no-binary", ":all:", "--no-build-isolation", "--require-hashes", "-d", scratch,
             "-r", str(REQUIREMENT)], PEER / "fetch.log")
        archive = next(Path(scratch).glob("*.tar.gz"))
        folder = f"{archive.name.removesuffix('.tar.gz')}/vendor/llama.cpp"
        run(["tar", "-xzf", str(archive), "-C", scratch, folder])
        (Path(scratch) / folder).rename(source)


def build_peer() -> Path:
    """The folder with the peer's programs, built if need be."""
    binaries = PEER / "build" / "bin"
    if all((binaries / name).exists() for name in PROGRAMS):
        return binaries
    PEER.mkdir(parents=True, exist_ok=True)
    fetch_source()
    print("* Building the peer (once; tens of minutes on 2 cores)", file=sys.stderr)
    run(["cmake", "-S", str(PEER / "source"), "-B", str(PEER / "build"), "-G", "Ninja", *SETTINGS],
        PEER / "cmake.log")
    run(["ninja", "-C", str(PEER / "build"), "-j", str(os.cpu_count()), *PROGRAMS],
        PEER / "ninja.log")
    return binaries
