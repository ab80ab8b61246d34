"""Checks the rules of docs/architecture.md that a compiler does not: which folder may include
which, where MLX may appear, and how long a file may be. Prints each breach; exit status 1 if any."""

import functools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
MAX_FILE_LINES = 800
LINE_LIMIT_EXEMPT: set[str] = set()  # data tables

# Folder → folders whose headers it may include, itself left out; "mlx" and "text" (the Rust
# library's C header) stand for outside headers that are restricted too.
MODELS_ROW = {"base", "arrays", "mlx", "programs", "quantization", "state", "layers"}
GENERATION_ROW = MODELS_ROW | {"models", "kernels", "tokenizer", "grammar", "media"}
PROTOCOL_ROW = {"base", "tokenizer", "grammar", "chat", "media", "generation"}
DIALECT_ROW = PROTOCOL_ROW | {"server/protocol", "server/http"}
MAY_INCLUDE = {
    "base": set(),
    "tokenizer": {"base", "text"},
    "media": {"base"},
    "server/http": {"base"},
    "hub": {"base"},
    "arrays": {"base", "mlx"},
    "kernels": {"base", "arrays", "mlx"},
    "programs": {"base", "arrays", "mlx"},
    "quantization": {"base", "arrays", "mlx", "kernels", "programs"},
    "state": {"base", "arrays", "mlx", "kernels", "programs", "quantization"},
    "layers": {"base", "arrays", "mlx", "kernels", "programs", "quantization", "state"},
    "models": MODELS_ROW,
    "grammar": {"base", "tokenizer", "text"},
    "chat": {"base", "tokenizer", "grammar", "text"},
    "generation": GENERATION_ROW,
    "conversion": GENERATION_ROW | {"generation", "chat"},
    "evaluation": GENERATION_ROW | {"generation", "chat"},
    "training": MODELS_ROW | {"models", "tokenizer", "chat"},
    "server/protocol": PROTOCOL_ROW,
    "server/admin": DIALECT_ROW | {"hub"},
    "server/openai": DIALECT_ROW,
    "server/anthropic": DIALECT_ROW,
    "server/responses": DIALECT_ROW,
    "server/ollama": DIALECT_ROW,
}
CLI_MAY_NOT = {"mlx", "text"}

# Plain types (gate, activation format) that descriptors share with the kernels that act on them.
EXCEPTIONS = {("models", "kernels/linear.h")}

# Nothing in these may reach an MLX header, not even through another header.
MLX_FREE_FOLDERS = ("base", "tokenizer", "hub", "chat", "grammar", "server")
MLX_FREE_HEADERS = {f"generation/{name}.h" for name in ("engine", "request", "session", "bundle")}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


@functools.cache
def includes(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and target of each include of ours, of MLX and of the Rust library."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            quoted, target = match[1] == '"', match[2]
            if quoted or target.startswith("mlx/") or target == "espalier_text.h":
                found.append((number, target))
    return tuple(found)


def folder_of(relative: str) -> str:
    """The target that a source file belongs to: its first folder, or two under server/."""
    parts = relative.split("/")
    return "/".join(parts[:2]) if parts[0] == "server" else parts[0]


def owner(target: str) -> str:
    if target.startswith("mlx/"):
        return "mlx"
    return "text" if target == "espalier_text.h" else folder_of(target)


def reaches_mlx(path: Path, seen: set[Path]) -> str | None:
    """The chain of headers by which `path` includes MLX, if it does."""
    seen.add(path)
    for _, target in includes(path):
        if target.startswith("mlx/"):
            return target
        header = SOURCE / target
        if header.exists() and header not in seen and (chain := reaches_mlx(header, seen)):
            return f"{target} > {chain}"
    return None


def check_includes(path: Path) -> list[str]:
    relative = path.relative_to(SOURCE).as_posix()
    folder = folder_of(relative)
    if folder not in MAY_INCLUDE and folder != "cli":
        return [f"src/{relative}: folder {folder} is not in the may-include table"]
    problems = []
    for line, target in includes(path):
        other = owner(target)
        if other not in ("mlx", "text") and not (SOURCE / target).exists():
            problems.append(f'src/{relative}:{line}: "{target}" is not a path under src/')
        elif other == folder or (folder, target) in EXCEPTIONS:
            continue
        elif folder == "cli" and other not in CLI_MAY_NOT:
            continue
        elif folder == "cli" or other not in MAY_INCLUDE[folder]:
            problems.append(f"src/{relative}:{line}: {folder} may not include {target}")
    if relative.startswith(MLX_FREE_FOLDERS) or relative in MLX_FREE_HEADERS:
        if chain := reaches_mlx(path, set()):
            problems.append(f"src/{relative}: reaches MLX through {chain}")
    return problems


def check_length(path: Path) -> list[str]:
    relative = path.relative_to(ROOT).as_posix()
    count = len(path.read_text(encoding="utf-8").splitlines())
    if count <= MAX_FILE_LINES or relative in LINE_LIMIT_EXEMPT:
        return []
    return [f"{relative}: {count} lines, at most {MAX_FILE_LINES} are allowed"]


def main() -> int:
    sources = sorted(p for p in SOURCE.rglob("*") if p.suffix in (".h", ".cpp"))
    problems = [problem for path in sources for problem in check_includes(path)]
    for top, suffixes in (("src", ".h .cpp"), ("tests", ".h .cpp .py"), ("fuzz", ".cpp .h"),
                          ("text/src", ".rs"), ("tools", ".py"), ("bench", ".py")):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in suffixes.split():
                problems += check_length(path)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(sources)} source files checked, {len(problems)} breaches")
    return 1 if problems or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
