__attribute__((reqd_work_group_size(256, 1, 1)))
__kernel void sum_rows(__global float* data0, const ulong start0, __global const float* data1, const ulong start1) {
  data0 += start0;
  data1 += start1;
  __local float buf1[16];
  __local float buf0[256];
  int gidx0 = get_group_id(0);
  int lidx0 = get_local_id(0);
  int alu0 = lidx0 & 15;
  float acc0 = 0.0f;
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val0 = data1[((gidx0 * 1024) + lidx0) + (ridx0 * 256)];
    float val1 = acc0;
    acc0 = val1 + val0;
  }
  float val2 = acc0;
  buf0[lidx0] = val2;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc1 = 0.0f;
  for (int ridx1 = 0; ridx1 < 16; ridx1++) {
    float val3 = buf0[(alu0 * 16) + ridx1];
    float val4 = acc1;
    acc1 = val4 + val3;
  }
  float val5 = acc1;
  if (lidx0 < 16) buf1[alu0] = val5;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc2 = 0.0f;
  for (int ridx2 = 0; ridx2 < 16; ridx2++) {
    float val6 = buf1[ridx2];
    float val7 = acc2;
    acc2 = val7 + val6;
  }
  float val8 = acc2;
  if (lidx0 < 1) data0[gidx0] = val8;
}
