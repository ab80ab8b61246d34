#pragma once

#include <variant>

#include "layers/gated_delta.h"
#include "layers/kimi_delta.h"
#include "layers/lightning_attention.h"
#include "layers/mamba.h"
#include "layers/mamba2.h"
#include "layers/rg_lru.h"
#include "layers/short_convolution.h"

namespace espalier::layers {

/// Any mixer that keeps a state of fixed size. Each has `mix`, `out_proj` and `bytes`.
using RecurrentMixer =
    std::variant<Mamba, Mamba2, GatedDelta, KimiDelta, RgLru, ShortConvolution, LightningAttention>;

}  // namespace espalier::layers
