@group(0) @binding(0) var<storage, read_write> data0: array<i32>;
@group(0) @binding(1) var<storage, read_write> data1: array<f32>;
@group(0) @binding(2) var<storage, read> data2: array<i32>;
fn infinity() -> f32 { var bits = 0x7f800000u; return bitcast<f32>(bits); }
@compute @workgroup_size(175, 1, 1)
fn two_nests(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
  let lidx0: i32 = i32(thread.x);
  let alu0: i32 = lidx0 * 4;
  let val0: vec4<i32> = vec4<i32>(data2[alu0], data2[alu0 + 1], data2[alu0 + 2], data2[alu0 + 3]);
  let alu1: vec4<i32> = vec4<i32>(val0[0] / 3, val0[1] / 3, val0[2] / 3, val0[3] / 3);
  let alu2: vec4<i32> = vec4<i32>(alu1[0] * 3, alu1[1] * 3, alu1[2] * 3, alu1[3] * 3);
  let alu3: vec4<i32> = vec4<i32>(- alu2[0], - alu2[1], - alu2[2], - alu2[3]);
  let alu4: vec4<i32> = vec4<i32>(val0[0] + alu3[0], val0[1] + alu3[1], val0[2] + alu3[2], val0[3] + alu3[3]);
  let alu5: vec4<bool> = vec4<bool>(alu4[0] < 0, alu4[1] < 0, alu4[2] < 0, alu4[3] < 0);
  let alu6: vec4<i32> = vec4<i32>(i32(alu5[0]), i32(alu5[1]), i32(alu5[2]), i32(alu5[3]));
  let alu7: vec4<i32> = vec4<i32>(- alu6[0], - alu6[1], - alu6[2], - alu6[3]);
  let alu8: vec4<i32> = vec4<i32>(alu1[0] + alu7[0], alu1[1] + alu7[1], alu1[2] + alu7[2], alu1[3] + alu7[3]);
  data0[alu0] = alu8[0];
  data0[alu0 + 1] = alu8[1];
  data0[alu0 + 2] = alu8[2];
  data0[alu0 + 3] = alu8[3];
  if (lidx0 < 5) { data1[lidx0 % 5] = -infinity(); }
}
