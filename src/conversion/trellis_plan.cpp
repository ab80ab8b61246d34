#include "conversion/trellis_plan.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/json_file.h"

namespace espalier::conversion {
namespace {

using base::LoadError;
using base::UsageError;
using kernels::TrellisFormat;

/// Bits by how they are written.
constexpr std::array<std::pair<std::string_view, double>, 5> named_widths = {{
    {"2", 2.0},
    {"2.5", 2.5},
    {"3", 3.0},
    {"3.5", 3.5},
    {"4", 4.0},
}};

/// Ends of the names of layers whose outputs are added to the residual stream.
constexpr auto writers = std::to_array<std::string_view>(
    {"o_proj", "out_proj", "down_proj", "dense_4h_to_h", "c_proj", "fc2", "fc_out", "wo", "w2",
     "attn_output", "ffn_down", "attention.dense", "self_attn.dense", "linear_2"});

/// Parts of the names of embeddings and heads.
constexpr auto vocabulary_parts = std::to_array<std::string_view>(
    {"embed", "lm_head", "wte", "wpe", "token_embd", "embd_", "vocab"});

bool is_vocabulary_root(std::string_view layer) { return layer == "output" || layer == "head"; }

TrellisFormat with_bits(TrellisFormat format, double bits) {
  format.bits = static_cast<int>(bits);
  format.half_bit = bits != format.bits;
  return format;
}

/// Layers and their bits.
std::map<std::string, TrellisFormat> read_map(const std::string& path, const TrellisFormat& base) {
  const auto map = nlohmann::json::parse(tokenizer::read_text_file(path), nullptr, false);
  if (!map.is_object() || map.empty()) {
    throw LoadError(path + " is no JSON object of bits by layer names");
  }
  std::map<std::string, TrellisFormat> layers;
  for (const auto& [layer, bits] : map.items()) {
    const auto known = [&](const auto& width) { return bits.is_number() && bits == width.second; };
    if (std::ranges::none_of(named_widths, known)) {
      throw LoadError(path + ": the bits of " + layer + " must be 2, 2.5, 3, 3.5 or 4");
    }
    layers[layer] = with_bits(base, bits.get<double>());
  }
  return layers;
}

}  // namespace

TrellisFormat parse_trellis_bits(const std::string& text, const TrellisFormat& format) {
  const auto* width = std::ranges::find(named_widths, std::string_view(text),
                                        [](const auto& w) { return w.first; });
  if (width == named_widths.end()) {
    throw UsageError("trellis codes have 2, 2.5, 3, 3.5 or 4 bits, not \"" + text + "\"");
  }
  return with_bits(format, width->second);
}

TrellisOptions parse_trellis(const std::string& text, const TrellisFormat& format) {
  if (text.ends_with(".json")) {
    return {.format = format, .layers = read_map(text, format)};
  }
  return {.format = parse_trellis_bits(text, format)};
}

std::string trellis_bits(const TrellisFormat& format) {
  return std::to_string(format.bits) + (format.half_bit ? ".5" : "");
}

std::optional<int> trellis_axis(const std::string& layer, std::int64_t outputs,
                                std::int64_t inputs) {
  const bool writes =
      std::ranges::any_of(writers, [&](std::string_view end) { return layer.ends_with(end); });
  const std::array<int, 2> order = writes ? std::array{0, 1} : std::array{1, 0};
  for (const int axis : order) {
    const std::int64_t length = axis == 1 ? inputs : outputs;
    if (length > 0 && length % kernels::trellis_block_weights == 0) return axis;
  }
  return std::nullopt;
}

bool is_vocabulary_layer(const std::string& layer) {
  return is_vocabulary_root(layer) || std::ranges::any_of(vocabulary_parts, [&](auto part) {
           return layer.find(part) != std::string::npos;
         });
}

}  // namespace espalier::conversion
