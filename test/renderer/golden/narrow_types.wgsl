@group(0) @binding(0) var<storage, read_write> data0: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read_write> data1: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> data2: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read> data3: array<u32>;
@group(0) @binding(4) var<storage, read> data4: array<u32>;
@compute @workgroup_size(10, 1, 1)
fn narrow_types(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
  let lidx0: i32 = i32(thread.x);
  let alu0: i32 = lidx0 * 4;
  let val0: vec4<i32> = vec4<i32>(extractBits(bitcast<i32>(data4[u32(alu0) / 4u]), u32(alu0) % 4u * 8u, 8u), extractBits(bitcast<i32>(data4[u32(alu0 + 1) / 4u]), u32(alu0 + 1) % 4u * 8u, 8u), extractBits(bitcast<i32>(data4[u32(alu0 + 2) / 4u]), u32(alu0 + 2) % 4u * 8u, 8u), extractBits(bitcast<i32>(data4[u32(alu0 + 3) / 4u]), u32(alu0 + 3) % 4u * 8u, 8u));
  let alu1: vec4<i32> = vec4<i32>(extractBits(val0[0] * val0[0], 0u, 8u), extractBits(val0[1] * val0[1], 0u, 8u), extractBits(val0[2] * val0[2], 0u, 8u), extractBits(val0[3] * val0[3], 0u, 8u));
  let alu2: vec4<i32> = vec4<i32>(extractBits(alu1[0] + 7, 0u, 8u), extractBits(alu1[1] + 7, 0u, 8u), extractBits(alu1[2] + 7, 0u, 8u), extractBits(alu1[3] + 7, 0u, 8u));
  { let at = u32(alu0); atomicAnd(&data0[at / 4u], ~(255u << (at % 4u * 8u))); atomicOr(&data0[at / 4u], (bitcast<u32>(alu2[0]) & 255u) << (at % 4u * 8u)); }
  { let at = u32(alu0 + 1); atomicAnd(&data0[at / 4u], ~(255u << (at % 4u * 8u))); atomicOr(&data0[at / 4u], (bitcast<u32>(alu2[1]) & 255u) << (at % 4u * 8u)); }
  { let at = u32(alu0 + 2); atomicAnd(&data0[at / 4u], ~(255u << (at % 4u * 8u))); atomicOr(&data0[at / 4u], (bitcast<u32>(alu2[2]) & 255u) << (at % 4u * 8u)); }
  { let at = u32(alu0 + 3); atomicAnd(&data0[at / 4u], ~(255u << (at % 4u * 8u))); atomicOr(&data0[at / 4u], (bitcast<u32>(alu2[3]) & 255u) << (at % 4u * 8u)); }
  let val1: vec4<u32> = vec4<u32>(extractBits(data3[u32(alu0) / 2u], u32(alu0) % 2u * 16u, 16u), extractBits(data3[u32(alu0 + 1) / 2u], u32(alu0 + 1) % 2u * 16u, 16u), extractBits(data3[u32(alu0 + 2) / 2u], u32(alu0 + 2) % 2u * 16u, 16u), extractBits(data3[u32(alu0 + 3) / 2u], u32(alu0 + 3) % 2u * 16u, 16u));
  let alu3: vec4<bool> = vec4<bool>(val1[0] < 1000u, val1[1] < 1000u, val1[2] < 1000u, val1[3] < 1000u);
  { let at = u32(alu0); atomicAnd(&data1[at / 4u], ~(255u << (at % 4u * 8u))); atomicOr(&data1[at / 4u], u32(alu3[0]) << (at % 4u * 8u)); }
  { let at = u32(alu0 + 1); atomicAnd(&data1[at / 4u], ~(255u << (at % 4u * 8u))); atomicOr(&data1[at / 4u], u32(alu3[1]) << (at % 4u * 8u)); }
  { let at = u32(alu0 + 2); atomicAnd(&data1[at / 4u], ~(255u << (at % 4u * 8u))); atomicOr(&data1[at / 4u], u32(alu3[2]) << (at % 4u * 8u)); }
  { let at = u32(alu0 + 3); atomicAnd(&data1[at / 4u], ~(255u << (at % 4u * 8u))); atomicOr(&data1[at / 4u], u32(alu3[3]) << (at % 4u * 8u)); }
  let alu4: vec4<f32> = vec4<f32>(f32(val1[0]), f32(val1[1]), f32(val1[2]), f32(val1[3]));
  let alu5: vec4<u32> = vec4<u32>(bitcast<u32>(alu4[0]), bitcast<u32>(alu4[1]), bitcast<u32>(alu4[2]), bitcast<u32>(alu4[3]));
  let alu6: vec4<u32> = vec4<u32>(alu5[0] & 2147483647u, alu5[1] & 2147483647u, alu5[2] & 2147483647u, alu5[3] & 2147483647u);
  let alu7: vec4<bool> = vec4<bool>(2139095040u < alu6[0], 2139095040u < alu6[1], 2139095040u < alu6[2], 2139095040u < alu6[3]);
  let alu8: vec4<bool> = vec4<bool>(alu6[0] < 947912704u, alu6[1] < 947912704u, alu6[2] < 947912704u, alu6[3] < 947912704u);
  let alu9: vec4<f32> = vec4<f32>(bitcast<f32>(alu6[0]), bitcast<f32>(alu6[1]), bitcast<f32>(alu6[2]), bitcast<f32>(alu6[3]));
  let alu10: vec4<f32> = vec4<f32>(0.5f, 0.5f, 0.5f, 0.5f);
  let alu11: vec4<f32> = alu9 + alu10;
  let alu12: vec4<u32> = vec4<u32>(bitcast<u32>(alu11[0]), bitcast<u32>(alu11[1]), bitcast<u32>(alu11[2]), bitcast<u32>(alu11[3]));
  let alu13: u32 = 0u - bitcast<u32>(0.5f);
  let alu14: vec4<u32> = vec4<u32>(alu12[0] + alu13, alu12[1] + alu13, alu12[2] + alu13, alu12[3] + alu13);
  let alu15: vec4<u32> = vec4<u32>(alu6[0] + 3355443200u, alu6[1] + 3355443200u, alu6[2] + 3355443200u, alu6[3] + 3355443200u);
  let alu16: vec4<u32> = vec4<u32>(alu15[0] + 4095u, alu15[1] + 4095u, alu15[2] + 4095u, alu15[3] + 4095u);
  let alu17: vec4<u32> = vec4<u32>(alu15[0] >> u32(13u), alu15[1] >> u32(13u), alu15[2] >> u32(13u), alu15[3] >> u32(13u));
  let alu18: vec4<u32> = vec4<u32>(alu17[0] & 1u, alu17[1] & 1u, alu17[2] & 1u, alu17[3] & 1u);
  let alu19: vec4<u32> = vec4<u32>(alu16[0] + alu18[0], alu16[1] + alu18[1], alu16[2] + alu18[2], alu16[3] + alu18[3]);
  let alu20: vec4<u32> = vec4<u32>(alu19[0] >> u32(13u), alu19[1] >> u32(13u), alu19[2] >> u32(13u), alu19[3] >> u32(13u));
  let alu21: vec4<u32> = vec4<u32>(select(alu20[0], alu14[0], alu8[0]), select(alu20[1], alu14[1], alu8[1]), select(alu20[2], alu14[2], alu8[2]), select(alu20[3], alu14[3], alu8[3]));
  let alu22: vec4<bool> = vec4<bool>(31743u < alu21[0], 31743u < alu21[1], 31743u < alu21[2], 31743u < alu21[3]);
  let alu23: vec4<u32> = vec4<u32>(select(alu21[0], 31744u, alu22[0]), select(alu21[1], 31744u, alu22[1]), select(alu21[2], 31744u, alu22[2]), select(alu21[3], 31744u, alu22[3]));
  let alu24: vec4<u32> = vec4<u32>(alu5[0] >> u32(31u), alu5[1] >> u32(31u), alu5[2] >> u32(31u), alu5[3] >> u32(31u));
  let alu25: vec4<u32> = vec4<u32>(alu24[0] << u32(15u), alu24[1] << u32(15u), alu24[2] << u32(15u), alu24[3] << u32(15u));
  let alu26: vec4<u32> = vec4<u32>(alu23[0] | alu25[0], alu23[1] | alu25[1], alu23[2] | alu25[2], alu23[3] | alu25[3]);
  let alu27: vec4<u32> = vec4<u32>(select(alu26[0], 32256u, alu7[0]), select(alu26[1], 32256u, alu7[1]), select(alu26[2], 32256u, alu7[2]), select(alu26[3], 32256u, alu7[3]));
  let alu28: vec4<u32> = vec4<u32>(u32(alu27[0]) & 65535u, u32(alu27[1]) & 65535u, u32(alu27[2]) & 65535u, u32(alu27[3]) & 65535u);
  let alu29: vec4<u32> = vec4<u32>(alu28[0], alu28[1], alu28[2], alu28[3]);
  { let at = u32(alu0); atomicAnd(&data2[at / 2u], ~(65535u << (at % 2u * 16u))); atomicOr(&data2[at / 2u], (alu29[0]) << (at % 2u * 16u)); }
  { let at = u32(alu0 + 1); atomicAnd(&data2[at / 2u], ~(65535u << (at % 2u * 16u))); atomicOr(&data2[at / 2u], (alu29[1]) << (at % 2u * 16u)); }
  { let at = u32(alu0 + 2); atomicAnd(&data2[at / 2u], ~(65535u << (at % 2u * 16u))); atomicOr(&data2[at / 2u], (alu29[2]) << (at % 2u * 16u)); }
  { let at = u32(alu0 + 3); atomicAnd(&data2[at / 2u], ~(65535u << (at % 2u * 16u))); atomicOr(&data2[at / 2u], (alu29[3]) << (at % 2u * 16u)); }
}
