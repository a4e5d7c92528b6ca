#pragma OPENCL FP_CONTRACT OFF
__attribute__((reqd_work_group_size(128, 1, 1)))
__kernel void softmax(__global float* data0, __global const float* data1) {
  __local float buf1[8];
  __local float buf0[128];
  __local float buf3[8];
  __local float buf2[128];
  int gidx0 = get_group_id(0);
  int lidx0 = get_local_id(0);
  int alu0 = (gidx0 * 512) + (lidx0 * 4);
  float4 val0 = vload4(0, data1 + alu0);
  int alu1 = lidx0 & 7;
  bool alu2 = lidx0 < 8;
  float2 alu3 = (float2)(val0.s0, val0.s1);
  float2 alu4 = (float2)(val0.s2, val0.s3);
  uchar2 alu5 = (uchar2)(alu3.s0 < alu4.s0, alu3.s1 < alu4.s1);
  uchar2 alu6 = (uchar2)(alu4.s0 < alu3.s0, alu4.s1 < alu3.s1);
  uchar2 alu7 = (uchar2)(alu3.s0 == alu4.s0, alu3.s1 == alu4.s1);
  int2 alu8 = (int2)(as_int(alu3.s0), as_int(alu3.s1));
  int2 alu9 = (int2)(as_int(alu4.s0), as_int(alu4.s1));
  int2 alu10 = (int2)(alu8.s0 & alu9.s0, alu8.s1 & alu9.s1);
  float2 alu11 = (float2)(as_float(alu10.s0), as_float(alu10.s1));
  float2 alu12 = alu3 + alu4;
  float2 alu13 = (float2)(alu7.s0 ? alu11.s0 : alu12.s0, alu7.s1 ? alu11.s1 : alu12.s1);
  float2 alu14 = (float2)(alu6.s0 ? alu3.s0 : alu13.s0, alu6.s1 ? alu3.s1 : alu13.s1);
  float2 alu15 = (float2)(alu5.s0 ? alu4.s0 : alu14.s0, alu5.s1 ? alu4.s1 : alu14.s1);
  float alu16 = alu15.s0;
  float alu17 = alu15.s1;
  float alu18 = (alu17 < alu16) ? alu16 : ((alu16 == alu17) ? as_float(as_int(alu16) & as_int(alu17)) : (alu16 + alu17));
  buf0[lidx0] = (alu16 < alu17) ? alu17 : alu18;
  barrier(CLK_LOCAL_MEM_FENCE);
  int alu19 = alu1 * 16;
  float acc0 = -INFINITY;
  for (int ridx0 = 0; ridx0 < 16; ridx0++) {
    float val1 = buf0[alu19 + ridx0];
    float val2 = acc0;
    float alu20 = (val1 < val2) ? val2 : ((val2 == val1) ? as_float(as_int(val2) & as_int(val1)) : (val2 + val1));
    acc0 = (val2 < val1) ? val1 : alu20;
  }
  float val3 = acc0;
  if (alu2) buf1[alu1] = val3;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc1 = -INFINITY;
  for (int ridx1 = 0; ridx1 < 8; ridx1++) {
    float val4 = buf1[ridx1];
    float val5 = acc1;
    float alu21 = (val4 < val5) ? val5 : ((val5 == val4) ? as_float(as_int(val5) & as_int(val4)) : (val5 + val4));
    acc1 = (val5 < val4) ? val4 : alu21;
  }
  float val6 = acc1;
  float alu22 = -val6;
  float4 alu23 = (float4)(alu22, alu22, alu22, alu22);
  float4 alu24 = val0 + alu23;
  uchar4 alu25 = (uchar4)(129.0f < alu24.s0, 129.0f < alu24.s1, 129.0f < alu24.s2, 129.0f < alu24.s3);
  float4 alu26 = (float4)(alu25.s0 ? 129.0f : alu24.s0, alu25.s1 ? 129.0f : alu24.s1, alu25.s2 ? 129.0f : alu24.s2, alu25.s3 ? 129.0f : alu24.s3);
  uchar4 alu27 = (uchar4)(alu26.s0 < -151.0f, alu26.s1 < -151.0f, alu26.s2 < -151.0f, alu26.s3 < -151.0f);
  float4 alu28 = (float4)(alu27.s0 ? -151.0f : alu26.s0, alu27.s1 ? -151.0f : alu26.s1, alu27.s2 ? -151.0f : alu26.s2, alu27.s3 ? -151.0f : alu26.s3);
  uchar4 alu29 = (uchar4)(alu28.s0 < -124.0f, alu28.s1 < -124.0f, alu28.s2 < -124.0f, alu28.s3 < -124.0f);
  float4 alu30 = (float4)(12583038.0f, 12583038.0f, 12583038.0f, 12583038.0f);
  float4 alu31 = alu28 + alu30;
  float4 alu32 = (float4)(-12583038.0f, -12583038.0f, -12583038.0f, -12583038.0f);
  float4 alu33 = alu31 + alu32;
  float4 alu34 = (float4)(-alu33.s0, -alu33.s1, -alu33.s2, -alu33.s3);
  float4 alu35 = alu28 + alu34;
  float4 alu36 = (float4)(fma(0.0003070668f, alu35.s0, 0.0026797801f), fma(0.0003070668f, alu35.s1, 0.0026797801f), fma(0.0003070668f, alu35.s2, 0.0026797801f), fma(0.0003070668f, alu35.s3, 0.0026797801f));
  float4 alu37 = (float4)(fma(alu36.s0, alu35.s0, 0.019236876f), fma(alu36.s1, alu35.s1, 0.019236876f), fma(alu36.s2, alu35.s2, 0.019236876f), fma(alu36.s3, alu35.s3, 0.019236876f));
  float4 alu38 = (float4)(fma(alu37.s0, alu35.s0, 0.11100665f), fma(alu37.s1, alu35.s1, 0.11100665f), fma(alu37.s2, alu35.s2, 0.11100665f), fma(alu37.s3, alu35.s3, 0.11100665f));
  float4 alu39 = (float4)(fma(alu38.s0, alu35.s0, 0.48045295f), fma(alu38.s1, alu35.s1, 0.48045295f), fma(alu38.s2, alu35.s2, 0.48045295f), fma(alu38.s3, alu35.s3, 0.48045295f));
  float4 alu40 = (float4)(fma(alu39.s0, alu35.s0, 1.3862944f), fma(alu39.s1, alu35.s1, 1.3862944f), fma(alu39.s2, alu35.s2, 1.3862944f), fma(alu39.s3, alu35.s3, 1.3862944f));
  float4 alu41 = (float4)(fma(alu40.s0, alu35.s0, 2.0f), fma(alu40.s1, alu35.s1, 2.0f), fma(alu40.s2, alu35.s2, 2.0f), fma(alu40.s3, alu35.s3, 2.0f));
  int4 alu42 = (int4)(as_int(alu31.s0), as_int(alu31.s1), as_int(alu31.s2), as_int(alu31.s3));
  int4 alu43 = (int4)((int)((uint)alu42.s0 << 23), (int)((uint)alu42.s1 << 23), (int)((uint)alu42.s2 << 23), (int)((uint)alu42.s3 << 23));
  int4 alu44 = (int4)((int)((uint)alu43.s0 + (uint)536870912), (int)((uint)alu43.s1 + (uint)536870912), (int)((uint)alu43.s2 + (uint)536870912), (int)((uint)alu43.s3 + (uint)536870912));
  int4 alu45 = (int4)(alu29.s0 ? alu44.s0 : alu43.s0, alu29.s1 ? alu44.s1 : alu43.s1, alu29.s2 ? alu44.s2 : alu43.s2, alu29.s3 ? alu44.s3 : alu43.s3);
  float4 alu46 = (float4)(as_float(alu45.s0), as_float(alu45.s1), as_float(alu45.s2), as_float(alu45.s3));
  float4 alu47 = alu41 * alu46;
  float4 alu48 = (float4)(5.421011e-20f, 5.421011e-20f, 5.421011e-20f, 5.421011e-20f);
  float4 alu49 = alu47 * alu48;
  float4 alu50 = (float4)(alu29.s0 ? alu49.s0 : alu47.s0, alu29.s1 ? alu49.s1 : alu47.s1, alu29.s2 ? alu49.s2 : alu47.s2, alu29.s3 ? alu49.s3 : alu47.s3);
  float2 alu51 = (float2)(alu50.s0, alu50.s1);
  float2 alu52 = (float2)(alu50.s2, alu50.s3);
  float2 alu53 = alu51 + alu52;
  buf2[lidx0] = alu53.s0 + alu53.s1;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc2 = 0.0f;
  for (int ridx2 = 0; ridx2 < 16; ridx2++) {
    float val7 = buf2[alu19 + ridx2];
    float val8 = acc2;
    acc2 = val8 + val7;
  }
  float val9 = acc2;
  if (alu2) buf3[alu1] = val9;
  barrier(CLK_LOCAL_MEM_FENCE);
  float acc3 = 0.0f;
  for (int ridx3 = 0; ridx3 < 8; ridx3++) {
    float val10 = buf3[ridx3];
    float val11 = acc3;
    acc3 = val11 + val10;
  }
  float val12 = acc3;
  float4 alu54 = (float4)(val12, val12, val12, val12);
  float4 alu55 = alu50 / alu54;
  vstore4(alu55, 0, data0 + alu0);
}
