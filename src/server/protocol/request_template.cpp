#include "server/protocol/request_template.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "chat/call_grammar.h"
#include "server/protocol/special_marks.h"

namespace espalier::server::protocol {
namespace {

constexpr std::size_t cached_templates = 16;

/// How the model writes reasoning and calls.
void find_style(ServedModel& model) {
  model.style = chat::find_style(model.chat_template.get(), model.text.template_variants,
                                 model.text.special_tokens);
  if (!model.tool_dialect.empty()) model.style.dialect = chat::find_dialect(model.tool_dialect);
  if (model.style.dialect == nullptr) {
    throw base::UsageError("there is no dialect '" + model.tool_dialect +
                           "'; espalier parse-tools --list names them");
  }
  if (!model.style.reasons) model.style.reasoning = model.style.dialect->reasoning;
  model.markup_tokens = special_tokens_in(
      *model.text.tokenizer, chat::markup_of(*model.style.dialect, model.style.reasoning));
}

std::shared_ptr<const ServedModel> compile(const ServedModel& model, const std::string& source) {
  auto changed = std::make_shared<ServedModel>(model);
  changed->templates = nullptr;  // else the cache would own itself
  try {
    set_template(*changed, {{"default", source}}, "the request");
  } catch (const base::LoadError& error) {
    throw base::RequestError(400, "invalid_template", error.what(), "chat_template");
  }
  return changed;
}

std::string template_names(const ServedModel& model) {
  std::string names;
  for (const auto& [name, source] : model.text.template_variants) {
    names += (names.empty() ? "'" : ", '") + name + "'";
  }
  return names.empty() ? "it has none" : "it has " + names;
}

}  // namespace

void set_template(ServedModel& model, std::map<std::string, std::string> variants,
                  const std::string& source) {
  model.chat_template = variants.empty() ? nullptr : chat::compile_template(variants, source);
  model.text.template_variants = std::move(variants);
  find_style(model);
}

bool is_template_source(const std::string& chosen) {
  return chosen.find_first_of("{\n") != std::string::npos;
}

std::shared_ptr<const ServedModel> with_template(const std::shared_ptr<const ServedModel>& model,
                                                 const std::string& chosen) {
  if (chosen.empty()) return model;
  const auto named = model->text.template_variants.find(chosen);
  if (named == model->text.template_variants.end() && !is_template_source(chosen)) {
    throw base::RequestError(
        400, "unknown_template",
        "The model has no chat template named '" + chosen + "': " + template_names(*model) + ".",
        "chat_template");
  }
  const std::string& source = named == model->text.template_variants.end() ? chosen : named->second;
  auto changed = model->templates->find(source);
  if (changed) return changed;
  changed = compile(*model, source);
  model->templates->add(source, changed);
  return changed;
}

std::shared_ptr<const ServedModel> TemplateCache::find(const std::string& source) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&source](const Entry& entry) { return entry.source == source; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->model;
}

void TemplateCache::add(const std::string& source, std::shared_ptr<const ServedModel> model) {
  const std::lock_guard lock(mutex_);
  entries_.push_front({source, std::move(model)});
  if (entries_.size() > cached_templates) entries_.pop_back();
}

}  // namespace espalier::server::protocol
