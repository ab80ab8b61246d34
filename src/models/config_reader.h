#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace espalier::models {

/// Of the whole numbers in a checkpoint's settings. No size, count or position comes near.
inline constexpr int largest_size = (1 << 30) - 1;

/// Reads a checkpoint's `config.json`, remembering which keys were read, so that a key nobody read
/// and that may change results fails the load. A null value counts as absent. Every getter throws
/// `LoadError` naming file and key when the value has another type, or when the key is absent and
/// no default is given. Whole numbers are at most `largest_size`: sums of two are within `int`.
class ConfigReader {
 public:
  ConfigReader(std::string path, nlohmann::json object);

  /// Values for keys that the file leaves out.
  void set_defaults(const nlohmann::json& defaults);
  /// A value that holds whatever the file says: the model has no use for the key.
  void replace(std::string_view key, const nlohmann::json& value);

  bool contains(std::string_view key) const;
  int integer(std::string_view key, std::optional<int> fallback = {}) const;
  /// As `integer`, where negative numbers mean something.
  int signed_integer(std::string_view key, int fallback) const;
  /// A size computed from the value under `key`, as a whole number; fails where it is no size.
  int size(std::string_view key, double value) const;
  /// The same for the product of two numbers.
  int product(std::string_view key, int a, int b) const;
  double number(std::string_view key, std::optional<double> fallback = {}) const;
  bool boolean(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string string(std::string_view key, std::optional<std::string> fallback = {}) const;
  /// Empty when the key is absent. `integers` takes a single number for a list of one; `numbers`
  /// takes transformers' {"__float__": "Infinity"} for infinity.
  std::vector<int> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;
  /// The object under `key`, whose keys count as well; nothing when absent.
  std::optional<ConfigReader> object(std::string_view key) const;
  bool is_object(std::string_view key) const;
  bool is_string(std::string_view key) const;
  /// How many keys there are.
  int size() const { return static_cast<int>(object_.size()); }
  /// Keys of this object, read or not.
  std::vector<std::string> keys() const;

  /// The key must be absent, null, false or zero: what it would turn on is not supported.
  void require_off(std::string_view key) const;
  /// Marks a key as read: it says again what other keys say.
  void ignore(std::string_view key) const;
  /// The same with all that lies below it.
  void ignore_all(std::string_view key) const;
  /// Throws `LoadError` saying what is wrong with a key's value.
  [[noreturn]] void fail(std::string_view key, const std::string& reason) const;

  /// Throws `LoadError` listing the keys that nobody read and that are not known to be without
  /// influence on results.
  void check_all_read() const;

  const std::string& path() const { return path_; }

  /// How long sequences are to get, where that was asked for.
  std::optional<int> wanted_context() const { return wanted_context_; }
  void set_wanted_context(std::optional<int> tokens) { wanted_context_ = tokens; }

 private:
  ConfigReader(const ConfigReader& parent, std::string prefix, nlohmann::json object);
  /// Null when absent; marks the key as read.
  const nlohmann::json* find(std::string_view key) const;
  void mark_all(const nlohmann::json& value, const std::string& name) const;
  void collect_unread(const nlohmann::json& object, const std::string& prefix,
                      std::vector<std::string>& unread) const;

  std::string path_;
  std::string prefix_;  // of keys in messages: "rope_parameters."
  nlohmann::json object_;
  std::optional<int> wanted_context_ = {};
  std::shared_ptr<std::set<std::string, std::less<>>> read_;
};

}  // namespace espalier::models
