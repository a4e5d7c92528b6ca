"""From a linear program to the text of a target; decides nothing."""

from weft.renderer.base import ProgramSpec, Renderer, Target

__all__ = ["ProgramSpec", "Renderer", "Target"]
