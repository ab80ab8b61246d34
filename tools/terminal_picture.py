"""A real terminal session as a picture: gives each COMMAND to one bash and prints an SVG of what
was typed and what came.
docs/session.svg is made so."""

import html
import re
import subprocess
import sys
import textwrap

COLUMNS, CHARACTER, LINE, MARGIN = 100, 8.43, 19, 16
# Time for what was started in the background to say something.
SETTLE, END = "[ -z \"$(jobs -p)\" ] || sleep 3", "-- end of command --"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Shell:
    """A bash that takes one command after the other; what runs in the background ends with it."""

    def __init__(self):
        self.process = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)

    def run(self, command: str) -> list[str]:
        self.process.stdin.write(f"{command}\n{SETTLE}\necho {END}\n")
        self.process.stdin.flush()
        text = ""
        while not text.endswith(f"{END}\n"):
            text += self.process.stdout.readline()
        text = ESCAPES.sub("", text.removesuffix(f"{END}\n")).expandtabs()
        return [part for line in text.rstrip("\n").split("\n")
                for part in textwrap.wrap(line, COLUMNS, replace_whitespace=False) or [""]]

    def close(self) -> None:
        self.process.communicate("kill $(jobs -p) 2>/dev/null; wait\n")


def svg(lines: list[tuple[str, str]]) -> str:
    """`lines` are pairs of a kind (typed, came) and a text."""
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN + 8
    shapes = [f'<rect width="{width}" height="{height}" rx="8" fill="#1d2021"/>']
    for number, (kind, text) in enumerate(lines):
        colour = "#b8bb26" if kind == "typed" else "#ebdbb2"
        shapes.append(f'<text x="{MARGIN}" y="{MARGIN + 14 + number * LINE}" fill="{colour}">'
                      f"{html.escape(text)}</text>")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" '
            'xml:space="preserve">\n' + "\n".join(shapes) + "\n</svg>")


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("terminal_picture.py COMMAND...")
    lines, shell = [], Shell()
    for command in sys.argv[1:]:
        wrapped = textwrap.wrap("$ " + command, COLUMNS - 2)
        lines += [("typed", line + (" \\" if line is not wrapped[-1] else "")) for line in wrapped]
        lines += [("came", line) for line in shell.run(command)] + [("came", "")]
    shell.close()
    print(svg(lines[:-1]))


if __name__ == "__main__":
    main()
