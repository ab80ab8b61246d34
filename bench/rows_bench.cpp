// What the kernels that go through rows of activations reach on one thread: norms, element
// functions, recurrent mixers. Build the target `rows_bench`; processor time counts.
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/elementwise_cpu.h"
#include "kernels/norm_cpu.h"
#include "kernels/recurrence_cpu.h"

namespace espalier::kernels {
namespace {

std::vector<float> random_floats(int count, float from, float to) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(from, to);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

void count_elements(benchmark::State& state, int elements) {
  state.counters["elements/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * elements, benchmark::Counter::kIsRate);
}

void norm(benchmark::State& state) {
  const int rows = static_cast<int>(state.range(0));
  const int columns = static_cast<int>(state.range(1));
  const auto x = random_floats(rows * columns, -1, 1);
  const auto weight = random_floats(columns, 0.5F, 1.5F);
  std::vector<float> out(x.size());
  std::vector<float> scratch(static_cast<std::size_t>(columns) + 16);
  const NormRows call{x.data(),      x.data(), out.data(), ElementType::f32,
                      weight.data(), rows,     columns,    1e-5F};
  for (auto _ : state) norm_cpu()(call, scratch.data());
  count_elements(state, rows * columns);
}
BENCHMARK(norm)->Args({1, 576})->Args({1, 4096})->Args({512, 576});

void element(benchmark::State& state) {
  constexpr int rows = 16;
  constexpr int columns = 1536;
  const auto x = random_floats(rows * columns, -4, 4);
  std::vector<float> out(x.size());
  std::vector<float> scratch(2 * (columns + 16));
  const ElementRows call{static_cast<ElementKind>(state.range(0)),
                         {},
                         x.data(),
                         x.data(),
                         out.data(),
                         ElementType::f32,
                         rows,
                         columns,
                         columns,
                         columns};
  for (auto _ : state) elementwise_cpu()(call, scratch.data());
  count_elements(state, rows * columns);
}
BENCHMARK(element)
    ->Arg(static_cast<int>(ElementKind::silu))
    ->Arg(static_cast<int>(ElementKind::gelu_tanh))
    ->Arg(static_cast<int>(ElementKind::gelu_erf))
    ->Arg(static_cast<int>(ElementKind::relu));

constexpr int stride = recurrence_tile;

void convolution(benchmark::State& state) {
  constexpr int taps = 4;
  const int rows = static_cast<int>(state.range(0));
  const auto x = random_floats(rows * stride, -1, 1);
  const auto weight = random_floats(taps * stride, -1, 1);
  std::vector<float> out(x.size());
  std::vector<float> kept((taps - 1) * stride);
  const ConvolutionTask task{x.data(), out.data(), stride, kept.data(),     false, weight.data(),
                             nullptr,  taps,       rows,   recurrence_tile, true};
  for (auto _ : state) recurrence_cpu().convolution(task);
  count_elements(state, rows * stride);
}
BENCHMARK(convolution)->Arg(1)->Arg(128);

/// Elements are those of the state, for each row.
void selective(benchmark::State& state) {
  constexpr int states = 16;
  const int rows = static_cast<int>(state.range(0));
  const auto x = random_floats(rows * stride, 0.1F, 1);
  const auto b = random_floats(rows * states, -1, 1);
  const auto a = random_floats(states * stride, -2, -1);
  std::vector<float> out(x.size());
  std::vector<float> kept(states * stride);
  const SelectiveTask task{x.data(), x.data(), out.data(), stride,         b.data(),    b.data(),
                           states,   a.data(), x.data(),   nullptr,        kept.data(), stride,
                           false,    states,   rows,       recurrence_tile};
  for (auto _ : state) recurrence_cpu().selective(task);
  count_elements(state, rows * states * stride);
}
BENCHMARK(selective)->Arg(1)->Arg(128);

void gated(benchmark::State& state) {
  const int rows = static_cast<int>(state.range(0));
  const auto x = random_floats(rows * stride, 0.1F, 0.9F);
  std::vector<float> out(x.size());
  std::vector<float> kept(stride);
  const GatedTask task{x.data(),    x.data(), out.data(), stride,
                       kept.data(), false,    rows,       recurrence_tile};
  for (auto _ : state) recurrence_cpu().gated(task);
  count_elements(state, rows * stride);
}
BENCHMARK(gated)->Arg(1)->Arg(128);

/// Elements are those of the state, for each row; with the delta rule or without.
void linear_recurrence(benchmark::State& state) {
  constexpr int keys = 128;
  const int rows = static_cast<int>(state.range(0));
  const auto q = random_floats(rows * keys, -0.1F, 0.1F);
  const auto v = random_floats(rows * stride, -1, 1);
  const auto decay = random_floats(rows, 0.5F, 0.9F);
  std::vector<float> out(v.size());
  std::vector<float> kept(keys * stride);
  const LinearRecurrenceTask task{q.data(),
                                  q.data(),
                                  v.data(),
                                  decay.data(),
                                  state.range(1) != 0 ? decay.data() : nullptr,
                                  out.data(),
                                  keys,
                                  keys,
                                  stride,
                                  1,
                                  1,
                                  false,
                                  kept.data(),
                                  stride,
                                  false,
                                  keys,
                                  rows,
                                  recurrence_tile};
  for (auto _ : state) recurrence_cpu().linear(task);
  count_elements(state, rows * keys * stride);
}
BENCHMARK(linear_recurrence)->Args({1, 0})->Args({1, 1})->Args({128, 0})->Args({128, 1});

}  // namespace
}  // namespace espalier::kernels

BENCHMARK_MAIN();
