#include "arrays/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "arrays/safetensors_writer.h"
#include "base/error.h"
#include "support/temporary_folder.h"

namespace espalier::arrays {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The bytes of a file with this header.
std::string file_bytes(const std::string& header, std::size_t data) {
  std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data, 'd');
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  int begin, int end) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

class SafetensorsTest : public testing::Test {
 protected:
  std::string failure(const std::string& bytes) {
    try {
      open_safetensors(folder_.write("x.safetensors", bytes));
    } catch (const base::LoadError& error) {
      return error.what();
    }
    return "";
  }

  std::string folder_failure() {
    try {
      open_safetensors_folder(folder_.path());
    } catch (const base::LoadError& error) {
      return error.what();
    }
    return "";
  }

  tests::TemporaryFolder folder_;
};

TEST_F(SafetensorsTest, ReadsTensorsInAnyOrder) {
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "BF16", "[2,2]", 4, 12) + "," +
      entry("a", "F32", "[]", 0, 4) + "," + entry("none", "I64", "[0,3]", 4, 4) + "}  ";
  const auto file = open_safetensors(folder_.write("x.safetensors", file_bytes(header, 12)));
  ASSERT_EQ(file->tensors().size(), 3U);
  EXPECT_EQ(file->find("a")->type, StorageType::f32);
  EXPECT_TRUE(file->find("a")->shape.empty());
  EXPECT_EQ(file->find("a")->bytes.size(), 4U);
  EXPECT_THAT(file->find("b")->shape, ElementsAre(2, 2));
  EXPECT_EQ(file->find("b")->bytes.size(), 8U);
  EXPECT_TRUE(file->find("none")->bytes.empty());
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST_F(SafetensorsTest, RefusesMalformedFiles) {
  EXPECT_THAT(failure("1234"), HasSubstr("not a safetensors file"));
  EXPECT_THAT(failure(std::string(8, '\xff')), HasSubstr("the header claims"));
  EXPECT_THAT(failure(file_bytes("{", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(failure(file_bytes("[]", 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(failure(file_bytes("{\"a\":1}", 0)), HasSubstr("where it does not belong"));
  EXPECT_THAT(failure(file_bytes("{\"a\":{\"dtype\":{}}}", 0)), HasSubstr("does not belong"));
  EXPECT_THAT(failure(file_bytes(std::string(100000, '['), 0)), HasSubstr("not a JSON object"));
  const auto one = [&](const std::string& text, std::size_t data) {
    return failure(file_bytes("{" + text + "}", data));
  };
  EXPECT_EQ(one(entry("a", "F32", "[2]", 0, 8), 8), "");
  EXPECT_THAT(one(entry("a", "F33", "[2]", 0, 8), 8), HasSubstr("unknown dtype \"F33\""));
  EXPECT_THAT(one(entry("a", "F32", "[3]", 0, 8), 8), HasSubstr("takes 8 bytes"));
  EXPECT_THAT(one(entry("a", "F32", "[-2]", 0, 8), 8), HasSubstr("a negative number"));
  EXPECT_THAT(one(entry("a", "F32", "[2.0]", 0, 8), 8), HasSubstr("a fraction"));
  EXPECT_THAT(one(entry("a", "F32", "[2]", 0, 8), 7), HasSubstr("holds 7 bytes of data"));
  EXPECT_THAT(one(entry("a", "F32", "[2]", 0, 8), 9), HasSubstr("belong to no tensor"));
  EXPECT_THAT(one(entry("a", "F32", "[2]", 8, 0), 8), HasSubstr("lies at bytes 8 to 0"));
  EXPECT_THAT(one(entry("a", "F32", "[4611686018427387904,4]", 0, 0), 0), HasSubstr("takes 0"));
  EXPECT_THAT(one(entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "F32", "[1]", 2, 6), 6),
              HasSubstr("\"b\" starts at byte 2"));
  EXPECT_THAT(one(entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "F32", "[1]", 6, 10), 10),
              HasSubstr("\"b\" starts at byte 6"));
  EXPECT_THAT(one(entry("a", "F32", "[1]", 0, 4) + "," + entry("a", "F32", "[1]", 4, 8), 8),
              HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(one("\"a\":{\"dtype\":\"F32\",\"shape\":[1]}", 4), HasSubstr("no data_offsets"));
  EXPECT_THAT(one("\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}", 4), HasSubstr("two fields"));
  EXPECT_THAT(one("\"a\":{\"type\":\"F32\"}", 4), HasSubstr("unknown field \"type\""));
}

TEST_F(SafetensorsTest, OpensShardsThroughTheIndex) {
  folder_.write("one.safetensors", file_bytes("{" + entry("a", "U8", "[1]", 0, 1) + "}", 1));
  folder_.write("two.safetensors", file_bytes("{" + entry("b", "U8", "[1]", 0, 1) + "}", 1));
  const char* index = "model.safetensors.index.json";
  folder_.write(index, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_EQ(open_safetensors_folder(folder_.path())->tensors().size(), 2U);
  folder_.write(index, R"({"weight_map":{"a":"one.safetensors","c":"two.safetensors"}})");
  EXPECT_THAT(folder_failure(), HasSubstr("tensor \"c\" is missing"));
  folder_.write(index, R"({"weight_map":{"a":"three.safetensors"}})");
  EXPECT_THAT(folder_failure(), HasSubstr("three.safetensors"));
  for (const char* name : {"../one.safetensors", "..", ".", R"(one.safetensors\u0000)"}) {
    folder_.write(index, std::string(R"({"weight_map":{"a":")") + name + R"("}})");
    EXPECT_THAT(folder_failure(), HasSubstr("is no file name")) << name;
  }
  folder_.write(index, R"({"weight_map":[]})");
  EXPECT_THAT(folder_failure(), HasSubstr("weight_map"));
  folder_.write(index, "{");
  EXPECT_THAT(folder_failure(), HasSubstr("not valid JSON"));
}

TEST_F(SafetensorsTest, NamesWhatGitLfsLeaves) {
  folder_.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
  EXPECT_THAT(folder_failure(), HasSubstr("model.safetensors is a pointer of Git LFS"));
}

TEST_F(SafetensorsTest, FolderWithoutIndex) {
  EXPECT_THAT(folder_failure(), HasSubstr("holds no safetensors file"));
  const std::string bytes = file_bytes("{" + entry("a", "U8", "[1]", 0, 1) + "}", 1);
  folder_.write("one.safetensors", bytes);
  EXPECT_EQ(folder_failure(), "");
  folder_.write("two.safetensors", bytes);
  EXPECT_THAT(folder_failure(), HasSubstr("\"a\" appears twice"));
  folder_.write("model.safetensors", bytes);
  EXPECT_EQ(folder_failure(), "");
}

class SafetensorsWriterTest : public SafetensorsTest {
 protected:
  std::vector<std::string> file_names() {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(file.path().filename().string());
    }
    return names;
  }
};

TEST_F(SafetensorsWriterTest, WritesTheFormat) {
  const auto path = folder_.path() / "out.safetensors";
  SafetensorsWriter writer(path, {{"x", StorageType::f32, {2}}, {"y", StorageType::u8, {}}},
                           {{"format", "pt"}});
  const float values[] = {1.0F, 2.0F};
  const std::uint8_t byte = 7;
  writer.append(std::as_bytes(std::span(values)));
  writer.append(std::as_bytes(std::span(&byte, 1)));
  writer.finish();
  // The header as the format's description has it, padded with spaces to a multiple of eight.
  std::string header =
      R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("y":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string expected = file_bytes(header, 0);
  expected.append(reinterpret_cast<const char*>(values), sizeof values);
  expected.push_back('\x07');
  std::stringstream written;
  written << std::ifstream(path, std::ios::binary).rdbuf();
  EXPECT_EQ(written.str(), expected);
  EXPECT_THAT(file_names(), ElementsAre("out.safetensors"));
}

TEST_F(SafetensorsWriterTest, ReplacesFilesAndNothingElse) {
  const auto link = folder_.path() / "link.safetensors";
  std::ofstream(folder_.path() / "target.safetensors") << "old";
  std::filesystem::create_symlink("target.safetensors", link);
  SafetensorsWriter writer(link, {});
  writer.finish();
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_GT(std::filesystem::file_size(folder_.path() / "target.safetensors"), 8U);
  const auto pipe = folder_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(SafetensorsWriter(pipe, {}), std::runtime_error);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(SafetensorsWriterTest, PublishesOnlyWhatIsComplete) {
  const auto path = folder_.path() / "out.safetensors";
  const std::vector<std::byte> bytes(3);
  {
    SafetensorsWriter writer(path, {{"y", StorageType::u8, {2}}});
    writer.append(std::span(bytes).first(1));
    EXPECT_THROW(writer.finish(), std::logic_error);
    EXPECT_THROW(writer.append(std::span(bytes).first(2)), std::logic_error);
  }
  EXPECT_TRUE(file_names().empty());
  EXPECT_THROW(SafetensorsWriter(path, {{"q", StorageType::q4_0, {32}}}), std::invalid_argument);
  EXPECT_THROW(SafetensorsWriter(folder_.path() / "no" / "where", {}), std::runtime_error);
}

}  // namespace
}  // namespace espalier::arrays
