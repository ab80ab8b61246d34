// The mean square error of trellis codes on unit Gaussians of a fixed seed, in rows of 2048, with
// each scale rule. Build the target `trellis_error` and run `trellis_error [ROWS [WORD...]]`: 2048
// rows (2^22 numbers) unless told otherwise; words limit it to what they name: `L=12`, `L=16`,
// `1mad`, `mul1`, `refitted`, `rms`, and bits as in `K=3.5`.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "quantization/trellis_encoder.h"

namespace espalier {
namespace {

using kernels::TrellisCode;
using kernels::TrellisFormat;
using quantization::TrellisScale;

constexpr int columns = 2048;

struct Setting {
  const char* code;
  TrellisCode of;
  int state_bits;
};

constexpr Setting settings[] = {{"1mad", TrellisCode::one_mad, 12},
                                {"1mad", TrellisCode::one_mad, 16},
                                {"mul1", TrellisCode::mul1, 16}};

std::vector<float> gaussians(int rows) {
  std::mt19937 random(20240617);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(rows) * columns);
  for (float& value : values) value = normal(random);
  return values;
}

/// Whether each of the words that say something of this kind ("L=", "K=", a code, a scale) says it
/// of this setting.
bool wanted(const std::vector<std::string>& words, const std::vector<std::string>& names) {
  const auto names_any = [&](const std::string& kind) {
    return std::ranges::any_of(words, [&](const std::string& word) { return word == kind; });
  };
  const std::vector<std::vector<std::string>> kinds = {{"L=12", "L=16"},
                                                       {"1mad", "mul1"},
                                                       {"refitted", "rms"},
                                                       {"K=2", "K=2.5", "K=3", "K=3.5", "K=4"}};
  return std::ranges::all_of(kinds, [&](const std::vector<std::string>& kind) {
    const bool limited = std::ranges::any_of(kind, names_any);
    return !limited || std::ranges::any_of(kind, [&](const std::string& word) {
      return names_any(word) && std::ranges::find(names, word) != names.end();
    });
  });
}

void print(const std::vector<std::string>& names, const TrellisFormat& format, TrellisScale scale,
           const std::vector<float>& values) {
  const auto rows = static_cast<int>(values.size() / columns);
  const auto begin = std::chrono::steady_clock::now();
  const double error = encode_trellis(values.data(), rows, columns, format, scale).square_error;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  const auto count = static_cast<double>(values.size());
  std::printf("| %s | %s | %s | %s | %.5f | %.2f |\n", names[3].c_str() + 2, names[0].c_str() + 2,
              names[1].c_str(), names[2].c_str(), error / count, count / time.count() / 1e6);
  std::fflush(stdout);
}

void measure(const Setting& setting, const std::vector<std::string>& words,
             const std::vector<float>& values) {
  for (int halves = 4; halves <= 8; ++halves) {
    for (const auto scale : {TrellisScale::root_mean_square, TrellisScale::refitted}) {
      const std::vector<std::string> names = {
          "L=" + std::to_string(setting.state_bits), setting.code,
          scale == TrellisScale::refitted ? "refitted" : "rms",
          "K=" + std::to_string(halves / 2) + (halves % 2 != 0 ? ".5" : "")};
      if (!wanted(words, names)) continue;
      print(names,
            {.bits = halves / 2,
             .state_bits = setting.state_bits,
             .code = setting.of,
             .half_bit = halves % 2 != 0},
            scale, values);
    }
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;
  const int rows = argc > 1 ? std::atoi(argv[1]) : 2048;
  if (rows < 1) {
    std::fputs("usage: trellis_error [ROWS [WORD...]]\n", stderr);
    return 2;
  }
  const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  const std::vector<float> values = gaussians(rows);
  std::puts(
      "| Bits | L | Code | Scale | Mean square error | M weights/s |\n|---|---|---|---|---|---|");
  for (const Setting& setting : settings) measure(setting, words, values);
}
