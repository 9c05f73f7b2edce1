"""Fail unless the coverage report (JSON, with branches) shows what the project promises.

python tests/check_coverage.py coverage.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

WHOLE = 95.0  # percent of lines and branches of npgpt/
OPERATIONS = 100.0  # of each operation: the files of npgpt/ops/ but what runs them in threads
THREADS = "threads.py"


def shortfalls(report: dict[str, Any]) -> list[str]:
    """What falls short, one line each."""
    found = []
    if (percent := report["totals"]["percent_covered"]) < WHOLE:
        found.append(f"npgpt/: {percent:.2f} % covered, {WHOLE} % promised")
    for name, file in report["files"].items():
        percent = file["summary"]["percent_covered"]
        path = Path(name)
        if path.parent.name == "ops" and path.name != THREADS and percent < OPERATIONS:
            missing = file["missing_lines"] + file["missing_branches"]
            found.append(f"{name}: {percent:.2f} % covered, all promised; missing {missing}")
    return found


if __name__ == "__main__":
    problems = shortfalls(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print("\n".join(problems) or "coverage is as promised")
    sys.exit(1 if problems else 0)
