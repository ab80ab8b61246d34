#include "cli/model_options.h"

#include <chrono>
#include <future>

#include "cli/input_text.h"
#include "cli/option_checks.h"
#include "generation/bundle.h"
#include "server/protocol/request_template.h"
#include "server/protocol/special_marks.h"

namespace espalier::cli {
namespace {

using generation::KvType;

/// A word and the number of its enumerator, which is what the command line is converted from.
std::pair<std::string, std::string> kv_word(const char* word, KvType type) {
  return {word, std::to_string(static_cast<int>(type))};
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void load_text(server::protocol::ServedModel& served, const std::filesystem::path& path,
               const ModelOptions& options) {
  served.text = generation::load_text_bundle(path);
  served.special_names = server::protocol::special_names(*served.text.tokenizer);
  served.templates = std::make_shared<server::protocol::TemplateCache>();
  served.tool_dialect = options.tool_dialect;
  auto variants = std::move(served.text.template_variants);
  std::string source = path.string();
  if (!options.chat_template.empty()) {
    source = options.chat_template;
    variants = {{"default", require_utf8(read_file(source), source)}};
  }
  server::protocol::set_template(served, std::move(variants), source);
}

void load_weights(server::protocol::ServedModel& served, const std::filesystem::path& path,
                  const generation::EngineOptions& options) {
  if (generation::Embedder::holds(path)) {
    served.embedder = generation::Embedder::load(path, options);
    served.engine = generation::refuse_generation(served.embedder->info().model);
  } else {
    served.engine = generation::Engine::load(path, options);
  }
}

}  // namespace

void add_model_options(CLI::App& verb, ModelOptions& options, bool model_required) {
  verb.add_option("--model", options.model, "folder, .gguf file, repo id or alias")
      ->check(some_text())
      ->required(model_required);
  verb.add_option("--threads", options.engine.threads,
                  "threads that compute (default: the physical cores)")
      ->check(whole_number(1));
  verb.add_option("--dtype", options.engine.dtype,
                  "type of the activations between layers: float32, float16 or bfloat16 (default: "
                  "float32 for GGUF, else the checkpoint's)")
      ->transform(choice(
          {{"float32", "f32"}, {"f32", "f32"}, {"float16", "float16"}, {"bfloat16", "bfloat16"}}));
  verb.add_option(
          "--activations", options.engine.activations,
          "what quantized weights are multiplied with: int8, int15 or f32 (default: int8 for "
          "GGUF, int15 for MLX schemes and trellis codes)")
      ->check(one_of({"int8", "int15", "f32"}));
  verb.add_option("--numeric", options.engine.numeric,
                  "what products with trellis-coded weights are: integer, exact sums that do not "
                  "depend on the batch, or reference, those of the format's first implementation "
                  "(default: integer)")
      ->check(one_of({"integer", "reference"}));
  verb.add_flag("--check-weights", options.engine.check_weights,
                "refuse weights that are infinite or not numbers");
  verb.add_flag_callback(
      "--no-repack", [&options] { options.engine.repack = false; },
      "read weights from the file's own pages, each time they are needed: takes no memory "
      "beside them and gives the same results, more slowly");
  const std::string usual_kv_type = options.engine.kv_type == KvType::f32 ? "f32" : "f16";
  verb.add_option(
          "--kv-type", options.engine.kv_type,
          "type of the stored keys and values: f16, bf16 or f32 (default: " + usual_kv_type + ")")
      ->transform(choice({kv_word("f16", KvType::f16), kv_word("bf16", KvType::bf16),
                          kv_word("f32", KvType::f32)}));
}

void add_engine_options(CLI::App& verb, ModelOptions& options) {
  verb.add_option("--context", options.engine.context,
                  "positions a request may use (default: the model's own, or what fits)")
      ->check(whole_number(1));
  verb.add_option("--prefill-chunk", options.engine.prefill_chunk,
                  "prompt tokens computed in one step; results do not depend on it")
      ->check(whole_number(1))
      ->capture_default_str();
  verb.add_option("--chat-template", options.chat_template,
                  "a file with a Jinja template, in place of the model's own")
      ->check(CLI::ExistingFile);
}

std::shared_ptr<const server::protocol::ServedModel> load_served_model(
    const hub::LocalModel& model, const ModelOptions& options) {
  auto served = std::make_shared<server::protocol::ServedModel>();
  served->alias = model.alias;
  served->names = {model.path.filename().string(), model.path.stem().string()};
  if (!model.repo_id.empty()) served->names.push_back(model.repo_id);
  served->created = unix_time();
  // Both take their time and neither needs the other. A tokenizer is many small pieces of memory,
  // which the first thread's heap gives fastest.
  auto weights =
      std::async(std::launch::async, [&] { load_weights(*served, model.path, options.engine); });
  std::packaged_task<void()> text([&] { load_text(*served, model.path, options); });
  std::future<void> text_outcome = text.get_future();
  text();
  weights.get();
  text_outcome.get();
  served->grammars = grammar::make_compiler(
      served->text.tokenizer, served->engine->info().vocabulary, served->text.end_tokens);
  return served;
}

std::filesystem::path text_path(const std::string& model) {
  std::error_code error;
  return std::filesystem::exists(model, error) ? std::filesystem::path(model)
                                               : hub::resolve(model).path;
}

}  // namespace espalier::cli
