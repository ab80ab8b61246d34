// Any bytes as a safetensors file: either a LoadError, or a file whose every tensor can be read.
#include <cstddef>
#include <cstdint>

#include "arrays/safetensors.h"
#include "base/error.h"
#include "memory_file.h"
#include "tensor_reads.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const espalier::fuzz::MemoryFile input(data, size);
  try {
    espalier::fuzz::read_tensors(*espalier::arrays::open_safetensors(input.path()));
  } catch (const espalier::base::LoadError&) {
  }
  return 0;
}
