@group(0) @binding(0) var<storage, read_write> data0: array<f32>;
@group(0) @binding(1) var<storage, read> data1: array<f32>;
@group(0) @binding(2) var<storage, read> variables: array<i32>;
@compute @workgroup_size(1, 1, 1)
fn shifted(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
  let n = variables[0];
  let gidx0: i32 = i32(group.x);
  let val0: f32 = data1[gidx0];
  let val1: f32 = select(0.0f, data1[gidx0 + i32(-1)], 0 < gidx0);
  data0[gidx0] = val0 + val1;
}
