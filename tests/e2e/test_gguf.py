"""Architectures of GGUF files, against transformers' logits of the checkpoints they are made of."""

import json

import numpy as np
import pytest

from test_reference import read_safetensors, tiny_models  # noqa: F401: a fixture
from tiny_gguf import ARCHITECTURES, write_gguf


@pytest.mark.parametrize("family", sorted(ARCHITECTURES))
def test_logits_are_those_of_transformers(succeed, tiny_models, tmp_path, family):  # noqa: F811
    checkpoint = tiny_models / family
    write_gguf(checkpoint, tmp_path / "tiny.gguf")
    reference = read_safetensors(checkpoint / "ref.safetensors")
    (tmp_path / "ids.json").write_text(json.dumps(reference["input_ids"].tolist()))
    succeed("logits", "--model", tmp_path / "tiny.gguf", "--tokens", tmp_path / "ids.json",
            "--output", tmp_path / "out.safetensors", "--dtype", "float32", "--activations", "f32")
    logits = read_safetensors(tmp_path / "out.safetensors")["logits"]
    worst = np.abs(logits - reference["logits"]).max() / reference["logits"].std()
    assert worst <= 2e-3
