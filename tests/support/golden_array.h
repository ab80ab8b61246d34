#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace espalier::tests {

/// An array of `fixtures/ops/golden.json` as the bytes of its elements.
struct GoldenArray {
  std::string dtype;  // "bf16", "f16", "f32", "u32", "i32", "u8", "bool"
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

/// The cases of `fixtures/ops/golden.json`; its "format" field explains what is decoded here.
class GoldenCases {
 public:
  explicit GoldenCases(const nlohmann::json& file) : cases_(file.at("cases")) {
    for (std::size_t i = 0; i < cases_.size(); ++i) positions_[cases_[i].at("id").get<int>()] = i;
  }

  const nlohmann::json& cases() const { return cases_; }

  GoldenArray array(const nlohmann::json& source) const {
    if (const auto other = source.find("of"); other != source.end()) {
      return array(cases_.at(positions_.at((*other)[0].get<int>()))
                       .at("out")
                       .at((*other)[1].get<std::size_t>()));
    }
    GoldenArray result{source.at("dt"), source.at("sh"), {}};
    const std::size_t size = result.dtype.ends_with("32")   ? 4
                             : result.dtype.ends_with("16") ? 2
                                                            : 1;
    if (source.contains("hex")) {
      const auto hex = source.at("hex").get<std::string>();
      for (std::size_t i = 0; i < hex.size(); i += 2 * size) {
        append(result, std::stoul(hex.substr(i, 2 * size), nullptr, 16), size);
      }
    } else {
      generate(result, source.at("gen"), size);
    }
    return result;
  }

 private:
  static void append(GoldenArray& array, std::uint64_t bits, std::size_t size) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&bits);
    array.bytes.insert(array.bytes.end(), bytes, bytes + size);
  }

  static void generate(GoldenArray& array, const nlohmann::json& generator, std::size_t size) {
    std::uint32_t state = generator[0];
    const double low = generator[1];
    const double high = generator[2];
    std::int64_t count = 1;
    for (const std::int64_t extent : array.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
      state = state * 1664525U + 1013904223U;
      const double unit = (state >> 8U) / 16777216.0;
      const auto value = static_cast<float>(low + unit * (high - low));
      auto bits = std::bit_cast<std::uint32_t>(value);
      if (array.dtype == "bf16") {
        bits = (bits + 0x7FFF + (bits >> 16U & 1U)) >> 16U;
      } else if (array.dtype == "f16") {
        const auto half = static_cast<_Float16>(value);
        std::uint16_t half_bits;
        std::memcpy(&half_bits, &half, sizeof half);
        bits = half_bits;
      } else if (array.dtype != "f32") {
        throw std::invalid_argument("no generator for " + array.dtype);
      }
      append(array, bits, size);
    }
  }

  const nlohmann::json& cases_;
  std::map<int, std::size_t> positions_;
};

}  // namespace espalier::tests
