#pragma OPENCL FP_CONTRACT OFF
__attribute__((reqd_work_group_size(128, 1, 1)))
__kernel void softmax(__global float* data0, __global const float* data1) {
  __local float buf1[8];
  __local float buf0[128];
  __local float buf3[8];
  __local float buf2[128];
  int gidx0 = get_group_id(0);
  int lidx0 = get_local_id(0);
  int alu0 = (gidx0 * 512) + lidx0;
  int alu1 = lidx0 & 7;
  bool alu2 = lidx0 < 8;
  float acc0 = -INFINITY;
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val0 = data1[alu0 + (ridx0 * 128)];
    float val1 = acc0;
    float alu3 = (val0 < val1) ? val1 : ((val1 == val0) ? as_float(as_int(val1) & as_int(val0)) : (val1 + val0));
    acc0 = (val1 < val0) ? val0 : alu3;
  }
  float val2 = acc0;
  buf0[lidx0] = val2;
  barrier(CLK_LOCAL_MEM_FENCE);
  int alu4 = alu1 * 16;
  float acc1 = -INFINITY;
  for (int ridx1 = 0; ridx1 < 16; ridx1++) {
    float val3 = buf0[alu4 + ridx1];
    float val4 = acc1;
    float alu5 = (val3 < val4) ? val4 : ((val4 == val3) ? as_float(as_int(val4) & as_int(val3)) : (val4 + val3));
    acc1 = (val4 < val3) ? val3 : alu5;
  }
  float val5 = acc1;
  if (alu2) buf1[alu1] = val5;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc2 = -INFINITY;
  for (int ridx2 = 0; ridx2 < 8; ridx2++) {
    float val6 = buf1[ridx2];
    float val7 = acc2;
    float alu6 = (val6 < val7) ? val7 : ((val7 == val6) ? as_float(as_int(val7) & as_int(val6)) : (val7 + val6));
    acc2 = (val7 < val6) ? val6 : alu6;
  }
  float val8 = acc2;
  float alu7 = -val8;
  int alu8 = (int)(-(uint)as_int(12582912.0f));
  float acc3 = 0.0f;
  for (int ridx3 = 0; ridx3 < 4; ridx3++) {
    float val9 = data1[alu0 + (ridx3 * 128)];
    float alu9 = val9 + alu7;
    float alu10 = (129.0f < alu9) ? 129.0f : alu9;
    float alu11 = (alu10 < -151.0f) ? -151.0f : alu10;
    float alu12 = alu11 + 12582912.0f;
    float alu13 = alu11 + (-(alu12 + -12582912.0f));
    float alu14 = (((((alu13 * 0.0001535334f) + 0.0013398901f) * alu13) + 0.009618438f) * alu13) + 0.055503324f;
    int alu15 = (int)((uint)as_int(alu12) + (uint)alu8);
    int alu16 = alu15 >> 1;
    float alu17 = ((((((alu14 * alu13) + 0.24022648f) * alu13) + 0.6931472f) * alu13) + 1.0f) * as_float((int)((uint)(alu16 + 127) << 23));
    float alu18 = as_float((int)((uint)(int)((uint)(int)((uint)alu15 + (uint)(-alu16)) + (uint)127) << 23));
    float val10 = acc3;
    acc3 = val10 + (alu17 * alu18);
  }
  float val11 = acc3;
  buf2[lidx0] = val11;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc4 = 0.0f;
  for (int ridx4 = 0; ridx4 < 16; ridx4++) {
    float val12 = buf2[alu4 + ridx4];
    float val13 = acc4;
    acc4 = val13 + val12;
  }
  float val14 = acc4;
  if (alu2) buf3[alu1] = val14;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc5 = 0.0f;
  for (int ridx5 = 0; ridx5 < 8; ridx5++) {
    float val15 = buf3[ridx5];
    float val16 = acc5;
    acc5 = val16 + val15;
  }
  float val17 = acc5;
  for (int ridx6 = 0; ridx6 < 4; ridx6++) {
    int alu19 = alu0 + (ridx6 * 128);
    float val18 = data1[alu19];
    float alu20 = val18 + alu7;
    float alu21 = (129.0f < alu20) ? 129.0f : alu20;
    float alu22 = (alu21 < -151.0f) ? -151.0f : alu21;
    float alu23 = alu22 + 12582912.0f;
    float alu24 = alu22 + (-(alu23 + -12582912.0f));
    float alu25 = (((((alu24 * 0.0001535334f) + 0.0013398901f) * alu24) + 0.009618438f) * alu24) + 0.055503324f;
    int alu26 = (int)((uint)as_int(alu23) + (uint)alu8);
    int alu27 = alu26 >> 1;
    float alu28 = ((((((alu25 * alu24) + 0.24022648f) * alu24) + 0.6931472f) * alu24) + 1.0f) * as_float((int)((uint)(alu27 + 127) << 23));
    float alu29 = as_float((int)((uint)(int)((uint)(int)((uint)alu26 + (uint)(-alu27)) + (uint)127) << 23));
    data0[alu19] = (alu28 * alu29) / val17;
  }
}
