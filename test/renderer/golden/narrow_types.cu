struct __align__(8) b8x8 { bool lane[8]; };
struct __align__(16) f32x8 { float lane[8]; };
struct __align__(8) i8x8 { signed char lane[8]; };
struct __align__(16) u16x8 { unsigned short lane[8]; };
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
extern "C" __global__ void __launch_bounds__(5) narrow_types(const unsigned long long* words, signed char* data0, bool* data1, unsigned short* data2, const unsigned short* data3, const signed char* data4) {
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
  int alu0 = lidx0 * 8;
  i8x8 val0 = load_lanes<i8x8>(data4 + alu0);
  i8x8 alu1 = i8x8{(signed char)((unsigned int)val0.lane[0] * (unsigned int)val0.lane[0]), (signed char)((unsigned int)val0.lane[1] * (unsigned int)val0.lane[1]), (signed char)((unsigned int)val0.lane[2] * (unsigned int)val0.lane[2]), (signed char)((unsigned int)val0.lane[3] * (unsigned int)val0.lane[3]), (signed char)((unsigned int)val0.lane[4] * (unsigned int)val0.lane[4]), (signed char)((unsigned int)val0.lane[5] * (unsigned int)val0.lane[5]), (signed char)((unsigned int)val0.lane[6] * (unsigned int)val0.lane[6]), (signed char)((unsigned int)val0.lane[7] * (unsigned int)val0.lane[7])};
  i8x8 alu2 = i8x8{(signed char)((unsigned int)alu1.lane[0] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[1] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[2] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[3] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[4] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[5] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[6] + (unsigned int)7), (signed char)((unsigned int)alu1.lane[7] + (unsigned int)7)};
  store_lanes(data0 + alu0, alu2);
  u16x8 val1 = load_lanes<u16x8>(data3 + alu0);
  b8x8 alu3 = b8x8{val1.lane[0] < 1000, val1.lane[1] < 1000, val1.lane[2] < 1000, val1.lane[3] < 1000, val1.lane[4] < 1000, val1.lane[5] < 1000, val1.lane[6] < 1000, val1.lane[7] < 1000};
  store_lanes(data1 + alu0, alu3);
  f32x8 alu4 = f32x8{(float)val1.lane[0], (float)val1.lane[1], (float)val1.lane[2], (float)val1.lane[3], (float)val1.lane[4], (float)val1.lane[5], (float)val1.lane[6], (float)val1.lane[7]};
  u16x8 alu5 = u16x8{float_to_half(alu4.lane[0]), float_to_half(alu4.lane[1]), float_to_half(alu4.lane[2]), float_to_half(alu4.lane[3]), float_to_half(alu4.lane[4]), float_to_half(alu4.lane[5]), float_to_half(alu4.lane[6]), float_to_half(alu4.lane[7])};
  store_lanes(data2 + alu0, alu5);
}
