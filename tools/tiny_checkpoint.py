#!/usr/bin/env python3
"""Makes tiny checkpoints with random weights by `transformers` and compares logits with its own.

  tiny_checkpoint.py make FOLDER --config CONFIG.json [--set '{"num_key_value_heads": 1}']
  tiny_checkpoint.py reference FOLDER --config CONFIG.json [--set JSON]
  tiny_checkpoint.py compare --espalier build/espalier CONFIG.json... [--set JSON]
  tiny_checkpoint.py sweep --espalier build/espalier CONFIG.json...
  tiny_checkpoint.py without --espalier build/espalier CONFIG.json...
  tiny_checkpoint.py vary FOLDER CONFIG.json... [--seed 1]

`reference` also writes ref.safetensors, as the tests read it. `compare` prints how far the logits of
both are apart, relative to their standard deviation. `sweep` changes about a third of the settings of
each configuration at random, as often as `--rounds` says, and prints the smallest change that is
refused or gives other logits; another `--seed` makes other choices. `without` leaves out each setting in
turn, so that its default counts, and prints what is refused or gives other logits. `vary` writes a checkpoint
and its reference for each configuration with settings changed at random; with the folder's name in
ESPALIER_TEXT_CHECKPOINTS, `models_test --gtest_filter='*TinyText*'` then compares those. Needs torch, transformers and
safetensors; the configurations of shared/fixtures/tiny-text.tar.xz are good to begin with.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

TOLERANCE = 2e-3
TOKENS = 40
LARGEST = 4_000_000  # parameters of a model that is quick to make

# What every configuration has and that changes nothing in a forward pass.
NEUTRAL = {
    "architectures", "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "bos_token_id",
    "chunk_size_feed_forward", "decoder_start_token_id", "dtype", "embd_pdrop", "embedding_dropout",
    "eos_token_id", "hidden_dropout", "hidden_dropout_prob", "id2label", "initializer_range",
    "is_encoder_decoder", "label2id", "model_type", "output_attentions", "output_hidden_states",
    "pad_token_id", "problem_type", "resid_pdrop", "return_dict", "torch_dtype", "transformers_version",
    "use_cache", "vocab_size", "router_aux_loss_coef", "router_jitter_noise", "output_router_logits",
}  # fmt: skip

# Numbers that say "none" by being zero.
MAY_BE_ZERO = ("shared", "dense", "step", "interval", "every", "pattern", "start", "q_lora")

ACTIVATIONS = ["silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2"]

# Every kind of rotary scaling with settings that show within TOKENS positions.
ROPE_KINDS = [
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0,
     "beta_slow": 2.0, "attention_factor": 1.3, "truncate": False},
    {"rope_type": "dynamic", "factor": 2.0},
]  # fmt: skip


def fill(model: torch.nn.Module, seed: int) -> None:
    """Random weights, large enough that every part shows in the logits, rounded to bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        persistent = set(model.state_dict())
        tensors = dict(model.named_parameters()) | {
            name: tensor for name, tensor in model.named_buffers() if name in persistent
        }
        for name, tensor in tensors.items():
            if not tensor.is_floating_point() or "decay" in name or "slope" in name:
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if tensor.dim() >= 2 and "A_log" not in name:
                tensor.copy_(noise * (0.3 if "conv" in name else 1.2 / max(tensor.shape[-1], 16) ** 0.5))
            else:
                tensor.add_(noise * 0.1)
            tensor.copy_(tensor.bfloat16().float())


def read_config(config_json: dict) -> transformers.PretrainedConfig:
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config_json | {"dtype": "float32"}))
        config = AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


def build(config_json: dict, seed: int = 1) -> torch.nn.Module:
    """A model with random weights: a decoder, or one that sees or hears too."""
    config = read_config(config_json)
    torch.manual_seed(seed)
    known = type(config) in AutoModelForCausalLM._model_mapping
    model = (AutoModelForCausalLM if known else AutoModelForImageTextToText).from_config(config).float().eval()
    fill(model, seed)
    return model


def save(model: torch.nn.Module, folder: pathlib.Path) -> None:
    state = {
        name: value.bfloat16() if value.is_floating_point() else value
        for name, value in model.state_dict().items()
    }
    model.config.dtype = torch.bfloat16
    model.save_pretrained(folder, state_dict=state)


def logits_of(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    if not logits.isfinite().all():
        raise ValueError("the reference's logits are not finite")
    return logits.float()


def make(config_json: dict, folder: pathlib.Path, seed: int = 1) -> torch.Tensor:
    """Writes a checkpoint and gives its logits for `token_ids`."""
    model = build(config_json, seed)
    vocabulary = model.config.get_text_config().vocab_size
    logits = logits_of(model, torch.tensor(token_ids(vocabulary)))
    save(model, folder)
    return logits


def write_reference(config_json: dict, folder: pathlib.Path, rows: int = 24, steps: int = 16) -> None:
    """Writes a checkpoint and what it answers: logits of two rows of tokens, and the greedy tokens
    that follow the first with the gaps to the second best."""
    model = build(config_json)
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(3, model.config.get_text_config().vocab_size, (2, rows), generator=generator)
    greedy, gaps, tokens = [], [], ids[:1]
    for _ in range(steps):
        best = logits_of(model, tokens)[0, -1].topk(2)
        greedy.append(best.indices[:1])
        gaps.append(best.values[:1] - best.values[1:])
        tokens = torch.cat([tokens, greedy[-1][None]], dim=1)
    logits = logits_of(model, ids)
    save(model, folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({"input_ids": ids, "logits": logits, "greedy": torch.cat(greedy),
               "greedy_gap": torch.cat(gaps)}, folder / "ref.safetensors")


def token_ids(vocabulary: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(3, vocabulary, (2, TOKENS), generator=generator).tolist()


def ours(espalier: str, folder: pathlib.Path, vocabulary: int, chunk: int = 0) -> torch.Tensor | str:
    """The logits that `espalier` computes, or its last line where it refuses."""
    ids = folder / "ids.json"
    ids.write_text(json.dumps(token_ids(vocabulary)))
    output = folder / "ours.safetensors"
    command = [espalier, "logits", "--model", str(folder), "--tokens", str(ids), "--output", str(output),
               "--dtype", "float32"]  # fmt: skip
    done = subprocess.run(command + (["--chunk", str(chunk)] if chunk else []), capture_output=True, text=True)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return load_file(output)["logits"]


def try_config(espalier: str, config: dict, chunks: bool = False, config_as_is: bool = False) -> tuple[str, float, torch.Tensor | None]:
    """("same" | "differs" | refusal | "unbuilt: ...", distance, the reference's logits)."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            expected = make(config, folder)
        except Exception as error:  # noqa: BLE001: whatever transformers refuses
            if os.environ.get("TRACE"):
                traceback.print_exc()
            return f"unbuilt: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160], 0, None
        if config_as_is:
            (folder / "config.json").write_text(json.dumps(config))
        vocabulary = expected.shape[-1]
        got = ours(espalier, folder, vocabulary)
        if isinstance(got, str):
            return got.replace(name + "/", ""), 0, expected
        if got.shape != expected.shape:
            return f"differs: shape {tuple(got.shape)}", 1, expected
        distance = float((got - expected).abs().max() / expected.std())
        if not distance <= TOLERANCE:
            return "differs", distance, expected
        if chunks:
            chunked = ours(espalier, folder, vocabulary, 5)
            if isinstance(chunked, str) or not torch.equal(chunked, got):
                return "differs: in chunks", distance, expected
        return "same", distance, expected


def changed_values(key: str, value: object, config: dict) -> Iterator[object]:
    """Other values for one setting."""
    if isinstance(value, bool):
        yield not value
    elif key in ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act"):
        yield from (other for other in ACTIVATIONS if other != value)
    elif key == "num_key_value_heads":
        heads = config.get("num_attention_heads", 4)
        yield from (other for other in (1, 2, heads) if other != value and heads % other == 0)
    elif key == "rope_parameters" and isinstance(value, dict):
        yield from changed_rope(value)
    elif key == "rope_parameters" and value is None:
        return
    elif key == "tie_word_embeddings":
        yield not value
    elif key == "layer_types" and isinstance(value, list):
        yield value[::-1]
        yield value[1:] + value[:1]
        kinds = sorted(set(value))
        if len(kinds) > 1:
            yield from ([kind] * len(value) for kind in kinds)
    elif key in ("head_dim", "qk_rope_head_dim"):
        yield from (value * 2, value + 2)
    elif isinstance(value, int):
        yield from (value + 1, value * 2, *([value // 2] if value > 1 else []))
        if value != 0 and any(part in key for part in MAY_BE_ZERO):
            yield 0
    elif isinstance(value, float):
        yield value * 30 if 0 < value < 1e-3 else value * 1.5 + 0.1
    elif isinstance(value, list) and value and all(isinstance(item, (int, float)) for item in value):
        yield value[::-1]
        yield [item + 1 for item in value]
    elif value is None:
        yield from (True, 2, 0.7)


def changed_rope(value: dict) -> Iterator[dict]:
    if all(isinstance(item, dict) for item in value.values()):
        for layer_type, rope in value.items():
            for other in changed_rope(rope):
                yield value | {layer_type: other}
        return
    theta = value.get("rope_theta", 10000.0)
    partial = value.get("partial_rotary_factor")
    keep = {"rope_theta": theta} | ({"partial_rotary_factor": partial} if partial is not None else {})
    yield value | {"rope_theta": theta * 50}
    if value.get("rope_type", "default") == "default":
        yield value | {"partial_rotary_factor": 0.5 if partial != 0.5 else 1.0}
    for kind in ROPE_KINDS:
        yield keep | kind


def single_changes(config: dict) -> dict[str, list[object]]:
    """For each setting the other values with which the reference can be built."""
    known = AutoConfig.for_model(config["model_type"]).to_dict()
    changes: dict[str, list[object]] = {}
    for key in sorted(known):
        if key in NEUTRAL or "dropout" in key or key.startswith("_"):
            continue
        for value in changed_values(key, config.get(key, known[key]), config):
            try:
                with torch.device("meta"):
                    AutoModelForCausalLM.from_config(read_config(config | {key: value}))
            except Exception:  # noqa: BLE001: whatever transformers refuses
                continue
            changes.setdefault(key, []).append(value)
    return changes


def smallest(espalier: str, config: dict, chosen: dict, status: str) -> tuple[dict, float]:
    """As few of the changes as still give the status."""
    distance = 0.0
    for key in list(chosen):
        fewer = {other: value for other, value in chosen.items() if other != key}
        found, how_far, _ = try_config(espalier, config | fewer)
        if found.split(":")[0] == status:
            chosen, distance = fewer, how_far
    return chosen, distance


def sweep(espalier: str, path: pathlib.Path, rounds: int, seed: int) -> None:
    config = json.loads(path.read_text())
    name = path.parent.name
    pick = random.Random(f"{name} {seed}")
    changes = single_changes(config)
    for _ in range(rounds):
        keys = [key for key in changes if changes[key] and pick.random() < 0.3]
        chosen = {key: pick.choice(changes[key]) for key in keys}
        while chosen:
            status, distance, _ = try_config(espalier, config | chosen)
            if status.startswith("unbuilt"):
                for key in pick.sample(sorted(chosen), (len(chosen) + 1) // 2):
                    chosen.pop(key)
                continue
            if status.startswith(("same", "differs")):
                break
            named = [key for key in chosen if f"'{key}" in status or f".{key}'" in status]
            shown = {key: chosen[key] for key in named or chosen}
            print(f"{name}\t{json.dumps(shown)}\trefused\t{status}", flush=True)
            if not named:
                named = list(chosen)
            for key in named:
                changes[key].remove(chosen.pop(key))
        if chosen and status.startswith("differs"):
            chosen, distance = smallest(espalier, config, chosen, status.split(":")[0])
        print(f"{name}\t{json.dumps(chosen)}\t{status}\t{distance:.2g}", flush=True)


def vary(path: pathlib.Path, folder: pathlib.Path, seed: int) -> None:
    config = json.loads(path.read_text())
    pick = random.Random(f"{path.parent.name} {seed}")
    changes = single_changes(config)
    chosen = {key: pick.choice(changes[key]) for key in changes if pick.random() < 0.3}
    while True:
        try:
            write_reference(config | chosen, folder)
        except Exception:  # noqa: BLE001: whatever transformers refuses
            if not chosen:
                raise
            for key in pick.sample(sorted(chosen), (len(chosen) + 1) // 2):
                chosen.pop(key)
            continue
        print(f"{path.parent.name}\t{json.dumps(chosen)}", flush=True)
        return


def without(espalier: str, path: pathlib.Path) -> None:
    config = json.loads(path.read_text())
    for key in config:
        if key in NEUTRAL - {"vocab_size"} or "dropout" in key:
            continue
        fewer = {other: value for other, value in config.items() if other != key}
        try:
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(read_config(fewer))
            if sum(weight.numel() for weight in model.parameters()) > LARGEST:
                continue
        except Exception:  # noqa: BLE001: whatever transformers refuses
            continue
        # Saved settings name every default again.
        status, distance, _ = try_config(espalier, fewer, config_as_is=True)
        if not status.startswith(("same", "unbuilt")):
            print(f"{path.parent.name}\t{key}\t{status}\t{distance:.2g}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("make", "reference"):
        one = verbs.add_parser(verb)
        one.add_argument("folder", type=pathlib.Path)
        one.add_argument("--config", type=pathlib.Path, required=True)
        one.add_argument("--set", type=json.loads, default={})
    several = verbs.add_parser("vary")
    several.add_argument("folder", type=pathlib.Path)
    several.add_argument("configs", type=pathlib.Path, nargs="+")
    several.add_argument("--seed", type=int, default=0)
    for verb in ("compare", "sweep", "without"):
        many = verbs.add_parser(verb)
        many.add_argument("--espalier", required=True)
        many.add_argument("configs", type=pathlib.Path, nargs="+")
        if verb == "compare":
            many.add_argument("--set", type=json.loads, default={})
        elif verb == "sweep":
            many.add_argument("--rounds", type=int, default=6)
            many.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")
    if arguments.verb in ("make", "reference"):
        write = make if arguments.verb == "make" else write_reference
        write(json.loads(arguments.config.read_text()) | arguments.set, arguments.folder)
        return 0
    if arguments.verb == "vary":
        for path in arguments.configs:
            vary(path, arguments.folder / path.parent.name, arguments.seed)
        return 0
    failed = False
    for path in arguments.configs:
        if arguments.verb == "sweep":
            sweep(arguments.espalier, path, arguments.rounds, arguments.seed)
            continue
        if arguments.verb == "without":
            without(arguments.espalier, path)
            continue
        status, distance, _ = try_config(arguments.espalier, json.loads(path.read_text()) | arguments.set, True)
        print(f"{path.parent.name}\t{status}\t{distance:.2g}", flush=True)
        failed = failed or status != "same"
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
