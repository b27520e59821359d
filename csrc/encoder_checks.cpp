#include "encoder_checks.h"

namespace saragossa::check {

void expect(const char* op, const char* what, const Tensor& t, DType dtype, const Shape& shape) {
  if (t.buffer && t.dtype == dtype && t.shape == shape) return;
  require(t.buffer != nullptr, op, ": no ", what);
  fail(ErrorKind::internal, op, ": ", what, " is ", name_of(t.dtype), t.shape, ", expected ", name_of(dtype), shape);
}

void expect_f32(const char* op, const char* what, const Tensor& t, int rank) {
  require(t.buffer != nullptr, op, ": no ", what);
  require(t.dtype == DType::f32 && t.shape.rank() == rank, op, ": ", what, " is ", name_of(t.dtype), t.shape,
          ", expected f32 with ", rank, " dimensions");
}

void expect_batch(const char* op, const Batch& b, int64_t rows) {
  expect(op, "batch.positions", b.positions, DType::i32, {rows});
  expect(op, "batch.sequence", b.sequence, DType::i32, {rows});
  require(b.block_table && b.block_table.dtype == DType::i32 && b.block_table.shape.rank() == 2, op,
          ": batch.block_table must be i32 [sequences, blocks]");
  int64_t told = b.runs.empty() ? rows : 0;
  for (const int64_t run : b.runs) {
    require(run > 0, op, ": batch.runs has a run of ", run, " rows");
    told += run;
  }
  require(told == rows, op, ": batch.runs has ", told, " rows, the batch ", rows);
}

namespace {

void expect_kv(const char* op, const KvLayer& kv, int64_t kv_heads, int64_t head_dim) {
  require(kv.k && kv.v && kv.k.shape.rank() == 4 && kv.k.shape == kv.v.shape && kv.k.dtype == kv.v.dtype, op,
          ": k and v of the cache differ or are missing");
  require(kv.k.dtype == DType::bf16 || kv.k.dtype == DType::f32 || kv.k.dtype == DType::u8, op, ": cache in ",
          name_of(kv.k.dtype), ", supported are bf16, f32 and u8");
  require(kv.k.shape[1] == kv_heads && kv.k.shape[3] == head_dim, op, ": cache ", kv.k.shape, ", expected ", kv_heads,
          " heads of ", head_dim);
  if (kv.k.dtype != DType::u8) return;
  const Shape scales{kv.k.shape[0], kv_heads, kv.k.shape[2], kv_scales(head_dim)};
  expect(op, "k_scales of the cache", kv.k_scales, DType::bf16, scales);
  expect(op, "v_scales of the cache", kv.v_scales, DType::bf16, scales);
}

}  // namespace

void same(const char* op, const Tensor& y, const Tensor& x) {
  require(x.buffer != nullptr && x.dtype == DType::f32, op, ": inputs must be f32");
  expect(op, "y", y, DType::f32, x.shape);
}

void embed(const Tensor& y, const Weight& table, const Tensor& ids) {
  check_weight(table, "embed");
  require(ids && ids.dtype == DType::i32 && ids.shape.rank() == 1, "embed: ids must be i32 [T]");
  expect("embed", "y", y, DType::f32, {ids.shape[0], table.in});
}

void rms_norm(const Tensor& y, const Tensor& x, const Tensor& w) {
  same("rms_norm", y, x);
  expect("rms_norm", "w", w, DType::f32, {x.shape.last()});
}

void linear(const char* op, const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) {
  check_weight(w, op);
  expect_f32(op, "x", x, 2);
  expect(op, "x", x, DType::f32, {x.shape[0], w.in});
  expect(op, "y", y, DType::f32, {x.shape[0], w.out});
  if (bias) expect(op, "bias", bias, DType::f32, {w.out});
}

void rope(const Tensor& x, const Rope& rope, const Tensor& positions) {
  expect_f32("rope", "x", x, 3);
  expect("rope", "positions", positions, DType::i32, {x.shape[0]});
  expect_f32("rope", "inv_freq", rope.inv_freq, 1);
  require(2 * rope.inv_freq.shape[0] <= x.shape[2], "rope: ", 2 * rope.inv_freq.shape[0],
          " rotated channels, heads have ", x.shape[2]);
}

void qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm, const Rope& rope,
                    const KvLayer& kv, const Batch& batch) {
  check::rope(q, rope, batch.positions);
  if (norm.q) rms_norm(q, q, norm.q);
  if (!k) {
    require(!v && !norm.k && !norm.v, "qk_rope_append: v or a norm of keys without keys");
    return;
  }
  check::rope(k, rope, batch.positions);
  kv_append(kv, k, v ? v : k, batch);
  if (norm.k) rms_norm(k, k, norm.k);
  if (norm.v) rms_norm(k, k, norm.v);
}

void kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch) {
  expect_f32("kv_append", "k", k, 3);
  expect("kv_append", "v", v, DType::f32, k.shape);
  expect_kv("kv_append", kv, k.shape[1], k.shape[2]);
  expect_batch("kv_append", batch, k.shape[0]);
}

void attention(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch, const AttentionParams& params) {
  expect_f32("attention", "q", q, 3);
  expect("attention", "y", y, DType::f32, q.shape);
  require(kv.k && kv.k.shape.rank() == 4, "attention: no cache");
  expect_kv("attention", kv, kv.k.shape[1], q.shape[2]);
  require(q.shape[1] % kv.k.shape[1] == 0, "attention: ", q.shape[1], " heads do not share ", kv.k.shape[1],
          " kv heads");
  require(params.window >= 0 && params.softcap >= 0.0f, "attention: window or softcap below 0");
  expect_batch("attention", batch, q.shape[0]);
}

void gather_rows(const Tensor& y, const Tensor& x, const Tensor& rows) {
  expect_f32("gather_rows", "x", x, 2);
  require(rows && rows.dtype == DType::i32 && rows.shape.rank() == 1, "gather_rows: rows must be i32 [R]");
  expect("gather_rows", "y", y, DType::f32, {rows.shape[0], x.shape[1]});
}

void softcap(const Tensor& x, float cap) {
  require(x && x.dtype == DType::f32, "softcap: x must be f32");
  require(cap > 0.0f, "softcap: cap ", cap, ", expected > 0");
}

void per_layer_inputs(const Tensor& y, const Tensor& projected, const Tensor& embedded, const Tensor& w) {
  const char* op = "per_layer_inputs";
  expect_f32(op, "y", y, 3);
  const int64_t layers = y.shape[0], rows = y.shape[1], n = y.shape[2];
  expect(op, "projected", projected, DType::f32, {rows, layers * n});
  expect(op, "embedded", embedded, DType::f32, {rows, layers * n});
  expect(op, "w", w, DType::f32, {n});
}

void sample(const SampleArgs& a) {
  expect_f32("sample", "logits", a.logits, 2);
  const int64_t rows = a.logits.shape[0], vocab = a.logits.shape[1];
  if (a.rows) expect("sample", "rows", a.rows, DType::i32, {rows});
  require(a.params && a.params.shape.rank() == 2, "sample: params must be u8 [rows, sizeof(SampleParams)]");
  const int64_t requests = a.rows ? a.params.shape[0] : rows;
  expect("sample", "params", a.params, DType::u8, {requests, static_cast<int64_t>(sizeof(SampleParams))});
  expect("sample", "ids", a.ids, DType::i32, {rows});
  if (a.counts) expect("sample", "counts", a.counts, DType::u32, {requests, vocab});
  if (a.mask) expect("sample", "mask", a.mask, DType::u32, {requests, (vocab + 31) / 32});
  if (a.bias_ids) {
    require(a.bias_ids.dtype == DType::i32 && a.bias_ids.shape.rank() == 2 && a.bias_ids.shape[0] == requests,
            "sample: bias_ids must be i32 [rows, n]");
    expect("sample", "bias", a.bias, DType::f32, a.bias_ids.shape);
  }
  if (a.logprobs) {
    require(a.logprobs.dtype == DType::f32 && a.logprobs.shape.rank() == 2 && a.logprobs.shape[0] == rows,
            "sample: logprobs must be f32 [rows, 1 + n]");
    expect("sample", "logprob_ids", a.logprob_ids, DType::i32, a.logprobs.shape);
  }
}

void advance(const Batch& batch, const Tensor& ids) {
  require(ids && ids.dtype == DType::i32 && ids.shape.rank() == 1, "advance: ids must be i32 [T]");
  expect("advance", "batch.ids", batch.ids, DType::i32, ids.shape);
  expect("advance", "batch.positions", batch.positions, DType::i32, ids.shape);
}

}  // namespace saragossa::check
