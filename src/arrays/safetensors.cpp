#include "arrays/safetensors.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "arrays/safetensors_header.h"
#include "arrays/tensor_index.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace espalier::arrays {
namespace {

namespace fs = std::filesystem;
using base::LoadError;

constexpr const char* index_name = "model.safetensors.index.json";
/// Far beyond the index of the largest checkpoints, which have some ten thousand tensors.
constexpr std::size_t largest_index = 16U << 20U;

/// One or more mapped files under one name.
class MappedSafetensors : public TensorFile {
 public:
  MappedSafetensors(const fs::path& path, const std::vector<fs::path>& files)
      : path_(path.string()) {
    for (const fs::path& file : files) add(file);
  }

  const std::vector<TensorView>& tensors() const override { return index_.tensors(); }
  const TensorView* find(std::string_view name) const override { return index_.find(name); }
  std::string path() const override { return path_; }

  void release(const TensorView& tensor) const override { files_.front()->release(tensor.bytes); }

 private:
  void add(const fs::path& path) {
    auto file = base::MappedFile::open(path);
    SafetensorsHeader header = parse_safetensors_header(file->bytes(), path.string());
    const auto data = file->bytes().subspan(header.data);
    for (SafetensorsEntry& entry : header.entries) {
      index_.add({std::move(entry.name), entry.type, std::move(entry.shape),
                  data.subspan(entry.begin, entry.end - entry.begin)},
                 path.string());
    }
    files_.push_back(std::move(file));
  }

  std::string path_;
  TensorIndex index_;
  std::vector<std::shared_ptr<const base::MappedFile>> files_;
};

/// Tensor name → shard, as the index file says.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const auto file = base::MappedFile::open(path);
  const auto bytes = file->bytes();
  if (bytes.size() > largest_index) throw LoadError(path.string() + " is too large for an index");
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const auto json = nlohmann::json::parse(text, text + bytes.size(), nullptr, false);
  if (json.is_discarded()) throw LoadError(path.string() + " is not valid JSON");
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object() || map->empty()) {
    throw LoadError(path.string() + ": weight_map is missing or no object");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string()) {
      throw LoadError(path.string() + ": the shard of tensor " + shown_name(name) +
                      " is not a string");
    }
    const auto file_name = shard.get<std::string>();
    // A name with folders could lead out of the checkpoint.
    const bool is_name = !file_name.empty() && file_name != "." && file_name != ".." &&
                         file_name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
    if (!is_name) {
      throw LoadError(path.string() + ": shard " + shown_name(file_name) + " is no file name");
    }
    shards.emplace(name, file_name);
  }
  return shards;
}

std::shared_ptr<const TensorFile> open_indexed(const fs::path& folder) {
  const auto shards = read_index(folder / index_name);
  std::set<std::string> names;
  for (const auto& [tensor, shard] : shards) names.insert(shard);
  std::vector<fs::path> files;
  files.reserve(names.size());
  for (const std::string& name : names) files.push_back(folder / name);
  auto checkpoint = std::make_shared<MappedSafetensors>(folder, files);
  for (const auto& [tensor, shard] : shards) {
    if (checkpoint->find(tensor) == nullptr) {
      throw LoadError((folder / shard).string() + ": tensor " + shown_name(tensor) +
                      " is missing, though " + index_name + " says it is there");
    }
  }
  return checkpoint;
}

}  // namespace

std::shared_ptr<const TensorFile> open_safetensors(const fs::path& path) {
  return std::make_shared<MappedSafetensors>(path, std::vector<fs::path>{path});
}

std::shared_ptr<const TensorFile> open_safetensors_folder(const fs::path& folder) {
  if (fs::exists(folder / index_name)) return open_indexed(folder);
  if (fs::exists(folder / "model.safetensors")) {
    return std::make_shared<MappedSafetensors>(folder,
                                               std::vector<fs::path>{folder / "model.safetensors"});
  }
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  if (error) throw LoadError("cannot list " + folder.string() + ": " + error.message());
  if (files.empty()) throw LoadError(folder.string() + " holds no safetensors file");
  std::sort(files.begin(), files.end());
  return std::make_shared<MappedSafetensors>(folder, files);
}

}  // namespace espalier::arrays
