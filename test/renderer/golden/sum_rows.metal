#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(256)]]
kernel void sum_rows(device float* data0 [[buffer(0)]], const device float* data1 [[buffer(1)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_index [[thread_position_in_threadgroup]]) {
  threadgroup float buf1[16];
  threadgroup float buf0[256];
  int gidx0 = group.x;
  int lidx0 = thread_index.x;
  int alu0 = lidx0 & 15;
  float4 val0 = *(const device packed_float4*)(data1 + ((gidx0 * 1024) + (lidx0 * 4)));
  float2 alu1 = float2(val0[0], val0[1]);
  float2 alu2 = float2(val0[2], val0[3]);
  float2 alu3 = alu1 + alu2;
  buf0[lidx0] = alu3[0] + alu3[1];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc0 = 0.0f;
  for (int ridx0 = 0; ridx0 < 16; ridx0++) {
    float val1 = buf0[(alu0 * 16) + ridx0];
    float val2 = acc0;
    acc0 = val2 + val1;
  }
  float val3 = acc0;
  if (lidx0 < 16) buf1[alu0] = val3;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc1 = 0.0f;
  for (int ridx1 = 0; ridx1 < 16; ridx1++) {
    float val4 = buf1[ridx1];
    float val5 = acc1;
    acc1 = val5 + val4;
  }
  float val6 = acc1;
  if (lidx0 < 1) data0[gidx0] = val6;
}
