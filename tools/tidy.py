"""Runs clang-tidy over src/*.cpp on all cores. A file whose text, project headers, settings and
compile command have passed before is not checked again (.cache/tidy remembers)."""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
BUILD = ROOT / "build-tidy"
PASSED = ROOT / ".cache" / "tidy"
PROGRAM = str(ROOT / ".venv" / "bin" / "clang-tidy")
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def with_headers(path: Path, seen: set[Path]) -> set[Path]:
    """The file and the project headers it includes, directly or not."""
    if path in seen or not path.exists():
        return seen
    seen.add(path)
    for name in INCLUDE.findall(path.read_bytes()):
        with_headers(SOURCE / name.decode(), seen)
    return seen


def fingerprint(entry: dict, settings: bytes) -> str:
    digest = hashlib.sha256(settings)
    digest.update(entry["command"].replace(str(ROOT), "").encode())
    for path in sorted(with_headers(Path(entry["file"]), set())):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def check(path: str) -> subprocess.CompletedProcess:
    command = [PROGRAM, "-p", str(BUILD), "--quiet", f"--header-filter={SOURCE}/",
               "--extra-arg=-Wno-unknown-warning-option",
               # Of GCC's own older headers, in the eyes of a newer clang.
               "--extra-arg=-Wno-deprecated-declarations", path]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    entries = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True).stdout
    settings = version + (ROOT / ".clang-tidy").read_bytes()
    PASSED.mkdir(parents=True, exist_ok=True)
    due = {}
    for entry in entries:
        if Path(entry["file"]).is_relative_to(SOURCE):
            mark = PASSED / fingerprint(entry, settings)
            if not mark.exists():
                due[entry["file"]] = mark
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        for path, result in zip(due, workers.map(check, due)):
            if result.returncode == 0:
                due[path].touch()
                continue
            failed += 1
            print(result.stdout, result.stderr, sep="", file=sys.stderr)
    print(f"clang-tidy: {len(due)} files checked, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
