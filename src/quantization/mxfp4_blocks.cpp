#include "quantization/mxfp4_blocks.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays/tensor_index.h"
#include "base/error.h"

namespace espalier::quantization {
namespace {

using arrays::StorageType;
using arrays::TensorFile;
using arrays::TensorView;

constexpr std::string_view blocks_suffix = "_blocks";
constexpr std::string_view scales_suffix = "_scales";
constexpr std::int64_t group_bytes = 16;
constexpr std::int64_t word_bytes = 4;

bool holds_codes(const TensorView& tensor) {
  return tensor.type == StorageType::u8 && tensor.name.ends_with(blocks_suffix);
}

std::string stem(const std::string& name) {
  return name.substr(0, name.size() - blocks_suffix.size());
}

/// The file with other names for some of its tensors.
class RenamedFile : public TensorFile {
 public:
  explicit RenamedFile(std::shared_ptr<const TensorFile> file) : file_(std::move(file)) {
    for (const TensorView& tensor : file_->tensors()) {
      if (holds_codes(tensor)) {
        add_pair(tensor);
      } else if (!belongs_to_codes(tensor)) {
        index_.add(tensor, file_->path());
      }
    }
  }

  const std::vector<TensorView>& tensors() const override { return index_.tensors(); }
  const TensorView* find(std::string_view name) const override { return index_.find(name); }
  std::string path() const override { return file_->path(); }
  void release(const TensorView& tensor) const override { file_->release(tensor); }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& reason) const {
    throw base::LoadError(file_->path() + ": tensor " + arrays::shown_name(name) + " " + reason);
  }

  bool belongs_to_codes(const TensorView& tensor) const {
    if (!tensor.name.ends_with(scales_suffix)) return false;
    const TensorView* codes = file_->find(stem(tensor.name) + std::string(blocks_suffix));
    return codes != nullptr && holds_codes(*codes);
  }

  void add_pair(TensorView codes) {
    const std::string name = stem(codes.name);
    const std::string scales_name = name + std::string(scales_suffix);
    const TensorView* found = file_->find(scales_name);
    if (found == nullptr) fail(scales_name, "is missing");
    TensorView scales = *found;
    if (codes.shape.size() < 3 || codes.shape.back() != group_bytes) {
      fail(codes.name, "has shape " + arrays::to_string(codes.shape) +
                           ", expected groups of 16 bytes in its last dimension");
    }
    codes.shape.pop_back();
    if (scales.type != StorageType::u8 || scales.shape != codes.shape) {
      fail(scales_name, "has shape " + arrays::to_string(scales.shape) + ", expected bytes " +
                            arrays::to_string(codes.shape));
    }
    codes.shape.back() *= group_bytes / word_bytes;
    codes.type = StorageType::u32;
    codes.name = name + ".weight";
    scales.name = name + ".scales";
    index_.add(std::move(codes), file_->path());
    index_.add(std::move(scales), file_->path());
  }

  std::shared_ptr<const TensorFile> file_;
  arrays::TensorIndex index_;
};

}  // namespace

std::shared_ptr<const TensorFile> name_mxfp4_as_mlx(std::shared_ptr<const TensorFile> file) {
  if (std::ranges::none_of(file->tensors(), holds_codes)) return file;
  return std::make_shared<RenamedFile>(std::move(file));
}

}  // namespace espalier::quantization
