#include "evaluation/logits.h"

#include <algorithm>
#include <span>
#include <string>

#include "arrays/safetensors_writer.h"
#include "base/error.h"
#include "evaluation/sequence_runner.h"
#include "evaluation/token_rows.h"

namespace espalier::evaluation {
namespace {

using base::UsageError;

void check_rows(const models::Model& model, const std::vector<std::vector<TokenId>>& rows,
                const LogitsOptions& options) {
  if (options.chunk < 1) throw UsageError("a chunk has at least one token");
  if (rows.empty()) throw UsageError("there are no token ids");
  for (const std::vector<TokenId>& row : rows) {
    check_token_ids(row, model.descriptor().vocabulary);
    if (row.size() != rows.front().size()) {
      throw UsageError("the rows of token ids must be equally long");
    }
    if (row.size() > static_cast<std::size_t>(model.descriptor().context)) {
      throw UsageError("a row of " + std::to_string(row.size()) +
                       " tokens exceeds the model's context of " +
                       std::to_string(model.descriptor().context));
    }
  }
}

}  // namespace

void write_logits(models::Model& model, const std::vector<std::vector<TokenId>>& rows,
                  const std::filesystem::path& output, const LogitsOptions& options) {
  check_rows(model, rows, options);
  const std::size_t length = rows.front().size();
  arrays::SafetensorsWriter writer(
      output, {{"logits",
                arrays::StorageType::f32,
                {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(length),
                 model.descriptor().vocabulary}}});
  SequenceRunner runner(model, static_cast<int>(length), options.kv_type);
  int done = 0;
  for (const std::vector<TokenId>& row : rows) {
    runner.restart();
    for (std::size_t begin = 0; begin < length; begin += options.chunk) {
      const std::size_t count = std::min<std::size_t>(options.chunk, length - begin);
      const auto logits =
          runner.feed(std::span(row).subspan(begin, count), static_cast<int>(count));
      writer.append(std::as_bytes(std::span(logits.data<float>(), logits.size())));
    }
    if (options.progress) options.progress(++done, static_cast<int>(rows.size()));
  }
  writer.finish();
}

}  // namespace espalier::evaluation
