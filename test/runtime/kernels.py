"""Kernels written by hand in LLVM IR, in the form that the CPU's runtime calls.

In: nothing. Out: IR text.
Invariant: each is `void name(ptr args, i64 begin, i64 end)`, args in 8-byte slots.
"""

# out[i] = a[i] + b[i] over the values of its variable, not parallel: called with (0, 1).
ADD = """
define void @add(ptr %args, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  %a.p = getelementptr i64, ptr %args, i64 1
  %a = load ptr, ptr %a.p
  %b.p = getelementptr i64, ptr %args, i64 2
  %b = load ptr, ptr %b.p
  %n.p = getelementptr i64, ptr %args, i64 3
  %n = load i64, ptr %n.p
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %a.i = getelementptr float, ptr %a, i64 %i
  %b.i = getelementptr float, ptr %b, i64 %i
  %out.i = getelementptr float, ptr %out, i64 %i
  %x = load float, ptr %a.i
  %y = load float, ptr %b.i
  %z = fadd float %x, %y
  store float %z, ptr %out.i
  %i.next = add i64 %i, 1
  br label %test
done:
  ret void
}
"""

# Adds value + i to out[i], so that an index run twice or never shows.
COUNT = """
define void @count(ptr %args, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  %value.p = getelementptr i64, ptr %args, i64 1
  %value = load i64, ptr %value.p
  br label %test
test:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %out.i = getelementptr i64, ptr %out, i64 %i
  %old = load i64, ptr %out.i
  %sum = add i64 %old, %value
  %new = add i64 %sum, %i
  store i64 %new, ptr %out.i
  %i.next = add i64 %i, 1
  br label %test
done:
  ret void
}
"""

# out[0] = sum of n doubles.
SUM = """
define void @total(ptr %args, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  %a.p = getelementptr i64, ptr %args, i64 1
  %a = load ptr, ptr %a.p
  %n.p = getelementptr i64, ptr %args, i64 2
  %n = load i64, ptr %n.p
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %body ]
  %acc = phi double [ 0.0, %entry ], [ %acc.next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %a.i = getelementptr double, ptr %a, i64 %i
  %x = load double, ptr %a.i
  %acc.next = fadd double %acc, %x
  %i.next = add i64 %i, 1
  br label %test
done:
  store double %acc, ptr %out
  ret void
}
"""


def store_constant(value: int, name: str = "constant") -> str:
    """out[0] = value, through a constant table and an internal function of the module."""
    return f"""
@table = internal constant [2 x i64] [i64 0, i64 {value}]
define internal i64 @find(i64 %i) {{
  %p = getelementptr [2 x i64], ptr @table, i64 0, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}}
define void @{name}(ptr %args, i64 %begin, i64 %end) {{
  %out = load ptr, ptr %args
  %v = call i64 @find(i64 %end)
  store i64 %v, ptr %out
  ret void
}}
"""


# Keeps a core busy for args[0] rounds of some arithmetic and writes the result to out.
BUSY = """
define void @busy(ptr %args, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  %n.p = getelementptr i64, ptr %args, i64 1
  %n = load i64, ptr %n.p
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %acc = phi i64 [ 1, %entry ], [ %acc.next, %loop ]
  %mul = mul i64 %acc, 6364136223846793005
  %acc.next = add i64 %mul, %i
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %loop, label %done
done:
  store i64 %acc.next, ptr %out
  ret void
}
"""

# where the call began, at all of its indices
BEGINS = """
define void @begins(ptr %args, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %place = getelementptr i64, ptr %out, i64 %i
  store i64 %begin, ptr %place
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

# Says in out[0] that it has begun, and goes on until out[1] is not 0.
ENDLESS = """
define void @endless(ptr %args, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  %end.p = getelementptr i64, ptr %out, i64 1
  store volatile i64 1, ptr %out
  br label %loop
loop:
  %asked = load volatile i64, ptr %end.p
  %goes.on = icmp eq i64 %asked, 0
  br i1 %goes.on, label %loop, label %done
done:
  ret void
}
"""
