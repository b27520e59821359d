// Barriers and fences.
#pragma once
namespace metal {
enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8
};
EMULATOR_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<uint>(a) | static_cast<uint>(b));
}
EMULATOR_INLINE void threadgroup_barrier(mem_flags flags, EMULATOR_SITE) {
  emulator_threadgroup_barrier(static_cast<uint>(flags), site);
}
EMULATOR_INLINE void simdgroup_barrier(mem_flags flags, EMULATOR_SITE) {
  emulator_simdgroup_barrier(static_cast<uint>(flags), site);
}
}  // namespace metal
