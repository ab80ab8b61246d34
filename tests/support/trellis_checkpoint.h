#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "arrays/safetensors_writer.h"

namespace espalier::tests {

/// How one module of a test checkpoint is trellis-coded.
struct TrellisModule {
  double bits;
  int axis;
  int state_bits = 12;
  std::string code = "1mad";
  bool interleaved = false;
};

/// Random trellis codes of a weight [outputs, inputs], and the numbers that they mean by the
/// format's definition, symbol by symbol.
class RandomTrellis {
 public:
  RandomTrellis(const TrellisModule& module, int outputs, int inputs, std::mt19937& random)
      : module_(module),
        rows_(module.axis == 1 ? outputs : inputs),
        columns_(module.axis == 1 ? inputs : outputs) {
    for (int block = 0; block < columns_ / 256; ++block) {
      starts_.push_back(row_words_);
      row_words_ += 8 * bits_of(block);
    }
    words_.resize(static_cast<std::size_t>(rows_) * row_words_);
    for (std::uint32_t& word : words_) word = random();
    // Of such a size that a product keeps the size of its inputs.
    for (int row = 0; row < rows_; ++row) {
      const float spread = 0.5F + static_cast<float>(random() % 1000) / 1000.0F;
      scales_.push_back(static_cast<_Float16>(spread / std::sqrt(static_cast<float>(inputs))));
    }
    dense_.resize(static_cast<std::size_t>(outputs) * inputs);
    for (int row = 0; row < rows_; ++row) {
      for (int column = 0; column < columns_; ++column) {
        const int output = module.axis == 1 ? row : column;
        const int input = module.axis == 1 ? column : row;
        dense_[static_cast<std::size_t>(output) * inputs + input] =
            value(row, column) * static_cast<float>(scales_[row]);
      }
    }
  }

  const std::vector<float>& dense() const { return dense_; }
  const std::vector<_Float16>& scales() const { return scales_; }
  std::vector<std::int64_t> scales_shape() const { return {rows_}; }

  std::vector<std::int64_t> codes_shape() const {
    if (module_.interleaved) return {columns_ / 512, rows_, 2 * row_words_ * 256 / columns_};
    return {rows_, row_words_};
  }
  std::vector<std::uint32_t> codes() const {
    if (!module_.interleaved) return words_;
    std::vector<std::uint32_t> result;
    const int width = 2 * row_words_ * 256 / columns_;
    for (int group = 0; group < columns_ / 512; ++group) {
      for (int row = 0; row < rows_; ++row) {
        const auto first = words_.begin() + static_cast<std::ptrdiff_t>(row) * row_words_ +
                           static_cast<std::ptrdiff_t>(group) * width;
        result.insert(result.end(), first, first + width);
      }
    }
    return result;
  }

 private:
  int bits_of(int block) const {
    return static_cast<int>(block % 2 == 0 ? std::ceil(module_.bits) : std::floor(module_.bits));
  }

  float value(int row, int column) const {
    const int block = column / 256;
    const int bits = bits_of(block);
    const std::uint32_t* words =
        words_.data() + static_cast<std::size_t>(row) * row_words_ + starts_[block];
    std::uint32_t state = 0;
    for (int back = 0; back * bits < module_.state_bits; ++back) {
      const int first = (255 - (column % 256 - back + 256) % 256) * bits;
      std::uint32_t symbol = 0;
      for (int i = 0; i < bits; ++i) {
        symbol |= (words[(first + i) / 32] >> ((first + i) % 32) & 1U) << i;
      }
      state |= symbol << back * bits;
    }
    state &= (1U << module_.state_bits) - 1;
    const std::uint32_t x =
        module_.code == "1mad" ? state * 34038481U + 76625530U : state * 0x83DCD12DU;
    const auto sum = (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
    return (static_cast<float>(sum) - 510.0F) / 147.800537109375F;
  }

  TrellisModule module_;
  int rows_;
  int columns_;
  int row_words_ = 0;
  std::vector<int> starts_;
  std::vector<std::uint32_t> words_;
  std::vector<_Float16> scales_;
  std::vector<float> dense_;
};

/// A Llama with random weights, written twice: with some modules trellis-coded, and with the same
/// numbers as f32.
struct TrellisCheckpoint {
  static constexpr int vocabulary = 64;
  int width = 512;
  int hidden = 768;
  int layers = 2;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 64;
  std::map<std::string, TrellisModule> modules = {
      {"model.layers.0.self_attn.q_proj", {.bits = 3, .axis = 1}},
      {"model.layers.0.self_attn.k_proj", {.bits = 2, .axis = 1}},
      {"model.layers.0.mlp.gate_proj", {.bits = 2, .axis = 1}},
      {"model.layers.0.mlp.up_proj", {.bits = 4, .axis = 0}},
      {"model.layers.0.mlp.down_proj", {.bits = 3, .axis = 0, .interleaved = true}},
      {"model.layers.1.self_attn.q_proj", {.bits = 4, .axis = 0, .state_bits = 16}},
      {"model.layers.1.self_attn.k_proj", {.bits = 3, .axis = 1, .state_bits = 16, .code = "mul1"}},
      {"model.layers.1.self_attn.v_proj", {.bits = 2.5, .axis = 1}},
      {"model.layers.1.self_attn.o_proj", {.bits = 3, .axis = 1}},
      {"model.layers.1.mlp.gate_proj", {.bits = 3.5, .axis = 0}},
      {"model.layers.1.mlp.up_proj", {.bits = 3.5, .axis = 0}},
      {"model.layers.1.mlp.down_proj", {.bits = 3.5, .axis = 1}},
  };

  void write(const std::filesystem::path& trellis, const std::filesystem::path& dense) const {
    std::mt19937 random(11);
    Writer coded;
    Writer plain;
    const auto norm = [&](const std::string& name) {
      std::vector<float> weight(width);
      for (float& value : weight) value = 0.5F + static_cast<float>(random() % 1000) / 1000.0F;
      coded.add(name, arrays::StorageType::f32, {width}, weight);
      plain.add(name, arrays::StorageType::f32, {width}, weight);
    };
    const auto matrix = [&](const std::string& name, int outputs, int inputs) {
      if (const auto module = modules.find(name); module != modules.end()) {
        const RandomTrellis weight(module->second, outputs, inputs, random);
        coded.add(name + ".weight", arrays::StorageType::u32, weight.codes_shape(), weight.codes());
        coded.add(name + ".scales", arrays::StorageType::f16, weight.scales_shape(),
                  weight.scales());
        plain.add(name + ".weight", arrays::StorageType::f32, {outputs, inputs}, weight.dense());
        return;
      }
      std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(inputs)));
      std::vector<float> values(static_cast<std::size_t>(outputs) * inputs);
      for (float& value : values) value = normal(random);
      coded.add(name + ".weight", arrays::StorageType::f32, {outputs, inputs}, values);
      plain.add(name + ".weight", arrays::StorageType::f32, {outputs, inputs}, values);
    };
    matrix("model.embed_tokens", vocabulary, width);
    matrix("lm_head", vocabulary, width);
    for (int layer = 0; layer < layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      norm(prefix + "input_layernorm.weight");
      matrix(prefix + "self_attn.q_proj", heads * head_dim, width);
      matrix(prefix + "self_attn.k_proj", kv_heads * head_dim, width);
      matrix(prefix + "self_attn.v_proj", kv_heads * head_dim, width);
      matrix(prefix + "self_attn.o_proj", width, heads * head_dim);
      norm(prefix + "post_attention_layernorm.weight");
      matrix(prefix + "mlp.gate_proj", hidden, width);
      matrix(prefix + "mlp.up_proj", hidden, width);
      matrix(prefix + "mlp.down_proj", width, hidden);
    }
    norm("model.norm.weight");
    coded.write(trellis, config());
    nlohmann::json plain_config = config();
    plain_config.erase("quantization");
    plain.write(dense, plain_config);
  }

  nlohmann::json config() const {
    nlohmann::json settings = {{"group_size", 64}, {"bits", 3}, {"mode", "affine"}};
    for (const auto& [name, module] : modules) {
      settings[name] = {
          {"bits", module.bits},
          {"group_size", 256},
          {"mode", "trellis"},
          {"trellis", {{"L", module.state_bits}, {"code", module.code}, {"axis", module.axis}}}};
    }
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"hidden_size", width},
            {"intermediate_size", hidden},
            {"num_hidden_layers", layers},
            {"num_attention_heads", heads},
            {"num_key_value_heads", kv_heads},
            {"head_dim", head_dim},
            {"hidden_act", "silu"},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 10000.0},
            {"vocab_size", vocabulary},
            {"max_position_embeddings", 512},
            {"tie_word_embeddings", false},
            {"dtype", "float32"},
            {"quantization", settings}};
  }

 private:
  struct Writer {
    std::vector<arrays::SafetensorsWriter::Entry> entries;
    std::vector<std::vector<std::byte>> data;

    template <class T>
    void add(const std::string& name, arrays::StorageType type,
             const std::vector<std::int64_t>& shape, const std::vector<T>& values) {
      entries.push_back({.name = name, .type = type, .shape = shape});
      std::vector<std::byte> bytes(values.size() * sizeof(T));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      data.push_back(std::move(bytes));
    }

    void write(const std::filesystem::path& folder, const nlohmann::json& config) const {
      std::filesystem::create_directories(folder);
      std::ofstream(folder / "config.json") << config;
      arrays::SafetensorsWriter writer(folder / "model.safetensors", entries);
      for (const std::vector<std::byte>& bytes : data) writer.append(bytes);
      writer.finish();
    }
  };
};

}  // namespace espalier::tests
