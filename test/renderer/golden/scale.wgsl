@group(0) @binding(0) var<storage, read_write> data0: array<f32>;
@group(0) @binding(1) var<storage, read> data1: array<f32>;
@compute @workgroup_size(256, 1, 1)
fn scale(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
  let gidx0: i32 = i32(group.x);
  let lidx0: i32 = i32(thread.x);
  let alu0: i32 = (gidx0 * 1024) + (lidx0 * 4);
  let val0: vec4<f32> = vec4<f32>(data1[alu0], data1[alu0 + 1], data1[alu0 + 2], data1[alu0 + 3]);
  let alu1: vec4<f32> = vec4<f32>(2.0f, 2.0f, 2.0f, 2.0f);
  let alu2: vec4<f32> = val0 * alu1;
  let alu3: vec4<f32> = vec4<f32>(1.0f, 1.0f, 1.0f, 1.0f);
  let alu4: vec4<f32> = alu2 + alu3;
  data0[alu0] = alu4[0];
  data0[alu0 + 1] = alu4[1];
  data0[alu0 + 2] = alu4[2];
  data0[alu0 + 3] = alu4[3];
}
