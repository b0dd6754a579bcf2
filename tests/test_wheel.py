"""The wheel as it is installed: all that is needed is in it, and nothing of the tree."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_works_on_its_own(tmp_path: Path) -> None:
    """The unpacked wheel has migrations, skill, types and scripts, and runs."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=ROOT, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(site)
    assert not [n for n in names if n.startswith(("tests", "bench", "vitest"))]
    assert {
        "eventq/py.typed",
        "eventq/migrations/sqlite/0001_thread.sql",
        "eventq/skill/eventq/SKILL.md",
    } <= set(names)
    assert {os.path.basename(n) for n in names if ".data/scripts/" in n} == {"eventq", "thread"}
    script = (
        "import eventq, os; from eventq.storage import migrations;"
        "assert migrations.folder('sqlite').endswith(os.path.join('site', 'eventq', 'migrations', 'sqlite'));"
        "t = eventq.open('t', create=True); print(t.push('self', 'record', 'x').id, t.check())"
    )
    path = [str(site), *(p for p in sys.path if "site-packages" in p)]
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", f"import sys; sys.path[:0] = {path!r}; {script}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("1 []\n", "")
