"""Tool calls: the verb over the reference cases, and forced calls of the real model through the real client."""

import json
import os

import openai
import pytest

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather at a place.",
        "parameters": {"type": "object", "properties": {
            "location": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["location", "unit"], "additionalProperties": False}}},
    {"type": "function", "function": {
        "name": "get_time", "description": "The time.",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}},
]
MESSAGES = [{"role": "user", "content": "What is the weather in Paris?"}]
# More of them for a thorough run.
SEEDS = range(int(os.environ.get("ESPALIER_SCHEMA_SEEDS", "3")))


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0)


def check_call(name: str, arguments: str):
    values = json.loads(arguments)
    if name == "get_time":
        assert values == {}
        return
    assert name == "get_weather"
    assert set(values) >= {"location", "unit"} and set(values) <= {"location", "unit", "days"}
    assert isinstance(values["location"], str)
    assert values["unit"] in ("celsius", "fahrenheit")
    assert values.get("days", 1) in range(1, 10)


@pytest.mark.parametrize("seed", SEEDS)
def test_required_calls_are_valid(client, seed):
    answer = client.chat.completions.create(
        model="local", messages=MESSAGES, tools=TOOLS, tool_choice="required", seed=seed,
        parallel_tool_calls=False, max_tokens=200)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls", choice
    assert choice.message.content is None
    [call] = choice.message.tool_calls
    assert call.id and call.type == "function"
    check_call(call.function.name, call.function.arguments)


def test_required_calls_end_in_time(client):
    for seed in SEEDS:
        answer = client.chat.completions.create(
            model="local", messages=MESSAGES, tools=TOOLS, tool_choice="required", seed=seed,
            temperature=1.5, max_tokens=60)
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls", choice
        for call in choice.message.tool_calls:
            check_call(call.function.name, call.function.arguments)


def test_named_function_streams_its_name_first(client):
    chunks = list(client.chat.completions.create(
        model="local", messages=MESSAGES, tools=TOOLS, seed=1, stream=True, max_tokens=200,
        parallel_tool_calls=False,
        tool_choice={"type": "function", "function": {"name": "get_weather"}}))
    deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert deltas[0].function.name == "get_weather" and deltas[0].id
    assert len(deltas) > 2
    check_call("get_weather", "".join(delta.function.arguments or "" for delta in deltas))
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_conversation_goes_on_after_a_call(client):
    answer = client.chat.completions.create(
        model="local", tools=TOOLS, tool_choice="none", temperature=0, max_tokens=16,
        messages=[*MESSAGES,
                  {"role": "assistant", "content": None, "tool_calls": [
                      {"id": "x1", "type": "function",
                       "function": {"name": "get_weather", "arguments": "{\"location\": "}}]},
                  {"role": "tool", "tool_call_id": "x1", "content": "18 degrees"}])
    assert answer.choices[0].message.content
    assert not answer.choices[0].message.tool_calls


@pytest.mark.parametrize("more", [
    {"tool_choice": "required"},
    {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
    {"tools": [{"type": "function"}]},
    {"tools": TOOLS, "tool_choice": "perhaps"},
])
def test_what_makes_no_sense_is_refused(client, more):
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="local", messages=MESSAGES, **more)


def normal(text: str | None) -> str:
    return (text or "").strip()


def test_parse_tools_gives_the_reference_results(succeed, shared):
    names = [line.split("\t")[0] for line in succeed("parse-tools", "--list").splitlines()]
    files = sorted((shared / "fixtures" / "toolcalls").glob("*.json"))
    assert files and {file.stem for file in files} <= set(names)
    for file in files:
        fixture = json.loads(file.read_text())
        cases = [case for case in fixture["cases"]
                 if not case.keys() & {"truncated", "malformed", "also_accept", "join_any"}]
        requests = [{"raw": case["raw"], "tools": fixture["tools"],
                     "prompt_ends_with": case.get("prompt_ends_with", "")} for case in cases]
        lines = "\n".join(map(json.dumps, requests))
        for chunk in (0, 2):
            output = succeed("parse-tools", "--dialect", file.stem, "--jsonl", "--chunk", chunk,
                             input=lines).splitlines()
            assert len(output) == len(cases)
            for case, line in zip(cases, output):
                result, expected = json.loads(line), case["expected"]
                label = f"{file.stem} {case['name']}"
                assert normal(result["content"]) == normal(expected["content"]), label
                assert normal(result["reasoning"]) == normal(expected["reasoning"]), label
                calls = [{"name": call["name"], "arguments": json.loads(call["arguments"])}
                         for call in result["tool_calls"]]
                assert calls == expected["tool_calls"], label
