// <metal_simdgroup>: what the 32 lanes of a simdgroup do together.
//
// Every lane hands its operand over and waits; the last one to arrive runs `Operation::run` for all lanes that take
// part (a mask, since threads may have returned, or a simdgroup may be short) and all go on.
#pragma once
namespace metal {
namespace lanes {

constexpr int width = 32;
EMULATOR_INLINE constexpr bool takes_part(uint mask, int lane) { return mask >> lane & 1; }
EMULATOR_INLINE int self() { return static_cast<int>(emulator_thread()->lane); }

template <class Operation, class In, class Out>
struct Erased {
  EMULATOR_UNSEEN static void run(const void* const* in, void* const* out, uint mask) {
    Operation::run(reinterpret_cast<const In* const*>(in), reinterpret_cast<Out* const*>(out), mask);
  }
};
template <class Operation, class Out, class In>
EMULATOR_INLINE Out together(const In& operand, const char* name, EmulatorSite site) {
  In in = operand;
  Out out;
  emulator_simdgroup_operation(&Erased<Operation, In, Out>::run, &in, &out, name, site);
  return out;
}

template <class Out>
EMULATOR_UNSEEN inline void give_all(Out* const* out, uint mask, Out value) {
  for (int l = 0; l < width; l++)
    if (takes_part(mask, l)) *out[l] = value;
}

// A fold in the order of the lanes; for operations whose result does not depend on the order.
#define EMULATOR_FOLD(Name, ...)                                                    \
  struct Name {                                                                     \
    template <class T>                                                              \
    EMULATOR_UNSEEN static void run(const T* const* in, T* const* out, uint mask) { \
      bool first = true;                                                            \
      T a{};                                                                        \
      for (int l = 0; l < width; l++) {                                             \
        if (!takes_part(mask, l)) continue;                                         \
        const T b = *in[l];                                                         \
        a = first ? b : static_cast<T>(__VA_ARGS__);                                \
        first = false;                                                              \
      }                                                                             \
      give_all(out, mask, a);                                                       \
    }                                                                               \
  };
EMULATOR_FOLD(Max, metal::max(a, b))
EMULATOR_FOLD(Min, metal::min(a, b))
EMULATOR_FOLD(And, a& b)
EMULATOR_FOLD(Or, a | b)
EMULATOR_FOLD(Xor, a ^ b)

struct Add {
  template <class T>
  EMULATOR_UNSEEN static T of(T a, T b) {
    return a + b;
  }
  template <class T>
  EMULATOR_UNSEEN static T neutral() {
    return T(0);
  }
};
struct Multiply {
  template <class T>
  EMULATOR_UNSEEN static T of(T a, T b) {
    return a * b;
  }
  template <class T>
  EMULATOR_UNSEEN static T neutral() {
    return T(1);
  }
};

/// A tree over the lanes. Metal does not tell its order: with Settings::perturb_fast the seed chooses another.
template <class Op>
struct Tree {
  template <class T>
  EMULATOR_UNSEEN static void run(const T* const* in, T* const* out, uint mask) {
    T t[width];
    for (int l = 0; l < width; l++) t[l] = takes_part(mask, l) ? *in[l] : Op::template neutral<T>();
    const int turn = emulator_perturb_ulp ? static_cast<int>(emulator_perturb_seed % 5) : 0;
    int done = 0;
    for (int level = 4; level >= 0; level--) {
      const int bit = 1 << (level + turn) % 5;
      for (int l = 0; l < width; l++)
        if (!(l & (done | bit))) t[l] = Op::of(t[l], t[l | bit]);
      done |= bit;
    }
    give_all(out, mask, t[0]);
  }
};

template <class Op, bool inclusive>
struct Prefix {
  template <class T>
  EMULATOR_UNSEEN static void run(const T* const* in, T* const* out, uint mask) {
    T sum = Op::template neutral<T>();
    for (int l = 0; l < width; l++) {
      if (!takes_part(mask, l)) continue;
      const T next = Op::of(sum, *in[l]);
      *out[l] = inclusive ? next : sum;
      sum = next;
    }
  }
};

template <class T>
struct FromLane {
  T value;
  int lane;
  EmulatorSite site;
};
/// Each lane takes the value of another. Of a lane that takes no part: undefined, so a finding and all bits set.
struct Gather {
  template <class In, class T>
  EMULATOR_UNSEEN static void run(const In* const* in, T* const* out, uint mask) {
    for (int l = 0; l < width; l++) {
      if (!takes_part(mask, l)) continue;
      const int from = in[l]->lane;
      if (from >= 0 && from < width && takes_part(mask, from)) {
        *out[l] = in[from]->value;
      } else {
        emulator_fault("a lane's value is read that is inactive or does not exist", in[l]->site);
        __builtin_memset(static_cast<void*>(out[l]), 0xff, sizeof(T));
      }
    }
  }
};
struct First {
  template <class T>
  EMULATOR_UNSEEN static void run(const T* const* in, T* const* out, uint mask) {
    give_all(out, mask, *in[__builtin_ctz(mask)]);
  }
};
struct Ballot {
  EMULATOR_UNSEEN static void run(const bool* const* in, ulong* const* out, uint mask) {
    ulong votes = 0;
    for (int l = 0; l < width; l++)
      if (takes_part(mask, l) && *in[l]) votes |= 1ul << l;
    give_all(out, mask, votes);
  }
};

template <class T>
constexpr bool is_bfloat = is_same_v<T, bfloat>;
template <class T, int N>
constexpr bool is_bfloat<vec<T, N>> = is_same_v<T, bfloat>;
template <class T>
EMULATOR_INLINE constexpr void refuse_bfloat() {
  static_assert(!is_bfloat<T>, "simdgroup functions take no bfloat in Metal: convert to float first");
}
template <class T>
EMULATOR_INLINE T take(T x, int lane, const char* name, EmulatorSite site) {
  refuse_bfloat<T>();
  return together<Gather, T>(FromLane<T>{x, lane, site}, name, site);
}
}  // namespace lanes

#define EMULATOR_SIMD_REDUCTION(name, ...)                  \
  template <class T>                                        \
  EMULATOR_INLINE T name(T x, EMULATOR_SITE) {              \
    lanes::refuse_bfloat<T>();                              \
    return lanes::together<__VA_ARGS__, T>(x, #name, site); \
  }
EMULATOR_SIMD_REDUCTION(simd_sum, lanes::Tree<lanes::Add>)
EMULATOR_SIMD_REDUCTION(simd_product, lanes::Tree<lanes::Multiply>)
EMULATOR_SIMD_REDUCTION(simd_max, lanes::Max)
EMULATOR_SIMD_REDUCTION(simd_min, lanes::Min)
EMULATOR_SIMD_REDUCTION(simd_and, lanes::And)
EMULATOR_SIMD_REDUCTION(simd_or, lanes::Or)
EMULATOR_SIMD_REDUCTION(simd_xor, lanes::Xor)
EMULATOR_SIMD_REDUCTION(simd_prefix_inclusive_sum, lanes::Prefix<lanes::Add, true>)
EMULATOR_SIMD_REDUCTION(simd_prefix_exclusive_sum, lanes::Prefix<lanes::Add, false>)
EMULATOR_SIMD_REDUCTION(simd_prefix_inclusive_product, lanes::Prefix<lanes::Multiply, true>)
EMULATOR_SIMD_REDUCTION(simd_prefix_exclusive_product, lanes::Prefix<lanes::Multiply, false>)
EMULATOR_SIMD_REDUCTION(simd_broadcast_first, lanes::First)

template <class T>
EMULATOR_INLINE T simd_shuffle(T x, ushort lane, EMULATOR_SITE) {
  return lanes::take(x, lane, "simd_shuffle", site);
}
template <class T>
EMULATOR_INLINE T simd_broadcast(T x, ushort lane, EMULATOR_SITE) {
  return lanes::take(x, lane, "simd_broadcast", site);
}
template <class T>
EMULATOR_INLINE T simd_shuffle_xor(T x, ushort mask, EMULATOR_SITE) {
  return lanes::take(x, lanes::self() ^ mask, "simd_shuffle_xor", site);
}
// Up and down: lanes without a partner keep their value, or take `fill`'s from the other end.
template <class T>
EMULATOR_INLINE T simd_shuffle_down(T x, ushort delta, EMULATOR_SITE) {
  const int from = lanes::self() + delta;
  return lanes::take(x, from >= lanes::width ? lanes::self() : from, "simd_shuffle_down", site);
}
template <class T>
EMULATOR_INLINE T simd_shuffle_up(T x, ushort delta, EMULATOR_SITE) {
  const int from = lanes::self() - delta;
  return lanes::take(x, from < 0 ? lanes::self() : from, "simd_shuffle_up", site);
}
template <class T>
EMULATOR_INLINE T simd_shuffle_rotate_down(T x, ushort delta, EMULATOR_SITE) {
  return lanes::take(x, (lanes::self() + delta) & 31, "simd_shuffle_rotate_down", site);
}
template <class T>
EMULATOR_INLINE T simd_shuffle_rotate_up(T x, ushort delta, EMULATOR_SITE) {
  return lanes::take(x, (lanes::self() - delta) & 31, "simd_shuffle_rotate_up", site);
}
// The simdgroup is seen as blocks of `modulo` lanes.
template <class T>
EMULATOR_INLINE T simd_shuffle_and_fill_down(T x, T fill, ushort delta, ushort modulo = 32, EMULATOR_SITE) {
  const int from = (lanes::self() & (modulo - 1)) + delta, block = lanes::self() & ~(modulo - 1);
  const T other = lanes::take(x, block + (from & (modulo - 1)), "simd_shuffle_and_fill_down", site);
  const T filler = lanes::take(fill, block + (from & (modulo - 1)), "simd_shuffle_and_fill_down", site);
  return from < modulo ? other : filler;
}
template <class T>
EMULATOR_INLINE T simd_shuffle_and_fill_up(T x, T fill, ushort delta, ushort modulo = 32, EMULATOR_SITE) {
  const int from = (lanes::self() & (modulo - 1)) - delta, block = lanes::self() & ~(modulo - 1);
  const T other = lanes::take(x, block + (from & (modulo - 1)), "simd_shuffle_and_fill_up", site);
  const T filler = lanes::take(fill, block + (from & (modulo - 1)), "simd_shuffle_and_fill_up", site);
  return from >= 0 ? other : filler;
}

class simd_vote {
 public:
  using vote_t = ulong;
  explicit constexpr simd_vote(vote_t votes = 0) : votes_(votes) {}
  explicit constexpr operator vote_t() const { return votes_; }
  constexpr bool all() const { return votes_ == 0xffffffffu; }
  constexpr bool any() const { return votes_ != 0; }

 private:
  vote_t votes_;
};
EMULATOR_INLINE simd_vote simd_ballot(bool vote, EMULATOR_SITE) {
  return simd_vote(lanes::together<lanes::Ballot, ulong>(vote, "simd_ballot", site));
}
EMULATOR_INLINE simd_vote simd_active_threads_mask(EMULATOR_SITE) {
  return simd_vote(lanes::together<lanes::Ballot, ulong>(true, "simd_active_threads_mask", site));
}
EMULATOR_INLINE bool simd_all(bool vote, EMULATOR_SITE) {
  return lanes::together<lanes::And, bool>(vote, "simd_all", site);
}
EMULATOR_INLINE bool simd_any(bool vote, EMULATOR_SITE) {
  return lanes::together<lanes::Or, bool>(vote, "simd_any", site);
}
EMULATOR_INLINE bool simd_is_first(EMULATOR_SITE) {
  return __builtin_ctzl(static_cast<ulong>(simd_active_threads_mask(site))) == lanes::self();
}
}  // namespace metal
