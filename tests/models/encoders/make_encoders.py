"""Makes the tiny sequence models of encoders_test.cpp with transformers (random weights in bfloat16).

Usage: make_encoders.py FOLDER. Each model gets a folder with config.json, model.safetensors and
ref.safetensors: input_ids of two texts, and what the model makes of them, each computed alone in
float32.
"""

import copy
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    Gemma3TextConfig,
    Gemma3TextModel,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    ModernBertModel,
    NomicBertConfig,
    NomicBertModel,
    Qwen3Config,
    Qwen3ForSequenceClassification,
    Qwen3Model,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

SIZES = {
    "vocab_size": 48,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
CAUSAL = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}


def models() -> dict[str, torch.nn.Module]:
    return {
        "bert": BertModel(BertConfig(**SIZES), add_pooling_layer=False),
        "bert_classifier": BertForSequenceClassification(BertConfig(**SIZES, num_labels=3)),
        "xlm_roberta_reranker": XLMRobertaForSequenceClassification(
            XLMRobertaConfig(**SIZES, num_labels=1, type_vocab_size=1)
        ),
        "modernbert": ModernBertModel(
            ModernBertConfig(**SIZES, local_attention=8, global_attn_every_n_layers=2)
        ),
        "modernbert_classifier": ModernBertForSequenceClassification(
            ModernBertConfig(
                **SIZES, local_attention=8, num_labels=2, classifier_pooling="mean", norm_bias=True
            )
        ),
        "nomic_bert": NomicBertModel(NomicBertConfig(**SIZES), add_pooling_layer=False),
        "qwen3_embedding": Qwen3Model(Qwen3Config(**CAUSAL)),
        "qwen3_classifier": Qwen3ForSequenceClassification(Qwen3Config(**CAUSAL, num_labels=2)),
        "gemma3_embedding": Gemma3TextModel(
            Gemma3TextConfig(
                **CAUSAL,
                use_bidirectional_attention=True,
                sliding_window=8,
                query_pre_attn_scalar=8,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            )
        ),
    }


def perturb(model: torch.nn.Module) -> None:
    """So that a dropped norm or bias shows; rounded, which rotary frequencies must not be."""
    for parameter in model.parameters():
        spread = 0.3 if parameter.dim() == 1 else 0.2
        parameter.data += spread * torch.randn_like(parameter)
        parameter.data = parameter.data.bfloat16().float()


def reference(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        output = model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None])
    if hasattr(output, "logits") and output.logits is not None:
        return output.logits[0]
    return output.last_hidden_state[0]


def main() -> None:
    root = Path(sys.argv[1])
    torch.manual_seed(7)
    for name, model in models().items():
        model.config._attn_implementation = "eager"
        model.eval()
        perturb(model)
        folder = root / name
        copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
        for extra in folder.glob("generation_config.json"):
            extra.unlink()
        texts = [torch.randint(4, SIZES["vocab_size"], (length,)) for length in (21, 9)]
        tensors = {}
        for index, ids in enumerate(texts):
            tensors[f"input_ids.{index}"] = ids.to(torch.int32)
            tensors[f"output.{index}"] = reference(model, ids).contiguous()
        save_file(tensors, folder / "ref.safetensors")
        print(name, json.dumps({k: list(v.shape) for k, v in tensors.items()}))


if __name__ == "__main__":
    main()
