#include "cpu/cpu_encoder.h"

#include <array>
#include <cstring>
#include <limits>

namespace saragossa::cpu {
namespace {

LinearJob::Out out_of(const Tensor& y, const Weight& w, const Tensor& bias) {
  return {matrix_of(w), raw_data<float>(y), bias ? raw_data<float>(bias) : nullptr};
}

LinearJob job_of(const Tensor& x) {
  LinearJob job;
  job.x = raw_data<float>(x);
  job.rows = x.shape[0];
  return job;
}

template <class T>
T* row_of(const Tensor& t, int64_t row) {
  return t ? raw_data<T>(t) + row * t.shape[1] : nullptr;
}

/// Done when it exists: the CPU runs a submission before submit returns. Buffers stay pending until wait.
class CpuSubmission final : public Submission::Impl {
 public:
  CpuSubmission(std::unique_ptr<Resources> resources, std::shared_ptr<ResourcePool> pool)
      : resources_(std::move(resources)), pool_(std::move(pool)) {}
  ~CpuSubmission() override { finish(); }

  void writes(std::shared_ptr<Buffer> buffer) {
    buffer->begin_write();
    pending_.push_back(std::move(buffer));
  }
  void failed(std::exception_ptr error) { error_ = std::move(error); }

  void wait() override {
    finish();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void finish() {
    for (const auto& buffer : pending_) buffer->end_write();
    pending_.clear();
    if (resources_) pool_->give(std::move(resources_));
  }

  std::unique_ptr<Resources> resources_;
  std::shared_ptr<ResourcePool> pool_;
  std::vector<std::shared_ptr<Buffer>> pending_;
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<Resources> ResourcePool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Resources>(poison_);
  std::unique_ptr<Resources> out = std::move(free_.back());
  free_.pop_back();
  return out;
}

void ResourcePool::give(std::unique_ptr<Resources> resources) {
  resources->arena.reset();
  resources->commands.clear();
  const std::lock_guard lock(mutex_);
  if (free_.size() < 4) free_.push_back(std::move(resources));
}

CpuEncoder::CpuEncoder(Device& device, std::shared_ptr<Executor> executor, std::shared_ptr<ResourcePool> pool)
    : CommandEncoder(device), executor_(std::move(executor)), pool_(std::move(pool)), resources_(pool_->take()) {}

CpuEncoder::~CpuEncoder() {
  if (resources_) pool_->give(std::move(resources_));
}

Submission CpuEncoder::do_submit(bool interruptible) {
  static std::atomic<uint64_t> numbers{0};
  const uint64_t number = ++numbers;
  Resources& resources = *resources_;
  first_linear_ = last_linear_ = nullptr;
  auto submission = std::make_shared<CpuSubmission>(std::move(resources_), pool_);
  const std::lock_guard lock(executor_->mutex);
  for (const OpRecord& op : records().ops())
    for (const Touch& t : records().writes(op))
      if (static_cast<CpuBuffer&>(*t.buffer).mark(number)) submission->writes(t.buffer);
  try {
    resources.commands.run(*executor_, [&] {
      if (interruptible) device().poll_interrupt();
    });
  } catch (...) {
    submission->failed(std::current_exception());
  }
  return Submission(std::move(submission));
}

void CpuEncoder::push_linear(const LinearJob& job) {
  struct Run {
    LinearJob job;
    void operator()(Executor& ex) const { ex.linear.run(job); }
  };
  link(resources_->commands.push(Run{job}).job);
}

void CpuEncoder::link(LinearJob& pushed) {
  if (!device().switches().cpu_fetch_ahead) return;
  if (!first_linear_) first_linear_ = &pushed;
  if (last_linear_) last_linear_->next = &pushed;
  pushed.next = first_linear_;  // a step is like the last
  last_linear_ = &pushed;
}

bool CpuEncoder::has_fused(FusedOp op) const {
  switch (op) {
    case FusedOp::linear_group:
    case FusedOp::linear_add:
    case FusedOp::linear_gated:
    case FusedOp::norm_add:
    case FusedOp::norm_add_norm:
    case FusedOp::norm_group:
    case FusedOp::attention_gated:
    case FusedOp::qk_rope_append:
    case FusedOp::conv_qk_norm:
    case FusedOp::delta_rule_norm: return true;
    case FusedOp::linear_add_norm: return false;  // the row is in the cache when the norm comes
    case FusedOp::moe_down_norm: return false;
  }
  return false;
}

void CpuEncoder::do_embed(const Tensor& y, const Weight& table, const Tensor& ids, float scale) {
  push([y = raw_data<float>(y), w = matrix_of(table), ids = raw_data<int32_t>(ids), n = ids.shape[0],
        scale](Executor& ex) {
    ex.rows(n, w.in, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        if (ids[t] >= 0 && ids[t] < w.out)
          ex.linear.dequantize_row(w, ids[t], scale, y + t * w.in);
        else
          std::fill_n(y + t * w.in, w.in, std::numeric_limits<float>::quiet_NaN());
      }
    });
  });
}

void CpuEncoder::do_rms_norm(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  push([y = raw_data<float>(y), x = raw_data<float>(x), w = raw_data<float>(w), rows = x.shape.rows(),
        n = x.shape.last(), eps](Executor& ex) {
    ex.rows(rows, n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) ex.kernels.rms_norm(y + r * n, x + r * n, w, eps, n);
    });
  });
}

void CpuEncoder::do_norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  push([y = raw_data<float>(y), x = raw_data<float>(x), w = raw_data<float>(w), rows = x.shape.rows(),
        n = x.shape.last(), eps](Executor& ex) {
    ex.rows(rows, n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) ex.kernels.norm_add(y + r * n, x + r * n, w, eps, n);
    });
  });
}

void CpuEncoder::do_norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w, const Tensor& w2,
                                  float eps, float factor) {
  push([y = raw_data<float>(y), z = raw_data<float>(z), x = raw_data<float>(x), w = raw_data<float>(w),
        w2 = raw_data<float>(w2), rows = x.shape.rows(), n = x.shape.last(), eps, factor](Executor& ex) {
    ex.rows(rows, n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        ex.kernels.norm_add(y + r * n, x + r * n, w, eps, n);
        if (factor != 1.0f) ex.kernels.scale(y + r * n, factor, n);
        ex.kernels.rms_norm(z + r * n, y + r * n, w2, eps, n);
      }
    });
  });
}

void CpuEncoder::do_norm_group(const Tensor& x, std::span<const NormOut> outs, float eps) {
  struct Out {
    float* y;
    const float* w;
  };
  std::array<Out, 3> to{};
  for (size_t i = 0; i < outs.size(); ++i) to[i] = {raw_data<float>(outs[i].y), raw_data<float>(outs[i].w)};
  push([to, count = outs.size(), x = raw_data<float>(x), rows = x.shape.rows(), n = x.shape.last(), eps](Executor& ex) {
    ex.rows(rows, n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (size_t i = 0; i < count; ++i) ex.kernels.rms_norm(to[i].y + r * n, x + r * n, to[i].w, eps, n);
    });
  });
}

void CpuEncoder::do_add(const Tensor& y, const Tensor& a, const Tensor& b) {
  push([y = raw_data<float>(y), a = raw_data<float>(a), b = raw_data<float>(b), n = y.numel()](Executor& ex) {
    ex.rows(n, 1, [&](int64_t begin, int64_t end) { ex.kernels.add(y + begin, a + begin, b + begin, end - begin); });
  });
}

void CpuEncoder::do_act_mul(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act) {
  push([y = raw_data<float>(y), gate = raw_data<float>(gate), up = raw_data<float>(up), n = y.numel(),
        act](Executor& ex) {
    ex.rows(n, 1, [&](int64_t begin, int64_t end) {
      ex.kernels.act_mul(y + begin, gate + begin, up + begin, end - begin, act);
    });
  });
}

void CpuEncoder::do_softcap(const Tensor& x, float cap) {
  push([x = raw_data<float>(x), n = x.numel(), cap](Executor& ex) {
    ex.rows(n, 1, [&](int64_t begin, int64_t end) { ex.kernels.softcap(x + begin, cap, end - begin); });
  });
}

void CpuEncoder::do_scale(const Tensor& x, float factor) {
  push([x = raw_data<float>(x), n = x.numel(), factor](Executor& ex) {
    ex.rows(n, 1, [&](int64_t begin, int64_t end) { ex.kernels.scale(x + begin, factor, end - begin); });
  });
}

void CpuEncoder::do_copy(const Tensor& y, const Tensor& x) {
  push([y = raw_data<float>(y), x = raw_data<float>(x), n = x.numel()](Executor& ex) {
    ex.rows(n, 1, [&](int64_t begin, int64_t end) { std::copy(x + begin, x + end, y + begin); });
  });
}

void CpuEncoder::do_sigmoid_mul(const Tensor& y, const Tensor& x, const Tensor& gate) {
  push([y = raw_data<float>(y), x = raw_data<float>(x), gate = raw_data<float>(gate), n = x.numel()](Executor& ex) {
    ex.rows(n, 1, [&](int64_t begin, int64_t end) {
      ex.kernels.sigmoid_mul(y + begin, x + begin, gate + begin, end - begin);
    });
  });
}

void CpuEncoder::do_per_layer_inputs(const Tensor& y, const Tensor& projected, const Tensor& embedded, const Tensor& w,
                                     float eps) {
  push([y = raw_data<float>(y), projected = raw_data<float>(projected), embedded = raw_data<float>(embedded),
        w = raw_data<float>(w), layers = y.shape[0], rows = y.shape[1], n = y.shape[2], eps](Executor& ex) {
    ex.rows(rows, layers * n, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t l = 0; l < layers; ++l) {
          float* to = y + (l * rows + t) * n;
          const int64_t from = (t * layers + l) * n;
          ex.kernels.rms_norm(to, projected + from, w, eps, n);
          ex.kernels.add(to, to, embedded + from, n);
          ex.kernels.scale(to, 0.70710678118654752f, n);
        }
      }
    });
  });
}

void CpuEncoder::do_linear(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) {
  LinearJob job = job_of(x);
  job.outs[0] = out_of(y, w, bias);
  push_linear(job);
}

void CpuEncoder::do_linear_group(const Tensor& x, std::span<const LinearOut> outs) {
  LinearJob job = job_of(x);
  job.n_outs = static_cast<int>(outs.size());
  for (size_t i = 0; i < outs.size(); ++i) job.outs[i] = out_of(outs[i].y, *outs[i].weight, outs[i].bias);
  push_linear(job);
}

void CpuEncoder::do_linear_add(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) {
  LinearJob job = job_of(x);
  job.outs[0] = out_of(y, w, bias);
  job.epilogue = LinearEpilogue::add;
  push_linear(job);
}

void CpuEncoder::do_linear_gated(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up,
                                 const Tensor& gate_bias, const Tensor& up_bias, Activation act) {
  LinearJob job = job_of(x);
  job.n_outs = 2;
  job.outs[0] = out_of(y, gate, gate_bias);
  job.outs[1] = out_of(y, up, up_bias);
  job.outs[1].y = nullptr;
  job.epilogue = LinearEpilogue::gated;
  job.act = act;
  push_linear(job);
}

void CpuEncoder::do_attention(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch,
                              const AttentionParams& params) {
  AttentionCall call = attention_call(y, q, kv, batch, params);
  call.one_order = exact();
  push([call](Executor& ex) { run_attention(call, ex.kernels, ex.pool, ex.attention); });
}

void CpuEncoder::do_attention_gated(const Tensor& y, const Tensor& q, const Tensor& gate, const KvLayer& kv,
                                    const Batch& batch, const AttentionParams& params) {
  AttentionCall call = attention_call(y, q, kv, batch, params);
  call.gate = raw_data<float>(gate);
  call.one_order = exact();
  push([call](Executor& ex) { run_attention(call, ex.kernels, ex.pool, ex.attention); });
}

void CpuEncoder::do_gather_rows(const Tensor& y, const Tensor& x, const Tensor& rows) {
  push([y = raw_data<float>(y), x = raw_data<float>(x), rows = raw_data<int32_t>(rows), n = rows.shape[0],
        from = x.shape[0], width = x.shape[1]](Executor&) {
    for (int64_t r = 0; r < n; ++r) {
      require(rows[r] >= 0 && rows[r] < from, "gather_rows: row ", rows[r], " of ", from);
      std::memcpy(y + r * width, x + rows[r] * width, static_cast<size_t>(width) * sizeof(float));
    }
  });
}

void CpuEncoder::do_sample(const SampleArgs& a) {
  // Which request a row of logits belongs to is known when it runs.
  SampleRow first;
  first.vocab = a.logits.shape[1];
  first.params = raw_data<SampleParams>(a.params);
  first.counts = row_of<uint32_t>(a.counts, 0);
  first.bias_ids = row_of<int32_t>(a.bias_ids, 0);
  first.bias = row_of<float>(a.bias, 0);
  first.bias_size = a.bias_ids ? a.bias_ids.shape[1] : 0;
  first.mask = row_of<uint32_t>(a.mask, 0);
  first.top = a.logprobs ? a.logprobs.shape[1] - 1 : 0;
  const int32_t* rows = a.rows ? raw_data<int32_t>(a.rows) : nullptr;
  for (int64_t r = 0; r < a.logits.shape[0]; ++r) {
    SampleRow row = first;
    row.logits = row_of<float>(a.logits, r);
    row.id = raw_data<int32_t>(a.ids) + r;
    row.logprobs = row_of<float>(a.logprobs, r);
    row.logprob_ids = row_of<int32_t>(a.logprob_ids, r);
    push([row, rows, r, requests = a.params.shape[0]](Executor& ex) {
      const int64_t request = rows ? rows[r] : r;
      require(request >= 0 && request < requests, "sample: row ", request, " of ", requests);
      run_sample(row.of_request(request), ex.kernels.sample, ex.pool, ex.sample);
    });
  }
}

void CpuEncoder::do_advance(const Batch& batch, const Tensor& ids) {
  push([to = raw_data<int32_t>(batch.ids), positions = raw_data<int32_t>(batch.positions), ids = raw_data<int32_t>(ids),
        n = ids.shape[0]](Executor&) {
    for (int64_t t = 0; t < n; ++t) {
      to[t] = ids[t];
      ++positions[t];
    }
  });
}

}  // namespace saragossa::cpu
