#!/usr/bin/env python3
"""Counts how many answers of a small model fit their JSON schema, over many seeds.

    pip install openai jsonschema
    tools/valid_answers.py MODEL [--program build/espalier] [--seeds 200]

Starts `espalier serve`, asks for an object of ten fields and for required tool calls once for each seed, at temperature 1, and ends with 1 unless every answer is valid.
"""

import argparse
import collections
import concurrent.futures
import json
import re
import subprocess
import sys
import time

import jsonschema
import openai

PARALLEL_REQUESTS = 8
LISTENING = re.compile(r"listening on (http://\S+)")


def closed(properties: dict, required: list[str] | None = None) -> dict:
    """An object with these properties alone, all of them required unless `required` is given."""
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": list(properties) if required is None else required}


TEXT = {"type": "string"}
PERSON = closed({
    "name": TEXT,
    "age": {"type": "integer", "minimum": 0, "maximum": 130},
    "height_m": {"type": "number", "exclusiveMinimum": 0.3, "maximum": 2.8},
    "married": {"type": "boolean"},
    "born": {"type": "string", "format": "date"},
    "email": {"type": "string", "pattern": r"^[a-z]{1,10}@[a-z]{1,10}\.(com|org)$"},
    "role": {"enum": ["admin", "user", "guest", None]},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 3},
    "addresses": {"type": "array", "maxItems": 2, "items": closed({
        "city": {"type": "string", "maxLength": 20},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"}})},
    "note": {"type": ["string", "null"]},
})
FUNCTIONS = {
    "get_weather": closed({
        "location": TEXT, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9}}, ["location", "unit"]),
    "send_mail": closed({
        "to": {"type": "array", "items": {"type": "string", "pattern": "^[a-z.]{1,12}@[a-z]{1,12}$"},
               "minItems": 1},
        "subject": {"type": "string", "maxLength": 40}, "date": {"type": "string", "format": "date"},
        "body": {"anyOf": [TEXT, {"type": "null"}]}, "urgent": {"type": "boolean"}}, ["to", "subject", "body"]),
    "stop": closed({}),
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}}
         for name, schema in FUNCTIONS.items()]


def check(text: str, schema: dict) -> None:
    jsonschema.validate(json.loads(text), schema,
                        format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def ask_for_object(client: openai.OpenAI, seed: int, max_tokens: int) -> None:
    """Raises unless the answer is a person."""
    choice = client.chat.completions.create(
        model="local", messages=[{"role": "user", "content": "Describe a person as JSON."}], seed=seed,
        temperature=1, max_tokens=max_tokens, response_format={
            "type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}).choices[0]
    assert choice.finish_reason == "stop", f"ended by {choice.finish_reason}: {choice.message.content!r}"
    check(choice.message.content, PERSON)


def ask_for_calls(client: openai.OpenAI, seed: int, max_tokens: int) -> None:
    """Raises unless the answer is one or more calls of the tools, and nothing else."""
    question = "What is the weather in Paris? Mail it to Bob."
    choice = client.chat.completions.create(
        model="local", messages=[{"role": "user", "content": question}], seed=seed, temperature=1,
        max_tokens=max_tokens, tools=TOOLS, tool_choice="required").choices[0]
    message = choice.message
    assert choice.finish_reason == "tool_calls", f"ended by {choice.finish_reason}: {message!r}"
    assert message.tool_calls and not message.content, repr(message)
    for call in message.tool_calls:
        check(call.function.arguments, FUNCTIONS[call.function.name])


def count(name: str, ask, client: openai.OpenAI, seeds: int, max_tokens: int) -> bool:
    """Asks once for each seed and prints how many answers were valid."""
    outcomes = collections.Counter()
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(PARALLEL_REQUESTS) as threads:
        answers = {threads.submit(ask, client, seed, max_tokens): seed for seed in range(seeds)}
        for answer in concurrent.futures.as_completed(answers):
            problem = answer.exception()
            outcomes[problem is None] += 1
            if problem is not None:
                print(f"{name}, seed {answers[answer]}: {str(problem)[:300]}")
    print(f"{name}: {outcomes[True]} of {seeds} valid, {time.monotonic() - start:.0f} s", flush=True)
    return outcomes[True] == seeds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--program", default="build/espalier")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=240)
    options = parser.parse_args()
    server = subprocess.Popen([options.program, "serve", "--model", options.model, "--port", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = next((found for line in server.stdout if (found := LISTENING.search(line))), None)
        if address is None:
            print("the server did not start")
            return 1
        client = openai.OpenAI(base_url=address[1] + "/v1", api_key="none", max_retries=0)
        results = [count(name, ask, client, options.seeds, options.max_tokens)
                   for name, ask in (("objects", ask_for_object), ("tool calls", ask_for_calls))]
        return 0 if all(results) else 1
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
