"""Make the description that package indexes show from README.md, and the project's URLs.

On an index a relative link leads nowhere. `EVENTQ_BASE_URL` is the address of the repository, as
`https://HOST/OWNER/eventq`; a release sets it, and links and images lead to the files of its tag.
Where it is not set, they are plain text, and the package names no URLs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# Code stays as it is, but for diagrams, which an index shows as their source.
_PARTS = re.compile(
    r"""
    (?P<diagram> ^```mermaid\n .*? ^```\n )
    | (?P<code> ^(?P<fence>```+|~~~+) .*? ^(?P=fence)[ ]*$
      | (?P<ticks>`+) .+? (?<!`)(?P=ticks)(?!`) )
    | (?P<definition> ^[ ]{0,3}\[ [^\]]+ \]: .*? $ )
    | (?P<image>!?) \[ (?P<text> (?: [^\[\]] | \[ [^\[\]]* \] )* ) \]
      \( (?P<to> [^)\s]+ ) (?P<title> [^)]* ) \)
    | (?P<tag> <(?P<name>\w+) \b [^>]* > )
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
_REFERENCE = re.compile(r'(?P<name>\b(?:href|src|srcset))="(?P<to>[^"]*)"')


class Hook(MetadataHookInterface):
    """What hatchling calls for the fields that `project.dynamic` names."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and, if there is an address, `urls`; what an sdist states stays."""
        if "readme" in metadata:
            return
        base, tag = os.environ.get("EVENTQ_BASE_URL", "").rstrip("/"), f"v{metadata['version']}"
        text = description(Path(self.root, "README.md").read_text("utf-8"), base, tag)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if base:
            metadata["urls"] = {
                "Homepage": base,
                "Documentation": f"{base}/blob/{tag}/USAGE.md",
                "Changelog": f"{base}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{base}/issues",
            }


def description(text: str, base: str, tag: str) -> str:
    """Return README.md with links that work elsewhere, or as plain text while `base` is empty.

    Raises ValueError for a link that is defined apart from its text, as it would stay relative.
    """

    def absolute(to: str, folder: str) -> str:
        """Return where a link leads to; an empty string for nowhere."""
        if re.match(r"[a-z][a-z0-9+.-]*:", to):
            return to
        path = f"README.md{to}" if to.startswith("#") else to
        return f"{base}/{folder}/{tag}/{path}" if base else ""

    def reference(found: re.Match[str]) -> str:
        to = absolute(found["to"], "blob" if found["name"] == "href" else "raw")
        return f'{found["name"]}="{to}"' if to else ""

    def part(found: re.Match[str]) -> str:
        if found["diagram"]:
            return ""
        if found["code"]:
            return found[0]
        if found["definition"]:
            raise ValueError(f"README.md: write the link of '{found[0]}' where its text stands")
        if found["tag"]:
            tag = _REFERENCE.sub(reference, found[0])
            alternative = re.search(r'\balt="([^"]*)"', tag)
            is_image = found["name"] == "img" and "src=" not in tag
            return (alternative[1] if alternative else "") if is_image else tag
        inner = found["text"] if found["image"] else _PARTS.sub(part, found["text"])
        to = absolute(found["to"], "raw" if found["image"] else "blob")
        return f"{found['image']}[{inner}]({to}{found['title']})" if to else inner

    return _PARTS.sub(part, text)
