struct __align__(2) b8x2 { bool lane[2]; };
struct __align__(8) f32x2 { float lane[2]; };
struct __align__(16) f32x4 { float lane[4]; };
struct __align__(8) i32x2 { int lane[2]; };
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
  int alu0 = (gidx0 * 512) + (lidx0 * 4);
  f32x4 val0 = load_lanes<f32x4>(data1 + alu0);
  int alu1 = lidx0 & 7;
  bool alu2 = lidx0 < 8;
  f32x2 alu3 = f32x2{val0.lane[0], val0.lane[1]};
  f32x2 alu4 = f32x2{val0.lane[2], val0.lane[3]};
  b8x2 alu5 = b8x2{alu3.lane[0] < alu4.lane[0], alu3.lane[1] < alu4.lane[1]};
  b8x2 alu6 = b8x2{alu4.lane[0] < alu3.lane[0], alu4.lane[1] < alu3.lane[1]};
  b8x2 alu7 = b8x2{alu3.lane[0] == alu4.lane[0], alu3.lane[1] == alu4.lane[1]};
  i32x2 alu8 = i32x2{__float_as_int(alu3.lane[0]), __float_as_int(alu3.lane[1])};
  i32x2 alu9 = i32x2{__float_as_int(alu4.lane[0]), __float_as_int(alu4.lane[1])};
  i32x2 alu10 = i32x2{alu8.lane[0] & alu9.lane[0], alu8.lane[1] & alu9.lane[1]};
  f32x2 alu11 = f32x2{__int_as_float(alu10.lane[0]), __int_as_float(alu10.lane[1])};
  f32x2 alu12 = f32x2{alu3.lane[0] + alu4.lane[0], alu3.lane[1] + alu4.lane[1]};
  f32x2 alu13 = f32x2{alu7.lane[0] ? alu11.lane[0] : alu12.lane[0], alu7.lane[1] ? alu11.lane[1] : alu12.lane[1]};
  f32x2 alu14 = f32x2{alu6.lane[0] ? alu3.lane[0] : alu13.lane[0], alu6.lane[1] ? alu3.lane[1] : alu13.lane[1]};
  f32x2 alu15 = f32x2{alu5.lane[0] ? alu4.lane[0] : alu14.lane[0], alu5.lane[1] ? alu4.lane[1] : alu14.lane[1]};
  float alu16 = alu15.lane[0];
  float alu17 = alu15.lane[1];
  float alu18 = (alu16 == alu17) ? __int_as_float(__float_as_int(alu16) & __float_as_int(alu17)) : (alu16 + alu17);
  buf0[lidx0] = (alu16 < alu17) ? alu17 : ((alu17 < alu16) ? alu16 : alu18);
  __syncthreads();
  int alu19 = alu1 * 16;
  float acc0 = -__int_as_float(0x7f800000);
  for (int ridx0 = 0; ridx0 < 16; ridx0++) {
    float val1 = buf0[alu19 + ridx0];
    float val2 = acc0;
    float alu20 = (val2 == val1) ? __int_as_float(__float_as_int(val2) & __float_as_int(val1)) : (val2 + val1);
    acc0 = (val2 < val1) ? val1 : ((val1 < val2) ? val2 : alu20);
  }
  float val3 = acc0;
  if (alu2) buf1[alu1] = val3;
  __syncthreads();
  float acc1 = -__int_as_float(0x7f800000);
  for (int ridx1 = 0; ridx1 < 8; ridx1++) {
    float val4 = buf1[ridx1];
    float val5 = acc1;
    float alu21 = (val5 == val4) ? __int_as_float(__float_as_int(val5) & __float_as_int(val4)) : (val5 + val4);
    acc1 = (val5 < val4) ? val4 : ((val4 < val5) ? val5 : alu21);
  }
  float val6 = acc1;
  float alu22 = -val6;
  f32x4 alu23 = f32x4{val0.lane[0] + alu22, val0.lane[1] + alu22, val0.lane[2] + alu22, val0.lane[3] + alu22};
  f32x4 alu24 = f32x4{exp2f(alu23.lane[0]), exp2f(alu23.lane[1]), exp2f(alu23.lane[2]), exp2f(alu23.lane[3])};
  f32x2 alu25 = f32x2{alu24.lane[0], alu24.lane[1]};
  f32x2 alu26 = f32x2{alu24.lane[2], alu24.lane[3]};
  f32x2 alu27 = f32x2{alu25.lane[0] + alu26.lane[0], alu25.lane[1] + alu26.lane[1]};
  buf2[lidx0] = alu27.lane[0] + alu27.lane[1];
  __syncthreads();
  float acc2 = 0.0f;
  for (int ridx2 = 0; ridx2 < 16; ridx2++) {
    float val7 = buf2[alu19 + ridx2];
    float val8 = acc2;
    acc2 = val8 + val7;
  }
  float val9 = acc2;
  if (alu2) buf3[alu1] = val9;
  __syncthreads();
  float acc3 = 0.0f;
  for (int ridx3 = 0; ridx3 < 8; ridx3++) {
    float val10 = buf3[ridx3];
    float val11 = acc3;
    acc3 = val11 + val10;
  }
  float val12 = acc3;
  f32x4 alu28 = f32x4{alu24.lane[0] / val12, alu24.lane[1] / val12, alu24.lane[2] / val12, alu24.lane[3] / val12};
  store_lanes(data0 + alu0, alu28);
}
