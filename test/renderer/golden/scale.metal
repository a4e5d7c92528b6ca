#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)
[[max_total_threads_per_threadgroup(256)]]
kernel void scale(device float* data0 [[buffer(0)]], const device float* data1 [[buffer(1)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_index [[thread_position_in_threadgroup]]) {
  int gidx0 = group.x;
  int lidx0 = thread_index.x;
  int alu0 = (gidx0 * 1024) + (lidx0 * 4);
  float4 val0 = *(const device packed_float4*)(data1 + alu0);
  float4 alu1 = float4(2.0f, 2.0f, 2.0f, 2.0f);
  float4 alu2 = val0 * alu1;
  float4 alu3 = float4(1.0f, 1.0f, 1.0f, 1.0f);
  float4 alu4 = alu2 + alu3;
  *(device packed_float4*)(data0 + alu0) = alu4;
}
