#include "arrays/gguf.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/gguf_builder.h"
#include "support/temporary_folder.h"

namespace espalier::arrays {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::GgufBuilder;

constexpr std::uint32_t f32 = 0;
constexpr std::uint32_t q4_0 = 2;

class GgufTest : public testing::Test {
 protected:
  std::shared_ptr<const GgufFile> open(const std::string& bytes) {
    return GgufFile::open(folder_.write("model.gguf", bytes));
  }

  /// The message of the failure, or "" when the file opens.
  std::string failure(const std::string& bytes) {
    try {
      open(bytes);
    } catch (const base::LoadError& error) {
      return error.what();
    }
    return "";
  }

  tests::TemporaryFolder folder_;
};

TEST_F(GgufTest, ReadsEveryValueType) {
  GgufBuilder builder;
  builder.value("u8", 0, GgufBuilder::bytes<std::uint8_t>(200))
      .value("i8", 1, GgufBuilder::bytes<std::int8_t>(-5))
      .value("u16", 2, GgufBuilder::bytes<std::uint16_t>(60000))
      .value("i16", 3, GgufBuilder::bytes<std::int16_t>(-300))
      .u32("u32", 4'000'000'000U)
      .value("i32", 5, GgufBuilder::bytes<std::int32_t>(-70000))
      .value("f32", 6, GgufBuilder::bytes(1.5F))
      .value("bool", 7, GgufBuilder::bytes<std::uint8_t>(1))
      .text("string", "grüße")
      .value("u64", 10, GgufBuilder::bytes<std::uint64_t>(1ULL << 40))
      .value("i64", 11, GgufBuilder::bytes<std::int64_t>(-(1LL << 40)))
      .value("f64", 12, GgufBuilder::bytes(0.1))
      .array("strings", 8, 2, GgufBuilder::string("a") + GgufBuilder::string("bc"))
      .array("ints", 5, 2,
             GgufBuilder::bytes<std::int32_t>(-1) + GgufBuilder::bytes<std::int32_t>(2))
      .array("floats", 6, 1, GgufBuilder::bytes(0.25F))
      .array("flags", 7, 2, std::string("\x01\x00", 2))
      .array("empty", 8, 0, "");
  const auto file = open(builder.build());
  const GgufMetadata& metadata = file->metadata();
  EXPECT_EQ(metadata.integer("u8"), 200);
  EXPECT_EQ(metadata.integer("i8"), -5);
  EXPECT_EQ(metadata.integer("u16"), 60000);
  EXPECT_EQ(metadata.integer("i16"), -300);
  EXPECT_EQ(metadata.integer("u32"), 4'000'000'000);
  EXPECT_EQ(metadata.integer("i32"), -70000);
  EXPECT_EQ(metadata.number("f32"), 1.5);
  EXPECT_EQ(metadata.number("u8"), 200.0);
  EXPECT_EQ(metadata.boolean("bool"), true);
  EXPECT_EQ(metadata.string("string"), "grüße");
  EXPECT_EQ(metadata.integer("u64"), 1LL << 40);
  EXPECT_EQ(metadata.integer("i64"), -(1LL << 40));
  EXPECT_EQ(metadata.number("f64"), 0.1);
  EXPECT_THAT(*metadata.strings("strings"), ElementsAre("a", "bc"));
  EXPECT_THAT(*metadata.integers("ints"), ElementsAre(-1, 2));
  EXPECT_THAT(*metadata.numbers("floats"), ElementsAre(0.25));
  EXPECT_EQ(std::get<std::vector<bool>>(*metadata.find("flags")), (std::vector<bool>{true, false}));
  EXPECT_TRUE(metadata.strings("empty")->empty());
}

TEST_F(GgufTest, GettersNameTheKeyOfAnotherType) {
  const auto file = open(GgufBuilder().text("name", "x").u32("count", 3).build());
  const GgufMetadata& metadata = file->metadata();
  EXPECT_EQ(metadata.integer("absent"), std::nullopt);
  EXPECT_EQ(metadata.strings("absent"), nullptr);
  EXPECT_THROW(metadata.integer("name"), base::LoadError);
  EXPECT_THROW(metadata.number("name"), base::LoadError);
  EXPECT_THROW(metadata.string("count"), base::LoadError);
  EXPECT_THROW(metadata.strings("count"), base::LoadError);
  EXPECT_THROW(metadata.require_string("absent"), base::LoadError);
  try {
    metadata.require_integer("absent");
    FAIL();
  } catch (const base::LoadError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.gguf: key \"absent\" is missing"));
  }
}

TEST_F(GgufTest, IsOpenOnceUntilItChanges) {
  const auto first = open(GgufBuilder().text("name", "first").build());
  const auto again = GgufFile::open(folder_.path() / "model.gguf");
  EXPECT_EQ(first, again);
  const auto second = open(GgufBuilder().text("name", std::string(200, 'x')).build());
  EXPECT_NE(first, second);
  EXPECT_EQ(second->metadata().string("name"), std::string(200, 'x'));
}

TEST_F(GgufTest, TensorsHaveOutermostDimensionFirst) {
  const std::string data = std::string(64, 'a') + std::string(36, 'b');
  const auto file = open(GgufBuilder()
                             .tensor("plain", {4, 3}, f32, 0)
                             .tensor("packed", {32, 2}, q4_0, 64)
                             .build(data));
  ASSERT_EQ(file->tensors().size(), 2U);
  const TensorView* plain = file->find("plain");
  ASSERT_NE(plain, nullptr);
  EXPECT_THAT(plain->shape, ElementsAre(3, 4));
  EXPECT_EQ(plain->bytes.size(), 48U);
  EXPECT_EQ(static_cast<char>(plain->bytes.front()), 'a');
  const TensorView* packed = file->find("packed");
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(packed->type, StorageType::q4_0);
  EXPECT_EQ(packed->bytes.size(), 36U);
  EXPECT_EQ(static_cast<char>(packed->bytes.back()), 'b');
  EXPECT_EQ(file->find("other"), nullptr);
}

TEST_F(GgufTest, ReadsVersion2AndOtherAlignments) {
  const auto file = open(GgufBuilder()
                             .version(2)
                             .u32("general.alignment", 128)
                             .tensor("x", {2}, f32, 128)
                             .build(std::string(136, 'z'), 128));
  EXPECT_EQ(file->find("x")->bytes.size(), 8U);
}

TEST_F(GgufTest, RefusesMalformedFiles) {
  const std::string data(64, '\0');
  EXPECT_THAT(failure(""), HasSubstr("not a GGUF file"));
  EXPECT_THAT(failure("GGML" + std::string(40, '\0')), HasSubstr("not a GGUF file"));
  EXPECT_THAT(failure(GgufBuilder().version(1).build()), HasSubstr("version 1"));
  EXPECT_THAT(failure(GgufBuilder().version(0x03000000).build()), HasSubstr("big-endian"));
  EXPECT_THAT(failure(GgufBuilder().u32("a", 1).u32("a", 2).build()),
              HasSubstr("key \"a\" appears twice"));
  EXPECT_THAT(failure(GgufBuilder().value("a", 13, "xxxx").build()),
              HasSubstr("unknown value type in the value of key \"a\""));
  EXPECT_THAT(failure(GgufBuilder().value("a", 7, "\x02").build()), HasSubstr("neither 0 nor 1"));
  EXPECT_THAT(failure(GgufBuilder().u32("general.alignment", 24).build()),
              HasSubstr("general.alignment"));
  EXPECT_THAT(failure(GgufBuilder().u32("general.alignment", 0).build()),
              HasSubstr("general.alignment"));
  const auto with_tensor = [&](std::vector<std::uint64_t> dimensions, std::uint32_t type,
                               std::uint64_t offset) {
    return failure(GgufBuilder().tensor("x", dimensions, type, offset).build(data));
  };
  EXPECT_EQ(with_tensor({16}, f32, 0), "");
  EXPECT_THAT(with_tensor({16}, f32, 4), HasSubstr("\"x\" starts at 4"));
  EXPECT_THAT(with_tensor({17}, f32, 0), HasSubstr("needs 68 bytes"));
  EXPECT_THAT(with_tensor({8}, f32, 64), HasSubstr("needs 32 bytes at 64"));
  EXPECT_THAT(with_tensor({8}, f32, ~0ULL - 31), HasSubstr("needs 32 bytes"));
  EXPECT_THAT(with_tensor({16}, 4, 0), HasSubstr("unknown type 4"));
  EXPECT_THAT(with_tensor({16}, q4_0, 0), HasSubstr("cannot have shape [16]"));
  EXPECT_THAT(with_tensor({1, 1, 1, 1, 1}, f32, 0), HasSubstr("5 dimensions"));
  EXPECT_THAT(with_tensor({1ULL << 33, 1ULL << 33}, f32, 0), HasSubstr("cannot have shape"));
  EXPECT_THAT(with_tensor({~0ULL}, f32, 0), HasSubstr("impossible dimension"));
  EXPECT_THAT(failure(GgufBuilder().tensor("x", {8}, f32, 0).tensor("x", {8}, f32, 32).build(data)),
              HasSubstr("\"x\" appears twice"));
  EXPECT_THAT(
      failure(GgufBuilder().tensor("x", {16}, f32, 0).tensor("y", {8}, f32, 32).build(data)),
      HasSubstr("\"x\" and \"y\" overlap"));
}

TEST_F(GgufTest, BelievesNoCount) {
  const std::uint64_t huge = 1ULL << 60;
  EXPECT_THAT(failure("GGUF" + GgufBuilder::bytes(3U) + GgufBuilder::bytes(huge) +
                      GgufBuilder::bytes<std::uint64_t>(0)),
              HasSubstr("the file ends before"));
  EXPECT_THAT(failure("GGUF" + GgufBuilder::bytes(3U) + GgufBuilder::bytes<std::uint64_t>(0) +
                      GgufBuilder::bytes(huge)),
              HasSubstr("the file ends before"));
  EXPECT_THAT(failure(GgufBuilder().array("a", 8, huge, "").build()), HasSubstr("ends before"));
  EXPECT_THAT(failure(GgufBuilder().array("a", 0, huge, "").build()), HasSubstr("ends before"));
  EXPECT_THAT(failure(GgufBuilder().value("a", 8, GgufBuilder::bytes(huge)).build()),
              HasSubstr("the file ends inside"));
}

TEST_F(GgufTest, EveryTruncationIsRefused) {
  const std::string file =
      GgufBuilder()
          .text("general.architecture", "llama")
          .array("list", 8, 2, GgufBuilder::string("a") + GgufBuilder::string("b"))
          .tensor("x", {16}, f32, 0)
          .build(std::string(64, '\0'));
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(failure(file.substr(0, size)), "") << size;
  }
  EXPECT_EQ(failure(file), "");
}

class GgufSplitTest : public GgufTest {
 protected:
  static GgufBuilder part(std::uint16_t number, std::uint16_t count, const std::string& tensor) {
    GgufBuilder builder;
    builder.text("general.architecture", "llama")
        .value("split.no", 2, GgufBuilder::bytes(number))
        .value("split.count", 2, GgufBuilder::bytes(count))
        .value("split.tensors.count", 5, GgufBuilder::bytes<std::int32_t>(count))
        .tensor(tensor, {8}, f32, 0);
    return builder;
  }

  std::string failure_of(const std::string& name) {
    try {
      GgufFile::open(folder_.path() / name);
    } catch (const base::LoadError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(GgufSplitTest, OpensAllPartsFromAny) {
  folder_.write("m-00001-of-00002.gguf", part(0, 2, "a").build(std::string(32, 'a')));
  folder_.write("m-00002-of-00002.gguf", part(1, 2, "b").build(std::string(32, 'b')));
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    const auto file = GgufFile::open(folder_.path() / name);
    ASSERT_EQ(file->tensors().size(), 2U);
    EXPECT_EQ(static_cast<char>(file->find("a")->bytes[0]), 'a');
    EXPECT_EQ(static_cast<char>(file->find("b")->bytes[0]), 'b');
    EXPECT_EQ(file->metadata().require_string("general.architecture"), "llama");
  }
}

TEST_F(GgufSplitTest, RefusesIncompleteSets) {
  const std::string data(32, '\0');
  folder_.write("m-00001-of-00002.gguf", part(0, 2, "a").build(data));
  EXPECT_THAT(failure_of("m-00001-of-00002.gguf"), HasSubstr("m-00002-of-00002.gguf"));
  folder_.write("m-00002-of-00002.gguf", part(1, 2, "a").build(data));
  EXPECT_THAT(failure_of("m-00001-of-00002.gguf"), HasSubstr("\"a\" appears twice"));
  folder_.write("m-00002-of-00002.gguf", part(0, 2, "b").build(data));
  EXPECT_THAT(failure_of("m-00001-of-00002.gguf"), HasSubstr("split.no is 0, expected 1"));
  folder_.write("plain.gguf", part(0, 2, "a").build(data));
  EXPECT_THAT(failure_of("plain.gguf"),
              HasSubstr("split.count says that the model lies in 2 files, but "
                        "the name does not end in -00001-of-00002.gguf"));
  folder_.write("m-00002-of-00002.gguf", part(1, 3, "b").build(data));
  EXPECT_THAT(failure_of("m-00001-of-00002.gguf"),
              HasSubstr("m-00002-of-00002.gguf: split.count is 3, but in the first file 2"));
  folder_.write("none.gguf", part(0, 0, "a").build(data));
  EXPECT_THAT(failure_of("none.gguf"), HasSubstr("split.count is 0, expected at least 1"));
}

}  // namespace
}  // namespace espalier::arrays
