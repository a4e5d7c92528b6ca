"""Helpers of branches, ends and barriers, and the function that runs a grid of groups.

In: a `Form`, or nothing. Out: text. On top of `text.py`.
Invariant: a wave that waits at a barrier goes on when all waves of its group that have not ended
wait too. A jump goes to the beginning of an instruction or stops the wave.
"""

from __future__ import annotations

from weft.runtime.amd import state
from weft.runtime.amd.forms import Form
from weft.runtime.amd.text import ATTRIBUTES, HelperText

_TESTS = {
    "s_cbranch_scc0": ("scc", "eq"),
    "s_cbranch_scc1": ("scc", "ne"),
    "s_cbranch_vccz": ("vcc", "eq"),
    "s_cbranch_vccnz": ("vcc", "ne"),
    "s_cbranch_execz": ("exec", "eq"),
    "s_cbranch_execnz": ("exec", "ne"),
}
BRANCHES = frozenset({"s_branch", *_TESTS})


def write_branch(form: Form) -> str:
    """The record's pointer is the target; a jump backwards takes from the wave's budget."""
    text = HelperText(form.lanes)
    target = text.emit(f"load ptr, ptr {text.place(state.POINTER, '%record')}, align 8")
    after = text.place(state.RECORD_BYTES, "%record")
    (is_back,) = form.extra
    test = _TESTS.get(form.name)
    if test is not None:
        what, how = test
        if what == "scc":
            taken = text.emit(f"icmp {how} i32 {text.load_state(state.SCC, 'i32')}, 0")
        else:
            offset = 4 * (state.VCC if what == "vcc" else state.EXEC)
            value = text.load_state(offset, text.mask_type)
            taken = text.emit(f"icmp {how} {text.mask_type} {value}, 0")
        target = text.emit(f"select i1 {taken}, ptr {target}, ptr {after}")
    if is_back:
        left = text.emit(f"sub i64 {text.load_state(state.BUDGET, 'i64')}, 1")
        text.store_state(state.BUDGET, "i64", left)
        more = text.emit(f"icmp sgt i64 {left}, 0")
        text.lines.append(f"  br i1 {more}, label %on, label %out")
        text.label("out")
        text.stop(state.OUT_OF_BUDGET)
        text.label("on")
    text.jump(target)
    return text.module("helper")


def write_stop(form: Form) -> str:
    """An end, a barrier, a breakpoint, or what the emulator does not know."""
    text = HelperText(form.lanes)
    (status,) = form.extra
    after = text.place(state.RECORD_BYTES, "%record")
    if status == state.AT_BARRIER:
        before = text.load_state(state.BARRIERS, "i64")
        text.store_state(state.BARRIERS, "i64", text.emit(f"add i64 {before}, 1"))
    text.stop(int(str(status)), after)
    return text.module("helper")


def write_count(form: Form) -> str:
    """Adds 1 to the number in the record: how often a block of instructions was entered."""
    text = HelperText(form.lanes)
    place = text.place(state.WORDS, "%record")
    before = text.emit(f"load i64, ptr {place}, align 8")
    text.lines.append(f"  store i64 {text.emit(f'add i64 {before}, 1')}, ptr {place}, align 8")
    return text.finish("helper")


def write_trace(form: Form) -> str:
    """Notes a wave and a line: 16 bytes at the cursor, which stays at the end when it is there."""
    text = HelperText(form.lanes)
    block = text.load_state(state.TRACE, "ptr")
    at = text.emit(f"load i64, ptr {block}, align 8")
    end = text.emit(f"load i64, ptr {text.place(8, block)}, align 8")
    entry = text.emit(f"inttoptr i64 {at} to ptr")
    text.lines.append(f"  store ptr {text.place(0)}, ptr {entry}, align 8")
    text.lines.append(f"  store i64 {text.word(0, 'i64')}, ptr {text.place(8, entry)}, align 8")
    is_room = text.emit(f"icmp ult i64 {at}, {end}")
    following = text.emit(f"add i64 {at}, 16")
    goes_on = text.emit(f"select i1 {is_room}, i64 {following}, i64 {at}")
    text.lines.append(f"  store i64 {goes_on}, ptr {block}, align 8")
    return text.finish("helper")


def write_jump(form: Form) -> str:
    """s_getpc, s_setpc, s_swappc and s_call: addresses are those of the code in memory."""
    text = HelperText(form.lanes)
    name = form.name
    if name != "s_setpc_b64":
        following = text.word(0, "i64")
        here = text.emit(f"add i64 {text.load_state(state.CODE, 'i64')}, {following}")
    if name == "s_getpc_b64":
        text.write_scalar(2, 64, here)
        return text.finish("helper")
    if name == "s_call_b64":
        text.write_scalar(2, 64, here)
        target = text.emit(f"load ptr, ptr {text.place(state.POINTER, '%record')}, align 8")
        _spend(text)
        text.jump(target)
        return text.module("helper")
    address = text.read_scalar(3, 64)
    if name == "s_swappc_b64":
        text.write_scalar(2, 64, here)
    offset = text.emit(f"sub i64 {address}, {text.load_state(state.CODE, 'i64')}")
    size = text.load_state(state.CODE_BYTES, "i64")
    inside = text.emit(f"icmp ult i64 {offset}, {size}")
    aligned = text.emit(f"icmp eq i64 {text.emit(f'and i64 {offset}, 3')}, 0")
    okay = text.emit(f"and i1 {inside}, {aligned}")
    text.lines.append(f"  br i1 {okay}, label %known, label %bad")
    text.label("known")
    table = text.load_state(state.RECORD_OF_WORD, "ptr")
    place = text.emit(f"getelementptr i32, ptr {table}, i64 {text.emit(f'lshr i64 {offset}, 2')}")
    number = text.emit(f"load i32, ptr {place}, align 4")
    start = text.emit(f"icmp ne i32 {number}, -1")
    text.lines.append(f"  br i1 {start}, label %go, label %bad")
    text.label("bad")
    text.store_state(state.FAULT_ADDRESS, "i64", address)
    text.stop(state.BAD_JUMP)
    text.label("go")
    _spend(text)
    records = text.load_state(state.RECORDS, "ptr")
    wide = text.emit(f"zext i32 {number} to i64")
    at = text.emit(f"mul i64 {wide}, {state.RECORD_BYTES}")
    text.jump(text.place(at, records))
    return text.module("helper")


def _spend(text: HelperText) -> None:
    left = text.emit(f"sub i64 {text.load_state(state.BUDGET, 'i64')}, 1")
    text.store_state(state.BUDGET, "i64", left)
    more = text.emit(f"icmp sgt i64 {left}, 0")
    text.lines.append(f"  br i1 {more}, label %paid, label %out")
    text.label("out")
    text.stop(state.OUT_OF_BUDGET)
    text.label("paid")


# ------------------------------------------------------------ a grid
# what a launch holds, in words of 8 bytes
LAUNCH_WORDS = (
    "groups_x", "groups_y", "groups_z", "waves", "states", "state_bytes", "template",
    "vectors", "vector_bytes", "masks", "first", "id_x", "id_y", "id_z", "id_packed", "at_x",
    "at_y", "at_z", "head_bytes",
)  # fmt: skip


def launch_function() -> str:
    """The module of `launch`: runs groups one after another; 0, or 1 where a wave stopped.

    A wave begins as the template says: scalars and the fields after them, its mask, its first
    vector registers, and the group's numbers where the kernel wants them.
    """
    fields = []
    for number, name in enumerate(LAUNCH_WORDS):
        fields.append(f"  %{name}.at = getelementptr i64, ptr %launch, i64 {number}")
        fields.append(f"  %{name} = load i64, ptr %{name}.at")
    return "\n".join([*_LAUNCH_HEAD, *fields, _LAUNCH_BODY, ATTRIBUTES, ""])


_LAUNCH_HEAD = ["define i32 @launch(ptr %launch) #0 {", "entry:"]
_LAUNCH_BODY = f"""  %states.p = inttoptr i64 %states to ptr
  %template.p = inttoptr i64 %template to ptr
  %vectors.p = inttoptr i64 %vectors to ptr
  %masks.p = inttoptr i64 %masks to ptr
  br label %group
group:
  %x = phi i64 [ 0, %entry ], [ %x.next, %advance ]
  %y = phi i64 [ 0, %entry ], [ %y.next, %advance ]
  %z = phi i64 [ 0, %entry ], [ %z.next, %advance ]
  store i64 %x, ptr %at_x.at
  store i64 %y, ptr %at_y.at
  store i64 %z, ptr %at_z.at
  br label %begin
begin:
  %w = phi i64 [ 0, %group ], [ %w.next, %begun ]
  %s.off = mul i64 %w, %state_bytes
  %s = getelementptr i8, ptr %states.p, i64 %s.off
  call void @llvm.memcpy.p0.p0.i64(ptr %s, ptr %template.p, i64 %head_bytes, i1 false)
  %m.p = getelementptr i64, ptr %masks.p, i64 %w
  %m = load i64, ptr %m.p
  %e.p = getelementptr i8, ptr %s, i64 {4 * state.EXEC}
  store i64 %m, ptr %e.p
  %v.off = mul i64 %w, %vector_bytes
  %v.from = getelementptr i8, ptr %vectors.p, i64 %v.off
  %v.to = getelementptr i8, ptr %s, i64 {state.VGPRS}
  call void @llvm.memcpy.p0.p0.i64(ptr %v.to, ptr %v.from, i64 %vector_bytes, i1 false)
  %scr.p = getelementptr i8, ptr %s, i64 {state.SCRATCH}
  %scr = load i64, ptr %scr.p
  %scr.n = getelementptr i8, ptr %s, i64 {state.SCRATCH_BYTES}
  %scr.b = load i64, ptr %scr.n
  %scr.w = mul i64 %scr.b, %w
  %scr.l = mul i64 %scr.w, 64
  %scr.own = add i64 %scr, %scr.l
  store i64 %scr.own, ptr %scr.p
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  %ix.p = getelementptr i8, ptr %s, i64 %id_x
  store i32 %x32, ptr %ix.p
  %iy.p = getelementptr i8, ptr %s, i64 %id_y
  store i32 %y32, ptr %iy.p
  %iz.p = getelementptr i8, ptr %s, i64 %id_z
  store i32 %z32, ptr %iz.p
  %z16 = shl i32 %z32, 16
  %yz = or i32 %z16, %y32
  %packed = icmp ne i64 %id_packed, 0
  br i1 %packed, label %pack, label %begun
pack:
  %ip.p = getelementptr i8, ptr %s, i64 %id_packed
  store i32 %yz, ptr %ip.p
  br label %begun
begun:
  %n.p = getelementptr i8, ptr %s, i64 {state.NEXT}
  store i64 %first, ptr %n.p
  %w.next = add i64 %w, 1
  %w.more = icmp ult i64 %w.next, %waves
  br i1 %w.more, label %begin, label %round
round:
  br label %turn
turn:
  %t = phi i64 [ 0, %round ], [ %t.next, %turned ]
  %alive = phi i1 [ false, %round ], [ %alive.next, %turned ]
  %t.off = mul i64 %t, %state_bytes
  %ts = getelementptr i8, ptr %states.p, i64 %t.off
  %st.p = getelementptr i8, ptr %ts, i64 {state.STATUS}
  %st = load i64, ptr %st.p
  %over = icmp eq i64 %st, {state.ENDED}
  br i1 %over, label %turned, label %run
run:
  store i64 {state.RUNNING}, ptr %st.p
  %tn.p = getelementptr i8, ptr %ts, i64 {state.NEXT}
  %record = load ptr, ptr %tn.p
  %helper = load ptr, ptr %record
  call void %helper(ptr %ts, ptr %record)
  %st.now = load i64, ptr %st.p
  %waits = icmp eq i64 %st.now, {state.AT_BARRIER}
  %ends = icmp eq i64 %st.now, {state.ENDED}
  %okay = or i1 %waits, %ends
  br i1 %okay, label %turned, label %stopped
turned:
  %goes = phi i1 [ false, %turn ], [ %waits, %run ]
  %alive.next = or i1 %alive, %goes
  %t.next = add i64 %t, 1
  %t.more = icmp ult i64 %t.next, %waves
  br i1 %t.more, label %turn, label %rounded
rounded:
  br i1 %alive.next, label %round, label %advance
stopped:
  ret i32 1
advance:
  %x.up = add i64 %x, 1
  %x.wrap = icmp uge i64 %x.up, %groups_x
  %x.next = select i1 %x.wrap, i64 0, i64 %x.up
  %y.add = zext i1 %x.wrap to i64
  %y.up = add i64 %y, %y.add
  %y.wrap = icmp uge i64 %y.up, %groups_y
  %y.next = select i1 %y.wrap, i64 0, i64 %y.up
  %z.add = zext i1 %y.wrap to i64
  %z.next = add i64 %z, %z.add
  %z.done = icmp uge i64 %z.next, %groups_z
  br i1 %z.done, label %finished, label %group
finished:
  ret i32 0
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
