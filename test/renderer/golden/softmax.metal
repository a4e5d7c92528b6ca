#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(128)]]
kernel void softmax(device float* data0 [[buffer(0)]], const device float* data1 [[buffer(1)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_index [[thread_position_in_threadgroup]]) {
  threadgroup float buf1[8];
  threadgroup float buf0[128];
  threadgroup float buf3[8];
  threadgroup float buf2[128];
  int gidx0 = group.x;
  int lidx0 = thread_index.x;
  int alu0 = (gidx0 * 512) + (lidx0 * 4);
  float4 val0 = *(const device packed_float4*)(data1 + alu0);
  int alu1 = lidx0 & 7;
  bool alu2 = lidx0 < 8;
  float2 alu3 = float2(val0[0], val0[1]);
  float2 alu4 = float2(val0[2], val0[3]);
  bool2 alu5 = bool2(alu3[0] < alu4[0], alu3[1] < alu4[1]);
  bool2 alu6 = bool2(alu4[0] < alu3[0], alu4[1] < alu3[1]);
  bool2 alu7 = bool2(alu3[0] == alu4[0], alu3[1] == alu4[1]);
  int2 alu8 = int2(as_type<int>(alu3[0]), as_type<int>(alu3[1]));
  int2 alu9 = int2(as_type<int>(alu4[0]), as_type<int>(alu4[1]));
  int2 alu10 = int2(alu8[0] & alu9[0], alu8[1] & alu9[1]);
  float2 alu11 = float2(as_type<float>(alu10[0]), as_type<float>(alu10[1]));
  float2 alu12 = alu3 + alu4;
  float2 alu13 = float2(alu7[0] ? alu11[0] : alu12[0], alu7[1] ? alu11[1] : alu12[1]);
  float2 alu14 = float2(alu6[0] ? alu3[0] : alu13[0], alu6[1] ? alu3[1] : alu13[1]);
  float2 alu15 = float2(alu5[0] ? alu4[0] : alu14[0], alu5[1] ? alu4[1] : alu14[1]);
  float alu16 = alu15[0];
  float alu17 = alu15[1];
  float alu18 = (alu16 == alu17) ? as_type<float>(as_type<int>(alu16) & as_type<int>(alu17)) : (alu16 + alu17);
  buf0[lidx0] = (alu16 < alu17) ? alu17 : ((alu17 < alu16) ? alu16 : alu18);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int alu19 = alu1 * 16;
  float acc0 = -INFINITY;
  for (int ridx0 = 0; ridx0 < 16; ridx0++) {
    float val1 = buf0[alu19 + ridx0];
    float val2 = acc0;
    float alu20 = (val2 == val1) ? as_type<float>(as_type<int>(val2) & as_type<int>(val1)) : (val2 + val1);
    acc0 = (val2 < val1) ? val1 : ((val1 < val2) ? val2 : alu20);
  }
  float val3 = acc0;
  if (alu2) buf1[alu1] = val3;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc1 = -INFINITY;
  for (int ridx1 = 0; ridx1 < 8; ridx1++) {
    float val4 = buf1[ridx1];
    float val5 = acc1;
    float alu21 = (val5 == val4) ? as_type<float>(as_type<int>(val5) & as_type<int>(val4)) : (val5 + val4);
    acc1 = (val5 < val4) ? val4 : ((val4 < val5) ? val5 : alu21);
  }
  float val6 = acc1;
  float alu22 = -val6;
  float4 alu23 = float4(alu22, alu22, alu22, alu22);
  float4 alu24 = val0 + alu23;
  float4 alu25 = float4(precise::exp2(alu24[0]), precise::exp2(alu24[1]), precise::exp2(alu24[2]), precise::exp2(alu24[3]));
  float2 alu26 = float2(alu25[0], alu25[1]);
  float2 alu27 = float2(alu25[2], alu25[3]);
  float2 alu28 = alu26 + alu27;
  buf2[lidx0] = alu28[0] + alu28[1];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc2 = 0.0f;
  for (int ridx2 = 0; ridx2 < 16; ridx2++) {
    float val7 = buf2[alu19 + ridx2];
    float val8 = acc2;
    acc2 = val8 + val7;
  }
  float val9 = acc2;
  if (alu2) buf3[alu1] = val9;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc3 = 0.0f;
  for (int ridx3 = 0; ridx3 < 8; ridx3++) {
    float val10 = buf3[ridx3];
    float val11 = acc3;
    acc3 = val11 + val10;
  }
  float val12 = acc3;
  float4 alu29 = float4(val12, val12, val12, val12);
  float4 alu30 = alu25 / alu29;
  *(device packed_float4*)(data0 + alu0) = alu30;
}
