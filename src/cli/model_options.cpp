#include "cli/model_options.h"

#include <chrono>
#include <map>

#include "base/thread_pool.h"
#include "chat/template.h"
#include "server/protocol/special_marks.h"

namespace espalier::cli {

void add_model_name(CLI::App& verb, std::string& model) {
  verb.add_option("--model,-m", model, "Folder, .gguf file, repo id in the cache, or alias")
      ->required();
}

void add_model_options(CLI::App& verb, ModelOptions& options) {
  add_model_name(verb, options.model);
  verb.add_option("--threads", options.threads, "Threads that compute (default: physical cores)")
      ->check(CLI::Range(1, 1024));
  verb.add_option("--dtype", options.dtype,
                  "Type of the residual stream (default: float32 for GGUF, the checkpoint's own "
                  "for safetensors)")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  verb.add_option("--activations", options.activations,
                  "How activations enter quantized products: int8 (fast) or f32 (exact)")
      ->check(CLI::IsMember({"int8", "f32"}))
      ->capture_default_str();
}

std::unique_ptr<models::Model> load_weights(const ModelOptions& options) {
  const std::map<std::string, mlx::core::Dtype> dtypes = {{"float32", mlx::core::float32},
                                                          {"bfloat16", mlx::core::bfloat16},
                                                          {"float16", mlx::core::float16}};
  models::LoadOptions load;
  if (!options.dtype.empty()) load.dtype = dtypes.at(options.dtype);
  if (options.activations == "f32") load.activations = layers::ActivationFormat::f32;
  if (options.threads) base::set_compute_threads(*options.threads);
  return models::load_model(hub::resolve(options.model).path, load);
}

generation::EngineOptions engine_options(const ModelOptions& options) {
  generation::EngineOptions engine;
  engine.threads = options.threads;
  engine.dtype = options.dtype == "float32" ? "f32" : options.dtype;
  engine.activations = options.activations;
  return engine;
}

server::protocol::ServedModel load_text(const hub::LocalModel& model) {
  server::protocol::ServedModel served;
  served.alias = model.alias;
  served.names = {model.path.filename().string(), model.path.stem().string()};
  if (!model.repo_id.empty()) served.names.push_back(model.repo_id);
  served.created = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  served.text = generation::load_text_bundle(model.path);
  if (!served.text.template_variants.empty()) {
    served.chat_template =
        chat::compile_template(served.text.template_variants, model.path.string());
  }
  served.special_names = server::protocol::special_names(*served.text.tokenizer);
  return served;
}

std::shared_ptr<const server::protocol::ServedModel> load_with_engine(
    const hub::LocalModel& model, const generation::EngineOptions& options) {
  auto served = std::make_shared<server::protocol::ServedModel>(load_text(model));
  served->engine = generation::Engine::load(model.path, options);
  return served;
}

}  // namespace espalier::cli
