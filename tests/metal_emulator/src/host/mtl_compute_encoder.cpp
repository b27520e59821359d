// MTLComputeCommandEncoder: bindings, dispatches and barriers.

#include <cstring>

#include "classes.h"
#include "kernel/counters.h"
#include "kernel/report.h"
#include "kernel/settings.h"
#include "mtl_buffer.h"
#include "mtl_compute_pipeline.h"
#include "mtl_device.h"
#include "mtl_encoder.h"

namespace emulator::host {
namespace {

constexpr UInteger kMaxInlineBytes = 4096;
constexpr UInteger kBarrierScopeBuffers = 1;
constexpr UInteger kConstantOffsetAlignment = 4;

/// Bytes that setBytes copied, kept alive by the dispatches that use them.
using InlineBytes = std::shared_ptr<std::vector<uint8_t>>;

struct MTLComputeCommandEncoder final : Instance<MTLComputeCommandEncoder, Encoder> {
  static constexpr const char* kName = "MTLComputeCommandEncoder";

  struct Slot {
    MTLBuffer* buffer = nullptr;
    UInteger offset = 0;
    InlineBytes bytes;
  };

  MTLComputeCommandEncoder(MTLCommandBuffer* buffer, bool is_concurrent) : concurrent(is_concurrent) {
    belong_to(buffer);
  }
  ~MTLComputeCommandEncoder() override { report_unended(kName); }

  const bool concurrent;
  MTLComputePipelineState* pipeline = nullptr;
  std::array<Slot, max_bindings> slots;
  std::array<uint32_t, max_bindings> threadgroup_lengths{};
  std::vector<BufferId> resident;
};

struct Methods : MethodsOf<MTLComputeCommandEncoder> {
  std::string name() { return self()->buffer().name(); }

  bool index_ok(const char* selector, UInteger index) {
    if (index < max_bindings) return true;
    report("api", name() + ": " + selector + " with index " + std::to_string(index) + "; Metal has 0 to 30");
    return false;
  }

  void set_pipeline(MTLComputePipelineState* pipeline) {
    if (!self()->open("setComputePipelineState:")) return;
    if (!pipeline) report("api", name() + ": setComputePipelineState: with nil");
    self()->pipeline = pipeline;
    self()->buffer().keep(pipeline);
  }

  void set_buffer(MTLBuffer* buffer, UInteger offset, UInteger index) {
    if (!self()->open("setBuffer:offset:atIndex:") || !index_ok("setBuffer:offset:atIndex:", index)) return;
    if (buffer && offset >= buffer->byte_length) {
      report("api", name() + ": setBuffer of '" + buffer->label_text() + "' at index " + std::to_string(index) +
                        ": offset " + std::to_string(offset) + " lies behind its " +
                        std::to_string(buffer->byte_length) + " bytes");
      return;
    }
    self()->slots[index] = {buffer, offset, nullptr};
    self()->buffer().keep(buffer);
  }

  void set_buffer_offset(UInteger offset, UInteger index) {
    if (!index_ok("setBufferOffset:atIndex:", index)) return;
    if (MTLBuffer* buffer = self()->slots[index].buffer) {
      set_buffer(buffer, offset, index);
    } else {
      report("api", name() + ": setBufferOffset:atIndex: " + std::to_string(index) + ", where no buffer is bound");
    }
  }

  void set_buffers(MTLBuffer* const buffers[], const UInteger offsets[], Range range) {
    for (UInteger i = 0; i < range.length; ++i) set_buffer(buffers[i], offsets[i], range.location + i);
  }

  void set_bytes(const void* bytes, UInteger length, UInteger index) {
    if (!self()->open("setBytes:length:atIndex:") || !index_ok("setBytes:length:atIndex:", index)) return;
    if (length == 0 || length > kMaxInlineBytes) {
      report("api", name() + ": setBytes of " + std::to_string(length) + " bytes at index " + std::to_string(index) +
                        "; from 1 to 4096 are allowed, put more into a buffer");
      return;
    }
    const auto* first = static_cast<const uint8_t*>(bytes);
    self()->slots[index] = {nullptr, 0, std::make_shared<std::vector<uint8_t>>(first, first + length)};
    calls().inline_bytes += length;
  }

  void set_threadgroup_memory(UInteger length, UInteger index) {
    const char* selector = "setThreadgroupMemoryLength:atIndex:";
    if (!self()->open(selector) || !index_ok(selector, index)) return;
    if (length % 16 != 0)
      report("api", name() + ": " + selector + ": " + std::to_string(length) + " is no multiple of 16");
    self()->threadgroup_lengths[index] = static_cast<uint32_t>(length);
  }

  void use_resource(MTLBuffer* buffer, UInteger) {
    if (!self()->open("useResource:usage:")) return;
    self()->resident.push_back(buffer->id);
    self()->buffer().keep(buffer);
  }
  void use_resources(MTLBuffer* const buffers[], UInteger count, UInteger usage) {
    for (UInteger i = 0; i < count; ++i) use_resource(buffers[i], usage);
  }

  void dispatch_threads(Size grid, Size threads) { encode("dispatchThreads:", grid, threads); }
  void dispatch_threadgroups(Size groups, Size threads) {
    const Size grid = {groups.width * threads.width, groups.height * threads.height, groups.depth * threads.depth};
    encode("dispatchThreadgroups:", grid, threads);
  }

  void barrier(UInteger scope) {
    if (!self()->open("memoryBarrierWithScope:")) return;
    ++calls().barriers;
    if (scope & kBarrierScopeBuffers) {
      self()->buffer().commands.push_back(Barrier{});
    } else {
      report("api", name() + ": memoryBarrierWithScope: without BarrierScopeBuffers orders no buffer");
    }
  }
  // Metal orders the named resources; here all are ordered, so a resource that is missing is not found.
  void barrier_of_resources(MTLBuffer* const[], UInteger count) {
    if (!self()->open("memoryBarrierWithResources:count:")) return;
    ++calls().barriers;
    if (count > 0) self()->buffer().commands.push_back(Barrier{});
  }

  UInteger dispatch_type() { return self()->concurrent; }

 private:
  void encode(const char* selector, Size grid, Size threads);
  bool threads_ok(const char* selector, Size threads);
  void bind(Dispatch& dispatch);
  void make_resident(Dispatch& dispatch);
};

/// What depends on the pipeline and the encoder; the rest is the kernel side's to report (validate).
bool Methods::threads_ok(const char* selector, Size threads) {
  const MTLComputePipelineState& pipeline = *self()->pipeline;
  const auto where = [&] { return pipeline.kernel->name + ": " + selector; };
  if (threads.volume() > pipeline.max_threads) {
    report("api", where() + ": " + std::to_string(threads.volume()) + " threads per threadgroup, the pipeline allows " +
                      std::to_string(pipeline.max_threads) + " (maxTotalThreadsPerThreadgroup)");
    return false;
  }
  UInteger memory = pipeline.kernel->static_threadgroup_memory;
  for (uint32_t length : self()->threadgroup_lengths) memory += length;
  if (memory > static_cast<UInteger>(settings().threadgroup_memory)) {
    report("api", where() + ": " + std::to_string(memory) + " bytes of threadgroup memory, the device has " +
                      std::to_string(settings().threadgroup_memory));
    return false;
  }
  if (pipeline.multiple_of_width && threads.volume() % kSimdWidth != 0)
    report("api", where() + ": " + std::to_string(threads.volume()) +
                      " threads break the promise threadGroupSizeIsMultipleOfThreadExecutionWidth");
  return true;
}

void Methods::bind(Dispatch& dispatch) {
  for (const Parameter& parameter : dispatch.kernel->parameters) {
    if (parameter.kind != ParameterKind::buffer) continue;
    const auto index = static_cast<size_t>(parameter.index);
    const auto& slot = self()->slots[index];
    if (slot.bytes) {
      dispatch.buffers[index] = {slot.bytes->data(), slot.bytes->size(), 0};
      dispatch.keep.push_back(slot.bytes);
    } else if (slot.buffer) {
      Object::require_alive(slot.buffer, "dispatch");
      dispatch.buffers[index] = {slot.buffer->bytes + slot.offset, slot.buffer->byte_length - slot.offset,
                                 slot.buffer->id};
      const bool constant = parameter.reference && !parameter.writable;
      if (constant && slot.offset % kConstantOffsetAlignment != 0)
        report("api", dispatch.kernel->name + ": buffer(" + std::to_string(index) + ") '" + parameter.name +
                          "': offset " + std::to_string(slot.offset) + " of a constant is no multiple of 4");
    }
  }
}

/// What may be touched without being bound; only the checker asks.
void Methods::make_resident(Dispatch& dispatch) {
  if (!settings().check) return;
  dispatch.resident = self()->resident;
  self()->buffer().queue->residency.append_ids(dispatch.resident);
  self()->buffer().residency.append_ids(dispatch.resident);
}

void Methods::encode(const char* selector, Size grid, Size threads) {
  if (!self()->open(selector)) return;
  if (!self()->pipeline) {
    report("api", name() + ": " + selector + " before setComputePipelineState:");
    return;
  }
  if (!threads_ok(selector, threads)) return;
  Dispatch dispatch;
  dispatch.kernel = self()->pipeline->kernel;
  dispatch.grid = grid.to_array();
  dispatch.threads_per_threadgroup = threads.to_array();
  dispatch.threadgroup_lengths = self()->threadgroup_lengths;
  dispatch.sequence = next_sequence();
  dispatch.label = self()->label_text();
  bind(dispatch);
  make_resident(dispatch);
  if (!validate(dispatch)) return;
  self()->buffer().commands.push_back(DispatchCommand{std::move(dispatch), self()->pipeline->life});
}

}  // namespace

Object* open_compute_encoder(MTLCommandBuffer* buffer, bool concurrent) {
  begin_encoder(*buffer, "computeCommandEncoder", concurrent);
  return autoreleased(new MTLComputeCommandEncoder(buffer, concurrent));
}

void install_compute_encoder() {
  define_encoder<MTLComputeCommandEncoder>()
      .method<&HasDevice::device>("device")
      .method<&Methods::dispatch_type>("dispatchType")
      .method<&Methods::set_pipeline>("setComputePipelineState:")
      .method<&Methods::set_buffer>("setBuffer:offset:atIndex:")
      .method<&Methods::set_buffer_offset>("setBufferOffset:atIndex:")
      .method<&Methods::set_buffers>("setBuffers:offsets:withRange:")
      .method<&Methods::set_bytes>("setBytes:length:atIndex:")
      .method<&Methods::set_threadgroup_memory>("setThreadgroupMemoryLength:atIndex:")
      .method<&Methods::use_resource>("useResource:usage:")
      .method<&Methods::use_resources>("useResources:count:usage:")
      .method<&Methods::dispatch_threads>("dispatchThreads:threadsPerThreadgroup:")
      .method<&Methods::dispatch_threadgroups>("dispatchThreadgroups:threadsPerThreadgroup:")
      .method<&Methods::barrier>("memoryBarrierWithScope:")
      .method<&Methods::barrier_of_resources>("memoryBarrierWithResources:count:");
}

}  // namespace emulator::host
