// The delta rule, kDeltaChunk rows at once. With d(t, j) the product of the decays of rows j + 1 .. t of a chunk, d(t)
// of rows 0 .. t, and S the state in front of it:
//
//   delta_t = beta_t (v_t - d(t) S k_t - sum over j < t of d(t, j) (k_j . k_t) delta_j)     solved row by row
//   y_t     = d(t) S q_t + sum over j <= t of d(t, j) (k_j . q_t) delta_j
//   S'      = d(last) S + sum over j of d(last, j) delta_j k_j^T
//
// d is made by multiplication, as the sequential form does it: no logarithms whose differences could cancel, nothing
// above 1. Matrices of a head: S^T [key_dim, value rows], so that all products are panels of value columns or of rows
// j. Order of sums: over key_dim and over j ascending, so neither panels nor value slices show in the bits.

namespace {

constexpr int kTile = W == 8 ? 4 : 8;  // rows of a register tile: AVX2 has half the registers
static_assert(kDeltaChunk % kTile == 0 && kDeltaSlice % kPanel == 0 && kDeltaChunk % kPanel == 0);

enum class Onto { nothing, c, scaled_c };

/// c [kTile, kPanel] = (onto) + a [kTile, depth] b [depth, kPanel]; scale: one per row.
template <Onto kOnto>
inline void tile_product(float* c, int64_t c_stride, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                         int64_t depth, float scale) {
  Vec acc[kTile][2];
  for (int r = 0; r < kTile; ++r)
    for (int x = 0; x < 2; ++x) {
      acc[r][x] = kOnto == Onto::nothing ? zero() : load(c + r * c_stride + x * W);
      if (kOnto == Onto::scaled_c) acc[r][x] = mul(acc[r][x], set1(scale));
    }
  for (int64_t k = 0; k < depth; ++k) {
    const Vec b0 = load(b + k * b_stride), b1 = load(b + k * b_stride + W);
    for (int r = 0; r < kTile; ++r) {
      const Vec x = set1(a[r * a_stride + k]);
      acc[r][0] = fma(x, b0, acc[r][0]);
      acc[r][1] = fma(x, b1, acc[r][1]);
    }
  }
  for (int r = 0; r < kTile; ++r)
    for (int x = 0; x < 2; ++x) store(c + r * c_stride + x * W, acc[r][x]);
}

/// Everything of one chunk that lies in work; sizes are padded to panels, what is behind them is zero.
struct Chunk {
  int64_t keys, values;       // padded key_dim, padded value rows
  float *state, *k, *q, *kt;  // S^T [keys, values], k and q [chunk, keys], k^T [keys, chunk]
  float *delta, *out;         // [chunk, values]
  float *among, *onto;    // [chunk, chunk]: -beta_t d(t, j) k_j . k_t below the diagonal; d(t, j) k_j . q_t up to it
  float *d, *from_first;  // [chunk]: the row of d(t, j) at hand; d(t)

  Chunk(const DeltaChunks& c, float* work) : keys(padded(c.key_dim)), values(padded(c.rows)) {
    const auto take = [&](int64_t floats) { return work += floats, work - floats; };
    state = take(keys * values);
    k = take(kDeltaChunk * keys), q = take(kDeltaChunk * keys), kt = take(keys * kDeltaChunk);
    delta = take(kDeltaChunk * values), out = take(kDeltaChunk * values);
    among = take(kDeltaChunk * kDeltaChunk), onto = take(kDeltaChunk * kDeltaChunk);
    d = take(kDeltaChunk), from_first = take(kDeltaChunk);
  }
};

/// to [columns, rows_stride] = from^T, from [rows, columns]; what is behind is zero up to padded_columns and to_stride.
void transposed(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                int64_t padded_columns) {
  for (int64_t i = 0; i < to_stride; i += W)
    for (int64_t j = 0; j < padded_columns; j += W) {
      Vec r[W];
      const int64_t n = columns - j < W ? columns - j : W;
      for (int64_t x = 0; x < W; ++x) {
        const float* p = from + (i + x) * from_stride + j;
        r[x] = i + x >= rows || n <= 0 ? zero() : n == W ? load(p) : load_n(p, n);
      }
      transpose(r);
      for (int64_t x = 0; x < W; ++x) store(to + (j + x) * to_stride + i, r[x]);
    }
}

/// The rows of a chunk side by side, zero behind n.
void gathered(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t n) {
  for (int64_t t = 0; t < kDeltaChunk; ++t) {
    std::memcpy(to + t * to_stride, from + t * from_stride, static_cast<size_t>(n) * sizeof(float));
    for (int64_t i = n; i < to_stride; ++i) to[t * to_stride + i] = 0.0f;
  }
}

/// Products of the chunk's rows with each other, and the decays between them.
void relate(const DeltaChunks& c, const Chunk& h, int64_t row) {
  for (int64_t t = 0; t < kDeltaChunk; t += kTile)
    for (int64_t j = 0; j < t + kTile; j += kPanel) {
      tile_product<Onto::nothing>(h.among + t * kDeltaChunk + j, kDeltaChunk, h.k + t * h.keys, h.keys, h.kt + j,
                                  kDeltaChunk, h.keys, 0.0f);
      tile_product<Onto::nothing>(h.onto + t * kDeltaChunk + j, kDeltaChunk, h.q + t * h.keys, h.keys, h.kt + j,
                                  kDeltaChunk, h.keys, 0.0f);
    }
  for (int64_t j = 0; j < kDeltaChunk; ++j) h.d[j] = 0.0f;
  float whole = 1.0f;
  for (int64_t t = 0; t < kDeltaChunk; ++t) {
    const float decay = c.decay[(row + t) * c.gate_stride], beta = c.beta[(row + t) * c.gate_stride];
    whole = whole * decay < 1e-30f ? 0.0f : whole * decay;
    h.from_first[t] = whole;
    // Below 1e-30 nothing is left of a row; numbers that are not normal would be slow.
    for (int64_t j = 0; j < t; j += W) {
      const Vec d = mul(load(h.d + j), set1(decay));
      store(h.d + j, select(lt(d, set1(1e-30f)), zero(), d));
    }
    h.d[t] = 1.0f;
    float* among = h.among + t * kDeltaChunk;
    float* onto = h.onto + t * kDeltaChunk;
    for (int64_t j = 0; j < kDeltaChunk; j += W) {
      const bool none = j > t;  // d is zero behind t; what no tile has written must not come in
      const Vec d = load(h.d + j);
      store(onto + j, none ? zero() : mul(d, load(onto + j)));
      store(among + j, none ? zero() : mul(mul(set1(-beta), d), load(among + j)));
    }
    for (int64_t j = t + 1; j < (t / W + 1) * W; ++j) onto[j] = 0.0f;
    for (int64_t j = t; j < (t / W + 1) * W; ++j) among[j] = 0.0f;
  }
}

/// delta from what the state in front of the chunk gives: out of each row the rows before it.
void solve(const Chunk& h) {
  for (int64_t t0 = 0; t0 < kDeltaChunk; t0 += kTile) {
    for (int64_t i = 0; t0 > 0 && i < h.values; i += kPanel)
      tile_product<Onto::c>(h.delta + t0 * h.values + i, h.values, h.among + t0 * kDeltaChunk, kDeltaChunk, h.delta + i,
                            h.values, t0, 0.0f);
    for (int64_t t = t0 + 1; t < t0 + kTile; ++t)
      for (int64_t i = 0; i < h.values; i += kPanel) {
        float* to = h.delta + t * h.values + i;
        Vec a = load(to), b = load(to + W);
        for (int64_t j = t0; j < t; ++j) {
          const Vec x = set1(h.among[t * kDeltaChunk + j]);
          a = fma(x, load(h.delta + j * h.values + i), a);
          b = fma(x, load(h.delta + j * h.values + i + W), b);
        }
        store(to, a);
        store(to + W, b);
      }
  }
}

void run_chunk(const DeltaChunks& c, const Chunk& h, int64_t row) {
  gathered(h.k, h.keys, c.k + row * c.stride, c.stride, c.key_dim);
  gathered(h.q, h.keys, c.q + row * c.stride, c.stride, c.key_dim);
  transposed(h.kt, kDeltaChunk, h.k, h.keys, kDeltaChunk, h.keys, h.keys);
  relate(c, h, row);
  for (int64_t i = 0; i < h.values; i += kPanel)  // a panel of the state serves all rows
    for (int64_t t = 0; t < kDeltaChunk; t += kTile) {
      tile_product<Onto::nothing>(h.delta + t * h.values + i, h.values, h.k + t * h.keys, h.keys, h.state + i, h.values,
                                  h.keys, 0.0f);
      tile_product<Onto::nothing>(h.out + t * h.values + i, h.values, h.q + t * h.keys, h.keys, h.state + i, h.values,
                                  h.keys, 0.0f);
    }
  for (int64_t t = 0; t < kDeltaChunk; ++t) {
    const Vec beta = set1(c.beta[(row + t) * c.gate_stride]), d = set1(h.from_first[t]);
    const float* v = c.v + (row + t) * c.stride;
    float* delta = h.delta + t * h.values;
    float* out = h.out + t * h.values;
    for (int64_t i = 0; i < h.values; i += W) {
      const int64_t n = c.rows - i;
      const Vec x = n >= W ? load(v + i) : n > 0 ? load_n(v + i, n) : zero();
      store(delta + i, mul(beta, neg_fma(d, load(delta + i), x)));
      store(out + i, mul(d, load(out + i)));
    }
  }
  solve(h);
  for (int64_t i = 0; i < h.values; i += kPanel)
    for (int64_t t = 0; t < kDeltaChunk; t += kTile)
      tile_product<Onto::c>(h.out + t * h.values + i, h.values, h.onto + t * kDeltaChunk, kDeltaChunk, h.delta + i,
                            h.values, t + kTile, 0.0f);
  for (int64_t t = 0; t < kDeltaChunk; ++t) {
    std::memcpy(c.y + (row + t) * c.y_stride, h.out + t * h.values, static_cast<size_t>(c.rows) * sizeof(float));
    scaled(h.delta + t * h.values, h.delta + t * h.values, h.d[t], h.values);  // d(last, t)
  }
  for (int64_t i = 0; i < h.values; i += kPanel)
    for (int64_t key = 0; key < h.keys; key += kTile)
      tile_product<Onto::scaled_c>(h.state + key * h.values + i, h.values, h.kt + key * kDeltaChunk, kDeltaChunk,
                                   h.delta + i, h.values, kDeltaChunk, h.from_first[kDeltaChunk - 1]);
}

void chunks(const DeltaChunks& c, float* work) {
  const Chunk h(c, work);
  if (c.from)
    transposed(h.state, h.values, c.from, c.key_dim, c.rows, c.key_dim, h.keys);
  else
    std::memset(h.state, 0, static_cast<size_t>(h.keys * h.values) * sizeof(float));
  for (int64_t chunk = 0; chunk < c.count; ++chunk) run_chunk(c, h, chunk * kDeltaChunk);
  // Back: rows of the state are columns here.
  for (int64_t i = 0; i < c.rows; i += W)
    for (int64_t j = 0; j < c.key_dim; j += W) {
      Vec r[W];
      for (int64_t x = 0; x < W; ++x) r[x] = load(h.state + (j + x) * h.values + i);
      transpose(r);
      const int64_t n = c.key_dim - j;
      for (int64_t x = 0; x < W && i + x < c.rows; ++x) {
        float* to = c.to + (i + x) * c.key_dim + j;
        if (n >= W)
          store(to, r[x]);
        else
          store_n(to, r[x], n);
      }
    }
}

}  // namespace
