struct __align__(4) b8x4 { bool lane[4]; };
struct __align__(16) f32x4 { float lane[4]; };
struct __align__(4) i8x4 { signed char lane[4]; };
struct __align__(8) u16x4 { unsigned short lane[4]; };
static __device__ __forceinline__ unsigned short float_to_half(float x) { unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
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
extern "C" __global__ void __launch_bounds__(10) narrow_types(const unsigned long long* words, signed char* data0, bool* data1, unsigned short* data2, const unsigned short* data3, const signed char* data4) {
  if (words) {
    data0 = (signed char*)(words[(unsigned long long)data0 >> 44] + ((unsigned long long)data0 & 0xfffffffffff));
    data1 = (bool*)(words[(unsigned long long)data1 >> 44] + ((unsigned long long)data1 & 0xfffffffffff));
    data2 = (unsigned short*)(words[(unsigned long long)data2 >> 44] + ((unsigned long long)data2 & 0xfffffffffff));
    data3 = (const unsigned short*)(words[(unsigned long long)data3 >> 44] + ((unsigned long long)data3 & 0xfffffffffff));
    data4 = (const signed char*)(words[(unsigned long long)data4 >> 44] + ((unsigned long long)data4 & 0xfffffffffff));
  }
  __builtin_assume(__isGlobal(data0));
  __builtin_assume(__isGlobal(data1));
  __builtin_assume(__isGlobal(data2));
  __builtin_assume(__isGlobal(data3));
  __builtin_assume(__isGlobal(data4));
  int lidx0 = threadIdx.x;
  int alu0 = lidx0 * 4;
  i8x4 val0 = load_lanes<i8x4>(data4 + alu0);
  i8x4 alu1 = i8x4{(signed char)((unsigned int)val0.lane[0] * (unsigned int)val0.lane[0]), (signed char)((unsigned int)val0.lane[1] * (unsigned int)val0.lane[1]), (signed char)((unsigned int)val0.lane[2] * (unsigned int)val0.lane[2]), (signed char)((unsigned int)val0.lane[3] * (unsigned int)val0.lane[3])};
  i8x4 alu2 = i8x4{(signed char)((unsigned int)alu1.lane[0] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[1] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[2] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[3] + (unsigned int)7)};
  store_lanes(data0 + alu0, alu2);
  u16x4 val1 = load_lanes<u16x4>(data3 + alu0);
  b8x4 alu3 = b8x4{val1.lane[0] < 1000, val1.lane[1] < 1000, val1.lane[2] < 1000, val1.lane[3] < 1000};
  store_lanes(data1 + alu0, alu3);
  f32x4 alu4 = f32x4{(float)val1.lane[0], (float)val1.lane[1], (float)val1.lane[2], (float)val1.lane[3]};
  u16x4 alu5 = u16x4{float_to_half(alu4.lane[0]), float_to_half(alu4.lane[1]), float_to_half(alu4.lane[2]), float_to_half(alu4.lane[3])};
  store_lanes(data2 + alu0, alu5);
}
