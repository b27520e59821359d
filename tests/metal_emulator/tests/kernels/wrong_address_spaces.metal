#include <metal_stdlib>
using namespace metal;
struct P { int a; float b; };
void helper(threadgroup float* s, float v) { s[0] = v; }
template <typename T> T first(device const T* p) { return p[0]; }
kernel void k(device float* x [[buffer(0)]], constant P& p [[buffer(1)]], threadgroup float* s [[threadgroup(0)]],
              uint i [[thread_position_in_grid]]) {
  helper(x, 1.0f);                // line 8: device passed as threadgroup
  thread float* z = x;            // line 9: device to thread
  threadgroup P q[2];
  device float4* v = (device float4*)x;
  float4 w = v[0];
  v[1] = w;
  x[i] = first<float>(x) + p.b + first(s);  // line 14: threadgroup passed as device
  q[0].a = int(z[0]);
}
