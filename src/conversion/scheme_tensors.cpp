#include "conversion/scheme_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "arrays/tensor_index.h"
#include "base/error.h"
#include "conversion/sizes.h"
#include "models/config_reader.h"
#include "models/weight_schemes.h"
#include "quantization/stored_matrix.h"

namespace espalier::conversion {
namespace {

using arrays::StorageType;
using arrays::TensorView;
using base::LoadError;
using nlohmann::ordered_json;
using quantization::WeightSchemes;

struct Shape {
  std::int64_t rows;
  std::int64_t columns;
};

/// What tells the matrices of a folder from its other tensors, and their shapes.
class Matrices {
 public:
  Matrices(const Source& source, const WeightSchemes& schemes)
      : file_(*source.file), schemes_(schemes) {}

  /// "model.layers.0.mlp.up_proj" when `tensor` holds the codes of its weight.
  std::optional<std::string> module(const TensorView& tensor) const {
    for (const std::string_view suffix : {".qweight", ".weight_packed", ".weight"}) {
      if (!tensor.name.ends_with(suffix)) continue;
      if (suffix == ".weight" && !is_code(tensor.type)) return std::nullopt;
      return tensor.name.substr(0, tensor.name.size() - suffix.size());
    }
    return std::nullopt;
  }

  /// Of the weight as plain numbers.
  Shape shape(const TensorView& codes, const std::string& module) const {
    if (codes.name.ends_with(".qweight")) return shape_of_words(codes, module);
    if (const auto* stated = file_.find(module + ".weight_shape")) return stated_shape(*stated);
    if (file_.find(module + ".weight.absmax") != nullptr) return described_shape(codes, module);
    const auto& shape = codes.shape;
    if (shape.size() != 2) fail(codes, "is no matrix");
    const bool pairs = codes.type == StorageType::u8;
    return {shape[0], pairs ? 2 * shape[1] : shape[1]};
  }

 private:
  static bool is_code(StorageType type) {
    constexpr std::array types = {StorageType::f8_e4m3, StorageType::f8_e5m2, StorageType::i8,
                                  StorageType::u8};
    return std::ranges::find(types, type) != types.end();
  }

  [[noreturn]] void fail(const TensorView& tensor, const std::string& what) const {
    throw LoadError(file_.path() + ": tensor " + arrays::shown_name(tensor.name) + " " + what);
  }

  /// Words of GPTQ go along the inputs, those of AWQ along the outputs. Zero points, a line of them
  /// for all outputs, tell how many bits a number takes.
  Shape shape_of_words(const TensorView& codes, const std::string& module) const {
    if (codes.shape.size() != 2) fail(codes, "is no matrix");
    if (schemes_.method == WeightSchemes::Method::awq) {
      return {codes.shape[1] * word_bits / 4, codes.shape[0]};
    }
    const std::int64_t rows = codes.shape[1];
    const auto* zeros = file_.find(module + ".qzeros");
    if (zeros == nullptr) fail(codes, "has no zero points beside it");
    const std::int64_t bits =
        zeros->shape.size() == 2 && rows > 0 ? zeros->shape[1] * word_bits / rows : 0;
    if (bits < 1 || bits > word_bits) fail(*zeros, "does not fit the codes beside it");
    return {rows, codes.shape[0] * word_bits / bits};
  }

  Shape stated_shape(const TensorView& tensor) const {
    std::array<std::int64_t, 2> values;
    if (tensor.type != StorageType::i64 || tensor.bytes.size() != sizeof values) {
      fail(tensor, "is no pair of whole numbers");
    }
    std::memcpy(values.data(), tensor.bytes.data(), sizeof values);
    return {values[0], values[1]};
  }

  /// bitsandbytes describes the weight in JSON.
  Shape described_shape(const TensorView& codes, const std::string& module) const {
    const auto* state = file_.find(module + ".weight.quant_state.bitsandbytes__nf4");
    if (state == nullptr) fail(codes, "has no description as NF4");
    const auto* text = reinterpret_cast<const char*>(state->bytes.data());
    const auto values = ordered_json::parse(text, text + state->bytes.size(), nullptr, false);
    const auto shape = values.is_object() ? values.find("shape") : values.end();
    if (!values.is_object() || shape == values.end() || !shape->is_array() || shape->size() != 2 ||
        !(*shape)[0].is_number_integer() || !(*shape)[1].is_number_integer()) {
      fail(*state, "says no shape");
    }
    return {(*shape)[0].get<std::int64_t>(), (*shape)[1].get<std::int64_t>()};
  }

  const arrays::TensorFile& file_;
  const WeightSchemes& schemes_;
};

WeightSchemes read_schemes(const Source& source, const ordered_json& settings) {
  if (settings.empty()) return {};
  const models::ConfigReader config((source.path / "config.json").string(),
                                    nlohmann::json{{"quantization_config", settings}});
  return models::read_weight_schemes(config);
}

int checked(std::int64_t size, const TensorView& codes, const std::string& path) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (size >= 1 && size <= most) return static_cast<int>(size);
  throw LoadError(path + ": tensor " + arrays::shown_name(codes.name) +
                  " is of a matrix with no size that can be");
}

}  // namespace

void add_scheme_tensors(Source& source, const ordered_json& settings) {
  const WeightSchemes schemes = read_schemes(source, settings);
  const Matrices matrices(source, schemes);
  const auto lookup = [&](const std::string& name) -> std::optional<TensorView> {
    const TensorView* found = source.file->find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  };
  const std::string path = source.file->path();
  std::set<std::string> taken;
  for (const TensorView& tensor : source.file->tensors()) {
    const auto module = matrices.module(tensor);
    if (!module) continue;
    const Shape shape = matrices.shape(tensor, *module);
    quantization::StoredMatrix matrix =
        quantization::find_matrix(lookup, schemes, path, *module, checked(shape.rows, tensor, path),
                                  checked(shape.columns, tensor, path));
    for (const TensorView& part : matrix.tensors) taken.insert(part.name);
    source.tensors.emplace_back(source.file, *module + ".weight", std::move(matrix),
                                std::vector{shape.rows, shape.columns});
  }
  for (const TensorView& tensor : source.file->tensors()) {
    if (!taken.contains(tensor.name)) source.tensors.emplace_back(source.file, tensor);
  }
}

}  // namespace espalier::conversion
