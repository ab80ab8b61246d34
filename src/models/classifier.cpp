#include "models/classifier.h"

#include <nlohmann/json.hpp>

namespace espalier::models {
namespace {

/// transformers writes the classes' names, or their number where they have none.
int read_labels(const ConfigReader& config) {
  if (const std::optional<ConfigReader> names = config.object("id2label")) {
    return names->size();
  }
  return config.integer("num_labels", 2);
}

}  // namespace

std::optional<ClassifierDescriptor> read_classifier(const ConfigReader& config) {
  const std::vector<std::string> architectures = config.strings("architectures");
  if (architectures.size() != 1 || !architectures[0].ends_with("ForSequenceClassification")) {
    return std::nullopt;
  }
  const std::string family = config.string("model_type");
  const int labels = read_labels(config);
  if (family == "bert") {
    return ClassifierDescriptor{.pooling = Pooling::first,
                                .dense = "bert.pooler.dense",
                                .output = "classifier",
                                .labels = labels};
  }
  if (family == "roberta" || family == "xlm-roberta") {
    return ClassifierDescriptor{.pooling = Pooling::first,
                                .dense = "classifier.dense",
                                .output = "classifier.out_proj",
                                .labels = labels};
  }
  if (family == "modernbert") {
    const std::string activation = config.string("classifier_activation", "gelu");
    if (activation != "gelu") {
      config.fail("classifier_activation", "is '" + activation + "', which is not supported");
    }
    return ClassifierDescriptor{.pooling = config.string("classifier_pooling", "cls") == "mean"
                                               ? Pooling::mean
                                               : Pooling::first,
                                .dense = "head.dense",
                                .dense_bias = config.boolean("classifier_bias", false),
                                .function = ClassifierDescriptor::Function::gelu,
                                .norm = "head.norm",
                                .norm_eps = static_cast<float>(config.number("norm_eps")),
                                .norm_bias = config.boolean("norm_bias", false),
                                .output = "classifier",
                                .labels = labels};
  }
  // Decoders: the last token's row, without biases.
  return ClassifierDescriptor{
      .pooling = Pooling::last, .output = "score", .output_bias = false, .labels = labels};
}

}  // namespace espalier::models
