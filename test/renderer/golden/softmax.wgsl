@group(0) @binding(0) var<storage, read_write> data0: array<f32>;
@group(0) @binding(1) var<storage, read> data1: array<f32>;
var<workgroup> buf1: array<f32, 8>;
var<workgroup> buf0: array<f32, 128>;
var<workgroup> buf3: array<f32, 8>;
var<workgroup> buf2: array<f32, 128>;
fn infinity() -> f32 { var bits = 0x7f800000u; return bitcast<f32>(bits); }
fn largest(x: f32, y: f32) -> f32 {
  let first = bitcast<u32>(x);
  let second = bitcast<u32>(y);
  if ((first & 0x7fffffffu) > 0x7f800000u) { return x; }
  if ((second & 0x7fffffffu) > 0x7f800000u) { return y; }
  if (x == y) { return bitcast<f32>(first & second); }
  return select(x, y, x < y);
}
fn power_of_two(x: f32) -> f32 {
  let bits = bitcast<u32>(x) & 0x7fffffffu;
  if (bits > 0x7f800000u) { return x; }
  var most = 0x7f800000u;
  if (x >= 128.0f) { return bitcast<f32>(most); }
  if (x < -150.0f) { return 0.0f; }
  return exp2(x);
}
@compute @workgroup_size(128, 1, 1)
fn softmax(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
  let gidx0: i32 = i32(group.x);
  let lidx0: i32 = i32(thread.x);
  let alu0: i32 = (gidx0 * 512) + lidx0;
  let alu1: i32 = lidx0 & 7;
  let alu2: bool = lidx0 < 8;
  var acc0: f32 = -infinity();
  for (var ridx0: i32 = 0; ridx0 < 4; ridx0++) {
    let val0: f32 = data1[alu0 + (ridx0 * 128)];
    let val1: f32 = acc0;
    acc0 = largest(val1, val0);
  }
  let val2: f32 = acc0;
  buf0[lidx0] = val2;
  workgroupBarrier();
  let alu3: i32 = alu1 * 16;
  var acc1: f32 = -infinity();
  for (var ridx1: i32 = 0; ridx1 < 16; ridx1++) {
    let val3: f32 = buf0[alu3 + ridx1];
    let val4: f32 = acc1;
    acc1 = largest(val4, val3);
  }
  let val5: f32 = acc1;
  if (alu2) { buf1[alu1] = val5; }
  workgroupBarrier();
  var acc2: f32 = -infinity();
  for (var ridx2: i32 = 0; ridx2 < 8; ridx2++) {
    let val6: f32 = buf1[ridx2];
    let val7: f32 = acc2;
    acc2 = largest(val7, val6);
  }
  let val8: f32 = acc2;
  let alu4: f32 = -val8;
  var acc3: f32 = 0.0f;
  for (var ridx3: i32 = 0; ridx3 < 4; ridx3++) {
    let val9: f32 = data1[alu0 + (ridx3 * 128)];
    let val10: f32 = acc3;
    acc3 = val10 + power_of_two(val9 + alu4);
  }
  let val11: f32 = acc3;
  buf2[lidx0] = val11;
  workgroupBarrier();
  var acc4: f32 = 0.0f;
  for (var ridx4: i32 = 0; ridx4 < 16; ridx4++) {
    let val12: f32 = buf2[alu3 + ridx4];
    let val13: f32 = acc4;
    acc4 = val13 + val12;
  }
  let val14: f32 = acc4;
  if (alu2) { buf3[alu1] = val14; }
  workgroupBarrier();
  var acc5: f32 = 0.0f;
  for (var ridx5: i32 = 0; ridx5 < 8; ridx5++) {
    let val15: f32 = buf3[ridx5];
    let val16: f32 = acc5;
    acc5 = val16 + val15;
  }
  let val17: f32 = acc5;
  for (var ridx6: i32 = 0; ridx6 < 4; ridx6++) {
    let alu5: i32 = alu0 + (ridx6 * 128);
    let val18: f32 = data1[alu5];
    data0[alu5] = power_of_two(val18 + alu4) / val17;
  }
}
