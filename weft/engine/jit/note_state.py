"""Which state a run used: what is on the way to it, and what the tensors there are like.

In: a run, and everything that its names led to. Out: the parts of the Run that `state` compares
with what is there at a replay.
Sits above the runs, under `capture`.
Invariant: every way to a thing is noted, so that what was one object is compared as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.engine.jit.arguments import Arguments
from weft.engine.jit.objects import Reachable, child_of
from weft.engine.jit.places import Place
from weft.engine.jit.templates import Label
from weft.engine.jit.tensors import Kind
from weft.engine.jit.trace import Expectation, Run, Tie, labels_in
from weft.tensor import Tensor


class StateNotes:
    """Takes the notes of one run."""

    def __init__(
        self, run: Run, walk: Reachable, arguments: Arguments, places: Sequence[Place]
    ) -> None:
        self.run = run
        self.walk = walk
        self.arguments = arguments
        self.places = places
        self._objects = {walk.labels[id(c)]: c for c in walk.containers}

    def note(
        self,
        groups: dict[Label, Label],
        kinds: dict[Label, Kind],
        descriptions: dict[Label, tuple[Any, ...]],
    ) -> None:
        """Where the state that matters is found, and what has to be on the way there.

        `groups` are the tensors of one storage, `kinds` those that the function can read.
        """
        run = self.run
        used = labels_in([e.roles for e in run.executions], run.result, run.effects)
        used |= {groups[label] for label in used if label in groups}
        run.groups = {k: v for k, v in groups.items() if k in used}
        for label in (*sorted(used, key=repr), *kinds):
            if label.kind == "state":
                self._note_path(label.path)
        self._note_ties()
        for path in run.tree:
            label = Label("state", path)
            if not isinstance(self._objects[path], Tensor):
                continue
            if label in groups and label not in run.groups:
                # of memory that no kernel touches, Python may have asked what it is like
                if label in kinds:
                    run.state[label] = kinds[label]
            elif label in descriptions:
                run.state[label] = descriptions[label]

    def _note_path(self, path: tuple[Any, ...]) -> None:
        for length in range(1, len(path) + 1):
            part = path[:length]
            if part not in self.run.tree:
                expected = self.run.tree[part] = Expectation.of(self._left_at(part))
                if expected.identity is not None:
                    self.run.kept.append(self._objects[part])

    def _left_at(self, path: tuple[Any, ...]) -> Any:
        """What the next call finds in a place, if that is told by what it is like: a function may
        fill a list and put an empty one there. Of other objects, the one that was used."""
        value = self._objects[path]
        if Expectation.of(value).identity is not None:
            return value
        try:
            found = self.places[path[0]].find()[2]
            for key in path[1:]:
                found = child_of(found, key)
        except (LookupError, AttributeError):
            return value
        return value if Expectation.of(found).identity is not None else found

    def _note_ties(self) -> None:
        """Several ways to one thing: each has to lead there again.

        Also for what is not used: that a place holds what it held may be the function's own doing,
        which would not show as a change.
        """
        holding = {
            path[:i] for f in self.walk.found for path in [f.label] for i in range(len(path))
        }
        holding |= {f.label for f in self.walk.found}
        for kind, given in (
            ("argument", self.arguments.tensors),
            ("container", self.arguments.containers),
        ):
            for index, value in enumerate(given):
                path = self.walk.labels.get(id(value))
                if path in holding:
                    self._note_path(path)
                    self.run.ties.append(Tie(path, kind, index))
        by_id = {id(value): path for path, value in self._objects.items()}
        for container, key, child in self.walk.again:
            if by_id[child] in holding:
                self._note_path(by_id[child])
                if container:
                    self._note_path(container)
                self.run.ties.append(Tie(by_id[child], "child", container, key))
