#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// Helium 1: Llama with interleaved RoPE.
Descriptor read_helium(ConfigReader& config) {
  Descriptor decoder = read_llama(config);
  set_rope(decoder, read_rope(config, {}, 100000), true);
  return decoder;
}

}  // namespace espalier::models
