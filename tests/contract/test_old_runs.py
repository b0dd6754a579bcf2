"""A run that an older eventq started: its messages stay what they were."""

from __future__ import annotations

import base64
import io
import tarfile
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.records.run import NewStep

if TYPE_CHECKING:
    from pathlib import Path

    from eventq.memory.runs import Run

pytestmark = pytest.mark.engines("sqlite", soaked=["postgres"])

# The pack that the older eventq exported of this run, a tar.xz in base64:
#     run = thread.runs.start("solve", "commit", label="old",
#                             system={"coder": "Write code, then commit.", "tester": "You test."})
#     run.step("coder", {"ok": True}, "done", edge_prompt="begin")
#     run.step("tester", None, "fine", agent="small")
#     run.step("writer", 1)
PACK = (
    "/Td6WFoAAATm1rRGAgAhARYAAAB0L+Wj4E//CopdADEbCkIL+G0O78dZ334YO9NQrsg9t53lpfgCDDuKmxQaXv3TSXTO"
    "ajDXn20Iyebmz07DCW4kX1LcDtj4dpKJTE0UnaHZnEDteBIt7SRsmN0ez5+fx/T4KXk3mifaQc12VtOGGnhpkuqwN71f"
    "H8lxLw6svnuaIXaVXV/hR9LiuduQQXPMlrTtgfG1BQUpIjHL+rCDSfr5bvv5NTb3u+e53WjSbOS2uiqNeaSLx/r/+5yO"
    "TREO0BgTOFzo2d9AmGV1MsvvbDnDskvSGjeoZsMbrtfOpFdQ1Scc7TUMnfk0WaFw2WfII87F8CCSXnH/A+1lqL1kCc5m"
    "ChtxXnFNH9v6lr+My0om+D3DX9m06wKENJKgtNJVzKfvZ1prHCaGByXzAyb5tR+5Ycf6UwA3VqMhfygsQ/SL6p+rrguL"
    "jq9pip+9BQ/D/8LZwbOYqz7XZRvr5b5ul4PnFMuGCJkPqwuWzj20YjQmKtVkQ79Q26B5Yg9Edw9iqYimaz7RAKVm1fic"
    "eBrO1i9PZKYTPz38915Is/v0j1w6khJBoPRmf5kxIlo8QjJ3H88Wxzl0WW7X41E2dlwMulstJGUli71jtX43vyfHA+8m"
    "8l2F3ppalZCEeDrbQfq5fCk3IdRWC43Uw/tbFeEHU9aiwJRAppDc44T6qY0nOGY1QrXmxdLnii7tiX1gJsB81pRp0WQF"
    "HTdrCawEitNSVdu7JOaw0YvU/XJz9NpGm+Mxa+9gDlTcDZVD6ccyQa6xospuTJ83p77yNmwhUovroiVRMipHavsQ0Hok"
    "khlbTbvxUBBbLskCvCtdpF1CfqpkQ2u8vn7ijMXmuaSXVEL5fG5VA8TjjhtrxReDuxxwa2246ZVIGFqV+/lsupVRuFMk"
    "9A1NxXahtzD3Pti5E2n6bdgotMa95ZENboZ4HF7syrHOXWs2SpyYrqEV+8JNoQAGHjKYAnIVUN8rCfkWkszYTi4R7/KR"
    "k2cPdEId8K7hw+B/4SpNby4LkCpDkPWMFFvQenowakDvJTBmVt9S23v/vJFDgUcNoLCKwTGS1BwgwqNSCoukJRKMsfpl"
    "UJwY5LEE53X3jxrRoRXwiGvHxDqg8AHJpBSrhw+Yh3CFXoEHtuCM+F90eGMwXP8/mQGmmlzteW/uHw3izxw6Sp9aT7U+"
    "HDAMT6gjEa6I4XNEfpBNZ0FGDny197SXtu37yf+SGqakFl9U4mPtfclsSspbTu8brLAY+q89fo+k+Cd7oyQP4lWDLO3W"
    "1ixjcQEunZlkzrNwMW80sZ6QfeMDu42v95QMpOkBu1yKMtfFAk3Y3M/qj5J/mKv2i6RHc8JsklYLEGbS2sum4SlJo5rE"
    "2xlnlMNIAFwSXt73hr/74yCrsDD1+SsEPqkqyUCybMxJNs8r3XM7Mw7z1zF6Ucn+4g4bD7xcSLgN7tH/GfZFb6z4QO/Z"
    "7jKMRFyiwT/+daSiDlaURqGHglKlPvRgmDBKgvh4nzeLVkFQDioVoNNPy65os8cZ8+wT2s/MOCdXz3AAkR9PmzIcPp+q"
    "xcy7DeSFLZIP+KN1WCnDuoaqFhPTI9cfSuR3TPxP8hMnksxzSh9wfu26S6Pya5AKicVJdwVmxptJTGSoYKiaO0fRR05O"
    "lqvkaqltjZwn+OmsKuD72DHTesNfBzM5J7/YVx9k8tbzW35RUQd6e3Ggoeqm1cuq8EA01kRlpP12/lU+wGtaFTjGbSvx"
    "MywJan0dQT/kcLwXPOGjo22hufC+Qpq7iXQ6+TH6Wtucma6nExjsUQ2oTANc2xHq9/k5X59vKHCkw9CP7NXbRav0wyDz"
    "842Y2361bwwIxrVlYQv59nPcWfio2WkgG3NF3kZHOseic5/kbsfBqREiQPSsezmWsn71MOYIxO/vIUxa4DQv0oWKu1zp"
    "3Q0a33a8tJpHzeq4vF6mDG/JAX6enRXrzyGp+7PjcqWSmkDxRUQq3Qf+EDCTYZ55ThmyLXv/+jzARuUTf8Oqbw9jH21O"
    "APy7KzLEbCXoCIL3nKTRuLdclo4XqFzJSEkLA3meN4QTL93V8Q+zoVGR1zUJd7Ut67mJ0vTxVNecmlwVyzNse+37yUaT"
    "gwA2KDmWmz+v/GPEIr0Wf+/r2fe+AA01g9GvucOxl56d1u9eMdEpv9NQaq9Y08Cj4AtxizPI2cQXgpPnSzt80nO05hGX"
    "Pgt6YkfYHhKQYlpgLUfdcQRhfmsDeRHy7Kg/PV8FDgJN/ML3j7kQxnMB5qe1XNHGZlYOtiJ3LW7edVClXpGLIUbXetKT"
    "qaehNZr0MjlvE8dYTWGSguNixlvHtsw1RJ6G6pZixfo6LtgmaGSIAp8Y0cFlz15tUlKHb1abxxFzFl7gnHZyMhw+Kv+L"
    "0d+E9H/vJkluloFafRzmeI6kwnAWWTenJy4DBGjKzIlRD35oIcM/ZPZN0nZTEB2cQ7tRecGWhdM1p/GDGHGzCSorhx6r"
    "uLRdWYFKwFp6QVsfGTT25zjemBxZgxZUxbp17EkJaesJHx7UAHNHavoKAjwQO51xPBS965MVFFJ/27fxs0nFAjXqoRiA"
    "ADlKEKs55Cn79spxh9wBjLtKW7ATW/ByKmd1zYjYGhVJfCHhYgGiVu+49PesJOMgmeqQ+aVg9bx/uZHhp/clD1GofbdV"
    "FsXuGuMFdEWXncRhrj2JC3pZxWQ8/NceU8RQr5Hug9ECJECvAdQj0ryAYfO26adPEzvns9ncfObk0L49NESS0DlkAbM5"
    "SDVO2FmY+jbBB4OeChlYOXu5HrBPtiJzz61+XuChPJqIF5/FvVRC1ba0o8ke6/uavRayYzrLti0STy0ejBEE331LaFYe"
    "u2y/FBETcxo2myn9HcjKoaIt8i0MWQtx/vZzg+u5kn2Pl7NF1qX5ozoIJQSsPGfZ3qSz9DuDQ2ZHS49lJfjB7XxKl25Z"
    "8mRrzgaQUYUe7CLVgjv3yfno5Ie9QB516F6J7cL18viJ9toEOolgJLnbgeigZ7YBgNAKpu+J82XXYdKacS+KbpB2VTWS"
    "PglkRTqa6dAJ5d/a7FLLhl2qRellP8oK3lBLnx4miuNdXsYKD1O3theVg1heRgzRJ2IMPolM0BxS+AlKzDVNqtf5E6q3"
    "CcOhnOip7A5KXQk7PKFWfaayo9ZJHOIsJnmzG1+wzh2vmFrqfPhopD3NmVZqoIfYyeXM8fSNsgffE5tBm1TGd/k2KqMD"
    "UwX6uyUjU6cYZTj9PwbIdWy2s8fOdur0CtvcSEui95uYZMaI7zNCFhOTEdCBJzOyGvQtRlQzDvyDYma53whX+iH5nR4J"
    "TFHJsyRO//5MBWKCJ8kYzYW9LTSe2vqCq0+0aK7OqefX0OBGfs3mXWwILSbA2W/Khyv4zgy+3cy0KCZzp22Mvn3Jtpxe"
    "TaOc4m9XzpXqLsWfGkwPwF1/OKQihCXby7PuX/ISiMDi2tnl8u70fiHAEJGYwp+MZepCc+hJdQZl2YaqxdypZW8/F+at"
    "P+uPnXaxGJIXFZMx+dOMY1guHsrcmEwVeig8PU0+HfS4gsQW7TZ2bWLEov7ufIb1ZIIpL9w83wXR56a5BbxJtSruV9fa"
    "37bS0CB6Pwg1AvHQGopiYmjAOf9w0okPlXNvgO9SG1WyK0NrUwAAAACavy27bRZPjQABphWAoAEAxuQqibHEZ/sCAAAA"
    "AARZWg=="
)
START = "blob:blake3:67ec3a8c3501621e18586c5468baaff45350e6da531aa3547aeef601de2b0fc4"
TOLD = "## What Happened Since Your Last Turn\n\n"
FIRST = '### Step 1: coder\nOutput: {"content":"done","meta":{"ok":true}}\nAgent: '
SECOND = '### Step 2: tester\nOutput: {"content":"fine","meta":null}\nAgent: small'
THIRD = '### Step 3: writer\nOutput: {"content":"","meta":1}\nAgent: '
# What the older eventq gave for `messages(role, "go on")`, as pairs of role and content.
GAVE = {
    "coder": [
        ("system", "Write code, then commit."),
        ("user", "begin"),
        ("assistant", '{"content":"done","meta":{"ok":true}}'),
        ("user", f"go on\n\n{TOLD}{SECOND}\n\n{THIRD}"),
    ],
    "tester": [
        ("system", "You test.\n\ncommit"),
        ("user", f"{TOLD}{FIRST}"),
        ("assistant", '{"content":"fine","meta":null}'),
        ("user", f"go on\n\n{TOLD}{THIRD}"),
    ],
    "writer": [
        ("system", "commit"),
        ("user", f"{TOLD}{FIRST}\n\n{SECOND}"),
        ("assistant", '{"content":"","meta":1}'),
        ("user", "go on"),
    ],
    "newcomer": [("system", "commit"), ("user", f"go on\n\n{TOLD}{FIRST}\n\n{SECOND}\n\n{THIRD}")],
}


def said(run: Run, role: str) -> list[tuple[str, str]]:
    """Return the messages of a role as pairs."""
    return [(message["role"], message["content"]) for message in run.messages(role, "go on")]


@pytest.fixture
def old(thread: eventq.Thread, tmp_path: Path) -> Run:
    """Return the run that the older eventq made."""
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(PACK))) as archive:
        archive.extractall(tmp_path / "pack", filter="data")
    thread.import_pack(str(tmp_path / "pack"))
    return thread.runs.get("old")


@pytest.mark.parametrize("role", GAVE)
def test_an_old_run_gives_the_messages_that_it_gave(old: Run, role: str) -> None:
    """A start that does not say where the task stands is read by the rule of its day."""
    assert said(old, role) == GAVE[role]


def test_an_old_run_goes_on_by_its_rule(thread: eventq.Thread, old: Run, tmp_path: Path) -> None:
    """What a role was shown stays a prefix: after steps, in a fork, and in another thread."""
    assert old.info().start == START
    old.step(NewStep("coder", 2, edge_prompt="go on"))
    assert said(old, "coder")[:4] == GAVE["coder"]
    assert said(old.fork(at=3), "coder") == GAVE["coder"]
    assert said(old.fork(at=0), "coder")[0] == GAVE["coder"][0]
    thread.export_pack(str(tmp_path / "again"))
    with eventq.open(eventq.init(tmp_path / "other")) as other:
        other.import_pack(str(tmp_path / "again"))
        assert other.runs.get("old").info().start == START
        assert said(other.runs.get("old"), "tester")[:3] == GAVE["tester"][:3]
    start = old.start_node()
    assert start.task_in_system is None
    assert start.encode() == thread.blobs.get(START)


def test_the_same_run_begun_today_states_the_task(thread: eventq.Thread, old: Run) -> None:
    """Started anew with the same words it is another start, and states the task to every role."""
    system = {"coder": "Write code, then commit.", "tester": "You test."}
    new = thread.runs.start("solve", "commit", system=system)
    assert new.info().start != START
    assert said(new, "coder")[0] == ("system", "Write code, then commit.\n\ncommit")
    assert said(new, "tester")[0] == said(old, "tester")[0]
