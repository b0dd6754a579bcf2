"""Import artifacts: each keeps its number if that is free, and gets a new one otherwise."""

from __future__ import annotations

from functools import partial

from eventq.errors import ConflictError, DamagedError
from eventq.output.artifacts import hash_of, tool_name
from eventq.records.artifact import ArtifactInfo
from eventq.transfer import packfile
from eventq.transfer.job import fits, is_time, scope_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.transfer.job import Job
    from eventq.transfer.scope_import import ScopeImport
    from eventq.transfer.sources import Line

# What a line that tells of an artifact has, by key and type.
ARTIFACT: dict[str, type] = {"artifact": int, "tool": str, "status": str, "created_at_ms": int}


class ArtifactImport:
    """The artifacts of one source, each stored in a transaction of its own."""

    def __init__(self, job: Job, scopes: ScopeImport) -> None:
        """Prepare; nothing is read yet."""
        self._scopes = scopes
        self._source = job.source
        self._notes = job.notes
        # Artifacts here that stand for one of the source, by scope and number there.
        self.here: dict[tuple[int, int], int] = {}
        self._taken: dict[int, set[int]] = {}  # by scope there
        self._new = job.new

    def check_numbers(self) -> None:
        """Raise ConflictError for a number that is taken by another artifact: texts name it."""
        for line in self._source.lines():
            name = line and self._conflict(line)
            if name:
                raise ConflictError(
                    f"{name} is another one in the destination: nothing was copied",
                    "copy to a new thread",
                    0,
                )

    def _conflict(self, line: Line) -> str:
        """Return the URL that would name something else in the target, "" for none."""
        produced = self._scopes.find(line)
        if produced is None:
            return ""
        if "artifact" in line:
            if line["status"] == "open":
                return ""
            info = _info(line)
            pieces = partial(self._source.artifact, line)
            if info is None or not produced.artifacts.is_same(info, pieces):
                return f"artifact://{line['artifact']}"
        elif "output" in line:
            found = produced.outputs.find(line["output"], line["version"])
            if found is not None and found.hash != line["blob"]:
                return f"agent://{line['output']}"
        return ""

    def run(self) -> None:
        """Store the artifacts; those whose number is another's come last, under new ones."""
        later = [
            line
            for line in self._source.lines()
            if line and fits(line, ARTIFACT) and not self._take(line)
        ]
        for line in later:
            self._take(line, anew=True)

    def _take(self, line: Line, *, anew: bool = False) -> bool:
        """Store an artifact, or note why not; return False if it needs another number."""
        number, info, scope = line["artifact"], _info(line), scope_in(line)
        if line["status"] == "open":
            self._notes.remark(f"artifact {number} is still being written there: it was left out")
            return True
        produced = self._scopes.of(line)
        if info is None or produced is None:
            self._notes.fault(
                f"{packfile.BESIDE}: artifact {number} was left out: what is said of it cannot be"
            )
            return True
        pieces = partial(self._source.artifact, line)
        try:
            taken = self._taken.setdefault(scope, set())
            made = produced.artifacts.take(info, pieces, taken, anew=anew)
            changed = "blake3" in line and line["blake3"] != hash_of(pieces())[0]
        except (DamagedError, OSError) as error:
            what = getattr(error, "what", error)
            self._notes.fault(f"artifact {number} was left out: {what}")
            return True
        if made is None:
            return False
        here, new = made
        self._new["artifact"] += new
        self.here[scope, number] = int(here.artifact_id)
        self._note(number, here, changed=changed)
        return True

    def _note(self, number: int, here: ArtifactInfo, *, changed: bool) -> None:
        if changed:
            self._notes.fault(f"artifact {number} is not what was exported: it is kept as it is")
        if int(here.artifact_id) != number:
            self._notes.remark(
                f"artifact {number} is artifact {here.artifact_id} here: artifact://{number} in a"
                f" text means another"
            )


def _info(line: Line) -> ArtifactInfo | None:
    """Return what a line tells of an artifact, None when it cannot be."""
    number, tool, at = line["artifact"], line["tool"], line["created_at_ms"]
    digest = line.get("hash")
    if number < 0 or tool != tool_name(tool) or not is_time(at):
        return None
    if not isinstance(digest, (str, type(None))):
        return None
    return ArtifactInfo(str(number), tool, line["status"], 0, 0, digest, None, at, None)
