#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(1)]]
kernel void shifted(device float* data0 [[buffer(0)]], const device float* data1 [[buffer(1)]], constant int& n [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]], uint3 thread_index [[thread_position_in_threadgroup]]) {
  int gidx0 = group.x;
  float val0 = data1[gidx0];
  float val1 = (0 < gidx0) ? data1[gidx0 + -1] : 0.0f;
  data0[gidx0] = val0 + val1;
}
