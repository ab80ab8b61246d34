#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "arrays/safetensors.h"
#include "arrays/safetensors_writer.h"
#include "mlx/mlx.h"

namespace espalier::tests {

/// A tensor that a test may change before it is written again.
struct StoredTensor {
  arrays::StorageType type;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};
using StoredTensors = std::map<std::string, StoredTensor>;

inline StoredTensors read_tensors(const std::filesystem::path& path) {
  StoredTensors tensors;
  const auto file = arrays::open_safetensors(path);
  for (const arrays::TensorView& tensor : file->tensors()) {
    tensors[tensor.name] = {tensor.type, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}};
  }
  return tensors;
}

inline void write_tensors(const std::filesystem::path& path, const StoredTensors& tensors) {
  std::vector<arrays::SafetensorsWriter::Entry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.type, tensor.shape});
  arrays::SafetensorsWriter writer(path, entries);
  for (const auto& [name, tensor] : tensors) writer.append(tensor.bytes);
  writer.finish();
}

inline StoredTensor to_tensor(mlx::core::array array) {
  using arrays::StorageType;
  array = mlx::core::contiguous(array);
  array.eval();
  const StorageType type = array.dtype() == mlx::core::uint32    ? StorageType::u32
                           : array.dtype() == mlx::core::uint8   ? StorageType::u8
                           : array.dtype() == mlx::core::float32 ? StorageType::f32
                                                                 : StorageType::bf16;
  const auto* bytes = array.data<std::byte>();
  return {type, {array.shape().begin(), array.shape().end()}, {bytes, bytes + array.nbytes()}};
}

inline mlx::core::array to_bf16(const StoredTensor& tensor) {
  mlx::core::array array(mlx::core::allocator::malloc(tensor.bytes.size()),
                         mlx::core::Shape(tensor.shape.begin(), tensor.shape.end()),
                         mlx::core::bfloat16);
  std::memcpy(array.data<char>(), tensor.bytes.data(), tensor.bytes.size());
  return array;
}

/// A Llama checkpoint's tensors as its maker publishes them beside `params.json`: by other names,
/// and rotated pairs side by side, which Hugging Face moved half a head apart.
inline StoredTensors in_original_layout(const StoredTensors& tensors, int heads, int kv_heads) {
  namespace mx = mlx::core;
  const std::vector<std::pair<std::string, std::string>> names = {
      {"model.embed_tokens", "tok_embeddings"},
      {"model.norm", "norm"},
      {"lm_head", "output"},
      {"model.layers", "layers"},
      {"self_attn.q_proj", "attention.wq"},
      {"self_attn.k_proj", "attention.wk"},
      {"self_attn.v_proj", "attention.wv"},
      {"self_attn.o_proj", "attention.wo"},
      {"mlp.gate_proj", "feed_forward.w1"},
      {"mlp.up_proj", "feed_forward.w3"},
      {"mlp.down_proj", "feed_forward.w2"},
      {"post_attention_layernorm", "ffn_norm"},
      {"input_layernorm", "attention_norm"}};
  StoredTensors renamed;
  for (const auto& [key, original] : tensors) {
    std::string name = key;
    StoredTensor tensor = original;
    const bool q = name.find("q_proj") != std::string::npos;
    if (q || name.find("k_proj") != std::string::npos) {
      const int width = static_cast<int>(tensor.shape[1]);
      const auto rows = mx::reshape(to_bf16(tensor), {q ? heads : kv_heads, 2, -1, width});
      tensor = to_tensor(mx::reshape(mx::transpose(rows, {0, 2, 1, 3}), {-1, width}));
    }
    for (const auto& [from, to] : names) {
      const std::size_t place = name.find(from);
      if (place != std::string::npos) name.replace(place, from.size(), to);
    }
    renamed[name] = tensor;
  }
  return renamed;
}

}  // namespace espalier::tests
