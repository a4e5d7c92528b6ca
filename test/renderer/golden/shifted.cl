__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void shifted(__global float* data0, __global const float* data1, const int n) {
  int gidx0 = get_group_id(0);
  float val0 = data1[gidx0];
  float val1 = (0 < gidx0) ? data1[gidx0 + -1] : 0.0f;
  data0[gidx0] = val0 + val1;
}
