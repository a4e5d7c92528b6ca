"""The messages of an ONNX file, as a table: numbers, names and kinds of their fields.

In: nothing. Out: `SCHEMA`. Sits beside `protobuf`, which reads by it. The numbers are facts of
onnx.proto (IR version 13); what is not listed (documentation, metadata of nodes) is skipped.
"""

from __future__ import annotations

from weft.graphs.protobuf import Field, Schema


def _fields(**rows: tuple[int, str] | tuple[int, str, bool]) -> dict[int, Field]:
    return {
        row[0]: Field(name, row[1], row[2] if len(row) == 3 else row[1] in ("ints", "floats"))
        for name, row in rows.items()
    }


MANY = True

SCHEMA: Schema = {
    "model": _fields(
        ir_version=(1, "int"),
        producer_name=(2, "text"),
        producer_version=(3, "text"),
        domain=(4, "text"),
        model_version=(5, "int"),
        doc_string=(6, "text"),
        graph=(7, "graph"),
        opset_import=(8, "opset", MANY),
        metadata_props=(14, "entry", MANY),
        functions=(25, "function", MANY),
    ),
    "opset": _fields(domain=(1, "text"), version=(2, "int")),
    "entry": _fields(key=(1, "text"), value=(2, "text")),
    "graph": _fields(
        node=(1, "node", MANY),
        name=(2, "text"),
        initializer=(5, "tensor", MANY),
        input=(11, "value_info", MANY),
        output=(12, "value_info", MANY),
        value_info=(13, "value_info", MANY),
        sparse_initializer=(15, "sparse", MANY),
    ),
    "node": _fields(
        input=(1, "text", MANY),
        output=(2, "text", MANY),
        name=(3, "text"),
        op_type=(4, "text"),
        attribute=(5, "attribute", MANY),
        domain=(7, "text"),
        overload=(8, "text"),
    ),
    "attribute": _fields(
        name=(1, "text"),
        f=(2, "float"),
        i=(3, "int"),
        s=(4, "bytes"),
        t=(5, "tensor"),
        g=(6, "graph"),
        floats=(7, "floats"),
        ints=(8, "ints"),
        strings=(9, "bytes", MANY),
        tensors=(10, "tensor", MANY),
        graphs=(11, "graph", MANY),
        tp=(14, "type"),
        type=(20, "int"),
        ref_attr_name=(21, "text"),
        sparse_tensor=(22, "sparse"),
    ),
    "tensor": _fields(
        dims=(1, "ints"),
        data_type=(2, "int"),
        float_data=(4, "numbers"),
        int32_data=(5, "numbers"),
        string_data=(6, "bytes", MANY),
        int64_data=(7, "numbers"),
        name=(8, "text"),
        raw_data=(9, "span"),
        double_data=(10, "numbers"),
        uint64_data=(11, "numbers"),
        external_data=(13, "entry", MANY),
        data_location=(14, "int"),
    ),
    "sparse": _fields(values=(1, "tensor"), indices=(2, "tensor"), dims=(3, "ints")),
    "value_info": _fields(name=(1, "text"), type=(2, "type")),
    "type": _fields(
        tensor_type=(1, "tensor_type"),
        sequence_type=(4, "inner_type"),
        map_type=(5, "map_type"),
        sparse_tensor_type=(8, "tensor_type"),
        optional_type=(9, "inner_type"),
    ),
    "tensor_type": _fields(elem_type=(1, "int"), shape=(2, "shape")),
    "inner_type": _fields(elem_type=(1, "type")),
    "map_type": _fields(key_type=(1, "int"), value_type=(2, "type")),
    "shape": _fields(dim=(1, "dim", MANY)),
    "dim": _fields(dim_value=(1, "int"), dim_param=(2, "text")),
    "function": _fields(
        name=(1, "text"),
        input=(4, "text", MANY),
        output=(5, "text", MANY),
        attribute=(6, "text", MANY),
        node=(7, "node", MANY),
        opset_import=(9, "opset", MANY),
        domain=(10, "text"),
        attribute_proto=(11, "attribute", MANY),
        overload=(13, "text"),
    ),
}
