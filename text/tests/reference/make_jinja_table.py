"""Renders jinja_snippets.txt with Jinja2, set up as transformers does for chat templates.

Run: python make_jinja_table.py > ../data/jinja_snippets.json
Needs jinja2 (the committed table: 3.1.6, Python 3.11).
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 3, 5, 14, 7, 9)

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Grüße, <b>& \"you\"</b>"},
        {"role": "assistant", "content": "It's 5 o'clock."},
    ],
    "tools": None,
    "documents": None,
    "add_generation_prompt": True,
    "items": [
        {"name": "b", "n": 2, "sub": {"x": 5}, "kind": "k"},
        {"name": "a", "n": 1, "sub": {"x": 6}},
        {"name": "c", "n": 2, "sub": {"x": 7}},
    ],
    "obj": {"d": "text", "list": [1, 2], "none": None},
    "tree": [{"name": "r", "children": [{"name": "c", "children": []}]}],
}


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment() -> jinja2.Environment:
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["dict"] = TemplateDict()
    return env


def render(env: jinja2.Environment, source: str) -> dict:
    try:
        return {"template": source, "expected": env.from_string(source).render(**VARIABLES)}
    except Exception as error:  # every failure of a template is a result here
        return {"template": source, "error": f"{type(error).__name__}: {error}"}


def main() -> None:
    lines = pathlib.Path(__file__).with_name("jinja_snippets.txt").read_text("utf-8").split("\n")
    env = environment()
    cases = []
    differs = False
    for line in lines:
        if line.startswith("# "):
            differs = line.startswith("# what the engine does otherwise")
        elif line:
            for shown, character in (("⏎", "\n"), ("␍", "\r"), ("⇥", "\t")):
                line = line.replace(shown, character)
            cases.append(render(env, line) | ({"differs": True} if differs else {}))
    print(json.dumps({"variables": VARIABLES, "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
