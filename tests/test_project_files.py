"""Files that only other programs read: GitHub's workflows and forms.

The kind: a file that nothing here runs, and that is wrong when it is needed. YAML that does not
parse, a target or a file that was renamed, a version of Python that is promised and not tried, a
right that a job does not need, an action that changes under its name, a release of another version
than its tag says.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import eventq

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [GITHUB / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "idea.yml")]


def loaded(path: Path) -> Any:
    """Return the values of a YAML file."""
    return yaml.safe_load(path.read_text())


def steps(workflow: Any) -> list[Any]:
    """Return the steps of all jobs."""
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_can_do_what_it_says(path: Path) -> None:
    """Its targets exist, its actions have a major version, and it may only read by default."""
    workflow = loaded(path)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for step in steps(workflow):
        for target in re.findall(r"^make ([\w-]+)", step.get("run", ""), re.MULTILINE):
            assert target in targets
        assert re.search(r"@(v\d+|release/v1)$", step.get("uses", "x@v1")), step
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        assert "uses" in job or "timeout-minutes" in job, name
        assert "write" not in str(job.get("permissions", "")) or name == "publish"


def test_each_version_of_python_is_tried() -> None:
    """CI runs what `.ci/run` runs on each version that the package names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={named[0]}"
    workflow = loaded(GITHUB / "workflows/ci.yml")
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    run = re.findall(r"^make ([\w-]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    run_there = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    assert run_there == [f"make {target}" for target in run]


def test_only_a_tag_of_this_version_is_released(tmp_path: Path) -> None:
    """A tag that is not the version, or a version without a section of CHANGELOG.md, ends it."""
    workflow = loaded(GITHUB / "workflows/release.yml")
    assert workflow[True]["push"] == {"tags": ["v*"]}  # YAML 1.1 reads `on` as a truth
    assert set(workflow["jobs"]["publish"]["needs"]) == workflow["jobs"].keys() - {"publish"}
    assert workflow["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    (script,) = (step["run"] for step in steps(workflow) if "tag" in step.get("name", ""))
    (tmp_path / "eventq").mkdir()
    (tmp_path / "eventq/__init__.py").write_text((ROOT / "eventq/__init__.py").read_text())

    def ends(tag: str, changes: str) -> tuple[int, str]:
        (tmp_path / "CHANGELOG.md").write_text(changes)
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True,
            env={"PATH": os.environ["PATH"], "GITHUB_REF_NAME": tag},
        )  # fmt: skip
        return done.returncode, done.stdout

    now = eventq.__version__
    assert ends(f"v{now}", f"# Changelog\n\n## [{now}] - 2026-01-01\n") == (0, "")
    for tag in (now, f"v{now}.1", "v"):
        assert ends(tag, f"## [{now}]\n") == (
            1, f"::error::the tag is {tag} and eventq/__init__.py says {now}\n",
        )  # fmt: skip
    assert ends(f"v{now}", "## [Unreleased]\n") == (
        1, f"::error::CHANGELOG.md has no section [{now}]\n",
    )  # fmt: skip


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_is_complete(path: Path) -> None:
    """It has a name and a description, and each field an id of its own and a label."""
    form = loaded(path)
    assert {"name", "description", "body"} <= form.keys()
    fields = [one for one in form["body"] if one["type"] != "markdown"]
    ids = [one["id"] for one in fields]
    assert len({*ids}) == len(ids)
    assert all(one["attributes"]["label"] for one in fields)


def test_commands_in_forms_exist() -> None:
    """What the forms and SECURITY.md name is a file of the project or a command of eventq."""
    from eventq.cli import groups

    text = "\n".join(path.read_text() for path in [
        *FORMS, GITHUB / "pull_request_template.md", ROOT / "SECURITY.md",
    ])  # fmt: skip
    commands = {name.split()[0] for name in groups.every()}
    assert set(re.findall(r"`eventq (\w[\w-]*)", text)) <= commands
    assert [
        name for name in re.findall(r"\b[A-Z]+\.md\b", text) if not (ROOT / name).exists()
    ] == []
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([\w-]+)`", text)) <= {*targets}
