#pragma once

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "support/fixtures.h"

namespace espalier::tests {

/// The tiny checkpoints with reference logits, one a family or variant: those of
/// shared/fixtures/tiny-text.tar.xz, and those of tests/models/decoders.
inline constexpr std::array text_families = {
    "afmoe",
    "apertus",
    "arcee",
    "aria_text",
    "axk1",
    "bamba",
    "bamba_groups",
    "biogpt",
    "bitnet",
    "codegen",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "cohere_one_kv_head",
    "dbrx",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "dots1",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone4",
    "exaone_moe",
    "falcon",
    "falcon_h1",
    "falcon_mamba",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "gemma4_text_experts",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4v",
    "glm_moe_dsa",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gpt_oss",
    "granite",
    "granite_swa",
    "granitemoe",
    "granitemoe_swa",
    "granitemoehybrid",
    "granitemoehybrid_groups",
    "helium",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "hyperclovax",
    "jamba",
    "kimi_linear",
    "lfm2",
    "lfm2_moe",
    "llama",
    "llama3_rope",
    "llama4_text",
    "llama_linear_rope",
    "llama_tied_bias",
    "llama_yarn",
    "mamba",
    "mamba2",
    "mamba2_gelu",
    "mellum",
    "mimo_v2_flash",
    "minicpm3",
    "minimax",
    "minimax_m2",
    "ministral",
    "ministral3",
    "mistral",
    "mixtral",
    "nanochat",
    "nemotron",
    "nemotron_h",
    "nemotron_h_latent",
    "olmo",
    "olmo2",
    "olmo3",
    "olmo_hybrid",
    "olmoe",
    "openai_gpt",
    "opt",
    "opt_projected",
    "persimmon",
    "phi",
    "phi3",
    "phi3_longrope",
    "phimoe",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_moe",
    "qwen3_next",
    "recurrent_gemma",
    "seed_oss",
    "smollm3",
    "solar_open",
    "stablelm",
    "starcoder2",
    "vaultgemma",
};

/// The folder of one of them; nothing when the archive is absent. `ESPALIER_TEXT_CHECKPOINTS` names
/// a folder with others in their place (tools/tiny_checkpoint.py vary).
inline std::optional<std::filesystem::path> text_checkpoint(const std::string& name) {
  if (const char* others = std::getenv("ESPALIER_TEXT_CHECKPOINTS")) {
    const auto folder = std::filesystem::path(others) / name;
    return std::filesystem::exists(folder) ? std::optional(folder) : std::nullopt;
  }
  const auto own = std::filesystem::path(ESPALIER_SOURCE_DIR) / "tests/models/decoders" / name;
  if (std::filesystem::exists(own)) return own;
  const auto fixtures = fixture_folder("tiny-text");
  if (!fixtures) return std::nullopt;
  return *fixtures / "a" / name;
}

}  // namespace espalier::tests
