"""Images: files that are decoded on request, and arrays of pixels that may stay on the disk."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from shortlist.data.files.mapped_arrays import StackedArrays
from shortlist.data.inputs import compose_rows
from shortlist.errors import ChoiceError, InputError, reason
from shortlist.extras import require
from shortlist.fingerprint import Digest
from shortlist.limits import advice, limit

# Listed explicitly, because Pillow also opens formats that start other programs (EPS runs Ghostscript).
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


class PathList:
    """Paths of many files, stored compactly: each folder once, all names in one bytes object.

    Args:
        folders: pairs of a folder and the names of files in it.

    Example:
        >>> paths = PathList([("flowers/rose", ["1.jpg", "2.jpg"]), ("flowers/daisy", ["1.jpg"])])
        >>> len(paths), os.path.basename(paths[1])
        (3, '2.jpg')
    """

    def __init__(self, folders: Iterable[tuple[str, Sequence[str]]]) -> None:
        self.folders: list[str] = []
        blocks, sizes, counts = [], [np.zeros(1, dtype=np.int64)], []
        for folder, names in folders:
            # One call per folder: no name contains a slash.
            coded = os.fsencode("/".join(names)).split(b"/") if names else []
            self.folders.append(folder)
            counts.append(len(coded))
            sizes.append(np.fromiter(map(len, coded), dtype=np.int64, count=len(coded)))
            blocks.append(b"".join(coded))
        self._names = b"".join(blocks)
        self._bounds = np.concatenate(sizes).cumsum()
        self._folder = np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    @classmethod
    def of(cls, paths: Iterable[str | Path]) -> PathList:
        """Take paths as they are, in the given order."""

        def runs() -> Iterable[tuple[str, list[str]]]:
            folder, names = None, []
            for path in paths:
                head, name = os.path.split(path)
                if head != folder and names:
                    yield str(folder), names
                    names = []
                folder = head
                names.append(name)
            if names:
                yield str(folder), names

        return cls(runs())

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._folder)

    def __getitem__(self, position: int) -> str:
        """The path of one file."""
        name = self._names[self._bounds[position] : self._bounds[position + 1]]
        return os.path.join(self.folders[self._folder[position]], os.fsdecode(name))


_USUAL_SIDE = 224
"""To which images that differ are offered to be resized: what most networks were made for."""


class ImageFiles:
    """Image files, read on request; a batch is uint8 ``(B, 3, H, W)``: red, green, blue.

    Gray, palette, CMYK and 16-bit images (their upper 8 bits) become RGB, transparent areas become white, and the EXIF
    orientation is applied. Files need not exist before they are read. Needs Pillow (the extra ``data``).

    Args:
        paths: the files, one per row; see also `PathList`.
        size: ``(height, width)`` to which images are resized (bicubic); or an integer, for the central square of
            each image, resized to that many pixels. None keeps images as they are; those of a batch must then agree.
        rows: which of the paths, in which order; None for all.

    Raises:
        InputError: on reading; names a file that is no image, is damaged, or has more pixels than
            `shortlist.limits` allows.

    Example:
        >>> files = ImageFiles(["flowers/rose.jpg", "flowers/daisy.jpg"], size=224)
        >>> len(files), files.path(1).name
        (2, 'daisy.jpg')
    """

    kind = "images"

    def __init__(
        self,
        paths: Sequence[str | Path] | PathList,
        *,
        size: int | tuple[int, int] | None = None,
        rows: Tensor | None = None,
    ) -> None:
        sides = size if isinstance(size, tuple) else (1, 1 if size is None else size)
        if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
            raise InputError(f"`size` must be an integer from 1, or (height, width); got {size!r}.")
        self.paths = paths if isinstance(paths, PathList) else PathList.of(paths)
        self.size, self.rows = size, rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.paths) if self.rows is None else len(self.rows)

    def path(self, row: int) -> Path:
        """The file of one row."""
        if not 0 <= row < len(self):
            raise IndexError(f"`row` must lie in [0, {len(self) - 1}]; got {row}.")
        return Path(self.paths[row if self.rows is None else int(self.rows[row])])

    def batch(self, rows: Tensor) -> Tensor:
        """Read and decode images; uint8 ``(B, 3, H, W)``."""
        sides = self.size if isinstance(self.size, tuple) else (self.size or 0, self.size or 0)
        batch, first = np.empty((len(rows), 3, *sides), dtype=np.uint8), None
        for position, row in enumerate(rows.tolist()):
            path = self.path(row)
            pixels = _decode(path, self.size)
            if first is None:
                first, sides = path, pixels.shape[:2]
                batch = np.empty((len(rows), 3, *sides), dtype=np.uint8)
            if pixels.shape[:2] != sides:
                raise ChoiceError(
                    f"`{first}` and `{path}` have {sides[0]} x {sides[1]} and {pixels.shape[0]} x {pixels.shape[1]} "
                    f"pixels; pass `size` to read them into one batch.",
                    [{"size": min(_USUAL_SIDE, *sides, *pixels.shape[:2])}],
                )
            batch[position] = pixels.transpose(2, 0, 1)
        return torch.from_numpy(batch)

    def take(self, rows: Tensor) -> ImageFiles:
        """The same files, restricted to some rows."""
        return ImageFiles(self.paths, size=self.size, rows=compose_rows(self.rows, rows))

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Hashes of the files' bytes; nothing is decoded."""
        return [Digest(_content(self.path(row))).bytes() for row in rows.tolist()]

    def missing(self) -> list[int]:
        """The rows whose files do not exist."""
        return [row for row in range(len(self)) if not self.path(row).exists()]

    def sizes(self) -> Tensor:
        """The size of each file in bytes, ``(N,)`` int64: only files of one size need be compared."""
        return torch.tensor([_length(self.path(row)) for row in range(len(self))], dtype=torch.int64)


class ImageArray:
    """Images of one shape in an array, memory-mapped or not; a batch is uint8 ``(B, 3, H, W)`` or ``(B, 1, H, W)``.

    Args:
        array: uint8 ``(N, H, W, 3)``, or gray as ``(N, H, W, 1)`` or ``(N, H, W)``; or a list of such arrays, whose
            rows follow each other.
        rows: which of its rows, in which order; None for all.

    Example:
        >>> import numpy as np
        >>> images = ImageArray(np.zeros((5, 28, 32, 3), dtype=np.uint8))
        >>> len(images), images.batch(torch.tensor([4, 0])).shape
        (5, torch.Size([2, 3, 28, 32]))
    """

    kind = "images"

    def __init__(self, array: Any, rows: Tensor | None = None) -> None:
        parts = [
            part.numpy() if isinstance(part, Tensor) else part
            for part in (array if isinstance(array, (list, tuple)) else [array])
        ]
        if not parts:
            raise ValueError("`array` must be an array or a list of arrays; got an empty list.")
        for part in parts:
            if part.dtype != np.uint8:
                raise TypeError(f"`array` must be uint8; got {part.dtype}.")
            if part.ndim not in (3, 4) or (part.ndim == 4 and part.shape[3] not in (1, 3)):
                raise ValueError(
                    f"`array` must have shape (N, H, W), (N, H, W, 1) or (N, H, W, 3); got {tuple(part.shape)}."
                )
            if part.shape[1:] != parts[0].shape[1:]:
                shapes = f"{tuple(parts[0].shape[1:])} and {tuple(part.shape[1:])}"
                raise ValueError(f"`array` must hold images of one shape; got {shapes}.")
        self.pixels, self.rows = StackedArrays(parts), rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.pixels) if self.rows is None else len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row, channels first."""
        height, width, *channels = self.pixels.shape[1:]
        return (*(channels or [1]), height, width)

    def batch(self, rows: Tensor) -> Tensor:
        """Read images; uint8 ``(B, channels, H, W)``."""
        channels, height, width = self.shape
        pixels = self.pixels[compose_rows(self.rows, rows).numpy()].reshape(-1, height, width, channels)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))

    def take(self, rows: Tensor) -> ImageArray:
        """The same array, restricted to some rows."""
        return ImageArray(self.pixels.parts, compose_rows(self.rows, rows))

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Hashes of the pixels."""
        return [Digest(image.tobytes()).bytes() for image in self.batch(rows).numpy()]


def _refuse_pipe(path: Path) -> None:
    """Raise for a pipe, a device or a folder, whatever it is called: reading a pipe would wait forever."""
    try:
        found = path.exists() and not path.is_file()
    except OSError as error:  # No file can have such a name.
        raise InputError(f"`{str(path)[:200]}…` cannot be read: {reason(error)}.") from error
    if found:
        raise InputError(f"`{path}` must be a file to be read as an image.")


def _content(path: Path) -> bytes:
    _refuse_pipe(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}.") from error


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}.") from error


def _decode(path: Path, size: int | tuple[int, int] | None) -> np.ndarray:
    """Pixels of an image file, uint8 ``(H, W, 3)``."""
    _refuse_pipe(path)
    return decode_image(path, size, name=f"`{path}`", most=limit("pixels"))


def decode_image(
    file: Path | BinaryIO, size: int | tuple[int, int] | None, *, name: str, most: int | None = None
) -> np.ndarray:
    """Pixels of an image, uint8 ``(H, W, 3)``.

    Args:
        file: its path, or its content.
        size: as in `ImageFiles`.
        name: what messages call it.
        most: pixels that it may have; by default the limit ``pixels``.

    Raises:
        InputError: if it has more, is no image, or is damaged.
    """
    pillow: Any = require("PIL.Image", extra="data")
    allowed = limit("pixels") if most is None else most
    if pillow.MAX_IMAGE_PIXELS is not None and allowed > 2 * pillow.MAX_IMAGE_PIXELS:
        pillow.MAX_IMAGE_PIXELS = allowed  # Pillow refuses twice its own limit, and the user raised ours.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # About odd metadata, which does not affect the pixels.
            with pillow.open(file, formats=_FORMATS) as image:
                if image.width * image.height > allowed:
                    raise pillow.DecompressionBombError
                return np.asarray(_resized(_rgb(_upright(image, pillow), pillow), size, pillow))
    except pillow.DecompressionBombError as error:
        of_limit = allowed == limit("pixels")
        raise InputError(
            f"{name} has too many pixels: {advice('pixels') if of_limit else f'at most {allowed} are read'}."
        ) from error
    except pillow.UnidentifiedImageError as error:
        raise InputError(f"{name} is not an image that can be read ({', '.join(_FORMATS)}).") from error
    except Exception as error:  # Decoders of damaged files raise whatever struct, zlib or indexing raise.
        raise InputError(f"{name} cannot be read as an image: {reason(error)}.") from error


def _upright(image: Any, pillow: Any) -> Any:
    try:
        turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION))
    except (SyntaxError, ValueError, TypeError, KeyError, IndexError, struct.error):
        turn = None  # Some cameras write broken EXIF data around good pixels.
    return image if turn is None else image.transpose(pillow.Transpose[turn])


def _rgb(image: Any, pillow: Any) -> Any:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode == "F":
        raise ValueError("pixels must be integers of up to 16 bits, not floating")
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        if values.size and (values.min() < 0 or values.max() > 65535):
            raise ValueError("pixels must be integers of up to 16 bits")
        return pillow.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("LA", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        canvas = pillow.new("RGBA", image.size, "white")
        canvas.alpha_composite(image)
        return canvas.convert("RGB")
    return image.convert("RGB")


def _resized(image: Any, size: int | tuple[int, int] | None, pillow: Any) -> Any:
    if size is None:
        return image
    width, height = image.size
    if isinstance(size, int):
        # Only the central square is resized: resizing a long, narrow image as a whole could fill the memory.
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        box, size = (left, top, left + side, top + side), (size, size)
    else:
        box = (0, 0, width, height)
    return image.resize((size[1], size[0]), pillow.Resampling.BICUBIC, box=box)
