#include "hub/resolve.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::hub {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// An ESPALIER_HOME and a Hugging Face cache of our own.
class ResolveTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) / ("espalier-hub-" + std::string(test->name()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    ::setenv("ESPALIER_HOME", (root_ / "home").c_str(), 1);
    ::setenv("HF_HUB_CACHE", (root_ / "hub").c_str(), 1);
  }
  void TearDown() override {
    fs::remove_all(root_);
    ::unsetenv("ESPALIER_HOME");
    ::unsetenv("HF_HUB_CACHE");
    ::unsetenv("HF_HOME");
  }

  fs::path write(const fs::path& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
    return root_ / name;
  }

  std::string failure(const std::string& model) {
    try {
      resolve(model);
    } catch (const base::LoadError& error) {
      return error.what();
    }
    return "";
  }

  fs::path root_;
};

TEST_F(ResolveTest, ListsFilesFoldersAndCache) {
  write("home/models/Tiny.Q4_1.gguf", "12345");
  write("home/models/folder/config.json", "{}");
  write("home/models/folder/model.safetensors", "1234567");
  write("home/models/notes.txt", "");
  write("hub/models--owner--name/refs/main", "abc");
  write("hub/models--owner--name/snapshots/abc/config.json", "{}");
  write("hub/models--owner--name/snapshots/old/config.json", "{}");
  write("hub/models--owner--files/snapshots/1/one.gguf", "1");
  write("hub/datasets--owner--data/snapshots/1/one.gguf", "1");
  std::map<std::string, LocalModel> models;
  for (const LocalModel& model : list_models()) models.emplace(model.alias, model);
  ASSERT_EQ(models.size(), 4U);
  EXPECT_EQ(models.at("Tiny.Q4_1").bytes, 5U);
  EXPECT_EQ(models.at("folder").bytes, 9U);
  EXPECT_EQ(models.at("name").repo_id, "owner/name");
  EXPECT_EQ(models.at("name").path, root_ / "hub/models--owner--name/snapshots/abc");
  EXPECT_EQ(models.at("one").repo_id, "owner/files");
}

TEST_F(ResolveTest, TakesPathsAliasesAndRepositories) {
  const fs::path file = write("home/models/Tiny.Q4_1.gguf", "12345");
  const fs::path other = write("elsewhere/Other.gguf", "1");
  write("elsewhere/folder/config.json", "{}");
  write("hub/models--owner--name/snapshots/abc/config.json", "{}");
  EXPECT_EQ(resolve("Tiny.Q4_1").path, file);
  EXPECT_EQ(resolve(other.string()).path, other);
  EXPECT_EQ(resolve(other.string()).alias, "Other");
  EXPECT_EQ(resolve((root_ / "elsewhere/folder").string()).alias, "folder");
  EXPECT_EQ(resolve((root_ / "elsewhere/folder/").string()).alias, "folder");
  EXPECT_EQ(resolve("owner/name").repo_id, "owner/name");
}

TEST_F(ResolveTest, SuggestsTheNearestAlias) {
  write("home/models/SmolLM2-135M.gguf", "");
  write("home/models/gemma-3.gguf", "");
  EXPECT_THAT(failure("smollm"), HasSubstr("no model smollm here; the nearest here: SmolLM2-135M"));
  EXPECT_THAT(failure("gema-3"), HasSubstr("the nearest here: gemma-3"));
}

TEST_F(ResolveTest, SaysWhatIsWrong) {
  EXPECT_THAT(failure("absent"), HasSubstr("there is no model in"));
  const fs::path text = write("notes.txt", "");
  EXPECT_THAT(failure(text.string()), HasSubstr("neither a folder nor a .gguf file"));
  EXPECT_THAT(failure("/dev/null"), HasSubstr("neither a folder nor a .gguf file"));
}

TEST_F(ResolveTest, AnEmptyNameIsNoModel) {
  write("home/models/one.gguf", "");  // belongs to no repository
  EXPECT_THAT(failure(""), HasSubstr("empty"));
}

TEST_F(ResolveTest, DefaultIsTheNamedOrTheOnlyOne) {
  EXPECT_THROW(default_model(), base::LoadError);
  write("home/models/one.gguf", "");
  EXPECT_EQ(default_model().alias, "one");
  write("home/models/two.gguf", "");
  EXPECT_THROW(default_model(), base::LoadError);
  write("home/models/SmolLM2-135M-Instruct.Q4_1.gguf", "");
  EXPECT_EQ(default_model().alias, "SmolLM2-135M-Instruct.Q4_1");
  fs::create_symlink(root_ / "home/models/two.gguf", root_ / "home/models/default.gguf");
  EXPECT_EQ(default_model().alias, "default");
}

TEST_F(ResolveTest, CacheFollowsItsVariables) {
  ::unsetenv("HF_HUB_CACHE");
  ::setenv("HF_HOME", (root_ / "hf").c_str(), 1);
  write("hf/hub/models--owner--name/snapshots/abc/config.json", "{}");
  EXPECT_EQ(resolve("owner/name").alias, "name");
}

}  // namespace
}  // namespace espalier::hub
