#include "conversion/convert.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <iomanip>
#include <iostream>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/input_text.h"
#include "cli/option_checks.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "conversion/plan.h"
#include "conversion/sensitivity.h"
#include "conversion/staging_folder.h"
#include "hub/resolve.h"
#include "server/protocol/parameter.h"

namespace espalier::cli {
namespace {

using server::protocol::Json;

struct ConvertVerbOptions {
  std::string model;
  std::string output;
  std::string dtype;
  std::string mode;
  std::optional<int> bits;
  std::optional<int> group;
  std::string trellis;
  std::string trellis_scale;
  std::optional<int> trellis_state;
  std::string trellis_code;
  std::string rotate;
  bool dequantize = false;
  std::string gguf;
  std::vector<std::string> rules;
  std::optional<double> target_bpw;
  std::string calibration;
  std::optional<int> threads;
  bool json = false;
};

/// What a signal cancels; set before the handler is.
const base::CancellationToken* interrupted = nullptr;

/// While it lives signals cancel a token, which must outlive it; then they end the program again.
class CancelOnSignal {
 public:
  explicit CancelOnSignal(const base::CancellationToken& token) {
    interrupted = &token;
    handle([](int) { interrupted->cancel(); });
  }
  ~CancelOnSignal() { handle(SIG_DFL); }
  CancelOnSignal(const CancelOnSignal&) = delete;
  CancelOnSignal& operator=(const CancelOnSignal&) = delete;

 private:
  static void handle(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  }
};

conversion::Rule parse_rule(const std::string& text) {
  const auto separator = text.rfind('=');
  if (separator == std::string::npos || separator == 0 || separator + 1 == text.size()) {
    throw base::UsageError("a rule is PATTERN=SETTING, not \"" + text + "\"");
  }
  return {text.substr(0, separator), text.substr(separator + 1)};
}

quantization::MlxFormat parse_quantization(const ConvertVerbOptions& options) {
  const auto mode = conversion::parse_mode(options.mode);
  quantization::MlxFormat format;
  if (mode != quantization::MlxMode::affine) format = quantization::mlx_float_format(mode);
  if (options.bits) format.bits = *options.bits;
  if (options.group) format.group = *options.group;
  return format;
}

/// What turns off what trellis codes get by default.
constexpr std::string_view none = "none";

std::uint32_t parse_seed(const std::string& text) {
  std::uint32_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw base::UsageError("--rotate takes a whole number below 2^32 or none, not \"" + text +
                           "\"");
  }
  return seed;
}

conversion::TrellisOptions parse_trellis(const ConvertVerbOptions& options) {
  kernels::TrellisFormat format;
  format.state_bits = options.trellis_state.value_or(format.state_bits);
  if (options.trellis_code == "mul1") format.code = kernels::TrellisCode::mul1;
  if (format.state_bits == 12 && format.code == kernels::TrellisCode::mul1) {
    throw base::UsageError("the code mul1 goes with --trellis-state 16");
  }
  conversion::TrellisOptions result = conversion::parse_trellis(options.trellis, format);
  if (options.trellis_scale == "rms") result.scale = quantization::TrellisScale::root_mean_square;
  if (options.trellis_scale == "refit") result.scale = quantization::TrellisScale::refitted;
  return result;
}

std::string calibration_text(const ConvertVerbOptions& options) {
  return require_utf8(read_file(options.calibration), options.calibration);
}

conversion::ConvertOptions parse(const ConvertVerbOptions& options) {
  conversion::ConvertOptions result;
  result.source = hub::resolve(options.model).path;
  result.destination = options.output;
  if (!options.dtype.empty()) result.dtype = conversion::parse_dtype(options.dtype);
  if (!options.mode.empty()) {
    result.quantize = parse_quantization(options);
  } else if (options.bits || options.group) {
    throw base::UsageError("--bits and --group go with --quantize");
  }
  if (!options.calibration.empty() && options.trellis.empty() && !options.target_bpw) {
    throw base::UsageError("--calibration goes with --target-bpw or --trellis");
  }
  if (!options.trellis.empty()) {
    result.trellis = parse_trellis(options);
    if (options.calibration.empty()) {
      result.calibrate_where_possible = true;
    } else if (options.calibration != none) {
      result.calibration = calibration_text(options);
    }
    result.rotate_where_exact = options.rotate.empty();
  }
  if (!options.rotate.empty() && options.rotate != none) {
    result.rotation_seed = parse_seed(options.rotate);
  }
  result.dequantize = options.dequantize;
  if (!options.gguf.empty()) result.gguf = conversion::parse_gguf_type(options.gguf);
  for (const std::string& rule : options.rules) result.rules.push_back(parse_rule(rule));
  result.progress = show_progress("million values");
  return result;
}

/// Measures the layers and chooses their bits when a budget is given.
void apply_budget(const ConvertVerbOptions& options, conversion::ConvertOptions& parsed) {
  if (!options.target_bpw) return;
  if (parsed.trellis && !parsed.trellis->layers.empty()) {
    throw base::UsageError("--target-bpw chooses the bits that a map would give");
  }
  if (!parsed.quantize) parsed.quantize = quantization::MlxFormat{};
  if (!parsed.trellis && (parsed.quantize->mode != quantization::MlxMode::affine || options.bits)) {
    throw base::UsageError("--target-bpw chooses the bits of affine weights by itself");
  }
  conversion::require_free(parsed.destination);
  conversion::BudgetOptions budget;
  budget.source = parsed.source;
  budget.bits_per_weight = *options.target_bpw;
  if (options.calibration == none) {
    throw base::UsageError("--target-bpw measures on a calibration text");
  }
  budget.text = calibration_text(options);
  budget.cancelled = parsed.cancelled;
  budget.progress = show_progress("layers measured");
  if (parsed.trellis) {
    parsed.trellis->layers = conversion::choose_trellis(budget, parsed);
  } else {
    parsed.layers = conversion::choose_formats(budget, parsed);
  }
}

/// Notes are "TENSOR what became of it": those that say the same of many tensors are printed once.
void print_notes(const std::vector<std::string>& notes) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const std::string& note : notes) {
    const std::size_t space = note.find(' ');
    const std::string what = note.substr(space);
    auto group =
        std::ranges::find(groups, what, &std::pair<std::string, std::vector<std::string>>::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {what, {}});
    group->second.push_back(note.substr(0, space));
  }
  for (const auto& [what, tensors] : groups) {
    std::cerr << tensors.front();
    if (tensors.size() > 1) std::cerr << " (and " << tensors.size() - 1 << " more)";
    std::cerr << what << "\n";
  }
}

void print(const conversion::ConvertReport& report, const ConvertVerbOptions& options) {
  if (options.json) {
    const Json output = {{"path", options.output},
                         {"tensors", report.tensors},
                         {"parameters", report.values},
                         {"bytes", report.bytes},
                         {"bits_per_weight", report.bits_per_weight},
                         {"encodings", report.encodings},
                         {"notes", report.notes}};
    std::cout << server::protocol::dump(output) << "\n";
    return;
  }
  print_notes(report.notes);
  std::cout << options.output << ": " << report.tensors << " tensors, " << std::fixed
            << std::setprecision(1) << static_cast<double>(report.bytes) / 1e6 << " MB, "
            << std::setprecision(3) << report.bits_per_weight << " bits per weight\n";
  for (const auto& [encoding, count] : report.encodings) {
    std::cout << "  " << count << " " << encoding << "\n";
  }
}

void run_convert(const ConvertVerbOptions& options) {
  if (options.threads) base::set_compute_threads(*options.threads);
  conversion::ConvertOptions parsed = parse(options);
  const CancelOnSignal guard(parsed.cancelled);
  apply_budget(options, parsed);
  print(conversion::convert(parsed), options);
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto options = std::make_shared<ConvertVerbOptions>();
  CLI::App* verb =
      app.add_subcommand("convert", "Change how a model's weights are stored, into a new place");
  verb->add_option("--model", options->model, "folder, .gguf file, repo id or alias")->required();
  verb->add_option("--output", options->output, "new folder, or new .gguf file with --gguf")
      ->required();
  verb->add_option("--dtype", options->dtype,
                   "float32, float16 or bfloat16: type of dense tensors and of scales");
  auto* quantize =
      verb->add_option("--quantize", options->mode, "MLX's affine, mxfp4, mxfp8 or nvfp4");
  verb->add_option("--bits", options->bits, "of affine weights: 2, 3, 4, 5, 6 or 8 (default: 4)");
  verb->add_option("--group", options->group,
                   "weights that share a scale: 32, 64 or 128 (default: 64)");
  auto* trellis = verb->add_option(
      "--trellis", options->trellis,
      "bits of trellis codes: 2, 2.5, 3, 3.5 or 4, or a .json file of bits by layer "
      "names; matrices that cannot be coded are affine");
  verb->add_option(
          "--trellis-scale", options->trellis_scale,
          "search (default): the scale of least error, larger ones being tried where a row "
          "has outliers; refit: without trying; rms: that of the root mean square")
      ->check(CLI::IsMember({"search", "refit", "rms"}))
      ->needs(trellis);
  verb->add_option("--trellis-state", options->trellis_state,
                   "bits of a state: 12 (default), or 16, which takes 16 times as long to code")
      ->check(CLI::IsMember({12, 16}))
      ->needs(trellis);
  verb->add_option("--trellis-code", options->trellis_code, "1mad (default), or mul1 with state 16")
      ->check(CLI::IsMember({"1mad", "mul1"}))
      ->needs(trellis);
  verb->add_option("--rotate", options->rotate,
                   "seed of a rotation of the residual stream that is folded into the weights "
                   "(default with --trellis, where it is exact: 42), or none");
  auto* dequantize =
      verb->add_flag("--dequantize", options->dequantize, "write all weights as plain numbers");
  auto* gguf =
      verb->add_option(
              "--gguf", options->gguf,
              "write a GGUF file of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, "
              "Q6_K, IQ4_NL or IQ4_XS")
          ->excludes(quantize)
          ->excludes(dequantize);
  quantize->excludes(dequantize);
  verb->add_option(
          "--rule", options->rules,
          "PATTERN=SETTING for tensors or layers of that name; the last that matches holds")
      ->allow_extra_args(false);
  auto* budget =
      verb->add_option(
              "--target-bpw", options->target_bpw,
              "bits a weight on average: measure each affine or trellis-coded layer and choose "
              "its bits")
          ->check(real_number(0.1, 64));
  auto* calibration = verb->add_option(
      "--calibration", options->calibration,
      "file with the text to measure on, and to feed errors of trellis codes back by (default for "
      "these: a text of the program's own), or none");
  budget->needs(calibration);
  budget->excludes(dequantize)->excludes(gguf);
  verb->add_option("--threads", options->threads,
                   "threads that compute (default: the physical cores)")
      ->check(whole_number(1));
  verb->add_flag("--json", options->json,
                 "print {path, tensors, parameters, bytes, bits_per_weight, encodings, notes}");
  verb->footer(
      "Examples:\n"
      "  espalier convert --model MODEL --output FOLDER --quantize affine --bits 4\n"
      "  espalier convert --model MODEL --output FILE.gguf --gguf Q4_K");
  verb->callback([options, &action] { action = [options] { run_convert(*options); }; });
}

}  // namespace espalier::cli
