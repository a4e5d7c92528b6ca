@group(0) @binding(0) var<storage, read_write> data0: array<f32>;
@group(0) @binding(1) var<storage, read> data1: array<f32>;
var<workgroup> buf1: array<f32, 16>;
var<workgroup> buf0: array<f32, 256>;
@compute @workgroup_size(256, 1, 1)
fn sum_rows(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
  let gidx0: i32 = i32(group.x);
  let lidx0: i32 = i32(thread.x);
  let alu0: i32 = lidx0 & 15;
  let val0: vec4<f32> = vec4<f32>(data1[(gidx0 * 1024) + (lidx0 * 4)], data1[((gidx0 * 1024) + (lidx0 * 4)) + 1], data1[((gidx0 * 1024) + (lidx0 * 4)) + 2], data1[((gidx0 * 1024) + (lidx0 * 4)) + 3]);
  let alu1: vec2<f32> = vec2<f32>(val0[0], val0[1]);
  let alu2: vec2<f32> = vec2<f32>(val0[2], val0[3]);
  let alu3: vec2<f32> = alu1 + alu2;
  buf0[lidx0] = alu3[0] + alu3[1];
  workgroupBarrier();
  var acc0: f32 = 0.0f;
  for (var ridx0: i32 = 0; ridx0 < 16; ridx0++) {
    let val1: f32 = buf0[(alu0 * 16) + ridx0];
    let val2: f32 = acc0;
    acc0 = val2 + val1;
  }
  let val3: f32 = acc0;
  if (lidx0 < 16) { buf1[alu0] = val3; }
  workgroupBarrier();
  var acc1: f32 = 0.0f;
  for (var ridx1: i32 = 0; ridx1 < 16; ridx1++) {
    let val4: f32 = buf1[ridx1];
    let val5: f32 = acc1;
    acc1 = val5 + val4;
  }
  let val6: f32 = acc1;
  if (lidx0 < 1) { data0[gidx0] = val6; }
}
