"""A record of ./dev bench peers as a picture: one bar per case, as long as the ratio."""

import html

ROW, LEFT, WIDTH, TOP = 22, 330, 420, 54


def bars(cases: list[dict], top: int, scale: float) -> list[str]:
    shapes = []
    for number, case in enumerate(cases):
        y = top + number * ROW
        name, length = html.escape(case["name"]), case["ratio"] * scale
        colour = "#2b7a4b" if case["ratio"] >= 1 else "#b5482e"
        shapes += [
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{name}</text>',
            f'<rect x="{LEFT}" y="{y + 3}" width="{length:.1f}" height="{ROW - 6}" '
            f'fill="{colour}"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}">{case["ratio"]:.2f}</text>',
        ]
    return shapes


def plot(record: dict) -> str:
    """The record as SVG. The dashed line is the peer's own speed."""
    models = [(model["model"], [case for case in model["cases"] if case["ratio"]])
              for model in record["models"]]  # where both sides were measured
    models = [(name, cases) for name, cases in models if cases]
    ratios = [case["ratio"] for _, cases in models for case in cases]
    scale = WIDTH / max([1, *ratios])
    title = f"Espalier / llama.cpp, {record['threads']} threads, {record['processor']}"
    shapes = [f'<text x="12" y="22" font-weight="bold">{html.escape(title)}</text>']
    top = TOP
    for name, cases in models:
        shapes.append(f'<text x="12" y="{top - 8}">{html.escape(name)}</text>')
        shapes += bars(cases, top, scale)
        top += len(cases) * ROW + TOP - 14
    line = LEFT + scale
    shapes.append(f'<line x1="{line:.1f}" y1="36" x2="{line:.1f}" y2="{top - 30}" stroke="#444" '
                  'stroke-dasharray="4 3"/>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 70}" height="{top}" '
            'font-family="sans-serif" font-size="13">'
            '<rect width="100%" height="100%" fill="white"/>' + "".join(shapes) + "</svg>\n")
