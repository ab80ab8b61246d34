#include "kernels/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace espalier::kernels {
namespace {

constexpr InstructionSet all_sets[] = {InstructionSet::avx512, InstructionSet::avx2,
                                       InstructionSet::scalar};

InstructionSet choose() {
  InstructionSet limit = InstructionSet::avx512;
  if (const char* name = std::getenv("ESPALIER_INSTRUCTION_SET")) {
    bool known = false;
    for (const auto set : all_sets) {
      if (name == to_string(set)) {
        limit = set;
        known = true;
      }
    }
    if (!known) {
      throw base::UsageError("ESPALIER_INSTRUCTION_SET is '" + std::string(name) +
                             "', expected scalar, avx2 or avx512.");
    }
  }
  for (const auto set : all_sets) {
    if (set <= limit && supports(set)) {
      return set;
    }
  }
  return InstructionSet::scalar;
}

/// The forced set, or -1.
std::atomic<int> forced = -1;

#if defined(__x86_64__)
// Not among the names that clang's __builtin_cpu_supports knows.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

}  // namespace

bool supports(InstructionSet set) {
#if defined(__x86_64__)
  switch (set) {
    case InstructionSet::avx512:
      return supports(InstructionSet::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
             __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
    case InstructionSet::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case InstructionSet::scalar:
      return true;
  }
#endif
  return set == InstructionSet::scalar;
}

InstructionSet instruction_set() {
  static const InstructionSet chosen = choose();
  const int set = forced.load(std::memory_order_relaxed);
  return set < 0 ? chosen : static_cast<InstructionSet>(set);
}

void force_instruction_set(std::optional<InstructionSet> set) {
  forced.store(set ? static_cast<int>(*set) : -1, std::memory_order_relaxed);
}

bool fetches_weights_ahead() {
#if defined(__x86_64__)
  static const bool fetches = !(__builtin_cpu_is("amd") && supports(InstructionSet::avx512));
  return fetches;
#else
  return true;
#endif
}

std::string_view to_string(InstructionSet set) {
  switch (set) {
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::scalar:
      return "scalar";
  }
  return "scalar";
}

}  // namespace espalier::kernels
