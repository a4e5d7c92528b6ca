#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(256)]]
kernel void matmul(device float* data0 [[buffer(0)]], const device float* data1 [[buffer(1)]], const device float* data2 [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_index [[thread_position_in_threadgroup]]) {
  threadgroup float buf0[1024];
  threadgroup float buf1[1024];
  float4 alu0 = float4(0.0f, 0.0f, 0.0f, 0.0f);
  int gidx1 = group.y;
  int lidx1 = thread_index.y;
  int alu1 = (gidx1 * 8192) + (lidx1 * 512);
  int gidx0 = group.x;
  int alu2 = gidx0 * 64;
  int lidx0 = thread_index.x;
  int alu3 = lidx0 * 4;
  int alu4 = (alu1 + alu2) + alu3;
  int alu5 = lidx1 * 64;
  int alu6 = alu5 + lidx0;
  float4 acc0 = alu0;
  float4 acc1 = alu0;
  float4 acc2 = alu0;
  float4 acc3 = alu0;
  for (int ridx0 = 0; ridx0 < 8; ridx0++) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    int alu7 = (alu1 + lidx0) + (ridx0 * 16);
    float val0 = data1[alu7];
    buf0[alu6] = val0;
    float val1 = data1[alu7 + 128];
    buf0[alu6 + 16] = val1;
    float val2 = data1[alu7 + 256];
    buf0[alu6 + 32] = val2;
    float val3 = data1[alu7 + 384];
    buf0[alu6 + 48] = val3;
    float4 val4 = *(const device packed_float4*)(data2 + (((alu2 + alu3) + (lidx1 * 128)) + (ridx0 * 2048)));
    *(threadgroup packed_float4*)(buf1 + (alu3 + alu5)) = val4;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int ridx1 = 0; ridx1 < 16; ridx1++) {
      int alu8 = alu5 + ridx1;
      float val5 = buf0[alu8];
      float4 val6 = *(const threadgroup packed_float4*)(buf1 + (alu3 + (ridx1 * 64)));
      float4 val7 = acc0;
      float4 alu9 = float4(fma(val5, val6[0], val7[0]), fma(val5, val6[1], val7[1]), fma(val5, val6[2], val7[2]), fma(val5, val6[3], val7[3]));
      acc0 = alu9;
      float val8 = buf0[alu8 + 16];
      float4 val9 = acc1;
      float4 alu10 = float4(fma(val8, val6[0], val9[0]), fma(val8, val6[1], val9[1]), fma(val8, val6[2], val9[2]), fma(val8, val6[3], val9[3]));
      acc1 = alu10;
      float val10 = buf0[alu8 + 32];
      float4 val11 = acc2;
      float4 alu11 = float4(fma(val10, val6[0], val11[0]), fma(val10, val6[1], val11[1]), fma(val10, val6[2], val11[2]), fma(val10, val6[3], val11[3]));
      acc2 = alu11;
      float val12 = buf0[alu8 + 48];
      float4 val13 = acc3;
      float4 alu12 = float4(fma(val12, val6[0], val13[0]), fma(val12, val6[1], val13[1]), fma(val12, val6[2], val13[2]), fma(val12, val6[3], val13[3]));
      acc3 = alu12;
    }
  }
  float4 val14 = acc0;
  *(device packed_float4*)(data0 + alu4) = val14;
  float4 val15 = acc1;
  *(device packed_float4*)(data0 + (alu4 + 128)) = val15;
  float4 val16 = acc2;
  *(device packed_float4*)(data0 + (alu4 + 256)) = val16;
  float4 val17 = acc3;
  *(device packed_float4*)(data0 + (alu4 + 384)) = val17;
}
