#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace espalier::conversion {

/// Results of long work on single tensors, kept in `DESTINATION.coded` beside what is being
/// written, so that a conversion that was interrupted goes on where it stood. Used from one thread.
class CodedParts {
 public:
  /// `identity` says everything that results depend on beside a tensor's own settings.
  CodedParts(const std::filesystem::path& destination, std::string identity);

  using Sink = std::function<void(std::span<const std::byte>)>;
  /// Hands the kept result for `key` to `sink`; false when there is none of `bytes` bytes.
  bool replay(const std::string& key, std::uint64_t bytes, const Sink& sink) const;
  /// Keeps what `produce` hands to its sink, and hands it on.
  void keep(const std::string& key, const std::function<void(const Sink&)>& produce,
            const Sink& sink);
  /// Removes everything kept: the conversion is complete.
  void remove();

 private:
  std::filesystem::path path_of(const std::string& key) const;

  std::filesystem::path folder_;
  std::string identity_;
};

}  // namespace espalier::conversion
