"""Import blobs: each is verified before it is stored. What was erased, there or here, stays so."""

from __future__ import annotations

from eventq.errors import BusyError, DamagedError, EventqError
from eventq.memory.blobs import LARGEST, digest_of
from eventq.records.checks import check_name
from eventq.store.copy_rows import ErasedCopy
from eventq.transfer import packfile
from eventq.transfer.job import fits, is_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from eventq.transfer.job import Job
    from eventq.transfer.packfile import BlobRecord, FoundBlob
    from eventq.transfer.sources import Line

_GROUP_BYTES = 4 << 20  # of blobs in one transaction; a longer one is never in memory whole
_GROUP = 1_000  # of such blobs
# A blob this many times as long as its stored bytes costs the reader more than the writer.
_FOLDED = 100
# Bytes of such blobs that may prove wrong before others are left out unread: they could take hours.
_SPARE = 1 << 30


# What a line about a blob that was erased is recognised by.
ERASED = {"erased": str, "size": int, "shown": str, "erased_at_ms": int}


def _erased_copy(line: Line) -> ErasedCopy:
    """Return the blob that a line says was erased; raise ValueError, InputError for none."""
    reason = line.get("reason")
    if reason is not None:
        check_name(reason, "reason")
    if not 0 <= line["size"] <= LARGEST or not is_time(line["erased_at_ms"]):
        raise ValueError(line["size"])
    shown = bytes.fromhex(line["shown"])
    return ErasedCopy(digest_of(line["erased"]), line["size"], shown, reason, line["erased_at_ms"])


class BlobImport:
    """The blobs of one source, and what became of them."""

    def __init__(self, job: Job) -> None:
        """Prepare; nothing is read yet."""
        self._database = job.database
        self._blobs = job.blobs
        self._source = job.source
        self._notes = job.notes
        self._new = job.new
        self._bad: set[bytes] = set()  # left out
        self._long: set[bytes] = set()  # long ones that came
        self._spare = _SPARE
        self._erased_here = 0
        self._came: set[bytes] | None = None  # all of the source, once one is missed

    def run(self) -> None:
        """Store the sound blobs, some MiB a transaction, a longer one by itself."""
        size = 0
        group: list[bytes] = []
        erased = {one.digest for one in self._database.copies.select(None).records(ErasedCopy)}
        for offset, blob in self._source.blobs():
            if blob.hash in erased:
                self._erased_here += 1
                continue
            data = self._proven(offset, blob)
            if data is None:
                continue
            if isinstance(data, packfile.Unfolded):
                self._new["blob"] += self._put_long(blob, data)
                continue
            group.append(data)
            size += len(data)
            if size >= _GROUP_BYTES or len(group) == _GROUP:
                self._put(group)
                group, size = [], 0
        self._put(group)
        self._keep_erased()
        if self._erased_here:
            verbs = ("was", "stays") if self._erased_here == 1 else ("were", "stay")
            what = f"blob{'s' * (self._erased_here > 1)} {verbs[0]} erased here, and {verbs[1]} so"
            self._notes.remark(f"{self._erased_here} {what}")

    def _put(self, group: list[bytes]) -> None:
        with self._database.write():
            new = self._blobs.put_many(group)
        self._new["blob"] += new

    def _keep_erased(self) -> None:
        """Store what was erased in the source as erased, unless its bytes are here."""
        for line in self._source.lines():
            if line is not None and fits(line, ERASED):
                try:
                    self._database.erasures.keep(_erased_copy(line))
                except (EventqError, ValueError):
                    self._notes.fault(f"{packfile.BESIDE}: what it says was erased is no blob")

    def _put_long(self, blob: FoundBlob | BlobRecord, file: packfile.Unfolded) -> bool:
        data: BinaryIO = file  # type: ignore[assignment]  # it is read once, and nothing else
        return self._blobs.put(data, expect_hash=blob.hash, expect_size=blob.raw_len).new

    def _proven(
        self, offset: int, blob: FoundBlob | BlobRecord
    ) -> bytes | packfile.Unfolded | None:
        """Return the bytes of a blob, or a file of them; None if it came before or is damaged."""
        if blob.hash in self._long:
            return None
        try:
            data = self._checked(blob)
        except DamagedError as error:
            self._bad.add(blob.hash)
            where = f"{packfile.BLOBS}: the record at byte {offset}"
            self._notes.fault(f"{where} was left out: {error.what}")
            return None
        if data is not None:
            return data
        self._long.add(blob.hash)
        return blob.open()

    def _checked(self, blob: FoundBlob | BlobRecord) -> bytes | None:
        """Return the bytes of a blob, None for a long one, which is sound; raise DamagedError."""
        folded = blob.raw_len if blob.raw_len > _FOLDED * blob.stored_len else 0
        if self._spare < 0 and folded:
            blob.fail(f"says that it has {blob.raw_len} bytes, and others that said so were wrong")
        self._spare -= folded
        data = blob.raw() if blob.raw_len <= _GROUP_BYTES else None
        if data is None:
            blob.check()
        self._spare += folded
        return data

    def check_collected(self, digest: bytes) -> None:
        """Raise BusyError when a blob that is not here any more had come with the import."""
        if digest in self._bad or self._blobs.has(digest):
            return
        if self._came is None:
            self._came = self._source.blob_hashes()
        if digest in self._came:
            raise BusyError("a collection deleted what the import had stored", "import again")
