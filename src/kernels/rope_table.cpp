#include "kernels/rope_table.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/primitive.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;

struct RopeTable {
  static constexpr const char* name = "RopeTable";

  std::shared_ptr<const AttentionBatch> batch;
  int dims;
  bool interleaved;
  float magnitude;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const mx::array inv_freq = row_contiguous(inputs[0]);
    const float* frequencies = inv_freq.data<float>();
    float* table = outputs[0].data<float>();
    for (const AttentionRows& sequence : *batch) {
      const auto fill = [&](int row) {
        fill_row(frequencies, sequence.position + row,
                 table + static_cast<std::size_t>(sequence.first_row + row) * 2 * dims);
      };
      // A few rows take less time than waking the workers.
      if (sequence.rows < 8) {
        for (int row = 0; row < sequence.rows; ++row) {
          fill(row);
        }
        continue;
      }
      base::TileCounter rows(sequence.rows);
      base::compute_pool().run([&](int) {
        for (std::size_t row; rows.next(row);) {
          fill(static_cast<int>(row));
        }
      });
    }
  }

 private:
  void fill_row(const float* frequencies, int position, float* cosines) const {
    float* sines = cosines + dims;
    for (int i = 0; i < dims / 2; ++i) {
      const double angle = static_cast<double>(position) * static_cast<double>(frequencies[i]);
      const auto cosine = static_cast<float>(std::cos(angle) * static_cast<double>(magnitude));
      const auto sine = static_cast<float>(std::sin(angle) * static_cast<double>(magnitude));
      const int first = interleaved ? 2 * i : i;
      const int second = interleaved ? 2 * i + 1 : i + dims / 2;
      cosines[first] = cosine;
      cosines[second] = cosine;
      sines[first] = -sine;
      sines[second] = sine;
    }
  }
};

struct KnownTable {
  Rope rope;
  mx::array table;
};

/// Tables of the batch that this thread built nodes for last.
struct KnownTables {
  std::weak_ptr<const AttentionBatch> batch;
  std::vector<KnownTable> tables;
};

bool same(const Rope& a, const Rope& b) {
  return a.dims == b.dims && a.interleaved == b.interleaved && a.magnitude == b.magnitude &&
         a.inv_freq.id() == b.inv_freq.id();
}

mx::array make_rope_table(const std::shared_ptr<const AttentionBatch>& batch, const Rope& rope) {
  int rows = 0;
  for (const AttentionRows& sequence : *batch) {
    rows = std::max(rows, sequence.first_row + sequence.rows);
  }
  return make_node(RopeTable{batch, rope.dims, rope.interleaved, rope.magnitude},
                   {rows, 2, rope.dims}, mx::float32, {rope.inv_freq});
}

}  // namespace

mx::array rope_table(const std::shared_ptr<const AttentionBatch>& batch, const Rope& rope) {
  thread_local KnownTables known;
  if (known.batch.lock() != batch) {
    known.batch = batch;
    known.tables.clear();
  }
  const auto found = std::find_if(known.tables.begin(), known.tables.end(),
                                  [&](const KnownTable& entry) { return same(entry.rope, rope); });
  if (found != known.tables.end()) {
    return found->table;
  }
  known.tables.push_back({rope, make_rope_table(batch, rope)});
  return known.tables.back().table;
}

}  // namespace espalier::kernels
