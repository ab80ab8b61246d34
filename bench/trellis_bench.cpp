// What the trellis kernels reach on one thread: products with 1, 4 and 64 rows of activations in
// cache and with 1 row from memory in weights per second (times rows), beside the bytes a second
// that reading takes; and the search in weights per second. Build the target `trellis_bench` and
// run it on a quiet machine.
#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/cpu_features.h"
#include "kernels/trellis_cpu.h"
#include "kernels/trellis_search.h"

namespace espalier::kernels {
namespace {

struct Shape {
  int inputs;
  int outputs;
};
constexpr Shape in_cache = {1024, 256};
constexpr Shape in_memory = {4096, 65536};

/// Random codes as a matrix.
TrellisMatrix random_matrix(const Shape& shape, const TrellisFormat& format) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(shape.inputs) * shape.outputs *
                                   format.bits / 32);
  std::generate(words.begin(), words.end(), std::ref(random));
  const int rows = format.axis == 1 ? shape.outputs : shape.inputs;
  const std::vector<std::uint16_t> scales(rows, 0x3C00);
  return pack_trellis(
      {"codes",
       arrays::StorageType::u32,
       {rows, static_cast<std::int64_t>(words.size()) / rows},
       std::as_bytes(std::span(words))},
      {"scales", arrays::StorageType::f16, {rows}, std::as_bytes(std::span(scales))}, format);
}

/// A random matrix and prepared activations.
struct Product {
  TrellisMatrix matrix;
  TrellisOperand operand;
  std::vector<std::int32_t> words;
  std::vector<float> scales;
  std::vector<std::int32_t> centres;
  TrellisRows rows;

  Product(const TrellisCpu& cpu, const Shape& shape, const TrellisFormat& format,
          TrellisActivations activations, int count)
      : matrix(random_matrix(shape, format)), operand(matrix) {
    const int inputs = shape.inputs;
    const int blocks = inputs / trellis_activation_block;
    words.resize(static_cast<std::size_t>(count) * inputs);
    scales.resize(count * blocks);
    centres.resize(2 * count * blocks);
    const bool few = count <= trellis_few_rows;
    rows = {.words = words.data(),
            .scales = scales.data(),
            .centres = centres.data(),
            .row_words = few ? inputs : inputs / 2,
            .blocks = blocks};
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(inputs);
    for (int row = 0; row < count; ++row) {
      std::generate(values.begin(), values.end(), [&] { return normal(random); });
      cpu.prepare(operand, values.data(), activations, few, rows, row);
    }
  }
};

void multiply(benchmark::State& state, const Shape& shape, const TrellisFormat& format,
              TrellisActivations activations, int rows) {
  const TrellisCpu& cpu = trellis_cpu();
  const Product product(cpu, shape, format, activations, rows);
  std::vector<std::int32_t> tile(static_cast<std::size_t>(trellis_activation_block) / 2 * cpu.unit);
  std::vector<float> sums(static_cast<std::size_t>(rows) * cpu.unit);
  for (auto _ : state) {
    for (int unit = 0; unit < shape.outputs / cpu.unit; ++unit) {
      if (rows <= trellis_few_rows) {
        cpu.few_rows(product.operand, product.rows, activations, rows, unit, sums.data());
      } else {
        cpu.many_rows(product.operand, product.rows, 0, rows, unit, tile.data(), sums.data());
      }
      benchmark::DoNotOptimize(sums.data());
    }
  }
  state.SetItemsProcessed(state.iterations() * shape.inputs * shape.outputs * rows);
}

void read(benchmark::State& state) {
  const std::vector<std::uint64_t> words(std::size_t{1} << 24, 1);
  for (auto _ : state) {
    std::uint64_t sum = 0;
    for (const std::uint64_t word : words) sum += word;
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(8 * words.size()));
}

void search(benchmark::State& state, const TrellisFormat& format) {
  TrellisSearch search(format);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  float x[trellis_block_weights];
  std::generate(x, x + trellis_block_weights, [&] { return normal(random); });
  std::uint32_t words[32];
  float values[trellis_block_weights];
  for (auto _ : state) {
    search.encode(x, nullptr, words, values);
    benchmark::DoNotOptimize(words);
  }
  state.SetItemsProcessed(state.iterations() * trellis_block_weights);
}

void add_products(const TrellisFormat& format, TrellisActivations activations) {
  const std::string name = std::to_string(format.bits) + " bits, axis " +
                           std::to_string(format.axis) +
                           (activations == TrellisActivations::int8 ? ", int8, " : ", int15, ");
  for (const int rows : {1, 4, 64}) {
    benchmark::RegisterBenchmark((name + std::to_string(rows) + " rows").c_str(), multiply,
                                 in_cache, format, activations, rows);
  }
  benchmark::RegisterBenchmark((name + "from memory").c_str(), multiply, in_memory, format,
                               activations, 1);
}

void add_benchmarks() {
  benchmark::RegisterBenchmark("read from memory", read);
  for (int bits = 2; bits <= 4; ++bits) {
    const std::string name = std::to_string(bits) + " bits, ";
    for (const int axis : {1, 0}) {
      for (const auto activations : {TrellisActivations::int8, TrellisActivations::int15}) {
        add_products({.bits = bits, .axis = axis}, activations);
      }
    }
    benchmark::RegisterBenchmark((name + "search").c_str(), search, TrellisFormat{.bits = bits});
    benchmark::RegisterBenchmark((name + "search, long state").c_str(), search,
                                 TrellisFormat{.bits = bits, .state_bits = 16});
  }
}

}  // namespace
}  // namespace espalier::kernels

int main(int argc, char** argv) {
  espalier::kernels::add_benchmarks();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
