#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "layers/activation.h"
#include "layers/router_rule.h"
#include "models/recurrent_descriptor.h"

namespace espalier::models {

/// Normalization of the rows of the residual stream, or of heads.
struct NormDescriptor {
  enum class Kind { rms, layer };

  Kind kind = Kind::rms;
  float eps = 0.0F;
  float weight_offset = 0.0F;  // the file holds weight - offset (Gemma: 1)
  bool weight = true;          // false: nothing learned
  bool bias = false;
};

struct RopeDescriptor {
  int dims;  // of each head, from the first on
  bool interleaved = false;
  std::vector<float> inv_freq;  // [dims/2]
  float magnitude = 1.0F;

  bool operator==(const RopeDescriptor&) const = default;
};

/// Normalization of q and k: each head by itself, or all heads together before RoPE.
struct QkNormDescriptor {
  enum class Scope { head, projection };
  /// Of heads: one vector for all of them; or a vector each, in one tensor or in a tensor each.
  enum class Weights { shared, stacked, listed };

  Scope scope = Scope::head;
  NormDescriptor norm = {};
  bool after_rope = false;  // heads only
  Weights weights = Weights::shared;
};

/// Queries grow with the position p: q * (1 + beta log(1 + floor((p + offset) / interval))).
struct QueryGrowthDescriptor {
  float beta;
  float interval;
  float offset = 0.0F;
};

/// The attended values are multiplied by sigmoid(x Wg), where Wg is a matrix of its own or the
/// second half of each head's rows in the query matrix.
struct OutputGateDescriptor {
  enum class Place { own, in_query };

  Place place = Place::own;
};

/// How one matrix holds q, k and v where each is not whole: for each of `groups` equal groups of
/// heads in turn, its queries, keys and values, or its values before its keys.
struct GroupedQkvDescriptor {
  int groups = 0;  // 0: one a key-value head
  bool values_before_keys = false;
};

struct AttentionDescriptor {
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
  int value_dim = 0;  // 0: head_dim
  int window = 0;     // 0: full
  int chunk = 0;      // a query sees its own chunk of so many positions; 0: all
  float softcap = 0.0F;
  bool qkv_bias = false;
  bool output_bias = false;
  float bias_scale = 1.0F;  // on all of these biases
  float qkv_limit = 0.0F;   // elements of q, k and v beyond +-limit are cut; 0: none
  std::optional<GroupedQkvDescriptor> grouped_qkv = {};
  bool sinks = false;  // each head has a score that takes weight and gives no value
  float value_scale = 1.0F;
  std::vector<float> alibi_slopes = {};  // [heads]; empty: none
  std::optional<QkNormDescriptor> qk_norm = {};
  std::optional<NormDescriptor> value_norm = {};  // each head by itself
  std::optional<RopeDescriptor> rope = {};
  std::optional<QueryGrowthDescriptor> query_growth = {};
  std::optional<OutputGateDescriptor> output_gate = {};
  std::optional<NormDescriptor> output_norm = {};  // before the output matrix
  /// The layer whose keys and values this one uses instead of its own.
  std::optional<int> shares_kv_of = {};
  bool keys_are_values = false;  // values are the keys as projected
};

/// Multi-head latent attention (DeepSeek-V2, section 2.1): keys and values of all heads are made
/// from one vector of `kv_rank` elements per token, beside `rope_dim` key elements with positions.
struct LatentAttentionDescriptor {
  int heads;
  int query_rank;  // 0: queries come from one matrix
  int kv_rank;
  int nope_dim;
  int rope_dim;
  int value_dim;
  float scale;
  RopeDescriptor rope;
  NormDescriptor norm;  // of both latent vectors
  bool bias = false;    // of the matrices that read the stream, and of the output's
};

/// Attention of an encoder: each row sees its whole sequence, before and after it.
struct EncoderAttentionDescriptor {
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
  int reach = 0;  // rows further away are not seen; 0: all are
  bool qkv_bias = false;
  bool output_bias = false;
  std::optional<NormDescriptor> qk_norm = {};  // each head by itself
  std::optional<RopeDescriptor> rope = {};
};

/// Attention and Mamba 2 side by side (Falcon-H1): both read the same rows, and the stream gets
/// scale * result of each.
struct ParallelMixerDescriptor {
  AttentionDescriptor attention;
  Mamba2Descriptor mamba;
  float attention_scale = 1.0F;
  float mamba_scale = 1.0F;
};

/// What mixes tokens in a layer; nothing where a layer has none.
using MixerDescriptor =
    std::variant<std::monostate, AttentionDescriptor, LatentAttentionDescriptor,
                 RecurrentDescriptor, ParallelMixerDescriptor, EncoderAttentionDescriptor>;

/// Of each row of x Wg only what exceeds mean + deviations * standard deviation goes on, less that
/// (Gemma 3n).
struct GateCutoffDescriptor {
  float deviations;
};

/// Gated, down(activation(x Wg) * (x Wu)), or plain, down(activation(x Wu)).
struct MlpDescriptor {
  int hidden;
  layers::Activation activation = layers::Activation::silu;
  bool gated = true;
  bool bias = false;
  std::optional<NormDescriptor> hidden_norm = {};  // before the down matrix
  float gate_scale = 1.0F;                         // on x Wg, inside the activation
  std::optional<GateCutoffDescriptor> gate_cutoff = {};
};

/// How a token chooses its experts and weighs them.
struct RouterDescriptor {
  layers::RouterRule rule;
  bool bias = false;             // added to the router's logits
  bool correction_bias = false;  // added to the scores for choosing alone
  bool expert_scales = false;    // a chosen expert's weight is multiplied by a number it learned
};

/// Experts that read and write vectors of another size than the stream's, behind one matrix and
/// before another (Nemotron 3); the router and the shared part see the stream.
struct ExpertLatentDescriptor {
  int size;
  bool bias = false;
};

/// A mixture of experts: each token's result is the weighted sum of those of its chosen experts,
/// plus that of the shared part.
struct ExpertsDescriptor {
  /// How a checkpoint holds the experts' matrices: a tensor each, with the expert's index in its
  /// name; or stacked [experts, outputs, inputs]; or stacked [experts, inputs, outputs]; or below
  /// one another, gate and up [experts * hidden, inputs], down [experts * hidden, outputs].
  enum class Layout { each, stacked, transposed, below };
  /// Where gate and up are one tensor: gate's outputs first, or the two taking turns.
  enum class GateUp { halves, alternating };

  RouterDescriptor router;
  int hidden;
  layers::Activation activation = layers::Activation::silu;
  bool gated = true;
  bool bias = false;
  Layout layout = Layout::each;
  GateUp gate_up = GateUp::halves;
  /// The weights multiply what goes into the experts instead of what comes out (Llama 4).
  bool weights_scale_input = false;
  std::optional<MlpDescriptor> shared = {};
  bool shared_gate = false;  // the shared part is multiplied by sigmoid(x w)
  std::optional<ExpertLatentDescriptor> latent = {};
};

/// An MLP, which reads the stream through the layer's norm, and a mixture of experts, which reads
/// it through one of its own; the sum of their normalized results is the part's (Gemma 4). The
/// router reads the stream normalized, times learned numbers, divided by the root of the width.
struct ParallelFeedForwardDescriptor {
  MlpDescriptor mlp;
  ExpertsDescriptor experts;
  NormDescriptor norm;  // each of these norms
};

using FeedForwardDescriptor =
    std::variant<std::monostate, MlpDescriptor, ExpertsDescriptor, ParallelFeedForwardDescriptor>;

/// A vector of `size` elements for each token and layer (Gemma 3n): the stream after both parts
/// gains post_norm((activation(x Wg) * vector) Wp).
struct LayerInputDescriptor {
  int size;
  layers::Activation activation;
  NormDescriptor norm;  // of the vector and of what is added
  int vocabulary = 0;   // tokens with a vector of their own, the others have the first's; 0: all
};

/// A low-rank part beside the mixer (Gemma 3n's LAuReL, for y the normed stream x): in place of
/// x + mixed the layer goes on from (x + mixed + y + norm(y L R)) / sqrt(2).
struct LaurelDescriptor {
  int rank;
  NormDescriptor norm;
};

/// Several streams side by side, of which a layer reads and writes one (Gemma 3n's AltUp): each is
/// predicted from all before the layer, and corrected by what the layer changed behind it.
struct AltUpDescriptor {
  int streams;
  int active = 0;
  bool output_scale = true;  // the layer's input vector meets the corrected stream times a vector
  NormDescriptor norm;       // before the router
};

/// A layer that goes on from its norms' results: stream = factor * norm(stream) + part (MiniMax).
struct NormedResidualDescriptor {
  float mixer_factor;
  float mlp_factor;
};

/// Mixer and feed-forward part of one layer. Each part reads the stream through its norm and adds
/// to it scale * post_norm(part).
struct LayerDescriptor {
  MixerDescriptor mixer;
  FeedForwardDescriptor feed_forward;
  std::optional<NormDescriptor> attention_norm = {};
  std::optional<NormDescriptor> attention_post_norm = {};
  std::optional<NormDescriptor> mlp_norm = {};
  std::optional<NormDescriptor> mlp_post_norm = {};
  float residual_scale = 1.0F;
  float mixer_scale = 1.0F;  // besides, on one part alone
  float mlp_scale = 1.0F;
  std::optional<NormedResidualDescriptor> normed_residual = {};
  bool norms_take_sums = false;  // the post norms take the sums of stream and part (BERT)
  /// Both parts read the stream as it was before the layer, instead of one after the other.
  bool parallel = false;
  std::optional<LayerInputDescriptor> layer_input = {};
  std::optional<LaurelDescriptor> laurel = {};
  bool output_scale = false;  // the stream is multiplied by a learned number in the end

  AttentionDescriptor& attention() { return std::get<AttentionDescriptor>(mixer); }
  const AttentionDescriptor& attention() const { return std::get<AttentionDescriptor>(mixer); }
  MlpDescriptor& mlp() { return std::get<MlpDescriptor>(feed_forward); }
  const MlpDescriptor& mlp() const { return std::get<MlpDescriptor>(feed_forward); }
  /// The mixture of experts, alone or beside an MLP; null where there is none.
  ExpertsDescriptor* experts() {
    auto* both = std::get_if<ParallelFeedForwardDescriptor>(&feed_forward);
    return both != nullptr ? &both->experts : std::get_if<ExpertsDescriptor>(&feed_forward);
  }
  const ExpertsDescriptor* experts() const {
    const auto* both = std::get_if<ParallelFeedForwardDescriptor>(&feed_forward);
    return both != nullptr ? &both->experts : std::get_if<ExpertsDescriptor>(&feed_forward);
  }
};

/// Names of the tensors of a mixture of experts. In those of one expert, "{}" stands for its index.
struct ExpertNames {
  std::string router;
  std::string correction_bias;     // a whole name
  std::vector<std::string> input;  // gate and up; or both as one; or up alone
  std::string down;
  std::string suffix = ".weight";  // of input and down
  std::string bias_suffix = ".bias";
  std::vector<std::string> shared_input;
  std::string shared_down;
  std::string shared_gate;
  std::string scales = {};  // a whole name
  std::string latent_input = {};
  std::string latent_output = {};
};

/// Of the norms of an MLP and a mixture side by side.
struct ParallelFeedForwardNames {
  std::string mlp_post_norm;
  std::string experts_norm;
  std::string experts_post_norm;
  std::string router_scale;  // a whole name
};

struct LayerInputNames {
  std::string embedding;   // [vocabulary, layers * size]
  std::string projection;  // of the embedded token
  std::string projection_norm;
  std::string gate;  // in each layer
  std::string output;
  std::string output_norm;
};

struct LaurelNames {
  std::string input;
  std::string output;
  std::string norm;
};

struct AltUpNames {
  std::string spread;  // of the model; behind it a stream's index less one
  std::string merge;
  std::string norm;  // in each layer
  std::string router;
  std::string prediction;
  std::string correction;
  std::string output_scale;  // a whole name
};

struct LatentNames {
  std::string q;  // without query_rank
  std::string q_a;
  std::string q_a_norm;
  std::string q_b;
  std::string kv_a;
  std::string kv_a_norm;
  std::string kv_b;
  std::string k_b = {};  // or both its parts by themselves, [heads, kv_rank, nope_dim] and
  std::string v_b = {};  // [heads, value_dim, kv_rank]
};

/// What a container and family call the tensors. The names inside a layer follow `layers`, the
/// layer's index and a dot; `.weight` and `.bias` are appended. A list with one name is a fused
/// matrix holding the parts below one another.
struct TensorNames {
  std::string embedding;
  std::string positions = {};
  std::string token_types = {};
  std::string embedding_norm = {};
  std::string final_norm;
  std::string head;
  std::string layers;
  std::vector<std::string> qkv;
  std::string attention_output;
  std::string output_gate = {};
  std::string output_norm = {};
  std::string sinks = {};  // a whole name
  std::string q_norm;
  std::string k_norm;
  std::vector<std::string> mlp_input;  // gate and up; or up alone
  std::string mlp_down;
  std::string mlp_hidden_norm = {};
  std::string mlp_activation = {};  // of learned constants
  std::string attention_norm;
  std::string attention_post_norm;
  std::string mlp_norm;
  std::string mlp_post_norm;
  /// The matrices lie [inputs, outputs] (GPT-2).
  bool transposed = false;
  std::string output_scale = {};  // a whole name
  LatentNames latent = {};
  LayerInputNames layer_input = {};
  LaurelNames laurel = {};
  AltUpNames alt_up = {};
  std::string recurrent = {};  // what the names of a recurrent mixer's tensors begin with
  /// Other names for them in a GGUF file, which holds decay rates themselves instead of their
  /// logarithms, and vectors and convolutions in any shape.
  std::vector<std::pair<std::string, std::string>> recurrent_renamed = {};
  ExpertNames experts = {};
  ParallelFeedForwardNames parallel_feed_forward = {};
  std::string embedding_output = {};  // from the embedding's width to the stream's
  std::string head_input = {};        // and back
};

/// A vector for each position, added to the embedding; position p takes row p + offset.
struct LearnedPositionsDescriptor {
  int rows;
  int offset = 0;
};

/// A causal decoder, read from config.json or GGUF metadata.
struct Descriptor {
  std::string family;  // "llama", "gemma3"
  int vocabulary;      // width of the logits
  int width;           // of the residual stream
  int context;         // positions the model was made for
  /// Of the embedding's and the head's vectors, where a matrix each leads to the stream and from
  /// it; 0: the stream's.
  int embedding_width = 0;
  float embedding_scale = 1.0F;
  std::optional<LearnedPositionsDescriptor> positions = {};
  int token_types = 0;  // vectors for the parts of a pair of texts, added to the embedding
  std::optional<NormDescriptor> embedding_norm = {};
  bool tied_head = false;
  bool head_bias = false;
  NormDescriptor final_norm = {};
  float logit_scale = 1.0F;
  float logit_softcap = 0.0F;
  std::optional<AltUpDescriptor> alt_up = {};
  std::vector<LayerDescriptor> layers = {};
  std::vector<std::int32_t> end_tokens = {};  // from the checkpoint's configuration
  TensorNames names = {};
};

}  // namespace espalier::models
