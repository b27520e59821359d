// MTLBlitCommandEncoder: copies and fills of buffers. The checkers do not see them: a blit is ordered with all else.

#include "classes.h"
#include "kernel/counters.h"
#include "kernel/report.h"
#include "mtl_buffer.h"
#include "mtl_device.h"
#include "mtl_encoder.h"

namespace emulator::host {
namespace {

struct MTLBlitCommandEncoder final : Instance<MTLBlitCommandEncoder, Encoder> {
  static constexpr const char* kName = "MTLBlitCommandEncoder";
  explicit MTLBlitCommandEncoder(MTLCommandBuffer* buffer) { belong_to(buffer); }
  ~MTLBlitCommandEncoder() override { report_unended(kName); }
};

struct Methods : MethodsOf<MTLBlitCommandEncoder> {
  bool inside(const char* what, const MTLBuffer& buffer, UInteger offset, UInteger length) {
    if (length > 0 && buffer.contains(offset, length)) return true;
    report("api", self()->buffer().name() + ": " + what + ": " + std::to_string(length) + " bytes at " +
                      std::to_string(offset) + " of '" + buffer.label_text() + "', which has " +
                      std::to_string(buffer.byte_length));
    return false;
  }

  void copy(MTLBuffer* source, UInteger source_offset, MTLBuffer* destination, UInteger destination_offset,
            UInteger length) {
    const char* selector = "copyFromBuffer";
    if (!self()->open(selector) || !inside(selector, *source, source_offset, length) ||
        !inside(selector, *destination, destination_offset, length))
      return;
    // Shared memory is the host's, so this may be the way back of a result.
    if (source->storage_mode() == StorageMode::private_memory && destination->storage_mode() == StorageMode::shared)
      ++calls().readbacks;
    self()->buffer().keep(source);
    self()->buffer().keep(destination);
    self()->buffer().commands.push_back(Copy{source->id, destination->id, source->bytes + source_offset,
                                             destination->bytes + destination_offset, length});
  }

  void fill(MTLBuffer* buffer, Range range, uint8_t value) {
    if (!self()->open("fillBuffer") || !inside("fillBuffer", *buffer, range.location, range.length)) return;
    self()->buffer().keep(buffer);
    self()->buffer().commands.push_back(Fill{buffer->id, buffer->bytes + range.location, range.length, value});
  }
};

}  // namespace

Object* open_blit_encoder(MTLCommandBuffer* buffer) {
  begin_encoder(*buffer, "blitCommandEncoder", false);
  return autoreleased(new MTLBlitCommandEncoder(buffer));
}

void install_blit_encoder() {
  define_encoder<MTLBlitCommandEncoder>()
      .method<&HasDevice::device>("device")
      .method<&Methods::copy>("copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:")
      .method<&Methods::fill>("fillBuffer:range:value:");
}

}  // namespace emulator::host
