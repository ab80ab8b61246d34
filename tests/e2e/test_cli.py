"""The command line as a user meets it."""

import json
import subprocess
from pathlib import Path

import pytest

PROMPT = "The capital of France is"


def one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [
    ["no-such-verb"],
    ["generate", "--model", "x"],
    ["generate", "--model", "x", "--prompt", "p", "--temperature", "warm"],
    ["generate", "--model", "x", "--prompt", "p", "--no-such-option"],
    ["perplexity", "--model", "x"],
])
def test_usage_errors_exit_with_2(espalier, arguments):
    done = espalier(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.strip()


@pytest.mark.parametrize("option, value, wanted", [
    ("--max-tokens", "-1", "a whole number of at least 1, not -1"),
    ("--max-tokens", "1.5", "a whole number from 1 to 2147483647, not 1.5"),
    ("--max-tokens", "99999999999999999999", "from 1 to 2147483647"),
    ("--temperature", "-1", "a number from 0 to"),
    ("--temperature", "nan", "a number from 0 to"),
    ("--seed", "-1", "a whole number from 0 to"),
    ("--seed", "99999999999999999999999", "a whole number from 0 to"),
    ("--threads", "0", "a whole number of at least 1"),
    ("--threads", "100000", "between 1 and 1024"),
    ("--kv-type", "q8", "must be f16, bf16 or f32, not q8"),
    ("--dtype", "int4", "must be float32, f32, float16 or bfloat16, not int4"),
    ("--activations", "int7", "must be int8, int15 or f32, not int7"),
    ("--prompt", "", None),
    ("--model", "", "must not be empty"),
])
def test_a_wrong_value_is_refused_in_one_short_line(espalier, model, option, value, wanted):
    arguments = {"--model": model, "--prompt": "p", "--max-tokens": 1, option: value}
    done = espalier("generate", *(part for pair in arguments.items() for part in pair))
    if wanted is None:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 2
    assert done.stdout == ""
    assert one_line(done.stderr) and len(done.stderr) < 200
    assert wanted in done.stderr


@pytest.mark.parametrize("option, value", [
    ("--grace", "1e300"), ("--grace", "-1"), ("--port", "65536"), ("--max-running", "0"),
    ("--max-waiting", "-1"), ("--body-limit", "0"), ("--model", ""),
])
def test_a_wrong_value_for_a_server_is_refused(espalier, option, value):
    done = espalier("serve", option, value)
    assert done.returncode == 2
    assert one_line(done.stderr) and len(done.stderr) < 200
    assert option in done.stderr


def test_text_that_is_not_utf8_is_refused(program, model, tmp_path):
    done = subprocess.run([program, "generate", "--model", model, "--prompt", b"ab\xff\xfe"],
                          capture_output=True, check=False)
    assert done.returncode == 1
    assert b"--prompt is not UTF-8 at byte 3" in done.stderr
    text = tmp_path / "text"
    for content, byte in ((b"\xed\xa0\x80", 1), (b"a\xc0\x80", 2), ("é".encode()[:1], 1)):
        text.write_bytes(content)
        done = subprocess.run([program, "perplexity", "--model", model, "--text", text],
                              capture_output=True, check=False)
        assert f"is not UTF-8 at byte {byte}".encode() in done.stderr


@pytest.mark.parametrize("arguments", [
    ["perplexity", "--text"], ["generate", "--prompt", "p", "--grammar"],
    ["generate", "--prompt", "p", "--json-schema"], ["logits", "--output", "x", "--tokens"],
])
def test_a_folder_in_place_of_a_file_is_named(espalier, model, tmp_path, arguments):
    done = espalier(*arguments, tmp_path, "--model", model)
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert str(tmp_path) in done.stderr
    assert "filebuf" not in done.stderr


def test_output_that_cannot_be_written_fails(program, model):
    for arguments in (["ls"], ["--help"], ["generate", "--model", model, "--prompt", "Tell a story",
                                           "--max-tokens", "8000"]):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([program, *arguments], stdout=full, stderr=subprocess.PIPE,
                                  check=False, timeout=60)
        assert done.returncode == 1
        assert b"standard output cannot be written" in done.stderr


def test_a_device_is_not_replaced_by_a_file(espalier, model, tmp_path):
    tokens = tmp_path / "ids.json"
    tokens.write_text("[[1]]")
    done = espalier("logits", "--model", model, "--tokens", tokens, "--output", "/dev/null")
    assert done.returncode == 1
    assert "/dev/null" in done.stderr
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("ids", ["[[1,-1]]", "[[49152]]", "[[99999999999]]", "[[1.5]]", '[["1"]]',
                                 "[1]", "{}", "[[1]", pytest.param("[" * 100_000, id="deep")])
def test_what_is_no_token_id_is_refused(espalier, model, ids):
    done = espalier("tokenize", "--decode", "--model", model, input=ids)
    assert done.returncode == 1
    assert done.stdout == ""
    assert one_line(done.stderr)


def test_help_names_every_verb(succeed):
    text = succeed("--help")
    for verb in ("serve", "generate", "chat", "tokenize", "render", "logits", "perplexity", "bench",
                 "convert", "fit", "inspect", "ls"):
        assert verb in text


def test_an_unknown_model_is_named_in_one_line(espalier):
    done = espalier("generate", "--model", "no-such-model", "--prompt", "p")
    assert done.returncode == 1
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert "no-such-model" in done.stderr


@pytest.mark.parametrize("content", [b"", b"not a model", b"GGUF\x03\x00\x00\x00"])
def test_a_broken_file_is_named_in_one_line(espalier, tmp_path, content):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    done = espalier("generate", "--model", path, "--prompt", "p")
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "broken.gguf" in done.stderr


def test_a_truncated_model_is_named_in_one_line(espalier, model, tmp_path):
    path = tmp_path / "truncated.gguf"
    with open(model, "rb") as whole:
        path.write_bytes(whole.read(20_000_000))
    done = espalier("generate", "--model", path, "--prompt", "p")
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "truncated.gguf" in done.stderr


def test_ls_shows_the_models_at_home(program, espalier, model, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "mine.gguf").symlink_to(model)
    done = espalier("ls", env={"ESPALIER_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")})
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout
    done = espalier("ls", "--json",
                    env={"ESPALIER_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")})
    assert "mine" in json.dumps(json.loads(done.stdout))


def test_an_alias_is_a_model(espalier, model, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "mine.gguf").symlink_to(model)
    done = espalier("tokenize", "--model", "mine", input='["a"]',
                    env={"ESPALIER_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")})
    assert done.returncode == 0, done.stderr


def generate(succeed, model, *options) -> dict:
    return json.loads(succeed("generate", "--model", model, "--json", *options))


def test_a_usage_error_points_to_the_verbs_own_help(espalier):
    assert "(see espalier generate --help)" in espalier("generate", "--prompt", "Hi").stderr
    # Without a verb, `serve` is meant.
    assert "(see espalier serve --help)" in espalier("--nonsense").stderr


def test_a_chat_says_what_ended_an_answer(espalier, model):
    options = ["chat", "--model", model, "--temperature", 0]
    by_option = espalier(*options, "--max-tokens", 3, input="Hi\n")
    assert "reached --max-tokens" in by_option.stderr
    by_context = espalier(*options, "--context", 40, input="Hi, tell me a story\n")
    assert "context is full" in by_context.stderr


def test_generate_json(succeed, model):
    answer = generate(succeed, model, "--prompt", PROMPT, "--raw", "--temperature", 0,
                      "--max-tokens", 8)
    assert answer["text"].startswith(" Paris")
    assert len(answer["tokens"]) == 8
    assert answer["prompt_tokens"] == 5
    assert answer["finish_reason"] == "length"
    assert answer["timings"]


def test_generate_streams_the_same_text(succeed, model):
    options = ["--prompt", PROMPT, "--raw", "--temperature", 0, "--max-tokens", 24]
    streamed = succeed("generate", "--model", model, *options)
    assert streamed.rstrip("\n") == generate(succeed, model, *options)["text"].rstrip("\n")
    assert "\x1b" not in streamed


def test_a_seed_settles_the_answer(succeed, model):
    def sample(seed):
        return generate(succeed, model, "--prompt", PROMPT, "--raw", "--temperature", 1, "--seed",
                        seed, "--max-tokens", 24)["tokens"]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_the_chat_template_is_applied_unless_raw(succeed, model):
    options = ["--prompt", PROMPT, "--temperature", 0, "--max-tokens", 1]
    plain = generate(succeed, model, *options, "--raw")
    chat = generate(succeed, model, *options)
    assert chat["prompt_tokens"] > plain["prompt_tokens"]


def test_a_prompt_longer_than_the_context_fails(espalier, model):
    done = espalier("generate", "--model", model, "--raw", "--prompt", "word " * 10_000)
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "exceeds the available context size" in done.stderr


CHAT = [{"role": "user", "content": "Hi"}]
RENDERED = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n")


def test_render(succeed, model):
    request = {"messages": CHAT, "add_generation_prompt": True}
    prompt = succeed("render", "--model", model, input=json.dumps(request))
    assert prompt == RENDERED + "<|im_start|>assistant\n"
    request["add_generation_prompt"] = False
    assert succeed("render", "--model", model, input=json.dumps(request)) == RENDERED


def test_render_lines(succeed, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{% if not messages %}{{ raise_exception('no messages') }}{% endif %}"
                        "{{ messages[0].content }}")
    requests = [{"messages": CHAT}, {"messages": []}]
    output = succeed("render", "--template", template, "--jsonl",
                     input="".join(json.dumps(request) + "\n" for request in requests))
    first, second = map(json.loads, output.splitlines())
    assert first == {"prompt": "Hi"}
    assert list(second) == ["error"]
    assert "no messages" in second["error"]


def test_bench_json(succeed, model):
    result = json.loads(succeed("bench", "--model", model, "--prompt", 16, "--gen", 4, "--repeat", 2,
                                "--json"))
    assert result["prefill_tokens_per_s"] > 0
    assert result["decode_tokens_per_s"] > 0


def test_inspect_says_what_the_model_is(succeed, model):
    seen = json.loads(succeed("inspect", model, "--json"))
    assert seen["description"]["family"] == "llama"
    assert seen["description"]["width"] == 576
    assert seen["description"]["layers"]["0-29"]["attention"]["kv_heads"] == 3
    assert seen["tensors"]["blk.0.ffn_up.weight"]["shape"] == [1536, 576]
    # 135 M parameters: every one of a dense model's takes part.
    assert 134e6 < seen["parameters"]["total"] < 136e6
    assert seen["parameters"]["per_token"] == seen["parameters"]["total"]
    assert "kv_heads: 3" in succeed("inspect", model)
