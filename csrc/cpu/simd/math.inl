// exp and log over vectors; sample_math.inl has the scalar forms, the formulas and their errors.

namespace {

/// e^x for x < 88, relative error 1e-7; 0 below -87; NaN stays NaN.
inline Vec exp_below_88(Vec x) {
  const Vec n = round(mul(x, set1(kLog2e)));
  const Vec r = neg_fma(n, set1(kLn2Lo), neg_fma(n, set1(kLn2Hi), x));
  Vec p = fma(set1(kExp4), r, set1(kExp3));
  p = fma(p, r, set1(kExp2));
  p = fma(p, r, set1(kExp1));
  p = fma(p, r, set1(kExp0));
  p = add(fma(p, mul(r, r), r), set1(1.0f));
  const Vec power = as_float(shl<23>(iadd(to_int(n), iset1(127))));
  return select(lt(x, set1(-87.0f)), zero(), mul(p, power));
}

/// e^x for any x: about e^88 above 88.
inline Vec exp(Vec x) { return exp_below_88(select(gt(x, set1(88.0f)), set1(88.0f), x)); }

inline float exp1(float x) {
  alignas(64) float out[W];
  store(out, exp(set1(x)));
  return out[0];
}

inline Vec log_positive(Vec x) {
  const Int u = as_int(x);
  const Int k = sar<23>(isub(u, iset1(kTwoThirds)));
  const Vec f = sub(as_float(isub(u, shl<23>(k))), set1(1.0f));
  Vec p = fma(set1(kLog7), f, set1(kLog6));
  p = fma(p, f, set1(kLog5));
  p = fma(p, f, set1(kLog4));
  p = fma(p, f, set1(kLog3));
  p = fma(p, f, set1(kLog2));
  p = fma(p, f, set1(kLog1));
  p = fma(p, f, set1(kLog0));
  p = fma(p, mul(f, f), f);
  return fma(to_float(k), set1(kLn2), p);
}

/// cap * tanh(x / cap), with an absolute error of cap * 1e-7.
inline Vec soft_cap(Vec x, float cap) {
  const Vec e = exp(mul(x, set1(2.0f / cap)));
  return mul(set1(cap), sub(set1(1.0f), div(set1(2.0f), add(e, set1(1.0f)))));
}

}  // namespace
