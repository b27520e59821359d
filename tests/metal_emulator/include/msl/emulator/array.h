// metal::array
#pragma once
namespace metal {
template <class T, size_t N>
struct array {
  T elements[N];
  EMULATOR_INLINE constexpr T& operator[](size_t i) { return elements[i]; }
  EMULATOR_INLINE constexpr const T& operator[](size_t i) const { return elements[i]; }
  static constexpr size_t size() { return N; }
  static constexpr bool empty() { return N == 0; }
  EMULATOR_INLINE constexpr T* data() { return elements; }
  EMULATOR_INLINE constexpr const T* data() const { return elements; }
  EMULATOR_INLINE constexpr T* begin() { return elements; }
  EMULATOR_INLINE constexpr T* end() { return elements + N; }
};
}  // namespace metal
