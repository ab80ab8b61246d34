#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "arrays/tensor_file.h"
#include "kernels/cpu_features.h"
#include "mlx/mlx.h"

namespace espalier::tests {

/// A tensor that owns its bytes.
struct OwnedTensor {
  std::vector<std::byte> bytes;
  arrays::TensorView view;
};

inline std::uint16_t to_half(float x) {
  const auto half = static_cast<_Float16>(x);
  std::uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

/// Byte offsets of the half-precision numbers in a block of the type.
inline std::vector<int> half_offsets(arrays::StorageType type) {
  using arrays::StorageType;
  switch (type) {
    case StorageType::q4_1:
    case StorageType::q5_1:
    case StorageType::q4_k:
    case StorageType::q5_k:
      return {0, 2};
    case StorageType::q6_k:
      return {208};
    case StorageType::q2_k:
      return {80, 82};
    case StorageType::q3_k:
      return {108};
    case StorageType::tq1_0:
      return {52};
    case StorageType::tq2_0:
      return {64};
    case StorageType::iq1_m:
    case StorageType::mxfp4:
    case StorageType::nvfp4:
    case StorageType::q8_k:
      return {};
    default:
      return {0};
  }
}

/// A [rows, columns] matrix of random weights, of either sign and some size around 1.
inline OwnedTensor random_weight(arrays::StorageType type, int rows, int columns, unsigned seed) {
  using arrays::StorageType;
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  const auto& traits = arrays::storage_traits(type);
  const std::size_t blocks = static_cast<std::size_t>(rows) * columns / traits.elements;
  OwnedTensor tensor;
  tensor.bytes.resize(blocks * traits.bytes);
  auto* bytes = reinterpret_cast<std::uint8_t*>(tensor.bytes.data());
  for (std::size_t block = 0; block < blocks; ++block, bytes += traits.bytes) {
    if (type == StorageType::f32) {
      const float value = uniform(random);
      std::memcpy(bytes, &value, sizeof value);
    } else if (type == StorageType::f16) {
      const std::uint16_t value = to_half(uniform(random));
      std::memcpy(bytes, &value, sizeof value);
    } else if (type == StorageType::bf16) {
      const float value = uniform(random);
      std::memcpy(bytes, reinterpret_cast<const char*>(&value) + 2, 2);
    } else {
      for (int i = 0; i < traits.bytes; ++i) {
        bytes[i] = static_cast<std::uint8_t>(random());
      }
      if (type == StorageType::mxfp4) {
        bytes[0] = static_cast<std::uint8_t>(118 + random() % 8);
      } else if (type == StorageType::nvfp4) {
        for (int i = 0; i < 4; ++i) {
          bytes[i] = static_cast<std::uint8_t>(random() % 0x40);
        }
      } else if (type == StorageType::q8_k) {
        const float scale = uniform(random) / 64.0F;
        std::memcpy(bytes, &scale, sizeof scale);
      } else if (type == StorageType::iq1_m) {
        // The upper halves of four bytes make a half-precision number.
        for (int i = 0; i < 4; ++i) {
          const std::uint8_t nibble = i == 3 ? 0x1 | (random() & 1) << 3 : random() & 15;
          bytes[49 + 2 * i] = static_cast<std::uint8_t>((bytes[49 + 2 * i] & 15) | nibble << 4);
        }
      }
      for (const int offset : half_offsets(type)) {
        const std::uint16_t half = to_half(uniform(random) / 64.0F);
        std::memcpy(bytes + offset, &half, sizeof half);
      }
    }
  }
  tensor.view = {"weight", type, {rows, columns}, tensor.bytes};
  return tensor;
}

inline mlx::core::array random_rows(int rows, int columns, unsigned seed,
                                    mlx::core::Dtype dtype = mlx::core::float32) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> values(static_cast<std::size_t>(rows) * columns);
  for (auto& value : values) {
    value = normal(random);
  }
  auto result = mlx::core::astype(
      mlx::core::array(values.data(), mlx::core::Shape{rows, columns}, mlx::core::float32), dtype);
  result.eval();
  return result;
}

/// The array's bytes once computed, for comparing bits.
inline std::string bytes_of(mlx::core::array array) {
  array.eval();
  return {array.data<char>(), array.nbytes()};
}

/// The instruction sets this machine can run.
inline std::vector<kernels::InstructionSet> supported_sets() {
  std::vector<kernels::InstructionSet> sets;
  for (const auto set : {kernels::InstructionSet::scalar, kernels::InstructionSet::avx2,
                         kernels::InstructionSet::avx512}) {
    if (kernels::supports(set)) sets.push_back(set);
  }
  return sets;
}

/// Kernels use `set` as long as this lives.
class ForcedInstructionSet {
 public:
  explicit ForcedInstructionSet(kernels::InstructionSet set) {
    kernels::force_instruction_set(set);
  }
  ~ForcedInstructionSet() { kernels::force_instruction_set(std::nullopt); }
  ForcedInstructionSet(const ForcedInstructionSet&) = delete;
  ForcedInstructionSet& operator=(const ForcedInstructionSet&) = delete;
};

}  // namespace espalier::tests
