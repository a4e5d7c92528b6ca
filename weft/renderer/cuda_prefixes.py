"""Prefixes of groups in CUDA C: the functions that stand for SCAN and RANK.

In: such UOps of a linear program. Out: templates, and calls of them. Under `cuda.py`, beside
`cuda_fragments.py`; the same steps as in `nvptx_prefixes.py`.
Invariant: all threads of the group come here. The shared memory is the op's own; a barrier stands
before its first use, since the op may run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.dtype import DType
from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops

_INLINE = "static __device__ __forceinline__"
_GROUP = f"""{_INLINE} int group_thread() {{
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}}
{_INLINE} int group_warps() {{ return blockDim.x * blockDim.y * blockDim.z / 32; }}"""
_FOLDS = f"""struct fold_add {{
  template <typename T> {_INLINE} T of(T x, T y) {{ return x + y; }}
}};
struct fold_mul {{
  template <typename T> {_INLINE} T of(T x, T y) {{ return x * y; }}
}};
struct fold_max {{
  template <typename T> {_INLINE} T of(T x, T y) {{
    return x != x ? x : y != y ? y : x > y ? x : y;
  }}
}};"""
_SCAN = f"""template <typename F, int count, typename V, typename T>
{_INLINE} V scan_group(V v, T* shared, T nothing) {{
  T* own = (T*)&v;
  for (int k = 1; k < count; k++) own[k] = F::of(own[k - 1], own[k]);
  int thread = group_thread(), lane = thread & 31, warp = thread >> 5, warps = group_warps();
  T total = own[count - 1];
  for (int distance = 1; distance < 32; distance *= 2) {{
    T more = F::of(__shfl_up_sync(0xffffffffu, total, distance), total);
    if (lane >= distance) total = more;
  }}
  T before = __shfl_up_sync(0xffffffffu, total, 1);
  if (lane == 0) before = nothing;
  if (warps > 1) {{
    __syncthreads();
    if (lane == 31) shared[warp] = total;
    __syncthreads();
    T start = nothing;
    for (int number = 0; number < warp; number++) start = F::of(start, shared[number]);
    before = F::of(start, before);
  }}
  for (int k = 0; k < count; k++) own[k] = F::of(before, own[k]);
  return v;
}}"""
_RANK = f"""template <int bits, int count, typename V>
{_INLINE} V rank_group(V v, unsigned int* shared) {{
  const unsigned int digits = 1u << bits;
  unsigned int* own = (unsigned int*)&v;
  int thread = group_thread(), lane = thread & 31, warp = thread >> 5, warps = group_warps();
  unsigned int ranks[count];
  __syncthreads();
  for (int i = thread; i < warps * digits; i += warps * 32) shared[i] = 0;
  __syncthreads();
  for (int k = 0; k < count; k++) {{
    unsigned int peers = 0xffffffffu;
    for (int bit = 0; bit < bits; bit++) {{
      bool has = (own[k] >> bit) & 1;
      unsigned int votes = __ballot_sync(0xffffffffu, has);
      peers &= has ? votes : ~votes;
    }}
    unsigned int before = __popc(peers & ((1u << lane) - 1));
    unsigned int* place = shared + warp * digits + own[k];
    unsigned int counted = *place;
    __syncwarp();
    if (before == 0) *place = counted + __popc(peers);
    __syncwarp();
    ranks[k] = counted + before;
  }}
  __syncthreads();
  for (int digit = thread; digit < digits; digit += warps * 32) {{
    unsigned int total = 0;
    for (int number = 0; number < warps; number++) {{
      unsigned int part = shared[number * digits + digit];
      shared[number * digits + digit] = total;
      total += part;
    }}
    shared[warps * digits + digit] = total;
  }}
  __syncthreads();
  for (int k = 0; k < count; k++) {{
    unsigned int all = shared[warps * digits + own[k]];
    own[k] = (ranks[k] + shared[warp * digits + own[k]]) | all << 16;
  }}
  return v;
}}"""


_MOVE = f"""template <int count, typename V, typename P, typename T>
{_INLINE} V move_group(V v, P places, T* shared) {{
  T* own = (T*)&v;
  const unsigned int* place = (const unsigned int*)&places;
  int thread = group_thread(), first = (thread >> 5) * 32 * count + (thread & 31);
  __syncthreads();
  for (int k = 0; k < count; k++) shared[first + k * 32] = 0;
  __syncthreads();
  for (int k = 0; k < count; k++) add_shared(shared + place[k], own[k]);
  __syncthreads();
  for (int k = 0; k < count; k++) own[k] = shared[first + k * 32];
  return v;
}}"""
_ADD = f"""template <typename T>
{_INLINE} void add_shared(T* place, T value) {{
  if (sizeof(T) == 8) atomicAdd((unsigned long long*)place, (unsigned long long)value);
  else atomicAdd((unsigned int*)place, (unsigned int)value);
}}"""


def prefix_helpers(uops: Sequence[UOp]) -> list[str]:
    """The functions that a program calls."""
    found = {u.op for u in uops} & {Ops.SCAN, Ops.RANK, Ops.MOVE}
    scan = [_FOLDS, _SCAN] if Ops.SCAN in found else []
    rank = [_RANK] if Ops.RANK in found else []
    move = [_ADD, _MOVE] if Ops.MOVE in found else []
    return [_GROUP, *scan, *rank, *move] if found else []


def prefix_statement(
    uop: UOp, name: str, operands: Sequence[str], type_of: Callable[[DType], str], least: str
) -> str:
    """The statement for a UOp whose value is called `name`; `least` is the least of its dtype."""
    kind, count = type_of(uop.dtype), uop.dtype.count
    value, memory = operands[0], operands[-1]
    if uop.op is Ops.MOVE:
        return f"{kind} {name} = move_group<{count}>({kind}({value}), {operands[1]}, {memory});"
    if uop.op is Ops.RANK:
        return f"{kind} {name} = rank_group<{uop.arg}, {count}, {kind}>({value}, {memory});"
    neutral = OPSET[uop.arg].identity
    scalar = type_of(uop.dtype.scalar())
    nothing = least if neutral is None else f"({scalar}){neutral:g}"
    function = f"scan_group<fold_{uop.arg.name.lower()}, {count}>"
    return f"{kind} {name} = {function}({kind}({value}), {memory}, {nothing});"
