#pragma OPENCL FP_CONTRACT OFF
__attribute__((reqd_work_group_size(256, 1, 1)))
__kernel void scale(__global float* data0, const ulong start0, __global const float* data1, const ulong start1) {
  data0 += start0;
  data1 += start1;
  int gidx0 = get_group_id(0);
  int lidx0 = get_local_id(0);
  int alu0 = (gidx0 * 1024) + (lidx0 * 4);
  float4 val0 = vload4(0, data1 + alu0);
  float4 alu1 = (float4)(2.0f, 2.0f, 2.0f, 2.0f);
  float4 alu2 = val0 * alu1;
  float4 alu3 = (float4)(1.0f, 1.0f, 1.0f, 1.0f);
  float4 alu4 = alu2 + alu3;
  vstore4(alu4, 0, data0 + alu0);
}
