// Configurations with values that make no sense: each is described, or refused by a `LoadError`.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "gtest/gtest.h"
#include "models/inspect.h"
#include "support/damaged_files.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"

namespace espalier::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::vector<json>& nonsense() {
  static const std::vector<json> values = {nullptr,
                                           -1,
                                           0,
                                           1,
                                           std::numeric_limits<std::int32_t>::max(),
                                           std::int64_t{1} << 31U,
                                           std::numeric_limits<std::int64_t>::max(),
                                           std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::uint64_t>::max(),
                                           1e308,
                                           -1e-300,
                                           0.5,
                                           "",
                                           "x",
                                           json::array(),
                                           json::object(),
                                           json::array({1, std::int64_t{1} << 40U}),
                                           json::array({json::array()}),
                                           true,
                                           {{"a", 1}}};
  return values;
}

/// The places of all settings, those inside objects and arrays too.
void add_places(const json& value, const json::json_pointer& here,
                std::vector<json::json_pointer>& places) {
  if (!here.empty()) places.push_back(here);
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) add_places(inner, here / key, places);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) add_places(value[i], here / i, places);
  }
}

/// Some of the many combinations in every run; all that are wanted with `ESPALIER_DAMAGED_FILES`.
TEST(DamagedSettings, AreDescribedOrRefused) {
  const auto fixtures = tests::fixture_folder("tiny-text");
  if (!fixtures) GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
  const tests::TemporaryFolder folder;
  std::mt19937_64 random(20240229);
  int refused = 0;
  std::vector<fs::path> checkpoints;
  for (const auto& entry : fs::directory_iterator(*fixtures / "a")) {
    if (entry.is_directory()) checkpoints.push_back(entry.path());
  }
  std::ranges::sort(checkpoints);
  for (int i = 0; i < tests::damaged_variants(); ++i) {
    const fs::path& checkpoint = checkpoints[static_cast<std::size_t>(i) % checkpoints.size()];
    json config = json::parse(std::ifstream(checkpoint / "config.json"));
    std::vector<json::json_pointer> places;
    add_places(config, json::json_pointer(), places);
    const json::json_pointer& place = places[random() % places.size()];
    config[place] = nonsense()[random() % nonsense().size()];
    SCOPED_TRACE(checkpoint.filename().string() + " with " + place.to_string() + " = " +
                 config[place].dump());
    fs::remove(folder.path() / "model.safetensors");
    fs::create_symlink(checkpoint / "model.safetensors", folder.path() / "model.safetensors");
    folder.write("config.json", config.dump());
    tests::largest_request = 0;
    try {
      inspect_model(folder.path());
    } catch (const base::LoadError&) {
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    EXPECT_LE(tests::largest_request, tests::memory_allowance);
  }
  EXPECT_GT(refused, tests::damaged_variants() / 4);
}

}  // namespace
}  // namespace espalier::models
