#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// AFM: Llama with a plain feed-forward part.
Descriptor read_arcee(ConfigReader& config) {
  config.set_defaults({{"hidden_act", "relu2"}});
  Descriptor decoder = read_llama(config);
  set_plain_mlp(decoder);
  return decoder;
}

}  // namespace espalier::models
