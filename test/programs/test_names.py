"""Every public name of tinygrad's API is there, but for those that are listed with why not."""

from __future__ import annotations

import json

import pytest

from test.programs import names

WANTED: dict[str, list[str]] = json.loads(names.RECORD.read_text(encoding="utf-8"))

# what is not there: of several devices, of tinygrad's inside, of its devices
ABSENT: dict[str, str] = {
    "helpers": "CACHEDB START_TIME T U VERSION amdgpu_disassemble capstone_flatdump cpu_objdump "
    "db_connection fetch_fw get_stacktrace lines select_by_name select_first_inited to_char_p_p",
    "dtype": "DTypeMetaClass",
    "dtype.DType": "new",
    "nn.state": "CHUNK_SIZE fs_load fs_store",
    "nn.BatchNorm": "calc_stats",
    "uop.ops": "BottomUpGate CallInfo ProgramInfo RewriteContext RewriteTrace SENTINEL "
    "TYPE_CHECKING TrackedGraphRewrite UOpMetaClass add_trace_group deconstruct_function "
    "dtype_from_uop gate_kernel_sink pm_contiguous_view_offset recursive_property safe_exp2 "
    "safe_pow shape_to_shape_arg upat_deferred_compile upat_interpret",
    "tensor.Tensor": "as_param call decode_hevc_frame image_conv2d image_dot",
    "uop.ops.UOp": "allreduce as_shape bool_slice bufferize call contract custom_function "
    "ended_ranges f from_buffer getaddr gettuple image_conv2d image_dot ins is_virtual loop "
    "maketuple max_shard_shape mselect mstack param_like pyrender shard shard_shape sharding "
    "to_elf trace_num unique_num unshard unsharded_base wmma",
    # there an op is an int
    "uop.ops.Ops": "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag "
    "numerator real to_bytes",
    "device.Buffer": "get_buf profile_events ref trace_num uop_refcount",
    "device.Device": "get_class",
    "device.Compiled": "count finalize has_copy_queue ifaces pm_bufferize pm_lower profile_events",
    "codegen.opt.OptOps": "GROUPTOP NOLOCALS",
    "renderer.Renderer": "asm compiler extra_matcher global_prod_max",
}


@pytest.mark.parametrize("place", WANTED)
def test_names_of_a_place_are_there(place: str) -> None:
    found = names.thing(place, "weft")
    missing = [name for name in WANTED[place] if not hasattr(found, name)]
    assert missing == ABSENT.get(place, "").split()
