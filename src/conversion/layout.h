#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conversion/source_tensor.h"

namespace espalier::conversion {

/// How a family's checkpoints differ between Hugging Face's layout and GGUF.
struct Layout {
  std::string_view model_type;    // config.json
  std::string_view architecture;  // GGUF
  std::string_view class_name;    // `architectures` of config.json
  /// GGUF has the rows of q and k in the order of HeadOrder's pairs.
  bool pairs = false;
  /// GGUF's norm weights have the one added that Gemma adds when it computes.
  bool norm_plus_one = false;
  /// Norms before and after both parts of a layer.
  bool four_norms = false;
};

/// Null when the family can only be converted within its container.
const Layout* find_layout_of_model_type(std::string_view model_type);
const Layout* find_layout_of_architecture(std::string_view architecture);

/// "llama, mistral, …", for messages.
std::string known_model_types();
std::string known_architectures();

struct HeadCounts {
  int query;
  int key;
};

/// The tensors by their names in the other container, rows and values as it has them. Drops what
/// the other container computes itself. Throws `LoadError` naming a tensor that has no name there.
std::vector<SourceTensor> to_gguf_layout(const Layout& layout, const HeadCounts& heads,
                                         std::vector<SourceTensor> tensors,
                                         const std::string& path);
std::vector<SourceTensor> to_hugging_face_layout(const Layout& layout, const HeadCounts& heads,
                                                 std::vector<SourceTensor> tensors,
                                                 const std::string& path);

/// The same for the names that Meta and Mistral give the tensors of their own checkpoints.
std::vector<SourceTensor> from_original_layout(const Layout& layout, const HeadCounts& heads,
                                               std::vector<SourceTensor> tensors,
                                               const std::string& path);

}  // namespace espalier::conversion
