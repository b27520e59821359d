#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;

// C = A B by matrix operations of Metal 4. mnk: extents of the three.

// A tile of 64 x 32 by four simdgroups, operands and result in memory; edges are cut by the extents.
kernel void in_memory(device half* A [[buffer(0)]],
                      device half* B [[buffer(1)]],
                      device float* C [[buffer(2)]],
                      constant int* mnk [[buffer(3)]],
                      uint2 tile [[threadgroup_position_in_grid]]) {
  auto a = tensor<device half, dextents<int32_t, 2>, tensor_inline>(A, dextents<int32_t, 2>(mnk[2], mnk[0]));
  auto b = tensor<device half, dextents<int32_t, 2>, tensor_inline>(B, dextents<int32_t, 2>(mnk[1], mnk[2]));
  auto c = tensor<device float, dextents<int32_t, 2>, tensor_inline>(C, dextents<int32_t, 2>(mnk[1], mnk[0]));
  constexpr auto descriptor = matmul2d_descriptor(64, 32, 0, false, false, false);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  auto a_tile = a.slice(0, int(tile.y * 64));
  auto b_tile = b.slice(int(tile.x * 32), 0);
  auto c_tile = c.slice(int(tile.x * 32), int(tile.y * 64));
  op.run(a_tile, b_tile, c_tile);
}

// The same, right operand as rows of [N, K], result in registers of four simdgroups, doubled, stored by index.
kernel void to_registers(device half* A [[buffer(0)]],
                         device half* B [[buffer(1)]],
                         device float* C [[buffer(2)]],
                         constant int* mnk [[buffer(3)]],
                         uint2 tile [[threadgroup_position_in_grid]]) {
  const int row0 = int(tile.y) * 64, column0 = int(tile.x) * 32;
  const auto a_extents = dextents<int32_t, 2>(mnk[2], mnk[0] - row0);
  const auto b_extents = dextents<int32_t, 2>(mnk[2], mnk[1] - column0);
  auto a = tensor<device half, dextents<int32_t, 2>, tensor_inline>(A + row0 * mnk[2], a_extents);
  auto b = tensor<device half, dextents<int32_t, 2>, tensor_inline>(B + column0 * mnk[2], b_extents);
  constexpr auto descriptor = matmul2d_descriptor(64, 32, static_cast<int>(dynamic_extent), false, true, false);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  auto c = op.get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
  op.run(a, b, c);
  for (ushort i = 0; i < c.get_capacity(); i++) {
    if (!c.is_valid_element(i)) continue;
    auto at = c.get_multidimensional_index(i);
    const int row = row0 + at[1], column = column0 + at[0];
    if (row < mnk[0] && column < mnk[1]) C[row * mnk[1] + column] = 2.0f * c[i];
  }
}

// One simdgroup, all operands in registers, summed over steps of 16.
kernel void in_registers(device const half* A [[buffer(0)]],
                         device const half* B [[buffer(1)]],
                         device float* C [[buffer(2)]],
                         constant int* mnk [[buffer(3)]],
                         uint2 tile [[threadgroup_position_in_grid]]) {
  constexpr auto descriptor =
      matmul2d_descriptor(16, 32, 16, false, false, true, matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroup> op;
  auto a = op.get_left_input_cooperative_tensor<half, half, float>();
  auto b = op.get_right_input_cooperative_tensor<half, half, float>();
  auto c = op.get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
  for (ushort i = 0; i < c.get_capacity(); i++) c[i] = 0.0f;
  for (int k = 0; k < mnk[2]; k += 16) {
    for (ushort i = 0; i < a.get_capacity(); i++) {
      auto at = a.get_multidimensional_index(i);
      a[i] = A[(int(tile.y) * 16 + at[1]) * mnk[2] + k + at[0]];
    }
    for (ushort i = 0; i < b.get_capacity(); i++) {
      auto at = b.get_multidimensional_index(i);
      b[i] = B[(k + at[1]) * mnk[1] + int(tile.x) * 32 + at[0]];
    }
    op.run(a, b, c);
  }
  for (ushort i = 0; i < c.get_capacity(); i++) {
    auto at = c.get_multidimensional_index(i);
    C[(int(tile.y) * 16 + at[1]) * mnk[1] + int(tile.x) * 32 + at[0]] = c[i];
  }
}
