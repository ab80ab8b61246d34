#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace espalier::base {

/// A fault of the caller of a request: the only exception that reaches a client as a 4xx answer.
/// `what()` is the one sentence shown to the user; `code` and `param` go into the protocol's error
/// object (`param` is empty when no single parameter is to blame).
class RequestError : public std::runtime_error {
 public:
  RequestError(int status, std::string code, const std::string& message, std::string param = {})
      : std::runtime_error(message),
        status_(status),
        code_(std::move(code)),
        param_(std::move(param)) {}

  int status() const { return status_; }
  const std::string& code() const { return code_; }
  const std::string& param() const { return param_; }

 private:
  int status_;
  std::string code_;
  std::string param_;
};

/// A model, tokenizer or data file that cannot be used. The message is one sentence naming the file
/// and, where there is one, the tensor or key, what was expected and what was found.
class LoadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A command line that makes no sense: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace espalier::base
