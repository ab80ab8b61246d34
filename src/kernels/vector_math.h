#pragma once

namespace espalier::kernels {

/// Elementary functions over a lane type `V`, with the same bits in every instruction set.

/// e^x within 1.5 units in the last place; 0 below -87.34 (where the result would be subnormal),
/// infinity above 88.73, NaN for NaN.
template <class V>
inline typename V::Float exp(typename V::Float x) {
  // Adding 1.5 * 2^23 rounds to a whole number: no rounding instruction is common to all sets.
  const auto magic = V::set(12582912.0F);
  const auto low = V::set(-87.33654F);
  const auto high = V::set(88.73F);
  // min and max return their second argument for a NaN in either, so this keeps NaN out of to_int.
  const auto clamped = V::min(V::max(x, low), high);
  const auto n = V::sub(V::fma(clamped, V::set(1.44269504F), magic), magic);
  auto r = V::fnma(n, V::set(0.693359375F), clamped);
  r = V::fnma(n, V::set(-2.12194440e-4F), r);
  auto p = V::set(1.0F / 5040.0F);
  p = V::fma(p, r, V::set(1.0F / 720.0F));
  p = V::fma(p, r, V::set(1.0F / 120.0F));
  p = V::fma(p, r, V::set(1.0F / 24.0F));
  p = V::fma(p, r, V::set(1.0F / 6.0F));
  p = V::fma(p, r, V::set(0.5F));
  p = V::fma(p, r, V::set(1.0F));
  p = V::fma(p, r, V::set(1.0F));
  // 2^n in two factors, since n may be 128.
  const auto exponent = V::to_int(n);
  const auto half = V::template shift_right_signed<1>(exponent);
  const auto power = [](auto e) {
    return V::as_float(V::template shift_left<23>(V::add_int(e, V::set_int(127))));
  };
  const auto scaled = V::mul(V::mul(p, power(half)), power(V::sub_int(exponent, half)));
  const auto result = V::select_greater(low, x, V::zero(), scaled);
  // A NaN fails every comparison; x - x adds it back and is 0 otherwise (infinities end above).
  return V::select_greater(x, V::set(88.72284F), V::set(__builtin_inff()),
                           V::select_greater(low, x, result, V::add(result, V::sub(x, x))));
}

/// e^x of x <= 0 within 1.5 units in the last place, in half the instructions of `exp`; 0 below
/// -87, NaN for NaN.
template <class V>
inline typename V::Float exp_nonpositive(typename V::Float x) {
  const auto magic = V::set(12582912.0F);
  const auto low = V::set(-87.0F);
  // The second argument comes back for a NaN.
  const auto clamped = V::max(low, x);
  // The last bits of `shifted` are the whole number n.
  const auto shifted = V::fma(clamped, V::set(1.44269504F), magic);
  const auto n = V::sub(shifted, magic);
  auto r = V::fnma(n, V::set(0.693359375F), clamped);
  r = V::fnma(n, V::set(-2.12194440e-4F), r);
  auto p = V::set(1.0F / 5040.0F);
  p = V::fma(p, r, V::set(1.0F / 720.0F));
  p = V::fma(p, r, V::set(1.0F / 120.0F));
  p = V::fma(p, r, V::set(1.0F / 24.0F));
  p = V::fma(p, r, V::set(1.0F / 6.0F));
  p = V::fma(p, r, V::set(0.5F));
  p = V::fma(p, r, V::set(1.0F));
  p = V::fma(p, r, V::set(1.0F));
  // p * 2^n through the exponent, since the product is a normal number.
  const auto scaled =
      V::as_float(V::add_int(V::as_int(p), V::template shift_left<23>(V::as_int(shifted))));
  return V::select_greater(low, x, V::zero(), scaled);
}

/// 1 / (1 + e^-x)
template <class V>
inline typename V::Float sigmoid(typename V::Float x) {
  const auto one = V::set(1.0F);
  return V::div(one, V::add(one, exp<V>(V::sub(V::zero(), x))));
}

/// x * sigmoid(x)
template <class V>
inline typename V::Float silu(typename V::Float x) {
  return V::mul(x, sigmoid<V>(x));
}

/// GELU with the tanh approximation: x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)).
template <class V>
inline typename V::Float gelu_tanh(typename V::Float x) {
  const auto cube = V::mul(V::mul(x, x), x);
  const auto inner = V::fma(cube, V::set(0.044715F), x);
  return V::mul(x, sigmoid<V>(V::mul(inner, V::set(1.5957691F))));
}

/// tanh(x) = 2 sigmoid(2x) - 1: absolute error below 2e-7, for soft caps.
template <class V>
inline typename V::Float tanh(typename V::Float x) {
  return V::fma(sigmoid<V>(V::add(x, x)), V::set(2.0F), V::set(-1.0F));
}

/// The error function, absolute error below 6e-7 (Abramowitz and Stegun 7.1.26).
template <class V>
inline typename V::Float erf(typename V::Float x) {
  const auto one = V::set(1.0F);
  const auto magnitude = V::abs(x);
  const auto t = V::div(one, V::fma(magnitude, V::set(0.3275911F), one));
  auto p = V::set(1.061405429F);
  p = V::fma(p, t, V::set(-1.453152027F));
  p = V::fma(p, t, V::set(1.421413741F));
  p = V::fma(p, t, V::set(-0.284496736F));
  p = V::fma(p, t, V::set(0.254829592F));
  p = V::mul(p, t);
  const auto decay = exp<V>(V::sub(V::zero(), V::mul(x, x)));
  const auto positive = V::fnma(p, decay, one);
  return V::select_greater(V::zero(), x, V::sub(V::zero(), positive), positive);
}

/// x * (1 + erf(x / sqrt 2)) / 2
template <class V>
inline typename V::Float gelu_erf(typename V::Float x) {
  const auto half = V::mul(x, V::set(0.5F));
  return V::fma(half, erf<V>(V::mul(x, V::set(0.70710678F))), half);
}

}  // namespace espalier::kernels
