#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "chat/template.h"
#include "chat/template_style.h"
#include "generation/bundle.h"
#include "generation/embedder.h"
#include "generation/engine.h"
#include "grammar/grammar.h"

namespace espalier::server::protocol {

class TemplateCache;

/// The model that a server answers with. Immutable; its parts are safe to use from any thread.
struct ServedModel {
  std::string alias;               // the id in listings and answers
  std::vector<std::string> names;  // further names that requests may use
  std::int64_t created = 0;        // Unix time
  generation::TextBundle text;
  std::shared_ptr<const chat::ChatTemplate> chat_template;  // null: the model has none
  std::shared_ptr<TemplateCache> templates;              // those that requests bring; null in these
  std::string tool_dialect = {};                         // empty: as the template shows
  std::unordered_set<std::string> special_names;         // of the tokenizer
  chat::TemplateStyle style;                             // how the model writes reasoning and calls
  std::unordered_set<tokenizer::TokenId> markup_tokens;  // special tokens that it does so with
  std::shared_ptr<grammar::Compiler> grammars;
  std::shared_ptr<generation::Engine> engine;      // one that refuses where there is an embedder
  std::shared_ptr<generation::Embedder> embedder;  // null: the model generates text

  /// Throws `RequestError` 404 `model_not_found` unless `name` is empty, `local`, `default` or one
  /// of this model's.
  void check_name(std::string_view name) const;
};

/// Where handlers find the model: empty while it loads. Thread-safe.
class ModelSlot {
 public:
  void set(std::shared_ptr<const ServedModel> model);
  /// Null while loading.
  std::shared_ptr<const ServedModel> find() const;
  /// Throws `RequestError` 503 while loading.
  std::shared_ptr<const ServedModel> get() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;
};

}  // namespace espalier::server::protocol
