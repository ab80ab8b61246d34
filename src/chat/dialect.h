#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/message_writer.h"
#include "chat/task.h"
#include "chat/text_cursor.h"
#include "chat/tool_set.h"

namespace espalier::chat {

/// What parts the reasoning from the answer: a text of `open` starts it, one of `close` ends it.
struct ReasoningMarks {
  std::vector<std::string> open;
  std::vector<std::string> close;
};

/// What a parser reads from, writes to and knows.
struct ParseContext {
  TextCursor& in;
  MessageWriter& out;
  const ToolSet& tools;
};

/// How calls are written inside the text of an answer. Immutable; shared by all parsers of a
/// dialect.
class CallSyntax {
 public:
  virtual ~CallSyntax() = default;

  /// The texts that open calls.
  virtual const std::vector<std::string>& openings() const = 0;
  /// Reads what follows an opening, which has been taken. False when that is no call; then nothing
  /// has been written, and what was taken is given back by the caller.
  virtual Task<bool> parse(ParseContext& context, std::size_t opening) const = 0;
  /// The same where text begins, without an opening.
  virtual Task<bool> parse_bare(ParseContext& context) const;
  virtual bool has_bare() const { return false; }
};

/// How a whole answer is written, for dialects in which every part has a header.
class MessageSyntax {
 public:
  virtual ~MessageSyntax() = default;
  virtual Task<void> parse(ParseContext& context) const = 0;
  /// The part of a prompt's end that belongs to the answer's first header.
  virtual std::string opened_by(std::string_view prompt_end) const = 0;
};

/// One way in which models write reasoning and tool calls.
struct Dialect {
  std::string name;  // <family>_<syntax>
  std::string description;
  std::shared_ptr<const CallSyntax> calls;       // or
  std::shared_ptr<const MessageSyntax> message;  // one of the two
  ReasoningMarks reasoning = {};
  std::vector<std::string> closings = {};  // dropped behind markup
  std::vector<std::string> hidden = {};    // dropped everywhere in text
  std::vector<std::string> endings = {};   // dropped at the end of all text
  std::vector<std::string> markup = {};    // further special tokens that the syntax is made of
};

/// All dialects, by name.
const std::vector<Dialect>& dialects();
/// Null when there is none of this name.
const Dialect* find_dialect(std::string_view name);

/// Every text that a dialect gives a meaning: special tokens in them must reach the parser.
std::vector<std::string> markup_of(const Dialect& dialect, const ReasoningMarks& reasoning);

}  // namespace espalier::chat
