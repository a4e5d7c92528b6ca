@group(0) @binding(0) var<storage, read_write> data0: array<f32>;
@group(0) @binding(1) var<storage, read> data1: array<f32>;
var<workgroup> buf1: array<f32, 8>;
var<workgroup> buf0: array<f32, 128>;
var<workgroup> buf3: array<f32, 8>;
var<workgroup> buf2: array<f32, 128>;
fn infinity() -> f32 { var bits = 0x7f800000u; return bitcast<f32>(bits); }
@compute @workgroup_size(128, 1, 1)
fn softmax(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
  let gidx0: i32 = i32(group.x);
  let lidx0: i32 = i32(thread.x);
  let alu0: i32 = (gidx0 * 512) + (lidx0 * 4);
  let val0: vec4<f32> = vec4<f32>(data1[alu0], data1[alu0 + 1], data1[alu0 + 2], data1[alu0 + 3]);
  let alu1: i32 = lidx0 & 7;
  let alu2: bool = lidx0 < 8;
  let alu3: vec2<f32> = vec2<f32>(val0[0], val0[1]);
  let alu4: vec2<f32> = vec2<f32>(val0[2], val0[3]);
  let alu5: vec2<bool> = vec2<bool>(alu3[0] < alu4[0], alu3[1] < alu4[1]);
  let alu6: vec2<bool> = vec2<bool>(alu4[0] < alu3[0], alu4[1] < alu3[1]);
  let alu7: vec2<bool> = vec2<bool>(alu3[0] == alu4[0], alu3[1] == alu4[1]);
  let alu8: vec2<i32> = vec2<i32>(bitcast<i32>(alu3[0]), bitcast<i32>(alu3[1]));
  let alu9: vec2<i32> = vec2<i32>(bitcast<i32>(alu4[0]), bitcast<i32>(alu4[1]));
  let alu10: vec2<i32> = vec2<i32>(alu8[0] & alu9[0], alu8[1] & alu9[1]);
  let alu11: vec2<f32> = vec2<f32>(bitcast<f32>(alu10[0]), bitcast<f32>(alu10[1]));
  let alu12: vec2<f32> = alu3 + alu4;
  let alu13: vec2<f32> = vec2<f32>(select(alu12[0], alu11[0], alu7[0]), select(alu12[1], alu11[1], alu7[1]));
  let alu14: vec2<f32> = vec2<f32>(select(alu13[0], alu3[0], alu6[0]), select(alu13[1], alu3[1], alu6[1]));
  let alu15: vec2<f32> = vec2<f32>(select(alu14[0], alu4[0], alu5[0]), select(alu14[1], alu4[1], alu5[1]));
  let alu16: f32 = alu15[0];
  let alu17: f32 = alu15[1];
  let alu18: f32 = select(alu16 + alu17, bitcast<f32>(bitcast<i32>(alu16) & bitcast<i32>(alu17)), alu16 == alu17);
  buf0[lidx0] = select(select(alu18, alu16, alu17 < alu16), alu17, alu16 < alu17);
  workgroupBarrier();
  let alu19: i32 = alu1 * 16;
  var acc0: f32 = -infinity();
  for (var ridx0: i32 = 0; ridx0 < 16; ridx0++) {
    let val1: f32 = buf0[alu19 + ridx0];
    let val2: f32 = acc0;
    let alu20: f32 = select(val2 + val1, bitcast<f32>(bitcast<i32>(val2) & bitcast<i32>(val1)), val2 == val1);
    acc0 = select(select(alu20, val2, val1 < val2), val1, val2 < val1);
  }
  let val3: f32 = acc0;
  if (alu2) { buf1[alu1] = val3; }
  workgroupBarrier();
  var acc1: f32 = -infinity();
  for (var ridx1: i32 = 0; ridx1 < 8; ridx1++) {
    let val4: f32 = buf1[ridx1];
    let val5: f32 = acc1;
    let alu21: f32 = select(val5 + val4, bitcast<f32>(bitcast<i32>(val5) & bitcast<i32>(val4)), val5 == val4);
    acc1 = select(select(alu21, val5, val4 < val5), val4, val5 < val4);
  }
  let val6: f32 = acc1;
  let alu22: f32 = -val6;
  let alu23: vec4<f32> = vec4<f32>(alu22, alu22, alu22, alu22);
  let alu24: vec4<f32> = val0 + alu23;
  let alu25: vec4<f32> = vec4<f32>(exp2(alu24[0]), exp2(alu24[1]), exp2(alu24[2]), exp2(alu24[3]));
  let alu26: vec2<f32> = vec2<f32>(alu25[0], alu25[1]);
  let alu27: vec2<f32> = vec2<f32>(alu25[2], alu25[3]);
  let alu28: vec2<f32> = alu26 + alu27;
  buf2[lidx0] = alu28[0] + alu28[1];
  workgroupBarrier();
  var acc2: f32 = 0.0f;
  for (var ridx2: i32 = 0; ridx2 < 16; ridx2++) {
    let val7: f32 = buf2[alu19 + ridx2];
    let val8: f32 = acc2;
    acc2 = val8 + val7;
  }
  let val9: f32 = acc2;
  if (alu2) { buf3[alu1] = val9; }
  workgroupBarrier();
  var acc3: f32 = 0.0f;
  for (var ridx3: i32 = 0; ridx3 < 8; ridx3++) {
    let val10: f32 = buf3[ridx3];
    let val11: f32 = acc3;
    acc3 = val11 + val10;
  }
  let val12: f32 = acc3;
  let alu29: vec4<f32> = vec4<f32>(val12, val12, val12, val12);
  let alu30: vec4<f32> = alu25 / alu29;
  data0[alu0] = alu30[0];
  data0[alu0 + 1] = alu30[1];
  data0[alu0 + 2] = alu30[2];
  data0[alu0 + 3] = alu30[3];
}
