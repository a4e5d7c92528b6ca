__attribute__((reqd_work_group_size(16, 16, 1)))
__kernel void matmul(__global float* data0, const ulong start0, __global const float* data1, const ulong start1, __global const float* data2, const ulong start2) {
  data0 += start0;
  data1 += start1;
  data2 += start2;
  __local float buf0[1024];
  __local float buf1[1024];
  float4 alu0 = (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  int gidx1 = get_group_id(1);
  int lidx1 = get_local_id(1);
  int alu1 = (gidx1 * 8192) + (lidx1 * 512);
  int gidx0 = get_group_id(0);
  int alu2 = gidx0 * 64;
  int lidx0 = get_local_id(0);
  int alu3 = lidx0 * 4;
  int alu4 = (alu1 + alu2) + alu3;
  int alu5 = lidx1 * 64;
  int alu6 = alu5 + lidx0;
  float4 acc0 = alu0;
  float4 acc1 = alu0;
  float4 acc2 = alu0;
  float4 acc3 = alu0;
  for (int ridx0 = 0; ridx0 < 8; ridx0++) {
    barrier(CLK_LOCAL_MEM_FENCE);
    int alu7 = (alu1 + lidx0) + (ridx0 * 16);
    float val0 = data1[alu7];
    buf0[alu6] = val0;
    float val1 = data1[alu7 + 128];
    buf0[alu6 + 16] = val1;
    float val2 = data1[alu7 + 256];
    buf0[alu6 + 32] = val2;
    float val3 = data1[alu7 + 384];
    buf0[alu6 + 48] = val3;
    float4 val4 = vload4(0, data2 + (((alu2 + alu3) + (lidx1 * 128)) + (ridx0 * 2048)));
    vstore4(val4, 0, buf1 + (alu3 + alu5));
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int ridx1 = 0; ridx1 < 16; ridx1++) {
      int alu8 = alu5 + ridx1;
      float val5 = buf0[alu8];
      float4 val6 = vload4(0, buf1 + (alu3 + (ridx1 * 64)));
      float4 val7 = acc0;
      float4 alu9 = (float4)(fma(val5, val6.s0, val7.s0), fma(val5, val6.s1, val7.s1), fma(val5, val6.s2, val7.s2), fma(val5, val6.s3, val7.s3));
      acc0 = alu9;
      float val8 = buf0[alu8 + 16];
      float4 val9 = acc1;
      float4 alu10 = (float4)(fma(val8, val6.s0, val9.s0), fma(val8, val6.s1, val9.s1), fma(val8, val6.s2, val9.s2), fma(val8, val6.s3, val9.s3));
      acc1 = alu10;
      float val10 = buf0[alu8 + 32];
      float4 val11 = acc2;
      float4 alu11 = (float4)(fma(val10, val6.s0, val11.s0), fma(val10, val6.s1, val11.s1), fma(val10, val6.s2, val11.s2), fma(val10, val6.s3, val11.s3));
      acc2 = alu11;
      float val12 = buf0[alu8 + 48];
      float4 val13 = acc3;
      float4 alu12 = (float4)(fma(val12, val6.s0, val13.s0), fma(val12, val6.s1, val13.s1), fma(val12, val6.s2, val13.s2), fma(val12, val6.s3, val13.s3));
      acc3 = alu12;
    }
  }
  float4 val14 = acc0;
  vstore4(val14, 0, data0 + alu4);
  float4 val15 = acc1;
  vstore4(val15, 0, data0 + (alu4 + 128));
  float4 val16 = acc2;
  vstore4(val16, 0, data0 + (alu4 + 256));
  float4 val17 = acc3;
  vstore4(val17, 0, data0 + (alu4 + 384));
}
