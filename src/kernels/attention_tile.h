#pragma once

namespace espalier::kernels {

/// The inner product of attention over lanes `V`: sums [rows, columns] = left [rows, inner] times
/// right [inner, columns], each sum by fused multiply-add over `inner` in order, from 0 or from
/// what `sums` holds. Rows and columns are tiled in registers.
template <class V>
class AttentionTile {
 public:
  struct Left {
    const float* data;
    int stride;
  };
  template <class X>
  struct Right {
    const X* data;
    const X* ahead;  // what is read after this, to be fetched meanwhile; 16-bit types only
    int stride;
  };
  struct Sums {
    float* data;
    int stride;
  };

  /// Rows that share the loads of `right`: as many as leave registers for two or more columns.
  static constexpr int max_rows = V::width == 16 ? 8 : V::width == 8 ? 6 : 1;

  /// How many of `rows` to take next.
  static int rows_at_once(int rows) {
    if (rows <= max_rows) {
      return rows;
    }
    return rows < 2 * max_rows ? (rows + 1) / 2 : max_rows;
  }

  /// `rows` is at most max_rows, `columns` a multiple of V::width.
  template <bool accumulate, class X>
  static void multiply(int rows, int inner, int columns, Left left, Right<X> right, Sums sums) {
    choose_rows<accumulate, max_rows>(rows, inner, columns, left, right, sums);
  }

 private:
  using Float = typename V::Float;

  /// Vectors of columns that fit beside `rows` rows: up to 12 (AVX2) or 16 sums.
  static constexpr int max_vectors(int rows) {
    return V::width == 1 ? 8 : rows <= max_rows / 2 ? 4 : 2;
  }

  template <bool accumulate, int rows, class X>
  static void choose_rows(int count, int inner, int columns, Left left, Right<X> right, Sums sums) {
    if constexpr (rows > 1) {
      if (count < rows) {
        choose_rows<accumulate, rows - 1>(count, inner, columns, left, right, sums);
        return;
      }
    }
    multiply_columns<accumulate, rows, max_vectors(rows)>(inner, columns, left, right, sums);
  }

  template <bool accumulate, int rows, int vectors, class X>
  static void multiply_columns(int inner, int columns, Left left, Right<X> right, Sums sums) {
    constexpr int step = vectors * V::width;
    for (; columns >= step; columns -= step) {
      multiply_tile<accumulate, rows, vectors>(inner, left, right, sums);
      right.data += step;
      right.ahead += step;
      sums.data += step;
    }
    if constexpr (vectors > 1) {
      if (columns > 0) {
        multiply_columns<accumulate, rows, vectors / 2>(inner, columns, left, right, sums);
      }
    }
  }

  template <bool accumulate, int rows, int vectors, class X>
  static void multiply_tile(int inner, Left left, Right<X> right, Sums sums) {
    Float sum[rows][vectors];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        sum[r][v] = accumulate ? V::load(sums.data + r * sums.stride + v * V::width) : V::zero();
      }
    }
    for (int k = 0; k < inner; ++k) {
      if constexpr (sizeof(X) == 2) {
        constexpr int line = 64 / sizeof(X);
#pragma GCC unroll 8
        for (int i = 0; i < vectors * V::width; i += line) {
          __builtin_prefetch(right.ahead + static_cast<long>(k) * right.stride + i);
        }
      }
      Float columns[vectors];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        columns[v] = V::load(right.data + static_cast<long>(k) * right.stride + v * V::width);
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const auto factor = V::set(left.data[r * left.stride + k]);
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
          sum[r][v] = V::fma(factor, columns[v], sum[r][v]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        V::store(sums.data + r * sums.stride + v * V::width, sum[r][v]);
      }
    }
  }
};

}  // namespace espalier::kernels
