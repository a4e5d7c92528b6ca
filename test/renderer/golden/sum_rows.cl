__attribute__((reqd_work_group_size(256, 1, 1)))
__kernel void sum_rows(__global float* data0, __global const float* data1) {
  __local float buf1[16];
  __local float buf0[256];
  int gidx0 = get_group_id(0);
  int lidx0 = get_local_id(0);
  int alu0 = lidx0 & 15;
  float4 val0 = vload4(0, data1 + ((gidx0 * 1024) + (lidx0 * 4)));
  float2 alu1 = (float2)(val0.s0, val0.s1);
  float2 alu2 = (float2)(val0.s2, val0.s3);
  float2 alu3 = alu1 + alu2;
  buf0[lidx0] = alu3.s0 + alu3.s1;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc0 = 0.0f;
  for (int ridx0 = 0; ridx0 < 16; ridx0++) {
    float val1 = buf0[(alu0 * 16) + ridx0];
    float val2 = acc0;
    acc0 = val2 + val1;
  }
  float val3 = acc0;
  if (lidx0 < 16) buf1[alu0] = val3;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc1 = 0.0f;
  for (int ridx1 = 0; ridx1 < 16; ridx1++) {
    float val4 = buf1[ridx1];
    float val5 = acc1;
    acc1 = val5 + val4;
  }
  float val6 = acc1;
  if (lidx0 < 1) data0[gidx0] = val6;
}
