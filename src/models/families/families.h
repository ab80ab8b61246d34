#pragma once

#include "models/config_reader.h"
#include "models/descriptor.h"
#include "models/gguf_reader.h"

namespace espalier::models {

// Each reads one family's settings into a description; the files are named after the families.
// Throw `LoadError` for a missing or unusable setting.

Descriptor read_afmoe(ConfigReader& config);
Descriptor read_apertus(ConfigReader& config);
Descriptor read_arcee(ConfigReader& config);
Descriptor read_aria(ConfigReader& config);
Descriptor read_axk1(ConfigReader& config);
Descriptor read_bamba(ConfigReader& config);
Descriptor read_bert(ConfigReader& config);
Descriptor read_biogpt(ConfigReader& config);
Descriptor read_bitnet(ConfigReader& config);
Descriptor read_bloom(ConfigReader& config);
Descriptor read_cohere(ConfigReader& config);
Descriptor read_cohere2(ConfigReader& config);
Descriptor read_cohere2_moe(ConfigReader& config);
Descriptor read_cwm(ConfigReader& config);
Descriptor read_deepseek(const GgufReader& file);
Descriptor read_deepseek_v2(ConfigReader& config);
Descriptor read_deepseek_v3(ConfigReader& config);
Descriptor read_dots1(ConfigReader& config);
Descriptor read_dots1(const GgufReader& file);
Descriptor read_ernie4_5(ConfigReader& config);
Descriptor read_ernie4_5_moe(ConfigReader& config);
Descriptor read_exaone4(ConfigReader& config);
Descriptor read_exaone_moe(ConfigReader& config);
Descriptor read_falcon(ConfigReader& config);
Descriptor read_falcon_h1(ConfigReader& config);
Descriptor read_falcon_h1(const GgufReader& file);
Descriptor read_falcon_mamba(ConfigReader& config);
Descriptor read_flex_olmo(ConfigReader& config);
Descriptor read_gemma(ConfigReader& config);
Descriptor read_gemma(const GgufReader& file);
Descriptor read_gemma2(ConfigReader& config);
Descriptor read_gemma2(const GgufReader& file);
Descriptor read_gemma3(ConfigReader& config);
Descriptor read_gemma3(const GgufReader& file);
Descriptor read_gemma4(ConfigReader& config);
Descriptor read_gemma4_unified(ConfigReader& config);
Descriptor read_glm(ConfigReader& config);
Descriptor read_glm4(ConfigReader& config);
Descriptor read_glm4_moe(ConfigReader& config);
Descriptor read_glm4_moe_lite(ConfigReader& config);
Descriptor read_glm4v(ConfigReader& config);
Descriptor read_glm4v_moe(ConfigReader& config);
Descriptor read_gpt2(ConfigReader& config);
Descriptor read_gpt_bigcode(ConfigReader& config);
Descriptor read_gpt_neo(ConfigReader& config);
Descriptor read_gpt_neox(ConfigReader& config);
Descriptor read_gpt_oss(ConfigReader& config);
Descriptor read_gpt_oss(const GgufReader& file);
Descriptor read_gptj(ConfigReader& config);
Descriptor read_granite(ConfigReader& config);
Descriptor read_granite(const GgufReader& file);
Descriptor read_granite_swa(ConfigReader& config);
Descriptor read_granitemoe(ConfigReader& config);
Descriptor read_granitemoe_swa(ConfigReader& config);
Descriptor read_granitemoehybrid(ConfigReader& config);
Descriptor read_granitemoehybrid(const GgufReader& file);
Descriptor read_helium(ConfigReader& config);
Descriptor read_hunyuan_v1_dense(ConfigReader& config);
Descriptor read_hunyuan_v1_moe(ConfigReader& config);
Descriptor read_hy_v3(ConfigReader& config);
Descriptor read_hyperclovax(ConfigReader& config);
Descriptor read_jais2(ConfigReader& config);
Descriptor read_jamba(ConfigReader& config);
Descriptor read_kimi_linear(ConfigReader& config);
Descriptor read_lfm2(ConfigReader& config);
Descriptor read_lfm2(const GgufReader& file);
Descriptor read_lfm2_moe(ConfigReader& config);
Descriptor read_lfm2_moe(const GgufReader& file);
Descriptor read_llama(ConfigReader& config);
Descriptor read_llama(const GgufReader& file);
Descriptor read_llama4(ConfigReader& config);
Descriptor read_mamba(ConfigReader& config);
Descriptor read_mamba(const GgufReader& file);
Descriptor read_mamba2(ConfigReader& config);
Descriptor read_mamba2(const GgufReader& file);
Descriptor read_mellum(ConfigReader& config);
Descriptor read_mimo_v2_flash(ConfigReader& config);
Descriptor read_minicpm3(ConfigReader& config);
Descriptor read_minimax(ConfigReader& config);
Descriptor read_minimax_m2(ConfigReader& config);
Descriptor read_ministral3(ConfigReader& config);
Descriptor read_mistral(ConfigReader& config);
Descriptor read_mixtral(ConfigReader& config);
Descriptor read_modernbert(ConfigReader& config);
Descriptor read_mpt(ConfigReader& config);
Descriptor read_nanochat(ConfigReader& config);
Descriptor read_nemotron(ConfigReader& config);
Descriptor read_nemotron_h(ConfigReader& config);
Descriptor read_nomic_bert(ConfigReader& config);
Descriptor read_olmo(ConfigReader& config);
Descriptor read_olmo2(ConfigReader& config);
Descriptor read_olmo_hybrid(ConfigReader& config);
Descriptor read_olmoe(ConfigReader& config);
Descriptor read_olmoe(const GgufReader& file);
Descriptor read_openai_gpt(ConfigReader& config);
Descriptor read_opt(ConfigReader& config);
Descriptor read_persimmon(ConfigReader& config);
Descriptor read_phi(ConfigReader& config);
Descriptor read_phi3(ConfigReader& config);
Descriptor read_phimoe(ConfigReader& config);
Descriptor read_qwen2(ConfigReader& config);
Descriptor read_qwen2(const GgufReader& file);
Descriptor read_qwen2_moe(ConfigReader& config);
Descriptor read_qwen2_moe(const GgufReader& file);
Descriptor read_qwen2_vl(ConfigReader& config);
Descriptor read_qwen3(ConfigReader& config);
Descriptor read_qwen3(const GgufReader& file);
Descriptor read_qwen3_5(ConfigReader& config);
Descriptor read_qwen3_5_moe(ConfigReader& config);
Descriptor read_qwen3_moe(ConfigReader& config);
Descriptor read_qwen3_moe(const GgufReader& file);
Descriptor read_qwen3_next(ConfigReader& config);
Descriptor read_qwen3_next(const GgufReader& file);
Descriptor read_qwen3_omni_moe(ConfigReader& config);
Descriptor read_qwen3_vl(ConfigReader& config);
Descriptor read_qwen3_vl_moe(ConfigReader& config);
Descriptor read_recurrent_gemma(ConfigReader& config);
Descriptor read_roberta(ConfigReader& config);
Descriptor read_seed_oss(ConfigReader& config);
Descriptor read_smollm3(ConfigReader& config);
Descriptor read_smollm3(const GgufReader& file);
Descriptor read_solar_open(ConfigReader& config);
Descriptor read_stablelm(ConfigReader& config);
Descriptor read_starcoder2(ConfigReader& config);
Descriptor read_vaultgemma(ConfigReader& config);
Descriptor read_youtu(ConfigReader& config);

}  // namespace espalier::models
