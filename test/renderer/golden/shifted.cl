__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void shifted(__global float* data0, const ulong start0, __global const float* data1, const ulong start1, const int n) {
  data0 += start0;
  data1 += start1;
  int gidx0 = get_group_id(0);
  float val0 = data1[gidx0];
  float val1 = (0 < gidx0) ? data1[gidx0 + -1] : 0.0f;
  data0[gidx0] = val0 + val1;
}
