#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include "cli/model_options.h"
#include "cli/standard_input.h"
#include "cli/verbs.h"
#include "generation/bundle.h"

namespace espalier::cli {
namespace {

using Json = nlohmann::ordered_json;
using tokenizer::SpecialTokens;
using tokenizer::TokenId;

struct TokenizeOptions {
  std::string model;
  bool special = false;
  bool literal = false;
  bool decode = false;
  bool skip_special = false;
  bool stream = false;
};

Json encode(const tokenizer::Tokenizer& tokenizer, const Json& text,
            const TokenizeOptions& options) {
  if (!text.is_string()) {
    throw std::runtime_error("Standard input is not a JSON array of strings.");
  }
  const auto special = options.special   ? SpecialTokens::add
                       : options.literal ? SpecialTokens::literal
                                         : SpecialTokens::recognise;
  return tokenizer.encode(text.get_ref<const std::string&>(), special);
}

/// One piece of text per id, the rest with the last.
Json decode_stream(const tokenizer::Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                   bool skip_special) {
  const auto stream = tokenizer.stream(skip_special);
  Json pieces = Json::array();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::string piece = stream->push(ids[i]);
    if (i + 1 == ids.size()) piece += stream->finish();
    pieces.push_back(piece);
  }
  return pieces;
}

Json decode(const tokenizer::Tokenizer& tokenizer, const Json& row,
            const TokenizeOptions& options) {
  std::vector<TokenId> ids;
  for (const Json& id : row.is_array() ? row : Json()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() >= tokenizer.vocabulary_size()) {
      throw std::runtime_error("Standard input has " + id.dump() +
                               " where an id of the vocabulary belongs.");
    }
    ids.push_back(id.get<TokenId>());
  }
  if (!row.is_array()) {
    throw std::runtime_error("Standard input is not a JSON array of id arrays.");
  }
  if (options.stream) return decode_stream(tokenizer, ids, options.skip_special);
  return tokenizer.decode(ids, options.skip_special);
}

int tokenize(const TokenizeOptions& options) {
  const auto bundle = generation::load_text_bundle(hub::resolve(options.model).path);
  const Json input = parse_json(read_standard_input(), "Standard input");
  if (!input.is_array()) throw std::runtime_error("Standard input is not a JSON array.");
  Json output = Json::array();
  for (const Json& element : input) {
    output.push_back(options.decode ? decode(*bundle.tokenizer, element, options)
                                    : encode(*bundle.tokenizer, element, options));
  }
  std::cout << output.dump() << std::endl;
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "tokenize",
      "Texts to token ids: a JSON array of strings on standard input, a JSON array of id arrays "
      "on\nstandard output. --decode goes the other way.");
  const auto options = std::make_shared<TokenizeOptions>();
  add_model_name(*verb, options->model);
  auto* special =
      verb->add_flag("--special", options->special, "Add what the post-processor adds (BOS, EOS)");
  verb->add_flag("--literal", options->literal, "Special tokens written in the text are plain text")
      ->excludes(special);
  auto* decode = verb->add_flag("--decode", options->decode, "Ids to texts");
  verb->add_flag("--skip-special", options->skip_special, "Leave special tokens out of the text")
      ->needs(decode);
  verb->add_flag("--stream", options->stream, "An array of pieces, one for each id")->needs(decode);
  verb->callback([options, &action] { action = [options] { return tokenize(*options); }; });
}

}  // namespace espalier::cli
