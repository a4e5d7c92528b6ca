#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(175)]]
kernel void two_nests(device int* data0 [[buffer(0)]], device float* data1 [[buffer(1)]], const device int* data2 [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_index [[thread_position_in_threadgroup]]) {
  int lidx0 = thread_index.x;
  int alu0 = lidx0 * 4;
  int4 val0 = *(const device packed_int4*)(data2 + alu0);
  int4 alu1 = int4(val0[0] / 3, val0[1] / 3, val0[2] / 3, val0[3] / 3);
  int4 alu2 = int4(alu1[0] * 3, alu1[1] * 3, alu1[2] * 3, alu1[3] * 3);
  int4 alu3 = int4(-alu2[0], -alu2[1], -alu2[2], -alu2[3]);
  int4 alu4 = int4((int)((uint)val0[0] + (uint)alu3[0]), (int)((uint)val0[1] + (uint)alu3[1]), (int)((uint)val0[2] + (uint)alu3[2]), (int)((uint)val0[3] + (uint)alu3[3]));
  bool4 alu5 = bool4(alu4[0] < 0, alu4[1] < 0, alu4[2] < 0, alu4[3] < 0);
  int4 alu6 = int4((int)alu5[0], (int)alu5[1], (int)alu5[2], (int)alu5[3]);
  int4 alu7 = int4(-alu6[0], -alu6[1], -alu6[2], -alu6[3]);
  int4 alu8 = int4(alu1[0] + alu7[0], alu1[1] + alu7[1], alu1[2] + alu7[2], alu1[3] + alu7[3]);
  *(device packed_int4*)(data0 + alu0) = alu8;
  if (lidx0 < 5) data1[lidx0 % 5] = -INFINITY;
}
