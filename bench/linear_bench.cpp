// What the kernels of `linear` reach on one thread, per instruction set: register tiles alone
// (`multiply`), and the preparation of activations (`quantize`). Build the target `linear_bench`
// and run it on a quiet machine.
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/linear.h"
#include "kernels/linear_cpu.h"

namespace espalier::kernels {

namespace mx = mlx::core;

namespace {

const LinearCpu& kernels_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::avx512:
      return linear_cpu_avx512();
    case InstructionSet::avx2:
      return linear_cpu_avx2();
    default:
      return linear_cpu_scalar();
  }
}

std::int64_t stride_of(BandType type, int columns) {
  return with_band(type, [&]<class Format>(const Format*) {
    return band_bytes<Format>(columns, default_header(type));
  });
}

/// `bytes` of random bits but for the half-precision scales at the start of every `stride` bytes:
/// processors are slow on subnormal numbers, which real weights do not hold.
std::vector<std::uint8_t> random_bytes(std::int64_t bytes, int stride, int scale_bytes) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> result(bytes);
  for (std::int64_t i = 0; i < bytes; ++i) {
    const auto bits = static_cast<std::uint8_t>(random());
    // The high byte of a half makes it +-2^-9 to +-2^-8.
    const bool high_byte = i % stride < scale_bytes && i % 2 == 1;
    result[i] = high_byte ? 0x18 | (bits & 0x83) : bits;
  }
  return result;
}

/// Bands of [outputs, columns] one after the other against `rows` rows of activations.
void multiply(benchmark::State& state, InstructionSet set, BandType type, int outputs, int columns,
              int rows) {
  const LinearCpu& cpu = kernels_of(set);
  const auto stride = stride_of(type, columns);
  const int bands = outputs / band_rows;
  const auto weights = with_band(type, [&]<class Format>(const Format*) {
    if constexpr (Format::quantized) {
      const HeaderLayout& layout = Format::header;
      const int period = layout.bytes() + layout.blocks * block_bytes<Format>;
      return random_bytes(stride * bands, period, layout.bytes());
    } else {
      return random_bytes(stride * bands, 2, 2);
    }
  });
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(columns);
  std::vector<ActivationBlock> x(static_cast<std::size_t>(rows) * columns / block_inputs);
  for (int row = 0; row < rows; ++row) {
    for (auto& value : values) {
      value = normal(random);
    }
    cpu.quantize_row({values.data(), ElementType::f32, columns, nullptr, 0.0F},
                     x.data() + static_cast<std::ptrdiff_t>(row) * columns / block_inputs);
  }
  std::vector<float> sums(static_cast<std::size_t>(rows) * band_rows);
  for (auto _ : state) {
    for (int band = 0; band < bands; ++band) {
      cpu.format(type).multiply_int8({columns, default_header(type)},
                                     weights.data() + band * stride, x.data(), rows, sums.data());
      benchmark::DoNotOptimize(sums.data());
    }
  }
  const double products = static_cast<double>(bands) * band_rows * columns * rows;
  state.counters["products/s"] =
      benchmark::Counter(products, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["weight_bytes/s"] = benchmark::Counter(
      static_cast<double>(weights.size()), benchmark::Counter::kIsIterationInvariantRate);
}

void quantize(benchmark::State& state, InstructionSet set, int columns) {
  const LinearCpu& cpu = kernels_of(set);
  std::vector<float> x(columns, 1.5F);
  std::vector<float> norm(columns, 1.0F);
  std::vector<ActivationBlock> blocks(columns / block_inputs);
  for (auto _ : state) {
    cpu.quantize_row({x.data(), ElementType::f32, columns, norm.data(), 1e-5F}, blocks.data());
    benchmark::DoNotOptimize(blocks.data());
  }
  state.SetItemsProcessed(state.iterations() * columns);
}

PackedMatrix random_matrix(arrays::StorageType type, int rows, int columns) {
  const auto& traits = arrays::storage_traits(type);
  const auto blocks = static_cast<std::int64_t>(rows) * columns / traits.elements;
  const bool has_minimum = type == arrays::StorageType::q4_1;
  const auto bytes = random_bytes(blocks * traits.bytes, traits.bytes, has_minimum ? 4 : 2);
  return pack({"random", type, {rows, columns}, std::as_bytes(std::span(bytes))});
}

/// The matrices of SmolLM2-135M in Q4_1 with a Q8_0 head.
struct Model {
  struct Layer {
    PackedMatrix q, k, v, o, gate, up, down;
  };
  static constexpr int width = 576;
  static constexpr int hidden = 1536;

  std::vector<Layer> layers;
  PackedMatrix head = random_matrix(arrays::StorageType::q8_0, 49152, width);
  RmsNorm norm{mx::ones({width}), 1e-5F};

  Model() {
    const auto matrix = [](int rows, int columns) {
      return random_matrix(arrays::StorageType::q4_1, rows, columns);
    };
    for (int i = 0; i < 30; ++i) {
      layers.push_back({matrix(width, width), matrix(192, width), matrix(192, width),
                        matrix(width, width), matrix(hidden, width), matrix(hidden, width),
                        matrix(width, hidden)});
    }
  }

  /// All products of a forward pass, with a slice of q in place of attention.
  mx::array forward(int rows) const {
    mx::array x = mx::full({rows, width}, 0.5F);
    for (const auto& layer : layers) {
      const auto qkv = linear(x, {layer.q, layer.k, layer.v}, {.norm = norm});
      const auto attended = mx::slice(qkv, {0, 0}, {rows, width});
      x = linear(attended, {layer.o}, {.residual = x});
      const auto inner = linear(x, {layer.gate, layer.up}, {.norm = norm, .gate = Gate::silu});
      x = linear(inner, {layer.down}, {.residual = x});
    }
    return linear(mx::slice(x, {rows - 1, 0}, {rows, width}), {head}, {.norm = norm}, true);
  }
};

void model(benchmark::State& state, int rows) {
  static const Model model;
  for (auto _ : state) {
    mx::eval(model.forward(rows));
  }
  state.SetItemsProcessed(state.iterations() * rows);
}

/// Reads as many bytes as a decoding step, on all threads.
void read(benchmark::State& state) {
  static const auto bytes = random_bytes(97 << 20, 2, 2);
  for (auto _ : state) {
    base::TileCounter tiles(97);
    base::compute_pool().run([&](int) {
      for (std::size_t tile; tiles.next(tile);) {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < 1 << 20; i += 64) {
          std::uint64_t word;
          std::memcpy(&word, bytes.data() + (tile << 20) + i, sizeof word);
          sum += word;
        }
        benchmark::DoNotOptimize(sum);
      }
    });
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

void register_all() {
  benchmark::RegisterBenchmark("read", read)->UseRealTime();
  for (const int rows : {1, 4, 512}) {
    benchmark::RegisterBenchmark(("model/" + std::to_string(rows)).c_str(),
                                 [=](benchmark::State& state) { model(state, rows); })
        ->UseRealTime();
  }
  for (const auto set : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (!supports(set)) continue;
    const std::string prefix = std::string(to_string(set)) + "/";
    const std::pair<BandType, const char*> types[] = {
        {BandType::q4_0, "q4_0"}, {BandType::q4_1, "q4_1"}, {BandType::q5_0, "q5_0"},
        {BandType::q8_0, "q8_0"}, {BandType::q4_k, "q4_k"}, {BandType::q6_k, "q6_k"}};
    for (const auto& [type, name] : types) {
      for (const int rows : {1, 4, 128}) {
        const std::string label = prefix + "multiply/" + name + "/" + std::to_string(rows);
        benchmark::RegisterBenchmark(label.c_str(), [=](benchmark::State& state) {
          multiply(state, set, type, 1536, 1536, rows);
        });
      }
    }
    // Beyond all caches: what one thread draws from memory.
    benchmark::RegisterBenchmark((prefix + "stream/q4_1").c_str(), [=](benchmark::State& state) {
      multiply(state, set, BandType::q4_1, 1 << 17, 1536, 1);
    });
    benchmark::RegisterBenchmark((prefix + "quantize").c_str(),
                                 [=](benchmark::State& state) { quantize(state, set, 1536); });
  }
}

}  // namespace
}  // namespace espalier::kernels

int main(int argc, char** argv) {
  espalier::kernels::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
