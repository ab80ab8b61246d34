#pragma once

#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "server/http/exchange.h"
#include "server/openai/parameters.h"
#include "server/protocol/generation_run.h"

namespace espalier::server::openai {

/// A run of text of one choice, with the tokens it was made of.
struct Piece {
  int choice = 0;
  std::string text;
  std::vector<generation::TokenEvent> tokens;
};

/// The JSON of one endpoint's answers: what differs between chat completions and completions. One
/// object serves one request.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  /// `object` of a whole answer and of an event, and the beginning of the id.
  virtual std::string whole_object() const = 0;
  virtual std::string event_object() const = 0;
  virtual std::string id_prefix() const = 0;
  /// The entry of `choices` with which an event stream opens a choice; null for none.
  virtual Json opening(int choice) = 0;
  /// The entries of `choices` that carry a piece of text; `ends`: no more comes for its choice.
  virtual std::vector<Json> deltas(Piece piece, bool ends) = 0;
  /// The entry of `choices` that ends a choice.
  virtual Json closing(int choice, const std::string& finish_reason) = 0;
  /// The entry of `choices` of a whole answer.
  virtual Json whole(const Piece& piece, const std::string& finish_reason) = 0;
};

/// Whether one of the tokens is text.
bool has_text_token(const std::vector<generation::TokenEvent>& tokens);

/// Answers with what `run` generates, whole or as an event stream.
boost::asio::awaitable<void> answer(http::Exchange& exchange, protocol::GenerationRun& run,
                                    AnswerFormat& format, const StreamOptions& streaming);

}  // namespace espalier::server::openai
