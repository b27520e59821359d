#pragma once
// Shape and dtype checks of the op contract: the same refusals, with the same words, on every device.

#include "encoder.h"

namespace saragossa::check {

void same(const char* op, const Tensor& y, const Tensor& x);
void embed(const Tensor& y, const Weight& table, const Tensor& ids);
void rms_norm(const Tensor& y, const Tensor& x, const Tensor& w);
void linear(const char* op, const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias);
void rope(const Tensor& x, const Rope& rope, const Tensor& positions);
void kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch);
void attention(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch, const AttentionParams& params);
void gather_rows(const Tensor& y, const Tensor& x, const Tensor& rows);
void softcap(const Tensor& x, float cap);
void sample(const SampleArgs& args);
void advance(const Batch& batch, const Tensor& ids);

}  // namespace saragossa::check
