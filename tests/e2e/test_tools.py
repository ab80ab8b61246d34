"""Tool calls: the verb over the reference cases, and the server through the real client."""

import json

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


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0)


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
