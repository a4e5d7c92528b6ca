#pragma OPENCL FP_CONTRACT OFF
__attribute__((reqd_work_group_size(128, 1, 1)))
__kernel void softmax(__global float* data0, const ulong start0, __global const float* data1, const ulong start1) {
  data0 += start0;
  data1 += start1;
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
  float acc3 = 0.0f;
  for (int ridx3 = 0; ridx3 < 4; ridx3++) {
    float val9 = data1[alu0 + (ridx3 * 128)];
    float alu8 = val9 + alu7;
    float alu9 = (129.0f < alu8) ? 129.0f : alu8;
    float alu10 = (alu9 < -151.0f) ? -151.0f : alu9;
    bool alu11 = alu10 < -124.0f;
    float alu12 = alu10 + 12583038.0f;
    float alu13 = alu10 + (-(alu12 + -12583038.0f));
    float alu14 = fma(fma(fma(0.0003070668f, alu13, 0.0026797801f), alu13, 0.019236876f), alu13, 0.11100665f);
    int alu15 = (int)((uint)as_int(alu12) << 23);
    float alu16 = fma(fma(fma(alu14, alu13, 0.48045295f), alu13, 1.3862944f), alu13, 2.0f) * as_float(alu11 ? (int)((uint)alu15 + (uint)536870912) : alu15);
    float val10 = acc3;
    acc3 = val10 + (alu11 ? (alu16 * 5.421011e-20f) : alu16);
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
    int alu17 = alu0 + (ridx6 * 128);
    float val18 = data1[alu17];
    float alu18 = val18 + alu7;
    float alu19 = (129.0f < alu18) ? 129.0f : alu18;
    float alu20 = (alu19 < -151.0f) ? -151.0f : alu19;
    bool alu21 = alu20 < -124.0f;
    float alu22 = alu20 + 12583038.0f;
    float alu23 = alu20 + (-(alu22 + -12583038.0f));
    float alu24 = fma(fma(fma(0.0003070668f, alu23, 0.0026797801f), alu23, 0.019236876f), alu23, 0.11100665f);
    int alu25 = (int)((uint)as_int(alu22) << 23);
    float alu26 = fma(fma(fma(alu24, alu23, 0.48045295f), alu23, 1.3862944f), alu23, 2.0f) * as_float(alu21 ? (int)((uint)alu25 + (uint)536870912) : alu25);
    data0[alu17] = (alu21 ? (alu26 * 5.421011e-20f) : alu26) / val17;
  }
}
