#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(256)]]
kernel void sum_rows(device float* data0 [[buffer(0)]], const device float* data1 [[buffer(1)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_index [[thread_position_in_threadgroup]]) {
  threadgroup float buf1[16];
  threadgroup float buf0[256];
  int gidx0 = group.x;
  int lidx0 = thread_index.x;
  int alu0 = lidx0 & 15;
  float acc0 = 0.0f;
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val0 = data1[((gidx0 * 1024) + lidx0) + (ridx0 * 256)];
    float val1 = acc0;
    acc0 = val1 + val0;
  }
  float val2 = acc0;
  buf0[lidx0] = val2;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc1 = 0.0f;
  for (int ridx1 = 0; ridx1 < 16; ridx1++) {
    float val3 = buf0[(alu0 * 16) + ridx1];
    float val4 = acc1;
    acc1 = val4 + val3;
  }
  float val5 = acc1;
  if (lidx0 < 16) buf1[alu0] = val5;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc2 = 0.0f;
  for (int ridx2 = 0; ridx2 < 16; ridx2++) {
    float val6 = buf1[ridx2];
    float val7 = acc2;
    acc2 = val7 + val6;
  }
  float val8 = acc2;
  if (lidx0 < 1) data0[gidx0] = val8;
}
