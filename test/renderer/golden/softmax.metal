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
  int alu0 = (gidx0 * 512) + lidx0;
  int alu1 = lidx0 & 7;
  bool alu2 = lidx0 < 8;
  float acc0 = -INFINITY;
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val0 = data1[alu0 + (ridx0 * 128)];
    float val1 = acc0;
    float alu3 = (val1 == val0) ? as_type<float>(as_type<int>(val1) & as_type<int>(val0)) : (val1 + val0);
    acc0 = (val1 < val0) ? val0 : ((val0 < val1) ? val1 : alu3);
  }
  float val2 = acc0;
  buf0[lidx0] = val2;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int alu4 = alu1 * 16;
  float acc1 = -INFINITY;
  for (int ridx1 = 0; ridx1 < 16; ridx1++) {
    float val3 = buf0[alu4 + ridx1];
    float val4 = acc1;
    float alu5 = (val4 == val3) ? as_type<float>(as_type<int>(val4) & as_type<int>(val3)) : (val4 + val3);
    acc1 = (val4 < val3) ? val3 : ((val3 < val4) ? val4 : alu5);
  }
  float val5 = acc1;
  if (alu2) buf1[alu1] = val5;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc2 = -INFINITY;
  for (int ridx2 = 0; ridx2 < 8; ridx2++) {
    float val6 = buf1[ridx2];
    float val7 = acc2;
    float alu6 = (val7 == val6) ? as_type<float>(as_type<int>(val7) & as_type<int>(val6)) : (val7 + val6);
    acc2 = (val7 < val6) ? val6 : ((val6 < val7) ? val7 : alu6);
  }
  float val8 = acc2;
  float alu7 = -val8;
  float acc3 = 0.0f;
  for (int ridx3 = 0; ridx3 < 4; ridx3++) {
    float val9 = data1[alu0 + (ridx3 * 128)];
    float val10 = acc3;
    acc3 = val10 + precise::exp2(val9 + alu7);
  }
  float val11 = acc3;
  buf2[lidx0] = val11;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc4 = 0.0f;
  for (int ridx4 = 0; ridx4 < 16; ridx4++) {
    float val12 = buf2[alu4 + ridx4];
    float val13 = acc4;
    acc4 = val13 + val12;
  }
  float val14 = acc4;
  if (alu2) buf3[alu1] = val14;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float acc5 = 0.0f;
  for (int ridx5 = 0; ridx5 < 8; ridx5++) {
    float val15 = buf3[ridx5];
    float val16 = acc5;
    acc5 = val16 + val15;
  }
  float val17 = acc5;
  for (int ridx6 = 0; ridx6 < 4; ridx6++) {
    int alu8 = alu0 + (ridx6 * 128);
    float val18 = data1[alu8];
    data0[alu8] = precise::exp2(val18 + alu7) / val17;
  }
}
