extern "C" __global__ void __launch_bounds__(128) softmax(const unsigned long long* words, float* data0, const float* data1) {
  if (words) {
    data0 = (float*)(words[(unsigned long long)data0 >> 44] + ((unsigned long long)data0 & 0xfffffffffff));
    data1 = (const float*)(words[(unsigned long long)data1 >> 44] + ((unsigned long long)data1 & 0xfffffffffff));
  }
  __builtin_assume(__isGlobal(data0));
  __builtin_assume(__isGlobal(data1));
  __shared__ __align__(16) float buf1[8];
  __shared__ __align__(16) float buf0[128];
  __shared__ __align__(16) float buf3[8];
  __shared__ __align__(16) float buf2[128];
  int gidx0 = blockIdx.x;
  int lidx0 = threadIdx.x;
  int alu0 = (gidx0 * 512) + lidx0;
  int alu1 = lidx0 & 7;
  bool alu2 = lidx0 < 8;
  float acc0 = -__int_as_float(0x7f800000);
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val0 = data1[alu0 + (ridx0 * 128)];
    float val1 = acc0;
    float alu3 = (val1 == val0) ? __int_as_float(__float_as_int(val1) & __float_as_int(val0)) : (val1 + val0);
    acc0 = (val1 < val0) ? val0 : ((val0 < val1) ? val1 : alu3);
  }
  float val2 = acc0;
  buf0[lidx0] = val2;
  __syncthreads();
  int alu4 = alu1 * 16;
  float acc1 = -__int_as_float(0x7f800000);
  for (int ridx1 = 0; ridx1 < 16; ridx1++) {
    float val3 = buf0[alu4 + ridx1];
    float val4 = acc1;
    float alu5 = (val4 == val3) ? __int_as_float(__float_as_int(val4) & __float_as_int(val3)) : (val4 + val3);
    acc1 = (val4 < val3) ? val3 : ((val3 < val4) ? val4 : alu5);
  }
  float val5 = acc1;
  if (alu2) buf1[alu1] = val5;
  __syncthreads();
  float acc2 = -__int_as_float(0x7f800000);
  for (int ridx2 = 0; ridx2 < 8; ridx2++) {
    float val6 = buf1[ridx2];
    float val7 = acc2;
    float alu6 = (val7 == val6) ? __int_as_float(__float_as_int(val7) & __float_as_int(val6)) : (val7 + val6);
    acc2 = (val7 < val6) ? val6 : ((val6 < val7) ? val7 : alu6);
  }
  float val8 = acc2;
  float alu7 = -val8;
  float acc3 = 0.0f;
  for (int ridx3 = 0; ridx3 < 4; ridx3++) {
    float val9 = data1[alu0 + (ridx3 * 128)];
    float val10 = acc3;
    acc3 = val10 + exp2f(val9 + alu7);
  }
  float val11 = acc3;
  buf2[lidx0] = val11;
  __syncthreads();
  float acc4 = 0.0f;
  for (int ridx4 = 0; ridx4 < 16; ridx4++) {
    float val12 = buf2[alu4 + ridx4];
    float val13 = acc4;
    acc4 = val13 + val12;
  }
  float val14 = acc4;
  if (alu2) buf3[alu1] = val14;
  __syncthreads();
  float acc5 = 0.0f;
  for (int ridx5 = 0; ridx5 < 8; ridx5++) {
    float val15 = buf3[ridx5];
    float val16 = acc5;
    acc5 = val16 + val15;
  }
  float val17 = acc5;
  for (int ridx6 = 0; ridx6 < 4; ridx6++) {
    int alu8 = alu0 + (ridx6 * 128);
    float val18 = data1[alu8];
    data0[alu8] = exp2f(val18 + alu7) / val17;
  }
}
