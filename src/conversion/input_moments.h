#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays/tensor_file.h"
#include "base/cancellation.h"
#include "conversion/source_tensor.h"

namespace espalier::conversion {

/// Sum of x x^T over the inputs x of a linear map, [width, width].
struct InputMoments {
  int width = 0;
  std::vector<float> values = {};
};

/// The text that a model is run over to see the inputs of its linear maps.
struct CalibrationText {
  std::filesystem::path model;
  std::shared_ptr<const arrays::TensorFile> file;  // of the model
  std::string text;
  bool required = true;  // else a model that cannot be run over it is none of an error
  base::CancellationToken cancelled;
};

/// The moments of the inputs of a model's maps, measured for as many of them at a time as fit into
/// a gigabyte. Used from one thread, outside the compute pool.
class InputMomentsSource {
 public:
  /// `tensors` are the file's names of the matrices in the order in which they will be asked for,
  /// with their inputs. Throws `UsageError` for a text of less than 128 tokens and `LoadError`
  /// for a model without a tokenizer, both unless the text is not required.
  InputMomentsSource(CalibrationText text, std::vector<std::pair<std::string, int>> tensors);

  /// Null for a map whose inputs are not seen. Loads the model and runs it where that was not done
  /// yet; throws `LoadError` when it cannot be run and the text is required, `Interrupted` when
  /// cancelled.
  std::shared_ptr<const InputMoments> moments(const std::string& tensor);

 private:
  void measure(std::size_t first);
  /// Remembers a failure when the text is not required.
  void attempt(const std::function<void()>& task);

  CalibrationText text_;
  std::vector<std::pair<std::string, int>> tensors_;
  std::vector<std::vector<std::int32_t>> parts_;  // ids
  std::map<std::string, std::shared_ptr<const InputMoments>> measured_;
  bool failed_ = false;
};

/// What the moments are when the map's inputs change as `fold` says.
InputMoments folded(InputMoments moments, const Fold& fold);

}  // namespace espalier::conversion
