// The mean square error of trellis codes on 2^22 unit Gaussians of a fixed seed, in rows of 2048,
// with each scale rule. Build the target `trellis_error` and run it; a word of `1mad` or `mul1`, 12
// or 16 as arguments limits it to that code and state.
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "quantization/trellis_encoder.h"

namespace espalier {
namespace {

using kernels::TrellisCode;
using kernels::TrellisFormat;
using quantization::TrellisScale;

constexpr int rows = 2048;
constexpr int columns = 2048;

struct Setting {
  const char* code;
  TrellisCode of;
  int state_bits;
};

constexpr Setting settings[] = {{"1mad", TrellisCode::one_mad, 12},
                                {"1mad", TrellisCode::one_mad, 16},
                                {"mul1", TrellisCode::mul1, 16}};

std::vector<float> gaussians() {
  std::mt19937 random(20240617);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(rows) * columns);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

void print(const Setting& setting, const TrellisFormat& format, const std::vector<float>& values) {
  for (const auto scale : {TrellisScale::root_mean_square, TrellisScale::refitted}) {
    const auto begin = std::chrono::steady_clock::now();
    const double error = encode_trellis(values.data(), rows, columns, format, scale).square_error;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    const auto count = static_cast<double>(values.size());
    std::printf("| %d%s | %d | %s | %s | %.5f | %.2f |\n", format.bits, format.half_bit ? ".5" : "",
                setting.state_bits, setting.code,
                scale == TrellisScale::refitted ? "refitted" : "root mean square", error / count,
                count / time.count() / 1e6);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;
  const std::vector<float> values = gaussians();
  std::puts(
      "| Bits | L | Code | Scale | Mean square error | M weights/s |\n|---|---|---|---|---|---|");
  for (const Setting& setting : settings) {
    bool wanted = true;
    for (int i = 1; i < argc; ++i) {
      wanted = wanted && (setting.code == std::string(argv[i]) ||
                          std::to_string(setting.state_bits) == argv[i]);
    }
    for (int halves = 4; wanted && halves <= 8; ++halves) {
      print(setting,
            {.bits = halves / 2,
             .state_bits = setting.state_bits,
             .code = setting.of,
             .half_bit = halves % 2 != 0},
            values);
    }
  }
}
