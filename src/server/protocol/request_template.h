#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/protocol/served_model.h"

namespace espalier::server::protocol {

/// Gives a model its chat template, compiled from named variants ("default" is the plain one), and
/// what follows from it: how answers are written. `source` says in errors where it comes from.
/// Throws `LoadError`.
void set_template(ServedModel& model, std::map<std::string, std::string> variants,
                  const std::string& source);

/// The model with the chat template that a request asks for: `chosen` is empty (the model's own),
/// the name of one of the model's, or a template's source. `model` is the slot's own, not one that
/// this returned. Throws `RequestError` 400. Thread-safe.
std::shared_ptr<const ServedModel> with_template(const std::shared_ptr<const ServedModel>& model,
                                                 const std::string& chosen);

/// Whether `chosen` is a template's source: names have no tags and one line.
bool is_template_source(const std::string& chosen);

/// The templates that requests of late have brought, each as the model that has it: clients send
/// theirs with every request. Thread-safe.
class TemplateCache {
 public:
  std::shared_ptr<const ServedModel> find(const std::string& source);
  void add(const std::string& source, std::shared_ptr<const ServedModel> model);

 private:
  struct Entry {
    std::string source;
    std::shared_ptr<const ServedModel> model;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;  // the latest first
};

}  // namespace espalier::server::protocol
