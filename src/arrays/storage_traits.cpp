#include <array>
#include <cstddef>

#include "arrays/tensor_file.h"

namespace espalier::arrays {
namespace {

// In the order of `StorageType`; block sizes as version 0.19 of the `gguf` Python package has them.
constexpr std::array<StorageTraits, 40> traits{{
    {"f64", 1, 8},        {"f32", 1, 4},        {"f16", 1, 2},       {"bf16", 1, 2},
    {"f8_e4m3", 1, 1},    {"f8_e5m2", 1, 1},    {"i64", 1, 8},       {"i32", 1, 4},
    {"i16", 1, 2},        {"i8", 1, 1},         {"u64", 1, 8},       {"u32", 1, 4},
    {"u16", 1, 2},        {"u8", 1, 1},         {"bool", 1, 1},      {"q4_0", 32, 18},
    {"q4_1", 32, 20},     {"q5_0", 32, 22},     {"q5_1", 32, 24},    {"q8_0", 32, 34},
    {"q8_1", 32, 40},     {"q2_k", 256, 84},    {"q3_k", 256, 110},  {"q4_k", 256, 144},
    {"q5_k", 256, 176},   {"q6_k", 256, 210},   {"q8_k", 256, 292},  {"iq1_s", 256, 50},
    {"iq1_m", 256, 56},   {"iq2_xxs", 256, 66}, {"iq2_xs", 256, 74}, {"iq2_s", 256, 82},
    {"iq3_xxs", 256, 98}, {"iq3_s", 256, 110},  {"iq4_nl", 32, 18},  {"iq4_xs", 256, 136},
    {"tq1_0", 256, 54},   {"tq2_0", 256, 66},   {"mxfp4", 32, 17},   {"nvfp4", 64, 36},
}};

}  // namespace

const StorageTraits& storage_traits(StorageType type) {
  return traits.at(static_cast<std::size_t>(type));
}

}  // namespace espalier::arrays
