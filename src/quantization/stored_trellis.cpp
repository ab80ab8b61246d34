#include "arrays/tensor_index.h"
#include "quantization/stored_tensors.h"

namespace espalier::quantization {

using arrays::StorageType;
using arrays::TensorView;
using kernels::trellis_block_weights;

StoredMatrix find_trellis(StoredTensors& tensors, const kernels::TrellisFormat& format) {
  const bool along_inputs = format.axis == 1;
  const int rows = along_inputs ? tensors.rows() : tensors.columns();
  const int columns = along_inputs ? tensors.columns() : tensors.rows();
  const TensorView codes = tensors.take("weight");
  const TensorView scales = tensors.take("scales", StorageType::f16, {rows});
  tensors.check(codes.type == StorageType::u32, "weight",
                "has type " + std::string(arrays::storage_traits(codes.type).name) +
                    ", but the configuration says that it is trellis-coded, which takes u32");
  tensors.check(columns % trellis_block_weights == 0, "weight",
                "cannot be coded along its " + std::to_string(columns) +
                    (along_inputs ? " inputs" : " outputs") + ", which are no multiple of 256");
  const int blocks = columns / trellis_block_weights;
  const std::vector<std::int64_t> by_rows = {rows, format.words(blocks)};
  const std::vector<std::int64_t> interleaved = {blocks / 2, rows, format.words(2)};
  const bool may_interleave = !along_inputs && format.bits == 3 && !format.half_bit &&
                              format.state_bits == 12 &&
                              format.code == kernels::TrellisCode::one_mad && blocks % 2 == 0;
  tensors.check(codes.shape == by_rows || (may_interleave && codes.shape == interleaved), "weight",
                "has shape " + arrays::to_string(codes.shape) + ", expected " +
                    arrays::to_string(by_rows) +
                    (may_interleave ? " or " + arrays::to_string(interleaved) : ""));
  return {.trellis = StoredMatrix::Trellis{.codes = codes,
                                           .scales = scales,
                                           .format = format,
                                           .contract = tensors.schemes().trellis_contract}};
}

}  // namespace espalier::quantization
