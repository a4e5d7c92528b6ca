#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(10)]]
kernel void narrow_types(device char* data0 [[buffer(0)]], device bool* data1 [[buffer(1)]], device half* data2 [[buffer(2)]], const device ushort* data3 [[buffer(3)]], const device char* data4 [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_index [[thread_position_in_threadgroup]]) {
  int lidx0 = thread_index.x;
  int alu0 = lidx0 * 4;
  char4 val0 = *(const device packed_char4*)(data4 + alu0);
  char4 alu1 = char4((char)((uint)val0[0] * (uint)val0[0]), (char)((uint)val0[1] * (uint)val0[1]), (char)((uint)val0[2] * (uint)val0[2]), (char)((uint)val0[3] * (uint)val0[3]));
  char4 alu2 = char4((char)((uint)alu1[0] + (uint)7), (char)((uint)alu1[1] + (uint)7), (char)((uint)alu1[2] + (uint)7), (char)((uint)alu1[3] + (uint)7));
  *(device packed_char4*)(data0 + alu0) = alu2;
  ushort4 val1 = *(const device packed_ushort4*)(data3 + alu0);
  bool4 alu3 = bool4(val1[0] < 1000, val1[1] < 1000, val1[2] < 1000, val1[3] < 1000);
  data1[alu0] = alu3[0];
  data1[alu0 + 1] = alu3[1];
  data1[alu0 + 2] = alu3[2];
  data1[alu0 + 3] = alu3[3];
  float4 alu4 = float4((float)val1[0], (float)val1[1], (float)val1[2], (float)val1[3]);
  half4 alu5 = half4((half)alu4[0], (half)alu4[1], (half)alu4[2], (half)alu4[3]);
  *(device packed_half4*)(data2 + alu0) = alu5;
}
