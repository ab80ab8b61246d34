#pragma once

#include <cstdint>

namespace espalier::arrays {

// The quantization blocks of GGUF files, byte for byte. `_bits` fields hold half-precision floats
// as they lie in the file. No field is aligned beyond 2 bytes there: copy a block out of the
// mapping before use. In what follows q is the stored integer, d `scale_bits`, m `minimum_bits`.

/// 32 values (q - 8) d; byte i holds value i low and value i + 16 high.
struct BlockQ4_0 {
  std::uint16_t scale_bits;
  std::uint8_t quants[16];
};

/// 32 values q d + m, placed as in Q4_0.
struct BlockQ4_1 {
  std::uint16_t scale_bits;
  std::uint16_t minimum_bits;
  std::uint8_t quants[16];
};

/// 32 values (q - 16) d; the low four bits as in Q4_0, the fifth of value i is bit i of
/// `high_bits`.
struct BlockQ5_0 {
  std::uint16_t scale_bits;
  std::uint8_t high_bits[4];
  std::uint8_t quants[16];
};

/// 32 values q d + m, placed as in Q5_0.
struct BlockQ5_1 {
  std::uint16_t scale_bits;
  std::uint16_t minimum_bits;
  std::uint8_t high_bits[4];
  std::uint8_t quants[16];
};

/// 32 values q d.
struct BlockQ8_0 {
  std::uint16_t scale_bits;
  std::int8_t quants[32];
};

/// 16 groups of 16 values (s d) q - (t m), s and t in the low and high half of `scales`.
struct BlockQ2_K {
  std::uint8_t scales[16];
  std::uint8_t quants[64];
  std::uint16_t scale_bits;
  std::uint16_t minimum_bits;
};

/// 16 groups of 16 values (s d) q with 6-bit s, q in -4..3; a set bit of `high_mask` adds 4.
struct BlockQ3_K {
  std::uint8_t high_mask[32];
  std::uint8_t quants[64];
  std::uint8_t scales[12];
  std::uint16_t scale_bits;
};

/// 8 groups of 32 values (s d) q - (t m), s and t of 6 bits each in `scales`.
struct BlockQ4_K {
  std::uint16_t scale_bits;
  std::uint16_t minimum_bits;
  std::uint8_t scales[12];
  std::uint8_t quants[128];
};

/// As Q4_K with a fifth bit: bit g of `high_bits[i]` belongs to value i of group g.
struct BlockQ5_K {
  std::uint16_t scale_bits;
  std::uint16_t minimum_bits;
  std::uint8_t scales[12];
  std::uint8_t high_bits[32];
  std::uint8_t quants[128];
};

/// 16 groups of 16 values (s d) (q - 32).
struct BlockQ6_K {
  std::uint8_t low_bits[128];
  std::uint8_t high_bits[64];
  std::int8_t scales[16];
  std::uint16_t scale_bits;
};

/// 256 values q d.
struct BlockQ8_K {
  float scale;
  std::int8_t quants[256];
  std::int16_t sums[16];
};

/// Ternary: five values in a byte, base 3; the last 16 values four in a byte.
struct BlockTQ1_0 {
  std::uint8_t quants[48];
  std::uint8_t rest[4];
  std::uint16_t scale_bits;
};

/// Ternary: four values of two bits in a byte.
struct BlockTQ2_0 {
  std::uint8_t quants[64];
  std::uint16_t scale_bits;
};

/// 8 values an index into a grid of 256, signs through a table of 128.
struct BlockIQ2_XXS {
  std::uint16_t scale_bits;
  std::uint8_t quants[64];
};

struct BlockIQ2_XS {
  std::uint16_t scale_bits;
  std::uint16_t quants[32];
  std::uint8_t scales[8];
};

struct BlockIQ2_S {
  std::uint16_t scale_bits;
  std::uint8_t quants[32];
  std::uint8_t signs[32];
  std::uint8_t high_bits[8];
  std::uint8_t scales[8];
};

struct BlockIQ3_XXS {
  std::uint16_t scale_bits;
  std::uint8_t quants[64];
  std::uint8_t signs_and_scales[32];
};

struct BlockIQ3_S {
  std::uint16_t scale_bits;
  std::uint8_t quants[64];
  std::uint8_t high_bits[8];
  std::uint8_t signs[32];
  std::uint8_t scales[4];
};

struct BlockIQ1_S {
  std::uint16_t scale_bits;
  std::uint8_t quants[32];
  std::uint16_t high_bits[8];
};

struct BlockIQ1_M {
  std::uint8_t quants[32];
  std::uint8_t high_bits[16];
  std::uint8_t scales[8];
};

/// 32 values d table[q], placed as in Q4_0.
struct BlockIQ4_NL {
  std::uint16_t scale_bits;
  std::uint8_t quants[16];
};

struct BlockIQ4_XS {
  std::uint16_t scale_bits;
  std::uint16_t high_scales;
  std::uint8_t low_scales[4];
  std::uint8_t quants[128];
};

/// 32 values e2m1 times 2^(scale - 127), placed as in Q4_0.
struct BlockMXFP4 {
  std::uint8_t scale;
  std::uint8_t quants[16];
};

/// 4 groups of 16 values e2m1, each with a scale in unsigned e4m3.
struct BlockNVFP4 {
  std::uint8_t scales[4];
  std::uint8_t quants[32];
};

}  // namespace espalier::arrays
