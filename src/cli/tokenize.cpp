#include <iostream>
#include <memory>

#include "base/error.h"
#include "cli/input_text.h"
#include "cli/model_options.h"
#include "cli/verbs.h"
#include "generation/bundle.h"
#include "server/protocol/parameter.h"

namespace espalier::cli {
namespace {

using server::protocol::Json;
using tokenizer::SpecialTokens;
using tokenizer::TokenId;
using tokenizer::Tokenizer;

struct TokenizeOptions {
  std::string model;
  bool special = false;
  bool literal = false;
  bool decode = false;
  bool skip_special = false;
  bool stream = false;
};

[[noreturn]] void refuse_input(const std::string& expected) {
  throw base::LoadError("standard input must be a JSON array of " + expected);
}

std::vector<TokenId> read_ids(const Json& input, int vocabulary) {
  if (!input.is_array()) refuse_input("arrays of token ids");
  std::vector<TokenId> ids;
  ids.reserve(input.size());
  for (const Json& id : input) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<unsigned>(vocabulary)) {
      throw base::LoadError("standard input: " + server::protocol::shown(id.dump()) +
                            " is no token id below " + std::to_string(vocabulary));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

std::vector<std::string> read_texts(const Json& input) {
  try {
    return input.get<std::vector<std::string>>();
  } catch (const Json::exception&) {
    refuse_input("strings");
  }
}

/// One piece per id; what is still held back at the end goes to the last one.
Json decode_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  std::vector<std::string> pieces;
  const auto decoder = tokenizer.stream(skip_special);
  for (const TokenId id : ids) pieces.push_back(decoder->push(id));
  if (!pieces.empty()) pieces.back() += decoder->finish();
  return pieces;
}

Json decode(const Tokenizer& tokenizer, const Json& input, const TokenizeOptions& options) {
  Json output = Json::array();
  for (const Json& row : input) {
    const std::vector<TokenId> ids = read_ids(row, tokenizer.vocabulary_size());
    if (options.stream) {
      output.push_back(decode_stream(tokenizer, ids, options.skip_special));
    } else {
      output.push_back(tokenizer.decode(ids, options.skip_special));
    }
  }
  return output;
}

Json encode(const Tokenizer& tokenizer, const Json& input, const TokenizeOptions& options) {
  const SpecialTokens special = options.literal   ? SpecialTokens::literal
                                : options.special ? SpecialTokens::add
                                                  : SpecialTokens::recognise;
  Json output = Json::array();
  for (const std::string& text : read_texts(input)) {
    output.push_back(tokenizer.encode(text, special));
  }
  return output;
}

void run_tokenize(const TokenizeOptions& options) {
  if (!options.decode && (options.skip_special || options.stream)) {
    throw base::UsageError("--skip-special and --stream go with --decode");
  }
  if (options.decode && (options.special || options.literal)) {
    throw base::UsageError("--special and --literal do not go with --decode");
  }
  const auto tokenizer = generation::load_text_bundle(text_path(options.model)).tokenizer;
  const Json input = read_json_input();
  if (!input.is_array()) refuse_input(options.decode ? "arrays of token ids" : "strings");
  const Json output =
      options.decode ? decode(*tokenizer, input, options) : encode(*tokenizer, input, options);
  std::cout << server::protocol::dump(output) << "\n";
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* verb = app.add_subcommand(
      "tokenize",
      "Turn a JSON array of strings on standard input into an array of token id arrays.\n"
      "Special tokens written in the text become their ids.");
  verb->add_option("--model", options->model,
                   "folder (tokenizer files are enough), .gguf file, repo id or alias")
      ->required();
  auto* special =
      verb->add_flag("--special", options->special, "add what belongs around a text (BOS, EOS)");
  verb->add_flag("--literal", options->literal, "all text is plain text")->excludes(special);
  verb->add_flag("--decode", options->decode, "the other way: id arrays in, strings out");
  verb->add_flag("--skip-special", options->skip_special,
                 "with --decode: leave special tokens out");
  verb->add_flag("--stream", options->stream,
                 "with --decode: an array with the piece of text of each id");
  verb->footer(
      "Examples:\n"
      "  echo '[\"Hello\"]' | espalier tokenize --model MODEL\n"
      "  echo '[[19556]]' | espalier tokenize --model MODEL --decode");
  verb->callback([options, &action] { action = [options] { run_tokenize(*options); }; });
}

}  // namespace espalier::cli
