__attribute__((reqd_work_group_size(175, 1, 1)))
__kernel void two_nests(__global int* data0, const ulong start0, __global float* data1, const ulong start1, __global const int* data2, const ulong start2) {
  data0 += start0;
  data1 += start1;
  data2 += start2;
  int lidx0 = get_local_id(0);
  int alu0 = lidx0 * 4;
  int4 val0 = vload4(0, data2 + alu0);
  int4 alu1 = (int4)(val0.s0 / 3, val0.s1 / 3, val0.s2 / 3, val0.s3 / 3);
  int4 alu2 = (int4)(alu1.s0 * 3, alu1.s1 * 3, alu1.s2 * 3, alu1.s3 * 3);
  int4 alu3 = (int4)(-alu2.s0, -alu2.s1, -alu2.s2, -alu2.s3);
  int4 alu4 = (int4)((int)((uint)val0.s0 + (uint)alu3.s0), (int)((uint)val0.s1 + (uint)alu3.s1), (int)((uint)val0.s2 + (uint)alu3.s2), (int)((uint)val0.s3 + (uint)alu3.s3));
  uchar4 alu5 = (uchar4)(alu4.s0 < 0, alu4.s1 < 0, alu4.s2 < 0, alu4.s3 < 0);
  int4 alu6 = (int4)((int)alu5.s0, (int)alu5.s1, (int)alu5.s2, (int)alu5.s3);
  int4 alu7 = (int4)(-alu6.s0, -alu6.s1, -alu6.s2, -alu6.s3);
  int4 alu8 = (int4)(alu1.s0 + alu7.s0, alu1.s1 + alu7.s1, alu1.s2 + alu7.s2, alu1.s3 + alu7.s3);
  vstore4(alu8, 0, data0 + alu0);
  if (lidx0 < 5) data1[lidx0 % 5] = -INFINITY;
}
