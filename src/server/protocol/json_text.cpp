#include "server/protocol/json_text.h"

#include <unordered_set>
#include <utility>
#include <vector>

namespace espalier::server::protocol {
namespace {

constexpr int depth_limit = 100;
// Whoever copies an object member by member takes a time that grows with the square of their
// number. What is copied so lies deeper than a request's own parameters.
constexpr std::size_t members_limit = 10'000;
constexpr std::size_t parameters_depth = 2;

void check_depth(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > depth_limit) {
        throw JsonError("is nested more than " + std::to_string(depth_limit) + " deep", i + 1);
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

/// Builds the value. `Json` itself looks through all members of an object for each one it adds.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Container& object = open_.back();
    if (!object.names.insert(name).second)
      throw JsonError("has '" + shown(name) + "' twice in one object", 0);
    if (open_.size() > parameters_depth && object.names.size() > members_limit) {
      throw JsonError("has an object of more than " + std::to_string(members_limit) + " members",
                      0);
    }
    auto& members = object.value->get_ref<Json::object_t&>();
    members.Json::object_t::Container::emplace_back(std::move(name), nullptr);
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int out_of_range = 406;
    throw JsonError(error.id == out_of_range ? "has a number that is out of range" : "is not valid",
                    byte);
  }

 private:
  struct Container {
    Json* value;
    std::unordered_set<std::string> names = {};
  };

  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& member = parent.get_ref<Json::object_t&>().back().second;
    member = std::move(value);
    return &member;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    Json* const value = place(std::move(container));
    open_.push_back({.value = value});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Container> open_;
};

}  // namespace

Json parse_json(std::string_view text) {
  check_depth(text);
  Builder builder;
  Json::sax_parse(text, &builder);
  // The parser takes a zero byte between values for the end of the text.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) throw JsonError("is not valid", zero + 1);
  return builder.take();
}

}  // namespace espalier::server::protocol
