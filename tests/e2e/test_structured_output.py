"""Constrained text: the real model, the real client, and what JSON and schemas are by other libraries."""

import json
import os
import re

import openai
import pytest

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "height_m": {"type": "number", "minimum": 0.3, "maximum": 2.8},
        "married": {"type": "boolean"},
        "born": {"type": "string", "format": "date"},
        "email": {"type": "string", "pattern": "^[a-z]{1,10}@[a-z]{1,10}\\.(com|org)$"},
        "colour": {"enum": ["red", "green", "blue"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "zip": {"type": "integer"}},
            "required": ["city", "zip"],
            "additionalProperties": False,
        },
        "spouse": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 20}]},
    },
    "required": ["name", "age", "height_m", "married", "born", "email", "colour", "tags",
                 "address", "spouse"],
    "additionalProperties": False,
}
# More of them for a thorough run.
SEEDS = int(os.environ.get("ESPALIER_SCHEMA_SEEDS", "4"))
MESSAGES = [{"role": "user", "content": "Describe a person as JSON."}]


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0)


def response_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}


def check_person(text: str):
    person = json.loads(text)
    assert list(person) == SCHEMA["required"]
    assert 1 <= len(person["name"]) <= 30
    assert isinstance(person["age"], int) and 0 <= person["age"] <= 130
    assert 0.3 <= person["height_m"] <= 2.8
    assert isinstance(person["married"], bool)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", person["born"])
    assert re.fullmatch(SCHEMA["properties"]["email"]["pattern"], person["email"])
    assert person["colour"] in ("red", "green", "blue")
    assert len(person["tags"]) <= 3 and all(len(tag) <= 12 for tag in person["tags"])
    assert isinstance(person["address"]["zip"], int) and len(person["address"]) == 2
    assert person["spouse"] is None or len(person["spouse"]) <= 20


def test_ten_fields_for_every_seed(client):
    for seed in range(SEEDS):
        answer = client.chat.completions.create(
            model="local", messages=MESSAGES, seed=seed, temperature=1, max_tokens=1000,
            response_format=response_format(SCHEMA))
        assert answer.choices[0].finish_reason == "stop", answer
        check_person(answer.choices[0].message.content)


PLAIN = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("name", "title", "phone", "city", "job")},
    "required": ["name", "title", "phone", "city", "job"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("limit", [40, 150])
def test_unbounded_strings_are_closed_in_time(client, limit):
    for seed in range(SEEDS):
        choice = client.chat.completions.create(
            model="local", messages=MESSAGES, seed=seed, temperature=1.5, max_tokens=limit,
            response_format=response_format(PLAIN)).choices[0]
        assert choice.finish_reason == "stop"
        person = json.loads(choice.message.content)
        assert list(person) == PLAIN["required"]
        assert all(isinstance(value, str) for value in person.values())


def test_a_limit_without_room_cuts_off(client):
    choice = client.chat.completions.create(
        model="local", messages=MESSAGES, seed=1, max_tokens=5,
        response_format=response_format(PLAIN)).choices[0]
    assert choice.finish_reason == "length"


def test_any_object_choice_regex_and_grammar(client):
    def answer(**extra):
        return client.chat.completions.create(model="local", messages=MESSAGES, temperature=0,
                                              max_tokens=200, **extra).choices[0]
    assert answer(extra_body={"guided_choice": ["yes", "no"]}).message.content in ("yes", "no")
    text = answer(extra_body={"guided_regex": "[A-Z][a-z]{2,8} [0-9]{3}"}).message.content
    assert re.fullmatch("[A-Z][a-z]{2,8} [0-9]{3}", text)
    text = answer(extra_body={"grammar": 'root ::= pair ("," pair){2}\npair ::= [a-z] "=" [0-9]'})
    assert re.fullmatch("[a-z]=[0-9](,[a-z]=[0-9]){2}", text.message.content)
    nested = 'start: "<" inner ">"\ninner: "(" ("x" | "y")? ")"'
    text = answer(extra_body={"guided_grammar": nested}).message.content
    assert re.fullmatch(r"<\([xy]?\)>", text)
    choice = answer(response_format={"type": "json_object"})
    assert isinstance(json.loads(choice.message.content), dict)


def test_logprobs_stream_and_choices_give_the_same_text(client):
    request = dict(model="local", messages=MESSAGES, seed=5, temperature=1, max_tokens=1000,
                   response_format=response_format(SCHEMA))
    plain = client.chat.completions.create(**request).choices[0].message.content
    detailed = client.chat.completions.create(**request, logprobs=True, n=2)
    assert detailed.choices[0].message.content == plain
    assert detailed.choices[1].message.content != plain
    tokens = detailed.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == plain
    pieces = client.chat.completions.create(**request, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == plain


def test_a_stop_string_ends_constrained_text(client):
    answer = client.chat.completions.create(
        model="local", messages=MESSAGES, temperature=0, max_tokens=1000, stop=['"age"'],
        response_format=response_format(SCHEMA)).choices[0]
    assert answer.finish_reason == "stop"
    assert '"name"' in answer.message.content and '"age"' not in answer.message.content


@pytest.mark.parametrize("schema, named", [
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, "oneOf"),
    ({"if": {"type": "string"}, "then": {"minLength": 2}}, "if"),
    ({"type": "string", "pattern": "(?=a)"}, "pattern"),
    ({"type": "string", "format": "iri"}, "iri"),
    ({"$ref": "https://example.com/x.json"}, "example.com"),
    ({"minimum": "a"}, "minimum"),
    ({"$ref": "#"}, "schema"),
])
def test_an_unsupported_schema_is_a_400_that_says_why(client, schema, named):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="local", messages=MESSAGES,
                                       response_format=response_format(schema))
    assert error.value.param == "response_format.json_schema.schema"
    assert named in error.value.message


def test_generate_follows_files_and_expressions(espalier, model, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text('root ::= "ab"{1,3} "c"')

    def generate(*options):
        return espalier("generate", "--model", model, "--prompt", "Hi", "--max-tokens", "1000",
                        *options)

    check_person(generate("--json-schema", schema).stdout)
    assert re.fullmatch("(ab){1,3}c\n", generate("--grammar", grammar).stdout)
    assert re.fullmatch("[0-9]{4}\n", generate("--regex", "[0-9]{4}").stdout)
    assert generate("--grammar", tmp_path / "none").returncode == 1
    assert generate("--regex", "(").returncode == 1
