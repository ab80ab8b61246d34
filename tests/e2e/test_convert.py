"""`espalier convert`, `fit` and `ls` on the real model."""

import json
import signal
import subprocess
import time

import pytest

TEXTS = ["Hello, world! 1234567 don't", "  naïve\tÄpfel\n\n你好 🚀", "<|im_start|>user\nHi<|im_end|>"]


@pytest.fixture(scope="module")
def folder(succeed, model, tmp_path_factory):
    """The real model as 4-bit safetensors."""
    path = tmp_path_factory.mktemp("converted") / "mlx"
    succeed("convert", "--model", model, "--output", path, "--quantize", "affine")
    return path


def test_a_gguf_becomes_a_whole_checkpoint_folder(folder):
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "generation_config.json", "model.safetensors",
                     "tokenizer.json", "tokenizer_config.json"}
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "llama"
    assert config["rope_theta"] == 100000
    assert config["rms_norm_eps"] == 1e-5
    assert config["quantization"] == {"group_size": 64, "bits": 4, "mode": "affine"}
    generation = json.loads((folder / "generation_config.json").read_text())
    assert 2 in generation["eos_token_id"]
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert "<|im_start|>" in tokenizer["chat_template"]
    assert tokenizer["eos_token"] == "<|im_end|>"


def test_the_tokenizer_goes_along(succeed, folder, model, tmp_path):
    texts = json.dumps(TEXTS)
    expected = succeed("tokenize", "--model", model, input=texts)
    assert succeed("tokenize", "--model", folder, input=texts) == expected
    back = tmp_path / "back.gguf"
    succeed("convert", "--model", folder, "--output", back, "--gguf", "Q8_0")
    assert succeed("tokenize", "--model", back, input=texts) == expected
    messages = json.dumps({"messages": [{"role": "user", "content": "Hi"}],
                           "add_generation_prompt": True})
    prompts = {succeed("render", "--model", path, input=messages)
               for path in (model, folder, back)}
    assert len(prompts) == 1


def test_an_interrupt_leaves_nothing(program, model, tmp_path):
    output = tmp_path / "out.gguf"
    running = subprocess.Popen(
        [program, "convert", "--model", model, "--output", str(output), "--gguf", "Q5_K"],
        stderr=subprocess.PIPE, encoding="utf-8")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out.gguf.partial-*")) and time.monotonic() < deadline:
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.001)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert errors == "espalier: interrupted; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_not_overwritten(espalier, model, tmp_path):
    taken = tmp_path / "model.gguf"
    taken.write_text("mine")
    done = espalier("convert", "--model", model, "--output", taken, "--gguf", "Q8_0")
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("options", [
    [], ["--quantize", "gptq"], ["--quantize", "affine", "--bits", "7"], ["--gguf", "Q9_9"],
    ["--gguf", "Q8_0"], ["--bits", "4", "--dtype", "float16"], ["--dtype", "int8"],
    ["--quantize", "affine", "--dequantize"], ["--dtype", "float16", "--rule", "nonsense"],
    ["--dtype", "float16", "--rule", "nothing=float32"], ["--target-bpw", "4"],
])
def test_wrong_usage(espalier, model, tmp_path, options):
    done = espalier("convert", "--model", model, "--output", tmp_path / "out", *options)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_fit_needs_no_weights(succeed, model):
    report = json.loads(succeed("fit", "--model", model, "--memory", "2", "--json"))
    assert report["parameters"] == 134515008
    assert report["kv"]["f16"] == {"bytes_per_token": 23040, "largest_context": 8192,
                                   "bytes_of_largest_context": 8192 * 23040}
    assert report["fits"] is True
    tight = json.loads(succeed("fit", "--model", model, "--memory", "0.05", "--json"))
    assert tight["fits"] is False


def test_ls_tells_what_each_model_is(espalier, model, folder, tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    (models / "real.gguf").symlink_to(model)
    (models / "mlx").symlink_to(folder)
    (models / "broken.gguf").write_bytes(b"GGUF")
    done = espalier("ls", "--json", env={"ESPALIER_HOME": str(tmp_path), "HOME": str(tmp_path)})
    entries = {entry["alias"]: entry for entry in json.loads(done.stdout)}
    assert entries["real"]["format"] == "gguf"
    assert entries["real"]["family"] == entries["mlx"]["family"] == "llama"
    assert entries["mlx"]["parameters"] == entries["real"]["parameters"] == 134515008
    assert 4.4 < entries["mlx"]["bits_per_weight"] < 4.6
    assert "broken.gguf" in entries["broken"]["error"]


def byte_tokenizer() -> dict:
    """A tokenizer whose tokens are the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    pieces = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": pieces, "post_processor": None, "decoder": pieces,
            "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)},
                      "merges": []}}


def test_a_budget_is_kept(succeed, shared, tmp_path):
    subprocess.run(["tar", "-xf", shared / "fixtures" / "tiny-text.tar.xz", "-C", tmp_path,
                    "a/llama"], check=True)
    source = tmp_path / "a" / "llama"
    (source / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 20)
    output = tmp_path / "out"
    report = json.loads(succeed("convert", "--model", source, "--output", output, "--quantize",
                                "affine", "--group", "32", "--target-bpw", "4.5", "--calibration",
                                text, "--json"))
    assert 4.3 < report["bits_per_weight"] <= 4.5
    assert len(report["encodings"]) > 2
    succeed("inspect", output)
    # What rules and the dtype take is of the same budget.
    report = json.loads(succeed("convert", "--model", source, "--output", tmp_path / "again",
                                "--quantize", "affine", "--dtype", "float32", "--rule",
                                "*.gate_proj=8", "--target-bpw", "6", "--calibration", text,
                                "--json"))
    assert 5.8 < report["bits_per_weight"] <= 6
