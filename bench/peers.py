"""Our speed beside llama.cpp's on the same file, measured in turns in one run.

The peer is the llama.cpp source that the package of requirements/peer-source.txt carries, built
natively once under .cache/peers. Speeds of a shared machine drift, so only the ratios count."""

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
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


def run(command: list, log: Path | None = None) -> str:
    """The command's standard output; ends the program with the log's tail when it fails."""
    if log is None:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench peers: {command[0]} ended with status {done.returncode}")
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


def measure_peer(binaries: Path, options: argparse.Namespace) -> dict[str, float]:
    output = run([str(binaries / "llama-bench"), "-m", options.model, "-p", str(options.prompt),
                  "-n", str(options.gen), "-t", str(options.threads), "-r", "1", "-o", "json",
                  "-fa", str(options.flash_attention)])
    speeds = {}
    for test in json.loads(output):
        speeds["prefill" if test["n_gen"] == 0 else "decode"] = test["avg_ts"]
    return speeds


def measure_ours(options: argparse.Namespace) -> dict[str, float]:
    output = run([str(ROOT / "build" / "espalier"), "bench", "--model", options.model, "--json",
                  "--prompt", str(options.prompt), "--gen", str(options.gen), "--threads",
                  str(options.threads), "--repeat", "1"])
    result = json.loads(output)
    return {case: result[f"{case}_tokens_per_s"] for case in ("prefill", "decode")}


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def report(samples: dict[str, dict[str, list[float]]], options: argparse.Namespace) -> None:
    """Prints medians, extremes and the ratio, and writes them with the machine to a file."""
    sizes = {"prefill": options.prompt, "decode": options.gen}
    print("| Case, tokens/s | Espalier | llama.cpp | Ratio |\n|---|---|---|---|")
    ratios = {}
    for case, size in sizes.items():
        ours, peer = (statistics.median(samples[who][case]) for who in ("ours", "peer"))
        ratios[case] = ours / peer
        cells = [f"{statistics.median(v):.1f} ({min(v):.1f}–{max(v):.1f})"
                 for v in (samples["ours"][case], samples["peer"][case])]
        print(f"| {case} {size} | {cells[0]} | {cells[1]} | {ratios[case]:.2f} |")
    commit = run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]).strip()
    now = datetime.datetime.now(datetime.timezone.utc)
    record = {"date": now.isoformat(timespec="seconds"), "commit": commit,
              "processor": processor(), "model": Path(options.model).name,
              "peer": f"llama.cpp of llama-cpp-python {VERSION}", "threads": options.threads,
              "flash_attention": options.flash_attention, "sizes": sizes, "samples": samples,
              "ratios": ratios}
    results = ROOT / "bench" / "results"
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"peers-{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{processor()}, {options.threads} threads, {options.pairs} runs of each in turns; "
          f"samples in {path.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench peers", description=__doc__)
    parser.add_argument("--model", required=True, help="GGUF file that both read")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each, in turns")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prefill case")
    parser.add_argument("--gen", type=int, default=128, help="tokens of the decode case")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--flash-attention", type=int, choices=(0, 1), default=1,
                        help="the peer's setting")
    parser.add_argument("--build-only", action="store_true", help="only fetch and build the peer")
    options = parser.parse_args()
    if not shutil.which("cmake"):
        sys.exit("bench peers: cmake is missing; run ./dev build first.")
    binaries = build_peer()
    if options.build_only:
        print(binaries)
        return
    samples = {who: {"prefill": [], "decode": []} for who in ("ours", "peer")}
    for pair in range(options.pairs):
        for who, speeds in (("peer", measure_peer(binaries, options)),
                            ("ours", measure_ours(options))):
            for case, speed in speeds.items():
                samples[who][case].append(speed)
        print(f"  pair {pair + 1} of {options.pairs} done", file=sys.stderr)
    report(samples, options)


if __name__ == "__main__":
    main()
