"""What a status shows of the memory; apart, as it needs none of the areas."""

from __future__ import annotations

from eventq.records.info import Overview

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.store.engine import Engine

# The fields of `ContextInfo`; the newest are found before their turns are looked up.
_CONTEXTS = """
SELECT context_id, name, coalesce(head_id, 0), coalesce(depth, 0), coalesce(base_id, 0), fork_of,
    version, c.flags, c.created_at_ms, updated_at_ms
FROM (
    SELECT *
    FROM contexts
    ORDER BY updated_at_ms DESC, context_id DESC
    LIMIT ?
) c
    LEFT JOIN turns ON turn_id = head_id
ORDER BY updated_at_ms DESC, context_id DESC
"""
# The scope of an artifact, its name, and the fields of `ArtifactRow`.
_ARTIFACTS = """
SELECT a.scope_id, coalesce(s.name, c.name), number, tool, status, owner, size, lines, hash, error,
    a.created_at_ms, ended_at_ms
FROM artifacts a
    LEFT JOIN scopes s ON s.scope_id = a.scope_id
    LEFT JOIN contexts c ON c.context_id = a.scope_id
WHERE status = 'open'
ORDER BY artifact_id DESC
LIMIT ?
"""


def overview(db: Engine, limit: int) -> Overview:
    """Return the contexts that changed last, runs by status, and the newest open artifacts."""
    return Overview(
        db.run(_CONTEXTS, (limit,)),
        db.one("SELECT count(*) FROM contexts"),
        dict(db.run("SELECT status, count(*) FROM runs GROUP BY status")),
        db.run(_ARTIFACTS, (limit,)),
    )
