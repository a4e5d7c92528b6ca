"""The programs are no tests: `runner.py` executes them, and collecting them would too."""

from pathlib import Path

collect_ignore = [
    path.name for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_")
]
