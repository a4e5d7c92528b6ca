struct __align__(16) f32x4 { float lane[4]; };
template <typename V, typename T>
static __device__ __forceinline__ V load_lanes(const T* p) {
  if (((unsigned long long)p & (alignof(V) - 1)) == 0) return *(const V*)p;
  V v;
  for (unsigned k = 0; k < sizeof(v.lane) / sizeof(T); k++) v.lane[k] = p[k];
  return v;
}
template <typename V, typename T>
static __device__ __forceinline__ void store_lanes(T* p, V v) {
  if (((unsigned long long)p & (alignof(V) - 1)) == 0) { *(V*)p = v; return; }
  for (unsigned k = 0; k < sizeof(v.lane) / sizeof(T); k++) p[k] = v.lane[k];
}
extern "C" __global__ void __launch_bounds__(256) matmul(const unsigned long long* words, float* data0, const float* data1, const float* data2) {
  if (words) {
    data0 = (float*)(words[(unsigned long long)data0 >> 44] + ((unsigned long long)data0 & 0xfffffffffff));
    data1 = (const float*)(words[(unsigned long long)data1 >> 44] + ((unsigned long long)data1 & 0xfffffffffff));
    data2 = (const float*)(words[(unsigned long long)data2 >> 44] + ((unsigned long long)data2 & 0xfffffffffff));
  }
  __builtin_assume(__isGlobal(data0));
  __builtin_assume(__isGlobal(data1));
  __builtin_assume(__isGlobal(data2));
  __shared__ __align__(16) float buf0[1024];
  __shared__ __align__(16) float buf1[1024];
  f32x4 alu0 = f32x4{0.0f, 0.0f, 0.0f, 0.0f};
  int gidx1 = blockIdx.y;
  int lidx1 = threadIdx.y;
  int alu1 = (gidx1 * 8192) + (lidx1 * 512);
  int gidx0 = blockIdx.x;
  int alu2 = gidx0 * 64;
  int lidx0 = threadIdx.x;
  int alu3 = lidx0 * 4;
  int alu4 = (alu1 + alu2) + alu3;
  int alu5 = lidx1 * 64;
  int alu6 = alu5 + lidx0;
  f32x4 acc0 = alu0;
  f32x4 acc1 = alu0;
  f32x4 acc2 = alu0;
  f32x4 acc3 = alu0;
  for (int ridx0 = 0; ridx0 < 8; ridx0++) {
    __syncthreads();
    int alu7 = (alu1 + lidx0) + (ridx0 * 16);
    float val0 = data1[alu7];
    buf0[alu6] = val0;
    float val1 = data1[alu7 + 128];
    buf0[alu6 + 16] = val1;
    float val2 = data1[alu7 + 256];
    buf0[alu6 + 32] = val2;
    float val3 = data1[alu7 + 384];
    buf0[alu6 + 48] = val3;
    f32x4 val4 = load_lanes<f32x4>(data2 + (((alu2 + alu3) + (lidx1 * 128)) + (ridx0 * 2048)));
    store_lanes(buf1 + (alu3 + alu5), val4);
    __syncthreads();
    for (int ridx1 = 0; ridx1 < 16; ridx1++) {
      int alu8 = alu5 + ridx1;
      float val5 = buf0[alu8];
      f32x4 val6 = load_lanes<f32x4>(buf1 + (alu3 + (ridx1 * 64)));
      f32x4 val7 = acc0;
      f32x4 alu9 = f32x4{fmaf(val5, val6.lane[0], val7.lane[0]), fmaf(val5, val6.lane[1], val7.lane[1]), fmaf(val5, val6.lane[2], val7.lane[2]), fmaf(val5, val6.lane[3], val7.lane[3])};
      acc0 = alu9;
      float val8 = buf0[alu8 + 16];
      f32x4 val9 = acc1;
      f32x4 alu10 = f32x4{fmaf(val8, val6.lane[0], val9.lane[0]), fmaf(val8, val6.lane[1], val9.lane[1]), fmaf(val8, val6.lane[2], val9.lane[2]), fmaf(val8, val6.lane[3], val9.lane[3])};
      acc1 = alu10;
      float val10 = buf0[alu8 + 32];
      f32x4 val11 = acc2;
      f32x4 alu11 = f32x4{fmaf(val10, val6.lane[0], val11.lane[0]), fmaf(val10, val6.lane[1], val11.lane[1]), fmaf(val10, val6.lane[2], val11.lane[2]), fmaf(val10, val6.lane[3], val11.lane[3])};
      acc2 = alu11;
      float val12 = buf0[alu8 + 48];
      f32x4 val13 = acc3;
      f32x4 alu12 = f32x4{fmaf(val12, val6.lane[0], val13.lane[0]), fmaf(val12, val6.lane[1], val13.lane[1]), fmaf(val12, val6.lane[2], val13.lane[2]), fmaf(val12, val6.lane[3], val13.lane[3])};
      acc3 = alu12;
    }
  }
  f32x4 val14 = acc0;
  store_lanes(data0 + alu4, val14);
  f32x4 val15 = acc1;
  store_lanes(data0 + (alu4 + 128), val15);
  f32x4 val16 = acc2;
  store_lanes(data0 + (alu4 + 256), val16);
  f32x4 val17 = acc3;
  store_lanes(data0 + (alu4 + 384), val17);
}
