"""What a file holds, as text or as a picture, within a limit of size. `name` is what errors call the file."""

from pathlib import Path

from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError

from roster.demo.folder import in_words

__all__ = ["image_of", "text_of"]

MAX_TEXT_BYTES = 1_000_000
MAX_IMAGE_BYTES = 5_000_000


def text_of(path: Path, name: str) -> str:
    """The UTF-8 text of a file. Raises ToolError when it is too large, missing or something else."""
    try:
        return _bytes_of(path, name, MAX_TEXT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ToolError(f"{name!r} is not UTF-8 text; try read_image if it is a picture") from problem


def image_of(path: Path, name: str) -> Image:
    """The picture in a file, told by its first bytes. Raises ToolError when it is too large, missing or none."""
    data = _bytes_of(path, name, MAX_IMAGE_BYTES)
    match data[:12]:
        case head if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return Image(data=data, format="png")
        case head if head.startswith(b"\xff\xd8\xff"):
            return Image(data=data, format="jpeg")
        case head if head.startswith((b"GIF87a", b"GIF89a")):
            return Image(data=data, format="gif")
        case head if head.startswith(b"RIFF") and head.endswith(b"WEBP"):
            return Image(data=data, format="webp")
        case _:
            raise ToolError(f"{name!r} is not a PNG, JPEG, GIF or WebP picture")


def _bytes_of(path: Path, name: str, limit: int) -> bytes:
    with in_words(name):
        if (size := path.stat().st_size) > limit:
            raise ToolError(f"{name!r} has {size:,} bytes; this tool reads at most {limit:,}")
        return path.read_bytes()
