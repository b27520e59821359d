// <metal_quadgroup>: groups of four lanes. Run as operations of the whole simdgroup: a quadgroup whose lanes diverge
// from the rest of their simdgroup is reported although Metal allows it.
#pragma once
namespace metal {
namespace lanes {
EMULATOR_INLINE int quad() { return self() & ~3; }

/// A reduction over the quadgroup by two exchanges.
template <class T, class Combine>
EMULATOR_INLINE T quad_reduce(T x, const char* name, EmulatorSite site, Combine combine) {
  x = combine(x, take(x, self() ^ 1, name, site));
  return combine(x, take(x, self() ^ 2, name, site));
}
}  // namespace lanes

#define EMULATOR_QUAD_REDUCTION(name, ...)                                                           \
  template <class T>                                                                                 \
  EMULATOR_INLINE T name(T x, EMULATOR_SITE) {                                                       \
    return lanes::quad_reduce(x, #name, site, [](T a, T b) { return static_cast<T>(__VA_ARGS__); }); \
  }
EMULATOR_QUAD_REDUCTION(quad_sum, a + b)
EMULATOR_QUAD_REDUCTION(quad_product, a* b)
EMULATOR_QUAD_REDUCTION(quad_max, max(a, b))
EMULATOR_QUAD_REDUCTION(quad_min, min(a, b))
EMULATOR_QUAD_REDUCTION(quad_and, a& b)
EMULATOR_QUAD_REDUCTION(quad_or, a | b)
EMULATOR_QUAD_REDUCTION(quad_xor, a ^ b)

template <class T>
EMULATOR_INLINE T quad_shuffle(T x, ushort lane, EMULATOR_SITE) {
  return lanes::take(x, lanes::quad() + (lane & 3), "quad_shuffle", site);
}
template <class T>
EMULATOR_INLINE T quad_broadcast(T x, ushort lane, EMULATOR_SITE) {
  return lanes::take(x, lanes::quad() + (lane & 3), "quad_broadcast", site);
}
template <class T>
EMULATOR_INLINE T quad_shuffle_xor(T x, ushort mask, EMULATOR_SITE) {
  return lanes::take(x, lanes::self() ^ (mask & 3), "quad_shuffle_xor", site);
}
template <class T>
EMULATOR_INLINE T quad_shuffle_down(T x, ushort delta, EMULATOR_SITE) {
  const int from = (lanes::self() & 3) + delta;
  return lanes::take(x, from > 3 ? lanes::self() : lanes::quad() + from, "quad_shuffle_down", site);
}
template <class T>
EMULATOR_INLINE T quad_shuffle_up(T x, ushort delta, EMULATOR_SITE) {
  const int from = (lanes::self() & 3) - delta;
  return lanes::take(x, from < 0 ? lanes::self() : lanes::quad() + from, "quad_shuffle_up", site);
}
EMULATOR_INLINE bool quad_all(bool vote, EMULATOR_SITE) { return quad_and(static_cast<int>(vote), site) != 0; }
EMULATOR_INLINE bool quad_any(bool vote, EMULATOR_SITE) { return quad_or(static_cast<int>(vote), site) != 0; }
}  // namespace metal
