struct __align__(8) f32x2 { float lane[2]; };
struct __align__(16) f32x4 { float lane[4]; };
template <typename V, typename T>
static __device__ __forceinline__ V load_lanes(const T* p) {
  if (((unsigned long long)p & (alignof(V) - 1)) == 0) return *(const V*)p;
  V v;
  for (unsigned k = 0; k < sizeof(v.lane) / sizeof(T); k++) v.lane[k] = p[k];
  return v;
}
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
  f32x4 val0 = load_lanes<f32x4>(data1 + ((gidx0 * 1024) + (lidx0 * 4)));
  f32x2 alu1 = f32x2{val0.lane[0], val0.lane[1]};
  f32x2 alu2 = f32x2{val0.lane[2], val0.lane[3]};
  f32x2 alu3 = f32x2{alu1.lane[0] + alu2.lane[0], alu1.lane[1] + alu2.lane[1]};
  buf0[lidx0] = alu3.lane[0] + alu3.lane[1];
  __syncthreads();
  float acc0 = 0.0f;
  for (int ridx0 = 0; ridx0 < 16; ridx0++) {
    float val1 = buf0[(alu0 * 16) + ridx0];
    float val2 = acc0;
    acc0 = val2 + val1;
  }
  float val3 = acc0;
  if (lidx0 < 16) buf1[alu0] = val3;
  __syncthreads();
  float acc1 = 0.0f;
  for (int ridx1 = 0; ridx1 < 16; ridx1++) {
    float val4 = buf1[ridx1];
    float val5 = acc1;
    acc1 = val5 + val4;
  }
  float val6 = acc1;
  if (lidx0 < 1) data0[gidx0] = val6;
}
