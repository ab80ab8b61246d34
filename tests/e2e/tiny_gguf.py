"""Writes a tiny checkpoint of transformers as the GGUF file that llama.cpp's converter makes of it:
names by the `gguf` package, values in its layout."""

import json
import re
import struct

import gguf
import numpy as np

ARCHITECTURES = {
    "deepseek_v2": "DEEPSEEK2", "deepseek_v3": "DEEPSEEK2", "dots1": "DOTS1", "falcon_h1": "FALCON_H1",
    "falcon_mamba": "MAMBA", "gpt_oss": "GPT_OSS", "granitemoe": "GRANITE_MOE",
    "granitemoehybrid": "GRANITE_HYBRID", "lfm2": "LFM2", "lfm2_moe": "LFM2MOE", "mamba": "MAMBA",
    "mamba2": "MAMBA2", "mixtral": "LLAMA", "olmoe": "OLMOE", "qwen2_moe": "QWEN2MOE",
    "qwen3_moe": "QWEN3MOE", "qwen3_next": "QWEN3NEXT",
}  # fmt: skip
# Pairs of RoPE lie side by side in these.
REORDERED = ("mixtral", "granitemoe", "granitemoehybrid")
SIGMOID = 2
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")


def read_bf16(path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file in bfloat16, as f32."""
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "BF16", name
        half = np.frombuffer(data[start + begin:start + end], np.uint16).astype(np.uint32)
        tensors[name] = (half << 16).view(np.float32).reshape(entry["shape"])
    return tensors


def stack_experts(tensors: dict) -> dict:
    stacks: dict[str, list] = {}
    result = {}
    for name, value in tensors.items():
        if match := EXPERT.fullmatch(name):
            stack = stacks.setdefault(f"{match[1]}.{match[3]}.weight", [])
            stack.append((int(match[2]), value))
        else:
            result[name] = value
    for name, stack in stacks.items():
        result[name] = np.stack([value for _, value in sorted(stack, key=lambda item: item[0])])
    return result


def side_by_side(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k whose pairs are halves apart, reordered so that they are neighbours."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def convert(kind: str, config: dict, name: str, value: np.ndarray):
    """Yields the names, which the package knows, and values that a tensor becomes."""
    heads = config.get("num_attention_heads")
    if kind in REORDERED and (match := re.search(r"\.([qk])_proj\.weight$", name)):
        value = side_by_side(value, heads if match[1] == "q" else config["num_key_value_heads"])
    if name.endswith(".A_log"):
        value = -np.exp(value)
        value = value if value.ndim == 2 or kind == "qwen3_next" else value[:, None]
    elif name.endswith(".D") and kind in ("mamba2", "granitemoehybrid", "falcon_h1"):
        value = value[:, None]
    elif name.endswith(".dt_bias"):
        name = name.removesuffix(".dt_bias") + ".dt_proj.bias"
    elif re.search(r"conv(1d)?\.weight$", name):
        value = value[:, 0]
    elif name.endswith("norm.weight") and kind == "qwen3_next" and "linear_attn" not in name:
        value = value + 1
    elif name.endswith(("mixer.norm.weight", "mamba.norm.weight")):
        value = value.reshape(config.get("n_groups", config.get("mamba_n_groups")), -1)
    if "input_linear" in name or "in_proj_qkvz" in name or "kv_b_proj" in name:
        yield from take_apart(config, name, value)
    elif kind == "gpt_oss" and "experts." in name:
        yield from gpt_oss_experts(name, value)
    elif name.endswith("sinks"):
        yield name + ".weight", value
    elif name.endswith("e_score_correction_bias"):
        yield name.replace("correction_bias", "correction.bias"), value
    elif name.endswith("expert_bias"):
        yield name + ".bias", value
    elif kind == "lfm2_moe" and ".experts." in name:
        yield name.removeprefix("model."), value
    else:
        yield name, value


def take_apart(config: dict, name: str, value: np.ndarray):
    if "in_proj_qkvz" in name:
        heads, key = config["linear_num_key_heads"], config["linear_key_head_dim"]
        values = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
        by_head = value.reshape(heads, 2 * key + 2 * values, -1)
        q, k, v, z = np.split(by_head, np.cumsum([key, key, values]), axis=1)
        width = value.shape[1]
        yield (name.replace("linear_attn.in_proj_qkvz", "self_attn.qkv_proj"),
               np.concatenate([part.reshape(-1, width) for part in (q, k, v)]))
        yield name.replace("linear_attn.in_proj_qkvz", "linear_attn.in_proj_z"), z.reshape(-1, width)
    elif "kv_b_proj" in name:
        nope = config["qk_nope_head_dim"]
        by_head = value.reshape(config["num_attention_heads"], nope + config["v_head_dim"], -1)
        yield name.replace("kv_b_proj", "k_b_proj"), by_head[:, :nope].swapaxes(1, 2)
        yield name.replace("kv_b_proj", "v_b_proj"), by_head[:, nope:]
    else:
        layer = name.split(".")[2]
        part = "_exps" if "block_sparse_moe" in name else "_shexp"
        for which, half in zip(("gate", "up"), np.split(value, 2, axis=-2), strict=True):
            yield f"blk.{layer}.ffn_{which}{part}.weight", half


def gpt_oss_experts(name: str, value: np.ndarray):
    suffix = ".bias" if name.endswith("_bias") else ".weight"
    value = value if suffix == ".bias" else value.swapaxes(-1, -2)
    name = name.removesuffix("_bias")
    if name.endswith("down_proj"):
        yield name + suffix, value
        return
    value = value if suffix == ".weight" else value[..., None]
    for offset, which in enumerate(("gate_proj", "up_proj")):
        part = value[:, offset::2]
        yield name.replace("gate_up_proj", which) + suffix, part if suffix == ".weight" else part[..., 0]


def add_settings(writer: gguf.GGUFWriter, kind: str, config: dict) -> None:
    get = config.get
    kinds = get("layer_types") or []
    kv_heads = get("num_key_value_heads", get("num_attention_heads"))
    writer.add_context_length(get("max_position_embeddings", 1 << 20))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_layer_norm_rms_eps(get("rms_norm_eps", get("norm_eps", get("layer_norm_epsilon"))))
    writer.add_eos_token_id(2)
    if kind in ("mamba", "mamba2", "falcon_mamba"):
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
    else:
        writer.add_feed_forward_length(get("intermediate_size", 0))
        writer.add_head_count(config["num_attention_heads"])
        hybrid = kind in ("lfm2", "lfm2_moe", "granitemoehybrid")
        writer.add_head_count_kv([kv_heads if each == "full_attention" else 0 for each in kinds]
                                 if hybrid else 1 if kind.startswith("deepseek") else kv_heads)
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    add_experts(writer, kind, config)
    add_mixers(writer, kind, config)


def add_experts(writer: gguf.GGUFWriter, kind: str, config: dict) -> None:
    get = config.get
    count = get("num_experts", get("num_local_experts", get("n_routed_experts")))
    if not count:
        return
    writer.add_expert_count(count)
    writer.add_expert_used_count(config["num_experts_per_tok"])
    if hidden := get("moe_intermediate_size"):
        writer.add_expert_feed_forward_length(hidden)
    if shared := get("shared_expert_intermediate_size", get("shared_intermediate_size")):
        writer.add_expert_shared_feed_forward_length(shared)
    if kind in ("deepseek_v3", "deepseek_v2", "dots1"):
        writer.add_leading_dense_block_count(config["first_k_dense_replace"])
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
    if kind in ("deepseek_v3", "dots1", "lfm2_moe"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if kind in ("deepseek_v3", "dots1") or config.get("topk_method") == "group_limited_greedy":
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    if kind == "lfm2_moe":
        writer.add_leading_dense_block_count(config["num_dense_layers"])
    if kind == "qwen3_moe":  # llama.cpp takes it for true, as the published models have it
        writer.add_expert_weights_norm(config["norm_topk_prob"])
    if kind == "gpt_oss":
        rope = config["rope_parameters"]
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def add_mixers(writer: gguf.GGUFWriter, kind: str, config: dict) -> None:
    get = config.get
    if kind.startswith("deepseek"):
        rope, nope = config["qk_rope_head_dim"], config["qk_nope_head_dim"]
        if get("q_lora_rank"):
            writer.add_q_lora_rank(config["q_lora_rank"])
        writer.add_kv_lora_rank(config["kv_lora_rank"])
        writer.add_key_length(config["kv_lora_rank"] + rope)
        writer.add_value_length(config["kv_lora_rank"])
        writer.add_key_length_mla(nope + rope)
        writer.add_value_length_mla(config["v_head_dim"])
        writer.add_rope_dimension_count(rope)
    elif get("head_dim") and kind not in ("mamba2", "granitemoe", "granitemoehybrid"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if kind in ("granitemoe", "granitemoehybrid"):
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if kind.startswith("lfm2"):
        writer.add_shortconv_l_cache(config["conv_L_cache"])
    if kind == "lfm2" and config["block_auto_adjust_ff_dim"]:
        multiple = config["block_multiple_of"]
        hidden = int(config["block_ffn_dim_multiplier"] * int(2 * config["intermediate_size"] / 3))
        writer.kv_data[0].pop("lfm2.feed_forward_length")
        writer.add_feed_forward_length((hidden + multiple - 1) // multiple * multiple)
    if kind == "qwen3_next":
        writer.add_rope_dimension_count(int(config["head_dim"] * config["partial_rotary_factor"]))
        writer.add_full_attention_interval(4)
        add_ssm(writer, config["linear_conv_kernel_dim"], config["linear_key_head_dim"],
                config["linear_num_value_heads"] * config["linear_value_head_dim"],
                config["linear_num_value_heads"], config["linear_num_key_heads"])
    elif kind in ("granitemoehybrid", "falcon_h1"):
        add_ssm(writer, config["mamba_d_conv"], config["mamba_d_state"],
                config["mamba_n_heads"] * config["mamba_d_head"], config["mamba_n_heads"],
                config["mamba_n_groups"])
    elif kind == "mamba2":
        add_ssm(writer, config["conv_kernel"], config["state_size"],
                config["num_heads"] * config["head_dim"], config["num_heads"], config["n_groups"])
    elif kind in ("mamba", "falcon_mamba"):
        add_ssm(writer, config["conv_kernel"], config["state_size"],
                int(config["expand"] * config["hidden_size"]), config["time_step_rank"])
        writer.add_ssm_dt_b_c_rms(kind == "falcon_mamba")


def add_ssm(writer: gguf.GGUFWriter, taps: int, states: int, inner: int, rank: int,
            groups: int | None = None) -> None:
    writer.add_ssm_conv_kernel(taps)
    writer.add_ssm_state_size(states)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_time_step_rank(rank)
    if groups is not None:
        writer.add_ssm_group_count(groups)


def write_gguf(checkpoint, path) -> None:
    """`checkpoint`: a folder of transformers; `path`: the file to write."""
    config = json.loads((checkpoint / "config.json").read_text())
    kind = config["model_type"]
    architecture = getattr(gguf.MODEL_ARCH, ARCHITECTURES[kind])
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    add_settings(writer, kind, config)
    for name, value in stack_experts(read_bf16(checkpoint / "model.safetensors")).items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        for source, part in convert(kind, config, name, value):
            known = names.get_name(source, try_suffixes=(".weight", ".bias"))
            assert known or source.startswith("blk."), source
            writer.add_tensor(known or source, np.ascontiguousarray(part, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
