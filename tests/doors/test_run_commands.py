"""Every command of workflow runs: text and JSON, input from options, files and stdin, statuses."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.cli import steps as drawn
from eventq.records.run import NewStep, RunInfo, RunText, Step
from tests.doors.support import EVENTQ, NOWHERE, environ, objects, ok, refused, run

if TYPE_CHECKING:
    from pathlib import Path

OLD_NAMES = ["threadId", "updatedAt", "completedAt"]  # of three of the fields
RUN_FIELDS = [*RunInfo._fields, *OLD_NAMES]
STEP_FIELDS = list(Step._fields)


@pytest.fixture
def box(tmp_path: Path) -> str:
    """A thread with the run `build` (1) of three steps, and the context `plain` (2)."""
    path = eventq.init(tmp_path / "box")
    with eventq.open(path) as thread:
        build = thread.runs.start(
            "solve", "mend it", system={"coder": "You code.", "critic": "You judge."}, label="build"
        )
        build.step(NewStep("coder", {"files": 2}, "one\ntwo", edge_prompt="begin", agent="claude"))
        build.step(NewStep("critic", {"good": False}, "no", edge_prompt="judge"))
        build.step(NewStep("coder", {"files": 3}, "three", edge_prompt="again", agent="claude"))
        thread.contexts.create("plain").append("hello")
    return path


def state(path: str) -> list[Any]:
    """Return what a command may change: all runs, the turns' number, the events'."""
    with eventq.open(path, read_only=True) as thread:
        turns = [
            move
            for context in thread.contexts
            for move in thread.contexts.history(context.context_id)
        ]
        return [list(thread.runs.list()), turns, thread.last_id(), len(thread.blobs)]


# --- starting -------------------------------------------------------------------------------------


def test_a_run_is_started_with_all_that_it_is_told(box: str) -> None:
    """Every option of `run start` is kept in the start node, and what is printed is the run."""
    parent = objects("run show build --thread", box)[-1]["ref"]
    (made,) = objects(
        "run start --name nested --prompt", "the é task", "--system-file", "-", "--max-rounds", "7",
        "--depth", "2", "--group", "g1", "--parent-state", parent, "--label", "inner", "--summary-cap", "100", "--answer", "meta",
        "--emit", "--source", "internal:a:b:c", "--thread", box, given='{"coder": "Be brief."}',
    )  # fmt: skip
    assert list(made) == RUN_FIELDS
    shown = (3, "nested", "g1", "active", 0)
    assert (made["run_id"], made["name"], made["group"], made["status"], made["depth"]) == shown
    with eventq.open(box, read_only=True) as thread:
        one = thread.runs.get("inner")
        start = one.start_node()
        expected = ("the é task", 7, 2, 100, "meta")
        found = (start.max_rounds, start.depth, start.summary_cap, start.answer)
        assert (one.prompt(), *found) == expected
        assert start.parent_state == parent
        assert thread.blobs.get(start.system["coder"]) == b"Be brief."
    (event,) = objects("peek --last 1 --thread", box)
    assert (event["source"], event["type"], event["subtype"]) == ("internal:a:b:c", "record", "run")
    assert json.loads(event["content"])["op"] == "start"


def test_the_task_comes_from_an_option_a_file_or_stdin(box: str, tmp_path: Path) -> None:
    """The prompt is the same bytes by every way, newlines and all; without any it is empty."""
    source = tmp_path / "task"
    source.write_text("a\n\nb\n")
    ways = [
        (["--prompt", "a\n\nb\n"], None),
        (["--prompt-file", str(source)], None),
        (["--prompt-file", "-"], "a\n\nb\n"),
    ]
    for words, given in ways:
        text = ok("run start --name solve", *words, "--thread", box, given=given)
        assert text.startswith("Started run ")
        assert "  solve  active  0 steps  2" in text
    ok("run start --name solve --thread", box, given="not read")
    with eventq.open(box, read_only=True) as thread:
        assert [thread.runs.get(n).prompt() for n in (3, 4, 5, 6)] == ["a\n\nb\n"] * 3 + [""]
        assert len({thread.runs.get(n).info().start for n in (3, 4, 5)}) == 1


# --- steps ----------------------------------------------------------------------------------------


def test_a_step_is_recorded_with_all_that_it_is_told(box: str, tmp_path: Path) -> None:
    """Every option of `run step` is in its JSON; text has number, role, turn and ref."""
    artifact = ok("blob put --thread", box, given="artifact").strip()
    source = tmp_path / "asked"
    source.write_text("what now?\n")
    (made,) = objects(
        "run step build --role critic --meta", '{"b": [1.0, null], "a": "é"}', "--file", "-",
        "--refs", artifact, "--edge-prompt-file", str(source), "--agent", "gpt", "--compact", "so far",
        "--child", artifact, "--expected-head", "4", "--key", "k", "--thread", box, given="text\n",
    )  # fmt: skip
    assert list(made) == STEP_FIELDS
    assert (made["number"], made["turn_id"], made["role"], made["agent"]) == (4, 6, "critic", "gpt")
    told = ({"a": "é", "b": [1.0, None]}, "text\n", [artifact])
    assert (made["meta"], made["content"], made["artifacts"]) == told
    expected = ("what now?\n", artifact, 3)
    assert (made["edge_prompt"], made["child"], len(made["ancestors"])) == expected
    assert made["compact"].startswith("blob:blake3:")
    assert objects("run show build --from 4 --thread", box)[1:] == [made]
    text = ok("run step 1 --role coder --thread", box, given="not read")
    assert text.startswith("#5 coder  2")
    (last,) = objects("run show build --from 5 --thread", box)[1:]
    assert text.endswith(f"Z  turn 7  {last['ref']}\n")
    assert (last["content"], last["meta"]) == ("", None)


def test_what_was_extracted_is_taken_at_once(box: str, tmp_path: Path) -> None:
    """`--extracted` reads meta, text and refs from one object."""
    artifact = ok("blob put --thread", box, given="artifact").strip()
    told = json.dumps({"meta": {"x": 1}, "contentPayload": "out", "refs": [artifact]})
    source = tmp_path / "extracted"
    source.write_text(told)
    step = ["run", "step", "build", "--role", "coder", "--thread", box]
    made = [
        *objects(*step, "--extracted", "-", given=told),
        *objects(*step, "--extracted", str(source)),
        *objects(*step, "--meta", '{"x": 1}', "--content", "out", "--refs", artifact),
    ]
    assert [(one["meta"], one["content"], one["artifacts"]) for one in made] == [
        ({"x": 1}, "out", [artifact])
    ] * 3


def test_a_key_and_an_expected_head_guard_a_step(box: str) -> None:
    """A repeated key returns the first step; a different step or a moved head conflicts."""
    step = ["run", "step", "build", "--role", "coder", "--thread", box]
    made = objects(*step, "--content", "x", "--key", "k")
    assert objects(*step, "--content", "x", "--key", "k") == made
    done = run(*step, "--content", "y", "--key", "k")
    refused(1, "the key was used for another step: turn 6", done)
    refused(1, "the head of context 1 is turn 6, not 4", run(*step, "--expected-head", "4"))
    told = json.loads(run(*step, "--expected-head", "4", "--json").err)
    assert told["error"] == "the head of context 1 is turn 6, not 4"
    assert len(objects("run show build --thread", box)) == 5


def test_failed_attempts_and_replaced_steps_are_named_by_the_next(box: str) -> None:
    """`--attempt` prints a ref and keeps the head; `--poke` replaces the last step."""
    words = ["run", "step", "build", "--thread", box]
    failed = ok(*words, "--role", "critic", "--attempt", "--content", "half").strip()
    (again,) = objects(*words, "--role", "critic", "--attempt", "--file", "-", given="more")
    assert list(again) == ["ref"]
    assert objects("run ls --all --thread", box)[0]["head_turn_id"] == 4
    (made,) = objects(
        *words, "--role", "critic", "--content", "whole", "--edge-prompt", "judge", "--agent", "gpt"
    )
    assert made["attempts"] == [failed, again["ref"]]
    (poked,) = objects(*words, "--poke", "--content", "better", "--meta", "1")
    expected = (4, "critic", "better", 1)
    assert (poked["number"], poked["role"], poked["content"], poked["meta"]) == expected
    assert (poked["edge_prompt"], poked["agent"]) == ("judge", "gpt")
    assert poked["attempts"] == [failed, again["ref"], made["ref"]]
    (poked,) = objects(*words, "--poke", "--edge-prompt", "", "--agent", "")
    assert (poked["edge_prompt"], poked["agent"], len(poked["attempts"])) == ("", "", 4)
    assert ok(*words, "--poke").split("  ")[2] == "turn 9 [5 attempts]"


def test_a_large_integer_comes_out_as_it_went_in(box: str) -> None:
    """Meta may contain huge integers, in every output."""
    digits = "9" * 5000
    step = ok("run step build --role coder --meta", digits, "--thread", box, "--json")
    for said in (step, ok("run show build --json --thread", box)):
        assert f'"meta":{digits}' in said
    assert f"  meta: {digits[:200]}…\n" in ok("run show build --thread", box)
    assert digits in ok("run messages build --role coder --thread", box, "--json")


# --- status ---------------------------------------------------------------------------------------


def test_a_run_is_suspended_resumed_ended_and_cancelled(box: str) -> None:
    """Each command prints the run or its end; an inactive run accepts no step."""
    step = ["run", "step", "build", "--role", "coder", "--thread", box]
    assert ok("run suspend build --thread", box).startswith(
        "Suspended run 1 build  solve  suspended  3 steps  2"
    )
    refused(1, "run 1 is suspended", run(*step))
    (info,) = objects("run resume build --thread", box)
    assert (list(info), info["status"]) == (RUN_FIELDS, "active")
    (end,) = objects("run end build --return-code 3 --summary done --thread", box)
    expected = (STEP_FIELDS, "__end__", {"returnCode": 3, "summary": "done"})
    assert (list(end), end["role"], end["meta"]) == expected
    for words in (
        step,
        ["run", "end", "build", "--thread", box],
        ["run", "suspend", "build", "--thread", box],
    ):
        refused(1, "run 1 is completed", run(*words))
    assert ok("run resume 1 --thread", box).startswith(
        "Resumed run 1 build  solve  active  4 steps  2"
    )
    refused(1, "run 1 is active", run("run resume 1 --thread", box))
    told = ok("run cancel build --thread", box)
    assert told.startswith("#5 __end__  2")
    assert " [end]  blob:blake3:" in told
    (last,) = objects("run show build --from 5 --thread", box)[1:]
    assert last["meta"] == {"returnCode": 130, "summary": ""}


def test_a_compaction_is_given_in_words_a_file_or_stdin(box: str, tmp_path: Path) -> None:
    """`run compact` takes its summary by every way, and models are shown it."""
    source = tmp_path / "summary"
    source.write_text("from a file")
    assert "  2" in ok("run compact build --summary", "in words", "--thread", box)
    (one,) = objects("run compact build --file", str(source), "--thread", box)
    (two,) = objects("run compact build --file - --thread", box, given="from stdin")
    assert [one["content"], two["content"]] == ["from a file", "from stdin"]
    told = objects("run messages build --role coder --edge-prompt", "go on", "--thread", box)
    assert told[1:] == [{"role": "user", "content": "from stdin\n\ngo on"}]


def test_a_fork_goes_on_from_a_step(box: str) -> None:
    """A fork at a number, a role's first step, or before the last step, names its origin."""
    at = {"": 2, "--at 0": 0, "--at 3": 3, "--role critic": 2, "--role coder": 1}
    for words, number in at.items():
        (made,) = objects("run fork build", *words.split(), "--thread", box)
        expected = (RUN_FIELDS, 1, number, "active")
        assert (list(made), made["fork_of"], made["depth"], made["status"]) == expected
    steps = objects("run show build --thread", box)
    names = {steps[0]["start"]: 0, steps[1]["ref"]: 1, steps[2]["ref"][12:]: 2, "turn:4": 3}
    for word, number in names.items():
        (made,) = objects("run fork build --at", word, "--thread", box)
        assert made["depth"] == number
        ok("run rm", str(made["run_id"]), "--thread", box)
    text = ok("run fork build --label retry --thread", box)
    assert text.startswith("Forked run 12 retry  solve  active  2 steps  2")
    assert text.endswith("Z  fork of 1\n")
    assert "Fork of: run 1 at step 2\n" in ok("run show retry --thread", box)
    ok("context rm build --thread", box)
    assert "Fork of: a deleted run at step 2\n" in ok("run show retry --thread", box)
    assert "fork of" not in ok("run ls --thread", box)


def test_a_run_is_deleted(box: str) -> None:
    """`run rm` deletes a run, as `context rm` does, and prints what it was; forks are unaffected."""
    (fork,) = objects("run fork build --thread", box)
    (was, _) = objects("run ls --thread", box)
    assert objects("run rm build --thread", box) == [was]
    refused(1, "there is no run 'build'", run("run show build --thread", box))
    assert objects("run ls --all --thread", box) == [{**fork, "fork_of": None}]
    moves = ok("context log 1 --thread", box).splitlines()
    assert "delete" in moves[-1]
    said = f"Deleted run {fork['run_id']}; 'eventq context log {fork['run_id']}' knows where its"
    assert ok("run rm", str(fork["run_id"]), "--thread", box) == f"{said} head was\n"
    done = run("run rm plain --thread", box)
    refused(1, "a context without a workflow, which 'eventq context rm' deletes", done)
    assert len(objects("context ls --thread", box)) == 1


# --- reading --------------------------------------------------------------------------------------


def test_a_run_has_one_shape(box: str) -> None:
    """Every command that prints a run prints the same fields, label and older names included."""
    ok("run start --name other --thread", box)
    (listed,) = [one for one in objects("run ls --thread", box) if one["label"] == "build"]
    assert list(listed) == RUN_FIELDS
    assert [listed[name] for name in OLD_NAMES] == ["1", listed["updated_at_ms"], None]
    shown = objects("run show build --thread", box)[0]
    assert shown == {**listed, "prompt": "mend it"}
    for words, label in (
        ("run start --name s --label new", "new"),
        ("run fork build --label fork", "fork"),
        ("run fork build", None),
        ("run suspend build", "build"),
        ("run resume build", "build"),
    ):
        (made,) = objects(words, "--thread", box)
        assert (list(made), made["label"]) == (RUN_FIELDS, label)
        old = [str(made["run_id"]), made["updated_at_ms"], None]
        assert [made[name] for name in OLD_NAMES] == old
        assert made in objects("run ls --all --thread", box)


def test_the_lists_of_runs(box: str) -> None:
    """`run ls`, `--all` and `run history` list runs by status, group and day, label included."""
    ok("run start --name other --group g --thread", box)
    ok("run suspend 3 --thread", box)
    infos = objects("run ls --all --thread", box)
    assert [(info["run_id"], info["label"]) for info in infos] == [(1, "build"), (3, None)]
    assert objects("run ls --thread", box) == infos
    assert objects("run ls --group g --thread", box) == infos[1:]
    assert objects("run ls --all --group g --thread", box) == infos[1:]
    lines = ok("run ls --thread", box).splitlines()
    assert lines[0].startswith("1 build  solve  active  3 steps  2")
    assert lines[1].startswith("3  other  suspended  0 steps  2")
    (end,) = objects("run end build --thread", box)
    (info,) = [i for i in objects("run ls --all --thread", box) if i["status"] == "completed"]
    assert objects("run ls --thread", box) == infos[1:]
    done = info["completed_at_ms"]
    day = dt.datetime.fromtimestamp(done / 1000, dt.UTC).strftime("%Y-%m-%d")
    words = ["run", "history", "--thread", box, "--date"]
    assert (info["threadId"], info["head"], info["completedAt"]) == ("1", end["ref"], done)
    assert objects(*words, day) == [info]
    assert ok(*words, day).startswith("1 build  solve  completed  4 steps  2")
    assert ok(*words, day, "--group", "g", "--json") == ok(*words, "1999-12-31", "--json") == ""
    ok("run resume 3 --thread", box)
    ok("run cancel 3 --thread", box)
    assert objects(*words, day) == [info]
    assert ok("run ls --thread", box) == ""
    assert len(ok("run ls --all --thread", box).splitlines()) == 2


def test_a_run_is_drawn_for_a_person(box: str) -> None:
    """`run show` prints task, roles and steps with all their fields."""
    ok("run step build --role critic --attempt --thread", box)
    ok("run compact build --summary sum\x1b[2J --thread", box)
    ok("run end build --thread", box)
    lines = [line.split("  2")[0] + "  turn" + line.split("  turn")[1] if "  turn" in line else line
             for line in ok("run show build --thread", box).splitlines()]  # fmt: skip
    assert lines[2].startswith("Status: completed after 5 steps, 2")
    assert lines[:2] + lines[3:] == [
        "Run: 1 build",
        "Name: solve",
        "Roles: coder, critic",
        "Task:",
        "  mend it",
        "#1 coder (claude)  turn 2",
        "  asked: begin",
        "  one",
        "  two",
        '  meta: {"files":2}',
        "#2 critic  turn 3",
        "  asked: judge",
        "  no",
        '  meta: {"good":false}',
        "#3 coder (claude)  turn 4",
        "  asked: again",
        "  three",
        '  meta: {"files":3}',
        "#4 __compact__  turn 6 [compaction] [1 attempt]",
        "  sum\\x1b[2J",
        "#5 __end__  turn 7 [end]",
        '  meta: {"returnCode":0,"summary":""}',
    ]
    later = ok("run show build --from 5 --thread", box).splitlines()
    assert [line[:3] for line in later[5:]] == ["  m", "#5 ", "  m"]


def test_a_run_shows_what_it_was_started_with(box: str) -> None:
    """Group, caller, depth, rounds, artifacts and child are shown; long texts are cut."""
    ref = ok("blob put --thread", box, given="x").strip()
    words = f"--group g --depth 1 --max-rounds 9 --parent-state {ref} --label inner".split()
    ok("run start --name s --prompt-file -", *words, "--thread", box, given="t\n" * 30)
    step = ["run", "step", "inner", "--role", "coder", "--file", "-", "--thread", box]
    ok(*step, "--refs", ref, "--child", ref, given="y\n" * 30)
    shown = ok("run show inner --thread", box)
    told = [
        "Group: g", f"Called by: {ref}", "Depth: 1", "Rounds: at most 9",
        "Roles: (no system texts)",
    ]  # fmt: skip
    assert all(
        line in shown.splitlines() for line in [*told, f"  artifact: {ref}", f"  child: {ref}"]
    )
    with eventq.open(box, read_only=True) as thread:
        prompt = thread.runs.get("inner").start_node().prompt
    assert f"  … (21 bytes more; eventq blob get {prompt})\n" in shown
    assert "  … (21 bytes more; all with --json)\n" in shown
    assert (shown.count("  t\n"), shown.count("  y\n")) == (20, 20)
    assert "asked" not in shown
    ok(*step, "--edge-prompt", "a\nb\x1b" + "q" * 300, given="")
    assert f"  asked: a\\nb\\x1b{'q' * 196}…\n" in ok("run show inner --thread", box)


def test_a_run_as_json_is_itself_and_its_steps(box: str) -> None:
    """The first line is the run with its prompt, each other line a step with the fields of Step."""
    first, *rest = objects("run show 1 --thread", box)
    assert list(first) == [*RUN_FIELDS, "prompt"]
    assert (first["prompt"], first["depth"]) == ("mend it", 3)
    assert [list(step) for step in rest] == [STEP_FIELDS] * 3
    assert [(step["number"], step["role"], step["content"]) for step in rest] == [
        (1, "coder", "one\ntwo"), (2, "critic", "no"), (3, "coder", "three")]  # fmt: skip
    assert objects("run show 1 --from 3 --thread", box) == [first, rest[2]]
    assert objects("run show 1 --from 9 --thread", box) == [first]


def test_a_budget_gives_the_newest_steps_whole(box: str) -> None:
    """`--budget` prints the library's `read`; JSON adds what was shown and omitted."""
    with eventq.open(box, read_only=True) as thread:
        want = thread.runs.get("build").read(60)
    assert want.omitted
    assert ok("run show build --budget 60 --thread", box) == want.text + "\n"
    (told,) = objects("run show build --budget 60 --thread", box)
    assert list(told) == list(RunText._fields)
    assert (told["text"], told["steps"], told["omitted"]) == (want.text, want.steps, want.omitted)
    refused(2, "--budget must be", run("run show build --budget 0 --thread", box))
    done = run("run show build --budget 9 --from 1 --thread", box)
    refused(2, "--from and --budget exclude", done)


def test_the_messages_are_those_of_the_library(box: str, tmp_path: Path) -> None:
    """JSON has one message per line, as chat APIs accept; text has headings."""
    source = tmp_path / "asked"
    source.write_text("go\non")
    words = ["run", "messages", "build", "--role", "coder", "--thread", box]
    with eventq.open(box, read_only=True) as thread:
        want = thread.runs.get("build").messages("coder", "go\non")
    assert len(want) == 6
    assert objects(*words, "--edge-prompt", "go\non") == want
    assert objects(*words, "--edge-prompt-file", str(source)) == want
    assert objects(*words, "--edge-prompt-file", "-", given="go\non") == want
    assert all(list(message) == ["role", "content"] for message in want)
    lines = ok(*words, "--edge-prompt", "go\non").splitlines()
    assert lines[:6] == ["--- system", "You code.", "", "mend it", "--- user", "begin"]
    assert [line for line in lines if line.startswith("--- ")] == [
        f"--- {message['role']}" for message in want
    ]
    assert lines[-3:] == ["--- user", "go", "on"]
    expected = ["--- user", "\\x1b[2J"]
    assert list(drawn.messages([{"role": "user", "content": "\x1b[2J"}])) == expected


def test_messages_of_a_role_that_there_is_not(box: str) -> None:
    """A role without a system text that took no step is refused, naming those there are."""
    done = run("run messages build --role nobody --thread", box)
    refused(1, "role not found in thread: nobody (available: coder, critic) - give one", done)


def test_the_task_is_left_out_where_the_start_says_so(box: str) -> None:
    """With --task-in-system the task is not added to the system texts, which must be there."""
    start = "run start --name w --prompt commit --task-in-system --thread"
    ok(start, box, "--system-file", "-", "--label", "w", given='{"a": "Write, then commit."}')
    told = objects("run messages w --role a --thread", box)
    assert told[0]["content"] == "Write, then commit."
    refused(2, "there is no system text that could state the task", run(start, box))


def test_the_messages_are_the_same_bytes_in_every_process(box: str) -> None:
    """Neither the order of hashes nor the language of the environment changes a byte."""
    meta = '{"z": 1, "é": {"b": 2, "a": 1.5}}'
    ok("run step build --role critic --meta", meta, "--content", "ü", "--thread", box)
    words = ["run", "messages", "build", "--role", "coder", "--edge-prompt", "now", "--thread"]
    for form in (["--json"], []):
        outputs = set()
        for seed, language in (("1", "C"), ("2", "C.UTF-8"), ("3", "de_DE.ISO-8859-1")):
            env = environ(PYTHONHASHSEED=seed, LANG=language, LC_ALL=language)
            argv = [EVENTQ, *words, box, *form]
            done = subprocess.run(argv, capture_output=True, env=env, timeout=300)
            assert (done.returncode, done.stderr) == (0, b"")
            outputs.add(done.stdout)
        (output,) = outputs
        assert "ü".encode() in output


def test_a_long_run_is_shown_whole_and_a_closed_pipe_ends_it_quietly(box: str) -> None:
    """Every step of hundreds is drawn, and `| head` is no error for any command that streams."""
    with eventq.open(box) as thread, thread.write():
        one = thread.runs.get("build")
        for number in range(400):
            one.step("coder", {"n": number}, "x" * 2000)
    assert [step["number"] for step in objects("run show build --thread", box)[1:]] == list(
        range(1, 404)
    )
    for words in (
        "run show build",
        "run show build --json",
        "run messages build --role coder --json",
        "run show build --budget 500000",
    ):
        script = f"{EVENTQ} {words} --thread {box} | head -n 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, env=environ(), timeout=300
        )
        assert (done.stdout, done.stderr) == ("0\n", "")


# --- mistakes -------------------------------------------------------------------------------------

_ONE = [
    "step {} --role x", "step {} --role x --attempt", "step {} --poke", "end {}", "cancel {}", "suspend {}", "resume {}",
    "compact {} --summary s", "fork {}", "show {}", "messages {} --role x", "rm {}",
]  # fmt: skip


@pytest.mark.parametrize("words", _ONE)
def test_a_run_that_is_not_there_is_status_1(box: str, words: str) -> None:
    """An unknown name, or a context that is not a run, is named; nothing is stored."""
    before = state(box)
    refused(1, "'nobody'", run("run", *words.format("nobody").split(), "--thread", box))
    done = run("run", *words.format("plain").split(), "--json", "--thread", box)
    assert (done.code, json.loads(done.err)["error"]) == (1, "there is no run 'plain'")
    assert state(box) == before


@pytest.mark.parametrize(("words", "code", "says"), [
    ("start", 2, "Missing option '--name'"), ("start --name ''", 2, "--name is empty"),
    ("start --name s --prompt a --prompt-file b", 2,
     "--prompt and --prompt-file exclude each other"),
    ("start --name s --prompt-file - --system-file -", 2,
     "--prompt-file and --system-file cannot both read stdin"),
    ("start --name s --prompt-file missing", 1, "'missing' could not be read: No such file"),
    ("start --name s --system-file missing", 1, "'missing' could not be read: No such file"),
    ("start --name s --max-rounds -1", 2, "--max-rounds must be a whole number"),
    ("start --name s --depth x", 2, "--depth must be a whole number"),
    ("start --name s --summary-cap -1", 2, "--summary-cap must be a whole number"),
    ("start --name s --answer yaml", 2, "--answer must be text, json or meta, not 'yaml'"),
    ("start --name s --label 12", 2, "is a number, not a name"),
    ("start --name s --source me", 2, "--source has no effect without --emit"),
    ("step build", 2, "--role is missing"), ("step --role x", 2, "Missing argument 'RUN'"),
    ("step build --role x --content a --file b", 2, "--content and --file exclude each other"),
    ("step build --role x --edge-prompt a --edge-prompt-file b", 2,
     "--edge-prompt and --edge-prompt-file exclude"),
    ("step build --role x --attempt --poke", 2, "--attempt and --poke exclude each other"),
    ("step build --role x --poke", 2, "--poke and --role exclude each other"),
    ("step build --role x --attempt --key k", 2, "--attempt and --key exclude each other"),
    ("step build --role x --attempt --compact s", 2, "--attempt and --compact exclude each other"),
    ("step build --role x --attempt --extracted f", 2,
     "--attempt and --extracted exclude each other"),
    ("step build --poke --child x", 2, "--poke and --child exclude each other"),
    ("step build --poke --expected-head 4", 2, "--poke and --expected-head exclude each other"),
    ("step build --role x --extracted f --meta 1", 2, "--extracted and --meta exclude each other"),
    ("step build --role x --extracted f --content c", 2,
     "--extracted and --content exclude each other"),
    ("step build --role x --extracted f --refs c", 2, "--extracted and --refs exclude each other"),
    ("step build --role x --extracted missing", 1, "'missing' could not be read: No such file"),
    ("step build --role x --file - --edge-prompt-file -", 2, "cannot both read stdin"),
    ("step build --role x --emit", 2, "No such option '--emit'"),
    ("step build --role x --refs nonsense", 2, "names no blob"),
    ("step build --role x --refs " + NOWHERE, 1, "missing blob"),
    ("step build --role x --expected-head two", 2, "--expected-head must be a whole number"),
    ("step build --role __end__", 2, "'__end__' is no role"),
    ("step build --role x --meta {", 2, "--meta: the text is not JSON"),
    ('step build --role x --meta {"a":1,"a":2}', 2, "--meta: the key 'a' stands twice"),
    ("end build --return-code x", 2, "--return-code must be a whole number"),
    ("compact build", 2, "either --summary or --file is needed"),
    ("compact build --summary a --file b", 2, "--summary and --file exclude each other"),
    ("fork build --at x", 2, "'x' names no step"), ("fork build --at ''", 2, "--at is empty"),
    ("fork build --at turn:x", 2, "'turn:x' names no step"),
    ("fork build --at 99999999999999999999", 2, "--at must be a whole number"),
    ("fork build --at " + "0" * 64, 1, "blob:blake3:" + "0" * 64 + " is no step of run 1"),
    ("fork build --at turn:9", 1, "there is no turn 9"),
    ("fork build --at turn:5", 1, "turn 5 is no step of run 1"),
    ("fork build --role nobody", 1, "role not found in thread: nobody (available: coder, critic)"),
    ("fork build --at 9", 1, "run 1 has no step 9"),
    ("fork build --at 1 --role coder", 2, "not both"),
    ("fork build --label build", 1, "'build' is taken by context 1"),
    ("fork build --label 12", 2, "'12' is a number, not a name"),
    ("ls --group ''", 2, "--group is empty"), ("history", 2, "Missing option '--date'"),
    ("history --date today", 2, "'today' is no day"),
    ("history --date 18.03.2026", 2, "'18.03.2026' is no day"),
    ("show build --from x", 2, "--from must be a whole number"),
    ("show build --budget 1.5", 2, "--budget must be a whole number"),
    ("show 9223372036854775808", 2, "RUN must be a whole number"),
    ("messages build", 2, "Missing option '--role'"),
    ("messages build --role ''", 2, "--role is empty"),
    ("messages build --role x --edge-prompt a --edge-prompt-file b", 2,
     "--edge-prompt and --edge-prompt-file"),
    ("pish", 2, "No such command 'pish'"),
])  # fmt: skip
def test_what_is_wrong_is_a_sentence_and_stores_nothing(
    box: str, words: str, code: int, says: str
) -> None:
    """Wrong words are status 2, what the store says no to is status 1, each in one line."""
    before = state(box)
    argv = ["" if word == "''" else word for word in words.split()]
    refused(code, says, run("run", *argv, "--thread", box))
    assert state(box) == before


@pytest.mark.parametrize(("option", "given", "says"), [
    ("system-file", "{", "--system-file: the text is not JSON"),
    ("system-file", '["a"]', "--system-file: the text is not a JSON object"),
    ("extracted", "", "--extracted: the text is not JSON"),
    ("extracted", "7", "--extracted: the text is not a JSON object"),
    ("extracted", '{"content": "x"}', "['content'] is nothing that is extracted"),
    ("file", b"a\xff", "'-' is not UTF-8 text (byte 1)"),
    ("edge-prompt-file", b"\xff", "'-' is not UTF-8 text (byte 0)"),
    ("prompt-file", b"\xff", "'-' is not UTF-8 text (byte 0)"),
])  # fmt: skip
def test_input_that_is_not_what_it_should_be_is_refused(
    box: str, option: str, given: str | bytes, says: str
) -> None:
    """Broken JSON names its option; text must be UTF-8; nothing is stored."""
    before = state(box)
    words = (
        ["start", "--name", "s"]
        if option in ("system-file", "prompt-file")
        else ["step", "build", "--role", "x"]
    )
    refused(2, says, run("run", *words, f"--{option}", "-", "--thread", box, given=given))
    assert state(box) == before


def test_a_stdin_that_is_closed_is_said(box: str) -> None:
    """Who asks for a stdin that is not there is told so; who does not ask is not."""
    for words, code in ((["--file", "-"], 1), ([], 0)):
        script = f"{EVENTQ} run step build --role x {' '.join(words)} --thread {box} <&-"
        done = subprocess.run(["sh", "-c", script], capture_output=True, env=environ(), timeout=300)
        assert done.returncode == code
        assert (b"stdin is closed" in done.stderr) == bool(words)


def test_reading_changes_nothing(box: str) -> None:
    """No command that reads a run makes a row or an event."""
    before = state(box)
    for words in (
        "ls",
        "ls --all",
        "history --date 2026-03-18",
        "show build",
        "show build --budget 9",
        "messages build --role coder",
    ):
        ok("run", *words.split(), "--thread", box)
        ok("run", *words.split(), "--json", "--thread", box)
    assert state(box) == before
