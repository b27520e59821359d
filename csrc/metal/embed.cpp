#include "params/embed.h"

#include <bit>

#include "metal/launch.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kEmbed{"embed", "embed"};

}  // namespace

void MetalEncoder::do_embed(const Tensor& y, const Weight& table, const Tensor& ids, float scale) {
  const auto shift =
      table.quantised() ? static_cast<uint32_t>(std::countr_zero(static_cast<unsigned>(table.group))) : 0u;
  const int64_t chunk = !table.quantised() ? 1 : table.bits == 8 ? 8 : 16;
  Launch(*this, kEmbed, {{static_cast<uint32_t>(table.bits), shift, shared_value(table.stored())}, 3})
      .buffer(SG_EMBED_Y, y)
      .buffer(SG_EMBED_CODES, table.data)
      .buffer(SG_EMBED_SCALES, table.scales)
      .buffer(SG_EMBED_BIASES, table.biases)
      .buffer(SG_EMBED_IDS, ids)
      .params(SG_EMBED_PARAMS, EmbedParams{u32(ids.numel()), u32(table.in), u32(table.out), scale})
      .threads(ids.numel() * (table.in / chunk));
}

}  // namespace saragossa::metal
