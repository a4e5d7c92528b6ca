extern "C" __global__ void __launch_bounds__(256) sum_rows(const unsigned long long* words, float* data0, const float* data1) {
  if (words) {
    data0 = (float*)(words[(unsigned long long)data0 >> 44] + ((unsigned long long)data0 & 0xfffffffffff));
    data1 = (const float*)(words[(unsigned long long)data1 >> 44] + ((unsigned long long)data1 & 0xfffffffffff));
  }
  __builtin_assume(__isGlobal(data0));
  __builtin_assume(__isGlobal(data1));
  __shared__ __align__(16) float buf1[16];
  __shared__ __align__(16) float buf0[256];
  int gidx0 = blockIdx.x;
  int lidx0 = threadIdx.x;
  int alu0 = lidx0 & 15;
  float acc0 = 0.0f;
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val0 = data1[((gidx0 * 1024) + lidx0) + (ridx0 * 256)];
    float val1 = acc0;
    acc0 = val1 + val0;
  }
  float val2 = acc0;
  buf0[lidx0] = val2;
  __syncthreads();
  float acc1 = 0.0f;
  for (int ridx1 = 0; ridx1 < 16; ridx1++) {
    float val3 = buf0[(alu0 * 16) + ridx1];
    float val4 = acc1;
    acc1 = val4 + val3;
  }
  float val5 = acc1;
  if (lidx0 < 16) buf1[alu0] = val5;
  __syncthreads();
  float acc2 = 0.0f;
  for (int ridx2 = 0; ridx2 < 16; ridx2++) {
    float val6 = buf1[ridx2];
    float val7 = acc2;
    acc2 = val7 + val6;
  }
  float val8 = acc2;
  if (lidx0 < 1) data0[gidx0] = val8;
}
