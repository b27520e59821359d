// Attention kernels: attention.h has the partition. Precision: float throughout, exp within 1e-7.
// Order of a row's sums: fixed by the positions of its keys (see attention.h).

namespace {

constexpr int64_t kPanel = 2 * W;  // columns of a register tile

/// y[n] = x * by; y may be x.
inline void scaled(float* y, const float* x, float by, int64_t n) {
  each_vector(n, [&](auto get, auto put) { put(y, mul(get(x), set1(by))); });
}

// --- spans: one block of keys, the query heads of one kv head -------------------------------------------

/// Channels [i, i + W) of a row, as kType has them. No vector lies over two groups of u8.
template <DType kType>
inline Vec load_kv(KvRow row, int64_t i) {
  if constexpr (kType == DType::bf16) return load_bf16(reinterpret_cast<const uint16_t*>(row.data) + i);
  if constexpr (kType == DType::f32) return load(reinterpret_cast<const float*>(row.data) + i);
  const uint16_t* scale = row.scales + i / SG_KV_GROUP * 2;
  return fma(load_u8(row.data + i), set1(bf16_to_f32(scale[0])), set1(bf16_to_f32(scale[1])));
}

/// The first n of them, then zeros.
template <DType kType>
inline Vec load_kv_n(KvRow row, int64_t i, int64_t n) {
  if constexpr (kType == DType::bf16) return load_bf16_n(reinterpret_cast<const uint16_t*>(row.data) + i, n);
  if constexpr (kType == DType::f32) return load_n(reinterpret_cast<const float*>(row.data) + i, n);
  float rest[W] = {};
  const uint16_t* scale = row.scales + i / SG_KV_GROUP * 2;
  const float step = bf16_to_f32(scale[0]), zero_point = bf16_to_f32(scale[1]);
  for (int64_t j = 0; j < n; ++j) rest[j] = __builtin_fmaf(static_cast<float>(row.data[i + j]), step, zero_point);
  return load(rest);
}

/// The row `n` rows of `d` channels behind.
template <DType kType>
inline KvRow behind(KvRow row, int64_t n, int64_t d) {
  return {row.data + n * d * size_of(kType), kType == DType::u8 ? row.scales + n * kv_scales(d) : nullptr};
}

/// scores[h * stride + j] = q[h] . k[j] for kHeads heads and kKeys keys; q rows are padded with zeros.
template <DType kType, int kHeads, int kKeys>
inline void dots(float* scores, int64_t stride, const float* q, int64_t q_stride, KvRow k, int64_t d) {
  Vec acc[kHeads * kKeys];
  for (Vec& a : acc) a = zero();
  const auto step = [&](int64_t i, auto&& get) {
    for (int key = 0; key < kKeys; ++key) {
      const Vec x = get(behind<kType>(k, key, d));
      for (int h = 0; h < kHeads; ++h) acc[h * kKeys + key] = fma(x, load(q + h * q_stride + i), acc[h * kKeys + key]);
    }
  };
  int64_t i = 0;
  for (; i + W <= d; i += W) step(i, [&](KvRow p) { return load_kv<kType>(p, i); });
  if (i < d) step(i, [&](KvRow p) { return load_kv_n<kType>(p, i, d - i); });

  if constexpr (kHeads * kKeys % 4 == 0) {
    float sums[kHeads * kKeys];
    for (int a = 0; a < kHeads * kKeys; a += 4) hsum4(sums + a, acc[a], acc[a + 1], acc[a + 2], acc[a + 3]);
    for (int h = 0; h < kHeads; ++h)
      for (int key = 0; key < kKeys; ++key) scores[h * stride + key] = sums[h * kKeys + key];
  } else {
    for (int h = 0; h < kHeads; ++h)
      for (int key = 0; key < kKeys; ++key) scores[h * stride + key] = hsum(acc[h * kKeys + key]);
  }
}

/// out[h][i..i + kVecs * W) += sum over n keys of p[h][j] v[j]; the last vector may be partial.
template <DType kType, int kHeads, int kVecs>
inline void weigh(float* out, int64_t out_stride, const float* p, int64_t p_stride, KvRow v, int64_t d, int64_t n,
                  int64_t i, int64_t rest) {
  Vec acc[kHeads * kVecs];
  for (int h = 0; h < kHeads; ++h)
    for (int x = 0; x < kVecs; ++x) acc[h * kVecs + x] = load(out + h * out_stride + i + x * W);
  for (int64_t j = 0; j < n; ++j) {
    const KvRow of_key = behind<kType>(v, j, d);
    Vec row[kVecs];
    for (int x = 0; x < kVecs; ++x)
      row[x] = rest == W ? load_kv<kType>(of_key, i + x * W) : load_kv_n<kType>(of_key, i, rest);
    for (int h = 0; h < kHeads; ++h) {
      const Vec weight = set1(p[h * p_stride + j]);
      for (int x = 0; x < kVecs; ++x) acc[h * kVecs + x] = fma(weight, row[x], acc[h * kVecs + x]);
    }
  }
  for (int h = 0; h < kHeads; ++h)
    for (int x = 0; x < kVecs; ++x) store(out + h * out_stride + i + x * W, acc[h * kVecs + x]);
}

/// Scores to weights in place; maximum and sum to partial[0] and [1].
inline void softmax_span(float* s, int64_t n, float cap, float* partial) {
  const int64_t end = (n + W - 1) / W * W;
  if (cap > 0.0f)
    for (int64_t j = 0; j < end; j += W) store(s + j, soft_cap(load(s + j), cap));
  for (int64_t j = n; j < end; ++j) s[j] = -__builtin_inff();
  Vec top = set1(-__builtin_inff());
  for (int64_t j = 0; j < end; j += W) top = max(top, load(s + j));
  const float m = hmax(top);
  Vec sum = zero();
  for (int64_t j = 0; j < end; j += W) {
    const Vec p = exp_below_88(sub(load(s + j), set1(m)));
    store(s + j, p);
    sum = add(sum, p);
  }
  partial[0] = m;
  partial[1] = hsum(sum);
}

template <DType kType, int kHeads>
void span_heads(const AttentionCall& c, KvRow k, KvRow v, int64_t n, float* partial, const float* q, float* scores) {
  constexpr int kKeys = kHeads == 1 ? 8 : kHeads == 4 ? 2 : 4;
  constexpr int kVecs = kHeads == 1 ? 8 : kHeads == 4 ? 2 : 4;
  constexpr int64_t kStep = 16;  // keys whose values are taken at a time: 4 KB at 128 channels of bf16
  const int64_t d = c.head_dim;
  const int64_t q_stride = padded(d), s_stride = padded(c.block_tokens), size = partial_size(d);
  int64_t j = 0;
  for (; j + kKeys <= n; j += kKeys)
    dots<kType, kHeads, kKeys>(scores + j, s_stride, q, q_stride, behind<kType>(k, j, d), d);
  for (; j < n; ++j) dots<kType, kHeads, 1>(scores + j, s_stride, q, q_stride, behind<kType>(k, j, d), d);

  for (int h = 0; h < kHeads; ++h) {
    softmax_span(scores + h * s_stride, n, c.softcap, partial + h * size);
    for (int64_t i = 0; i < padded(d); i += W) store(partial + h * size + kPadding + i, zero());
  }
  float* out = partial + kPadding;
  for (j = 0; j < n; j += kStep) {
    const int64_t keys = j + kStep <= n ? kStep : n - j;
    const KvRow rows = behind<kType>(v, j, d);
    int64_t i = 0;
    for (; i + kVecs * W <= d; i += kVecs * W)
      weigh<kType, kHeads, kVecs>(out, size, scores + j, s_stride, rows, d, keys, i, W);
    for (; i + W <= d; i += W) weigh<kType, kHeads, 1>(out, size, scores + j, s_stride, rows, d, keys, i, W);
    if (i < d) weigh<kType, kHeads, 1>(out, size, scores + j, s_stride, rows, d, keys, i, d - i);
  }
}

template <DType kType>
void span_typed(const AttentionCall& c, int64_t row, int64_t kv_head, int64_t begin, int64_t end, float* partial,
                float* work) {
  const int64_t d = c.head_dim, group = c.heads / c.kv_heads, n = end - begin, q_stride = padded(d);
  const KvRow k = c.keys(row, kv_head, begin), v = c.values(row, kv_head, begin);
  float* q = work;
  float* scores = work + group * q_stride;
  const float* from = c.q + (row * c.heads + kv_head * group) * d;
  for (int64_t h = 0; h < group; ++h) {
    for (int64_t i = d / W * W; i < q_stride; i += W) store(q + h * q_stride + i, zero());
    scaled(q + h * q_stride, from + h * d, c.scale, d);
  }
  const int64_t size = partial_size(d), s_stride = padded(c.block_tokens);
  for (int64_t h = 0; h < group;) {
    const int64_t left = group - h;
    float* out = partial + h * size;
    float* s = scores + h * s_stride;
    const float* heads = q + h * q_stride;
    if (left >= 4)
      span_heads<kType, 4>(c, k, v, n, out, heads, s), h += 4;
    else if (left == 3)
      span_heads<kType, 3>(c, k, v, n, out, heads, s), h += 3;
    else if (left == 2)
      span_heads<kType, 2>(c, k, v, n, out, heads, s), h += 2;
    else
      span_heads<kType, 1>(c, k, v, n, out, heads, s), h += 1;
  }
}

void span(const AttentionCall& c, int64_t row, int64_t kv_head, int64_t begin, int64_t end, float* partial,
          float* work) {
  if (c.dtype == DType::bf16)
    span_typed<DType::bf16>(c, row, kv_head, begin, end, partial, work);
  else if (c.dtype == DType::u8)
    span_typed<DType::u8>(c, row, kv_head, begin, end, partial, work);
  else
    span_typed<DType::f32>(c, row, kv_head, begin, end, partial, work);
}

void merge(float* y, const float* partials, int64_t n, int64_t stride, int64_t d) {
  float top = partials[0];
  for (int64_t i = 1; i < n; ++i) top = partials[i * stride] > top ? partials[i * stride] : top;
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const float* part = partials + i * stride;
    const float weight = exp1(part[0] - top);
    sum += weight * part[1];
    const float* values = part + kPadding;
    int64_t j = 0;
    for (; j + W <= d; j += W) {
      const Vec old = i == 0 ? zero() : load(y + j);
      store(y + j, fma(set1(weight), load(values + j), old));
    }
    for (; j < d; ++j) y[j] = __builtin_fmaf(weight, values[j], i == 0 ? 0.0f : y[j]);
  }
  scaled(y, y, 1.0f / sum, d);
}

// --- tiles: many queries, kTileKeys keys at a time ------------------------------------------------------

/// c[kRows][kPanel] = c * scale[row] + a [kRows][depth] b [depth][kPanel]; without scale: c = a b.
template <int kRows, bool kScale>
inline void multiply(float* c, int64_t c_stride, const float* a, int64_t a_stride, const float* b, int64_t depth,
                     const float* scale) {
  Vec acc[kRows][2];
  for (int r = 0; r < kRows; ++r)
    for (int x = 0; x < 2; ++x) acc[r][x] = kScale ? mul(load(c + r * c_stride + x * W), set1(scale[r])) : zero();
  for (int64_t k = 0; k < depth; ++k) {
    const Vec b0 = load(b + k * kPanel), b1 = load(b + k * kPanel + W);
    for (int r = 0; r < kRows; ++r) {
      const Vec x = set1(a[r * a_stride + k]);
      acc[r][0] = fma(x, b0, acc[r][0]);
      acc[r][1] = fma(x, b1, acc[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int x = 0; x < 2; ++x) store(c + r * c_stride + x * W, acc[r][x]);
}

/// W keys from `key` on, transposed: panel[i * kPanel + key]. Any key of [first, last] stands for those outside.
template <DType kType>
inline void pack_keys(float* panel, const AttentionCall& c, int64_t row, int64_t kv_head, int64_t key, int64_t first,
                      int64_t last) {
  const int64_t d = c.head_dim;
  KvRow rows[W];
  for (int64_t j = 0; j < W; ++j) {
    const int64_t at = key + j;
    rows[j] = c.keys(row, kv_head, at < first ? first : at > last ? last : at);
  }
  for (int64_t i = 0; i < d; i += W) {
    Vec r[W];
    for (int64_t j = 0; j < W; ++j)
      r[j] = i + W <= d ? load_kv<kType>(rows[j], i) : load_kv_n<kType>(rows[j], i, d - i);
    transpose(r);
    for (int64_t x = 0; x < W && i + x < d; ++x) store(panel + (i + x) * kPanel, r[x]);
  }
}

/// Value of one key into all panels: panels[p][key][kPanel], kTileKeys keys a panel, zeros behind d.
template <DType kType>
inline void pack_value(float* panels, KvRow v, int64_t d, int64_t key) {
  for (int64_t i = 0; i < d; i += W) {
    float* at = panels + (i / kPanel * kTileKeys + key) * kPanel + i % kPanel;
    store(at, i + W <= d ? load_kv<kType>(v, i) : load_kv_n<kType>(v, i, d - i));
  }
  if ((d + W - 1) / W % 2 == 1) store(panels + (d / kPanel * kTileKeys + key) * kPanel + W, zero());
}

/// What a tile works on; rows are tokens x heads of the group, padded to a multiple of kTileM.
struct Tile {
  float* q;       // [rows, d_stride], scaled
  float* out;     // [rows, d_stride]
  float* scores;  // [rows, kTileKeys]
  float* top;     // [rows]
  float* sum;     // [rows]
  float* shrink;  // [rows]: what earlier sums are multiplied with
  float* keys;    // [kTileKeys / kPanel, d, kPanel]
  float* values;  // [d panels, kTileKeys, kPanel]
  int64_t d_stride, rows;
};

/// Visible keys of one query, relative to the tile's first key and cut to the tile.
struct Visible {
  int64_t begin, end;
};

inline Visible visible(const AttentionCall& c, int64_t position, int64_t key0) {
  int64_t begin = c.first_key(position) - key0, end = position + 1 - key0;
  begin = begin < 0 ? 0 : begin > kTileKeys ? kTileKeys : begin;
  end = end < 0 ? 0 : end > kTileKeys ? kTileKeys : end;
  return {begin < end ? begin : end, end};
}

/// Scores of a row to weights; [lo, hi) is what was computed, a multiple of kPanel.
inline void softmax_row(Tile& t, int64_t r, float cap, Visible see, int64_t lo, int64_t hi) {
  float* s = t.scores + r * kTileKeys;
  if (cap > 0.0f)
    for (int64_t j = lo; j < hi; j += W) store(s + j, soft_cap(load(s + j), cap));
  for (int64_t j = lo; j < see.begin; ++j) s[j] = -__builtin_inff();
  for (int64_t j = see.end > lo ? see.end : lo; j < hi; ++j) s[j] = -__builtin_inff();
  Vec best = set1(t.top[r]);
  for (int64_t j = lo; j < hi; j += W) best = max(best, load(s + j));
  const float m = hmax(best);
  if (m == -__builtin_inff()) {  // nothing seen yet
    t.shrink[r] = 1.0f;
    for (int64_t j = lo; j < hi; j += W) store(s + j, zero());
    return;
  }
  t.shrink[r] = m == t.top[r] ? 1.0f : exp1(t.top[r] - m);
  t.top[r] = m;
  Vec sum = zero();
  for (int64_t j = lo; j < hi; j += W) {
    const Vec p = exp_below_88(sub(load(s + j), set1(m)));
    store(s + j, p);
    sum = add(sum, p);
  }
  t.sum[r] = t.sum[r] * t.shrink[r] + hsum(sum);
}

template <DType kType>
void tile_typed(const AttentionCall& c, int64_t row, int64_t tokens, int64_t kv_head, float* work) {
  const int64_t d = c.head_dim, group = c.heads / c.kv_heads;
  Tile t;
  t.rows = tokens * group;
  t.d_stride = padded(d);
  const int64_t rows = (t.rows + kTileM - 1) / kTileM * kTileM;
  t.q = work;
  t.out = t.q + rows * t.d_stride;
  t.scores = t.out + rows * t.d_stride;
  t.top = t.scores + rows * kTileKeys;
  t.sum = t.top + rows;
  t.shrink = t.sum + rows;
  t.keys = t.shrink + rows;
  t.values = t.keys + kTileKeys * d;

  for (int64_t r = 0; r < rows; ++r) {
    float* q = t.q + r * t.d_stride;
    const float* from = c.q + ((row + r / group) * c.heads + kv_head * group + r % group) * d;
    for (int64_t i = 0; i < t.d_stride; i += W) {
      store(q + i, zero());
      store(t.out + r * t.d_stride + i, zero());
    }
    if (r < t.rows) scaled(q, from, c.scale, d);
    if (r + 4 * group < t.rows)  // tokens lie far apart: no hardware fetches ahead
      for (int64_t i = 0; i < d; i += 16) __builtin_prefetch(from + 4 * c.heads * d + i);
    t.top[r] = -__builtin_inff();
    t.sum[r] = 0.0f;
    t.shrink[r] = 1.0f;
  }
  const auto position = [&](int64_t r) {  // of a row, the last one's for the padding
    return static_cast<int64_t>(c.positions[row + (r < t.rows ? r : t.rows - 1) / group]);
  };
  const int64_t last = position(t.rows - 1);
  const int64_t d_panels = (d + kPanel - 1) / kPanel;

  for (int64_t key0 = c.first_key(position(0)) / kTileKeys * kTileKeys; key0 <= last; key0 += kTileKeys) {
    const int64_t keys = last + 1 - key0 < kTileKeys ? last + 1 - key0 : kTileKeys;
    const int64_t from = c.first_key(position(0)) > key0 ? c.first_key(position(0)) - key0 : 0;
    for (int64_t j = from / W * W; j < (keys + kPanel - 1) / kPanel * kPanel; j += W)
      pack_keys<kType>(t.keys + j / kPanel * d * kPanel + j % kPanel, c, row, kv_head, key0 + j, key0 + from,
                       key0 + keys - 1);
    for (int64_t j = from; j < keys; ++j) pack_value<kType>(t.values, c.values(row, kv_head, key0 + j), d, j);

    // Keys that a register tile of rows sees: those of its first row (begin) to those of its last (end).
    const auto seen = [&](int64_t r) {
      return Visible{visible(c, position(r), key0).begin, visible(c, position(r + kTileM - 1), key0).end};
    };
    for (int64_t p = 0; p * kPanel < keys; ++p)
      for (int64_t r = 0; r < rows; r += kTileM) {
        const Visible see = seen(r);
        if (p * kPanel + kPanel <= see.begin || p * kPanel >= see.end) continue;
        multiply<kTileM, false>(t.scores + r * kTileKeys + p * kPanel, kTileKeys, t.q + r * t.d_stride, t.d_stride,
                                t.keys + p * d * kPanel, d, nullptr);
      }
    for (int64_t r = 0; r < rows; r += kTileM) {
      const Visible see = seen(r);
      if (see.begin == see.end) continue;
      const int64_t lo = see.begin / kPanel * kPanel, hi = (see.end + kPanel - 1) / kPanel * kPanel;
      for (int64_t x = r; x < r + kTileM; ++x) softmax_row(t, x, c.softcap, visible(c, position(x), key0), lo, hi);
    }
    for (int64_t p = 0; p < d_panels; ++p)
      for (int64_t r = 0; r < rows; r += kTileM) {
        const Visible see = seen(r);
        if (see.begin == see.end) continue;
        multiply<kTileM, true>(t.out + r * t.d_stride + p * kPanel, t.d_stride, t.scores + r * kTileKeys + see.begin,
                               kTileKeys, t.values + (p * kTileKeys + see.begin) * kPanel, see.end - see.begin,
                               t.shrink + r);
      }
  }
  for (int64_t r = 0; r < t.rows; ++r) {
    float* y = c.y + ((row + r / group) * c.heads + kv_head * group + r % group) * d;
    const float scale = 1.0f / t.sum[r];
    scaled(y, t.out + r * t.d_stride, scale, d);
    if (c.gate) sigmoid_mul(y, y, c.gate + (y - c.y), d);
  }
}

void tile(const AttentionCall& c, int64_t row, int64_t tokens, int64_t kv_head, float* work) {
  if (c.dtype == DType::bf16)
    tile_typed<DType::bf16>(c, row, tokens, kv_head, work);
  else if (c.dtype == DType::u8)
    tile_typed<DType::u8>(c, row, tokens, kv_head, work);
  else
    tile_typed<DType::f32>(c, row, tokens, kv_head, work);
}

}  // namespace
