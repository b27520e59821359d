// float2, float3, float4, packed_float2, .. and their layout.
#pragma once
#define EMULATOR_VECTOR_NAMES(T)                 \
  using T##2 = metal::vec<T, 2>;                 \
  using T##3 = metal::vec<T, 3>;                 \
  using T##4 = metal::vec<T, 4>;                 \
  using packed_##T##2 = metal::packed_vec<T, 2>; \
  using packed_##T##3 = metal::packed_vec<T, 3>; \
  using packed_##T##4 = metal::packed_vec<T, 4>;
EMULATOR_VECTOR_NAMES(float)
EMULATOR_VECTOR_NAMES(half)
EMULATOR_VECTOR_NAMES(bfloat)
EMULATOR_VECTOR_NAMES(bool)
EMULATOR_VECTOR_NAMES(char)
EMULATOR_VECTOR_NAMES(uchar)
EMULATOR_VECTOR_NAMES(short)
EMULATOR_VECTOR_NAMES(ushort)
EMULATOR_VECTOR_NAMES(int)
EMULATOR_VECTOR_NAMES(uint)
EMULATOR_VECTOR_NAMES(long)
EMULATOR_VECTOR_NAMES(ulong)

static_assert(sizeof(float3) == 16 && alignof(float3) == 16 && sizeof(packed_float3) == 12, "layout");
static_assert(sizeof(half4) == 8 && alignof(half4) == 8 && sizeof(bool4) == 4 && sizeof(long3) == 32, "layout");
static_assert(sizeof(bfloat2) == 4 && sizeof(uchar3) == 4 && alignof(packed_half4) == 2, "layout");

/// The same bits as another type.
template <class To, class From>
EMULATOR_INLINE constexpr To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of the same size");
  return __builtin_bit_cast(To, from);
}
