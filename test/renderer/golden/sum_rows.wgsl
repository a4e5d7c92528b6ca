@group(0) @binding(0) var<storage, read_write> data0: array<f32>;
@group(0) @binding(1) var<storage, read> data1: array<f32>;
var<workgroup> buf1: array<f32, 16>;
var<workgroup> buf0: array<f32, 256>;
@compute @workgroup_size(256, 1, 1)
fn sum_rows(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
  let gidx0: i32 = i32(group.x);
  let lidx0: i32 = i32(thread.x);
  let alu0: i32 = lidx0 & 15;
  var acc0: f32 = 0.0f;
  for (var ridx0: i32 = 0; ridx0 < 4; ridx0++) {
    let val0: f32 = data1[((gidx0 * 1024) + lidx0) + (ridx0 * 256)];
    let val1: f32 = acc0;
    acc0 = val1 + val0;
  }
  let val2: f32 = acc0;
  buf0[lidx0] = val2;
  workgroupBarrier();
  var acc1: f32 = 0.0f;
  for (var ridx1: i32 = 0; ridx1 < 16; ridx1++) {
    let val3: f32 = buf0[(alu0 * 16) + ridx1];
    let val4: f32 = acc1;
    acc1 = val4 + val3;
  }
  let val5: f32 = acc1;
  if (lidx0 < 16) { buf1[alu0] = val5; }
  workgroupBarrier();
  var acc2: f32 = 0.0f;
  for (var ridx2: i32 = 0; ridx2 < 16; ridx2++) {
    let val6: f32 = buf1[ridx2];
    let val7: f32 = acc2;
    acc2 = val7 + val6;
  }
  let val8: f32 = acc2;
  if (lidx0 < 1) { data0[gidx0] = val8; }
}
