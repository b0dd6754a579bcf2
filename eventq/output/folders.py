"""Folders of what was produced: artifacts, outputs and other files, in and out.

An artifact is `{id}.{tool}.log`, an output `{id}.md` or a later version `{id}.v2.md`; every other
file, in folders below too, is a blob. Nothing is passed over without a note.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import chain

from eventq.errors import ErasedError
from eventq.memory.blobs import LARGEST
from eventq.output import artifacts, outputs
from eventq.records.artifact import OutputInfo
from eventq.store.output_rows import FileRow
from eventq.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from eventq.output.output_store import OutputStore
    from eventq.records.artifact import ArtifactInfo
    from eventq.records.turn import Blob

    Found = ArtifactInfo | OutputInfo | Blob
    Made = dict[str, Found]
    Note = Callable[[str], object]

_PAGE = 1_000
_LONGEST = 1_000  # characters of a path, which goes below a folder's
_NAME = 255  # bytes of each name in it


def bring(produced: OutputStore, folder: str, note: Note, skip: str = "") -> Made:
    """Store the files of a folder; return what each is, by its path in the folder.

    Artifacts and outputs that are here already are reused; one whose number is taken gets another.
    So importing twice adds nothing. `note` gets a sentence for each file that is left out, and
    `skip` is a path of which nothing is read. Raises OSError.
    """
    made: Made = {**produced.artifacts.import_folder(folder)}
    made |= produced.outputs.import_folder(folder)
    for path in _files(folder, note, skip):
        if path not in made:
            made[path] = _Incoming(produced, folder, path).blob()
    return made


def paths(folder: str, note: Note, skip: str = "") -> list[str]:
    """Return the paths of the files in a folder that can be stored; see `bring`."""
    return sorted(_files(folder, note, skip), key=_order)


def bring_session(produced: OutputStore, folder: str, paths: Iterable[str], note: Note) -> int:
    """Store files of a session's folder, in the order of `paths`; return how many are new.

    The numbers and names are those that the session cites. A changed artifact replaces what had its
    number, a changed output is a new version. `note` gets a sentence for each number that something
    else has here, and for each file that is left out. What was deleted from the folder stays, as
    tools delete old files; what was deleted here does not come back.
    """
    count, displaced = 0, []
    for path in paths:
        file = _Incoming(produced, folder, path)
        try:
            if file.is_displaced():  # a new number could be that of a file that is still to come
                displaced.append(file)
            else:
                count += file.store(note)
        except OSError as error:
            note(f"'{os.path.join(folder, path)}' was left out: {error.strerror or error}")
    return count + sum(file.store(note) for file in displaced)


def write(
    produced: OutputStore, folder: str, note: Note, but: Container[str] = ()
) -> dict[str, int]:
    """Write a folder as its files were imported, and what else was produced; return the counts.

    Nothing is written under the paths `but`. An existing file with the same content is left alone.
    `note` gets a sentence for what was deleted here, or cannot have its name. Raises ConflictError
    for a file with other content, OSError.
    """
    counts = {"artifacts": 0, "outputs": 0, "files": 0}
    names = _Names()
    for file in files_of(produced):
        if file.path in but:
            continue
        if file.number is not None and not produced.artifacts.has(file.number):
            note(f"{file.path!r} was not written: its artifact was deleted")
            continue
        if not is_path(file.path):  # the database is damaged
            note(f"{file.path!r} was not written: it is no path in a folder")
            continue
        names.add(file)
        counts[_kind(file)] += _save(produced, folder, file, note)
    every: Iterator[ArtifactInfo | OutputInfo] = chain(produced.artifacts, produced.outputs)
    for file in filter(names.lack, map(_own_file, every)):
        if names.is_taken(file.path) or file.path in but:
            note(f"'{file.path}' is the name of an imported file: what else has it was not written")
            continue
        counts[_kind(file)] += _save(produced, folder, file, note)
    return counts


class _Names:
    """The paths of imported files, and what they are."""

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._numbers: set[int | None] = set()
        self._versions: dict[str | None, int] = {}  # the newest of each output

    def add(self, file: FileRow) -> None:
        self._paths.add(file.path)
        self._numbers.add(file.number)
        self._versions[file.output] = max(file.version or 0, self._versions.get(file.output, 0))

    def lack(self, file: FileRow) -> bool:
        """Return whether something is neither an imported file, nor an output that was one."""
        if file.number is not None:
            return file.number not in self._numbers
        return (file.version or 0) > self._versions.get(file.output, 0)

    def is_taken(self, path: str) -> bool:
        """Return whether an imported file has a path."""
        return path in self._paths


def _kind(file: FileRow) -> str:
    return "artifacts" if file.number is not None else "outputs" if file.output else "files"


def _own_file(info: ArtifactInfo | OutputInfo) -> FileRow:
    """Return the file that something becomes which came from none."""
    if isinstance(info, OutputInfo):
        return FileRow(outputs.file_name(info), output=info.output_id, version=info.version)
    return FileRow(artifacts.file_name(info), int(info.artifact_id))


def _save(produced: OutputStore, folder: str, file: FileRow, note: Note) -> bool:
    """Write a file of a folder unless it is there; return False for one that was erased."""
    try:
        _write(produced, folder, file)
    except ErasedError as error:
        note(f"{file.path!r} was not written: {error.what}")
        return False
    return True


def _write(produced: OutputStore, folder: str, file: FileRow) -> None:
    path = os.path.join(folder, file.path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if file.digest is not None:
        artifacts.save_or_compare(path, produced.blobs.stream(file.digest), file.digest.hex())
    elif file.number is not None:
        produced.artifacts.export(file.number, path)
    else:
        info = produced.outputs.get(file.output or "", file.version or 1)
        artifacts.save_or_compare(path, produced.outputs.stream(info), info.hash)


def is_path(path: str) -> bool:
    """Return whether a path, of whatever source, can be one in a folder, and leads nowhere else."""
    try:
        parts = path.encode().split(b"/")
    except UnicodeEncodeError:
        return False
    return len(path) <= _LONGEST and all(
        part not in (b"", b".", b"..") and len(part) <= _NAME and b"\0" not in part
        for part in parts
    )


def has_any(produced: OutputStore) -> bool:
    """Return whether a folder of a scope would have a file."""
    scope = produced.scope
    if produced.database.scopes.files(scope, "", 1):
        return True
    return produced.database.outputs.of(scope).has_any()


def files_of(produced: OutputStore) -> Iterator[FileRow]:
    """Yield the files that were imported into a scope, by path."""
    after = ""
    while page := produced.database.scopes.files(produced.scope, after, _PAGE):
        yield from page
        after = page[-1].path


def _files(folder: str, note: Note, skip: str) -> Iterator[str]:
    """Yield the path of each plain file in a folder and those below, links not followed."""
    todo = [""]
    while todo:
        inside = todo.pop()
        for entry in _entries(os.path.join(folder, inside), note if inside else None):
            path = os.path.join(inside, entry.name)
            if why := _why_not(entry, skip):
                note(f"{os.path.join(folder, path)!r} was left out: {why}")
            elif entry.is_dir():
                todo.append(path)
            else:
                yield path


def _entries(folder: str, note: Note | None) -> list[os.DirEntry[str]]:
    """Return what is in a folder; none if it cannot be read, when that can be noted."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        if note is None:
            raise
        note(f"'{folder}' was left out: {error.strerror or error}")
        return []


def _why_not(entry: os.DirEntry[str], skip: str) -> str:
    """Return why an entry of a folder cannot be stored, "" if it can."""
    if entry.is_symlink():
        return "it is a link"
    if not entry.is_dir() and not entry.is_file():
        return "it is neither a file nor a folder"
    if os.path.realpath(entry.path) == skip:
        return "it is the thread"
    if entry.is_file() and entry.stat().st_size > LARGEST:
        return "it has more than 4 GiB"
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return ""


def _order(path: str) -> tuple[int, str]:
    """Return what sorts paths: artifacts by number, then the others."""
    match = artifacts.file_parts(path)
    return (int(match[1]) if match else artifacts.LARGEST_ID, path)


class _Incoming:
    """One file of a folder, and what it was when the folder was imported before."""

    def __init__(self, produced: OutputStore, folder: str, path: str) -> None:
        self._produced = produced
        self._path = path
        self._place = os.path.join(folder, path)
        self._was = produced.database.scopes.file(produced.scope, path)

    def blob(self) -> Blob:
        """Store it as a blob."""
        made = self._put()
        self._note_as(FileRow(self._path, digest=bytes.fromhex(made.hash)))
        return made

    def _put(self) -> Blob:
        with disk.open_regular(self._place, follow=False) as file:
            return self._produced.blobs.put(file)

    def _note_as(self, file: FileRow) -> bool:
        if file == self._was:
            return False
        self._produced.database.scopes.put_file(self._produced.scope, file)
        return True

    def is_displaced(self) -> bool:
        """Return whether it is an artifact whose number something else has here."""
        match = artifacts.file_parts(self._path)
        if match is None or (self._was is not None and self._was.number is not None):
            return False
        pieces = partial(artifacts.read_file, self._place)
        return not self._produced.artifacts.is_same(artifacts.incoming(match), pieces)

    def store(self, note: Note) -> bool:
        """Store it as what its name says; return whether that is new or changed."""
        if match := artifacts.file_parts(self._path):
            return self._artifact(artifacts.incoming(match), note)
        if match := outputs.file_parts(self._path):
            return self._output(match[1], int(match[2] or 1))
        before = self._was
        return self.blob().hash != (before and before.digest and before.digest.hex())

    def _artifact(self, wanted: ArtifactInfo, note: Note) -> bool:
        number = int(wanted.artifact_id)
        had = None if self._was is None else self._was.number
        if had is not None and not self._produced.artifacts.has(had):
            note(f"'{self._place}' was left out: it was deleted here as artifact {had}")
            return False
        with self._produced.database.write():  # else a crash between would store it again
            made, new = self._produced.artifacts.place(
                wanted if had is None else wanted._replace(artifact_id=str(had)),
                partial(artifacts.read_file, self._place),
                instead=had is not None,
            )
            self._note_as(FileRow(self._path, int(made.artifact_id)))
        if int(made.artifact_id) != number:
            note(f"{self._path} is {made.url} here: {number} is another one's number")
        return new

    def _output(self, output_id: str, version: int) -> bool:
        was = 0 if self._was is None else self._was.version or 0
        before = {(output_id, one) for one in range(1, was)}  # a file that is as it was once is new
        made, new = self._produced.outputs.take(output_id, version, self._put().hash, taken=before)
        return self._note_as(FileRow(self._path, None, output_id, made.version)) or new
