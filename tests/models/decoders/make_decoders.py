"""Makes the tiny decoders beside it that shared/fixtures/tiny-text.tar.xz lacks, with transformers.

Usage: make_decoders.py FOLDER [NAME...]. Each gets a folder as there: config.json,
model.safetensors with random weights in bfloat16, and ref.safetensors.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from tiny_checkpoint import write_reference  # noqa: E402

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLIDING = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
PICTURES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 16,
}

CONFIGS = {
    "aria_text": {
        **SIZES,
        "model_type": "aria_text",
        "moe_num_experts": 4,
        "moe_topk": 2,
        "moe_num_shared_experts": 2,
    },
    "axk1": {
        **SIZES,
        "model_type": "axk1",
        "num_key_value_heads": 4,
        "q_lora_rank": 12,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 24,
        "first_k_dense_replace": 1,
    },
    "codegen": {
        "model_type": "codegen",
        "vocab_size": 64,
        "n_positions": 64,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 8,
        "rotary_dim": 2,
        "n_inner": 40,
        "eos_token_id": 2,
    },
    "dbrx": {
        "model_type": "dbrx",
        "vocab_size": 64,
        "d_model": 32,
        "n_layers": 2,
        "n_heads": 4,
        "max_seq_len": 64,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.8, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2},
        "eos_token_id": 2,
    },
    # Within as many positions as its indexer chooses.
    "deepseek_v32": {
        **SIZES,
        "model_type": "deepseek_v32",
        "num_key_value_heads": 4,
        "q_lora_rank": 12,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 24,
        "first_k_dense_replace": 1,
        "index_topk": 64,
        "index_head_dim": 8,
        "index_n_heads": 2,
    },
    "glm_moe_dsa": {
        **SIZES,
        "model_type": "glm_moe_dsa",
        "num_key_value_heads": 4,
        "q_lora_rank": 12,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "mlp_layer_types": ["dense", "sparse"],
        "index_topk": 64,
        "index_head_dim": 8,
        "index_n_heads": 2,
    },
    "biogpt": {**SIZES, "model_type": "biogpt"},
    # Norms with weights for each head, of keys for the only one.
    "cohere_one_kv_head": {
        **SIZES,
        "model_type": "cohere",
        "num_key_value_heads": 1,
        "use_qk_norm": True,
        "logit_scale": 0.25,
    },
    "cohere2_moe": {
        **SIZES,
        "model_type": "cohere2_moe",
        "head_dim": 8,
        "num_hidden_layers": 3,
        "sliding_window": 8,
        "sliding_window_pattern": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        "prefix_dense_intermediate_size": 40,
        "logit_scale": 0.25,
    },
    # A text model inside one that sees.
    "gemma3": {
        "model_type": "gemma3",
        "text_config": {
            **SIZES,
            **SLIDING,
            "model_type": "gemma3_text",
            "head_dim": 8,
            "query_pre_attn_scalar": 8,
        },
        "vision_config": {**PICTURES, "model_type": "siglip_vision_model"},
        "mm_tokens_per_image": 4,
    },
    "gemma3n_text": {
        **SIZES,
        "model_type": "gemma3n_text",
        "head_dim": 8,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "altup_num_inputs": 3,
        "altup_active_idx": 1,
        "laurel_rank": 6,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 64,
        "activation_sparsity_pattern": [0.95, 0.5, 0.0, 0.0],
    },
    "gemma4_text_experts": {
        **SIZES,
        **SLIDING,
        "model_type": "gemma4_text",
        "head_dim": 8,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 24,
        "vocab_size_per_layer_input": 64,
    },
    # RoPE with sections for the axes of pictures.
    "glm4v": {
        "model_type": "glm4v",
        "text_config": {
            **SIZES,
            "model_type": "glm4v_text",
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "mrope_section": [1, 1],
            },
        },
        "vision_config": {
            "depth": 1,
            "hidden_size": 16,
            "num_heads": 2,
            "intermediate_size": 16,
            "out_hidden_size": 32,
            "patch_size": 8,
            "image_size": 32,
        },
        "image_token_id": 5,
        "image_start_token_id": 5,
        "image_end_token_id": 5,
    },
    "gpt_neo": {
        **SIZES,
        "model_type": "gpt_neo",
        "num_layers": 2,
        "num_heads": 4,
        "window_size": 8,
        "attention_types": [[["global", "local"], 1]],
    },
    "granitemoe_swa": {
        **SIZES,
        **SLIDING,
        "model_type": "granitemoe_swa",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 16,
        "attention_multiplier": 0.25,
    },
    "granite_swa": {
        **SIZES,
        **SLIDING,
        "model_type": "granite_swa",
        "layer_rope_theta": [10000.0, 0],
        "attention_multiplier": 0.25,
        "logits_scaling": 2.0,
    },
    "hyperclovax": {**SIZES, "model_type": "hyperclovax", "logits_scaling": 0.5},
    # Another activation behind the convolutions than SiLU.
    "mamba2_gelu": {
        "model_type": "mamba2",
        "vocab_size": 64,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_heads": 8,
        "head_dim": 8,
        "state_size": 4,
        "n_groups": 2,
        "hidden_act": "gelu",
        "eos_token_id": 2,
    },
    "mellum": {
        **SIZES,
        **SLIDING,
        "model_type": "mellum",
        "head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "mlp_layer_types": ["dense", "sparse"],
    },
    "nemotron_h_latent": {
        **SIZES,
        "model_type": "nemotron_h",
        "head_dim": 8,
        "layers_block_type": ["mamba", "moe", "attention"],
        "num_hidden_layers": 3,
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "ssm_state_size": 4,
        "n_groups": 1,
        "n_routed_experts": 4,
        "moe_intermediate_size": 24,
        "moe_shared_expert_intermediate_size": 16,
        "moe_latent_size": 16,
        "mlp_bias": True,
    },
    "openai_gpt": {
        "model_type": "openai-gpt",
        "vocab_size": 64,
        "n_positions": 64,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
    },
    "persimmon": {**SIZES, "model_type": "persimmon"},
    # As OPT 350M is.
    "opt_projected": {
        **SIZES,
        "model_type": "opt",
        "ffn_dim": 48,
        "word_embed_proj_dim": 16,
        "do_layer_norm_before": False,
    },
}


def main() -> None:
    root = Path(sys.argv[1])
    for name in sys.argv[2:] or CONFIGS:
        write_reference(CONFIGS[name], root / name)
        print(name)


if __name__ == "__main__":
    main()
