"""The C extension of `zstandard`, without the package, which imports `platform` and `typing`.

Those imports take ten times as long as the C extension. Without the extension, the whole package is
used.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError, frame_content_size
else:
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    _NAME = "zstandard.backend_c"

    def _c_part() -> object:
        """Load the C part for a later `import zstandard` too; return None where there is none."""
        package = PathFinder.find_spec("zstandard")
        places = package.submodule_search_locations if package else None
        spec = PathFinder.find_spec(_NAME, places) if places else None
        if spec is None:
            return None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return sys.modules.setdefault(_NAME, module)

    _zstd = sys.modules.get(_NAME) or _c_part()
    if _zstd is None:
        import zstandard as _zstd

    ZstdCompressor, ZstdDecompressor = _zstd.ZstdCompressor, _zstd.ZstdDecompressor
    ZstdError, frame_content_size = _zstd.ZstdError, _zstd.frame_content_size

__all__ = ["ZstdCompressor", "ZstdDecompressor", "ZstdError", "frame_content_size"]
