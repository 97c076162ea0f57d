"""One image: opened, upright, opaque, of the wanted colours, and brought to size.

    crop     scaled until it covers the size; the middle is kept
    stretch  scaled to the size, each side by itself
    pad      scaled until it fits inside the size; black around it

An image that already has the size keeps its pixels exactly. Whatever is in the file, the outcome is an image or
`BadImage`: a file is data, and may be cut short, mislabelled, or made to fill the memory.

Shapes: H height · W width · C channels (1 grey, 3 colours)
"""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile

from regard.data.unpack import RATIO, most_unpacked
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.settings import ImageSettings

Size = tuple[int, int]  # width, height, as Pillow has it
Rectangle = tuple[int, int, int, int]  # left, top, right, bottom; the last two are not in it

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
ENDINGS = frozenset(
    (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm")
)
LARGEST = 256 * 2**20  # bytes of a file; a larger one is not an image to learn from
FREE = 64 * 2**20  # bytes of pixels that any file may have: a blank page packs well
ROWS = 256
LARGE = 2**24  # pixels; images of more are decoded one at a time


class Form(NamedTuple):
    """What all images are brought to: `ImageSettings` for processes that do not load the settings."""

    height: int
    width: int
    colour: bool
    fit: str

    @classmethod
    def of(cls, settings: ImageSettings) -> Form:
        return cls(settings.height, settings.width, settings.colour, settings.fit)

    @property
    def channels(self) -> int:
        return 3 if self.colour else 1

    @property
    def bytes(self) -> int:
        return self.height * self.width * self.channels


class BadImage(Exception):
    """An image that cannot be used, and why, in a short sentence."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def read_image(source: Path | BinaryIO, settings: ImageSettings | Form) -> NDArray[np.uint8]:
    """The pixels [H, W, C] of an encoded image, from a file or a stream."""
    return read_with_size(source, settings)[0]


def read_with_size(source: Path | BinaryIO, settings: ImageSettings | Form) -> tuple[NDArray[np.uint8], Size]:
    """The pixels [H, W, C] of an encoded image, and the width and height that it has itself, upright."""
    content = _content(source)
    try:
        image = _opened(content)
        size = image.size
        # A large JPEG is decoded at a half, a quarter or an eighth of its size, while that is twice the size wanted.
        image.draft(None, (2 * max(settings.height, settings.width),) * 2)
        _check_size(image, len(content))
        with ONE_LARGE if math.prod(image.size) > LARGE else nullcontext():
            image.load()
            size = size[::-1] if _is_turned(image) else size
            upright = _upright(image)
            if image.mode.startswith(("I", "F")):
                upright = _eight_bits(upright, _whites(image))
            return _fitted(upright, settings), size
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage(f"It is not an image of a known form ({', '.join(FORMATS)}).") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadImage(f"It has more than {most_pixels() // 10**6} million pixels.") from None
    except Exception:  # decoders raise errors of every kind for a file that is not as they expect
        raise BadImage("It is damaged or cut short.") from None


def most_pixels() -> int:
    """Of an image: as many as Pillow takes for safe."""
    return Image.MAX_IMAGE_PIXELS or 0


def fit_pixels(pixels: NDArray[np.uint8], settings: ImageSettings | Form) -> NDArray[np.uint8]:
    """Pixels [h, w] or [h, w, C] of any size as [H, W, C]."""
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    return _fitted(Image.fromarray(pixels), settings)


def image_files(paths: Sequence[Path]) -> list[Path]:
    """The files as given, and all images below the folders among them."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise RegardError(
                f"The image '{path}' is missing.",
                "There is no file and no folder of that name.",
                "Correct the path.",
            )
        images = [file for file in files_below(path) if is_image_name(file.name)] if path.is_dir() else [path]
        if not images:
            raise RegardError(
                f"The folder '{path}' has no images.",
                f"No file below it ends in one of {', '.join(sorted(ENDINGS))}.",
                "Name another folder, or the files themselves.",
            )
        files += images
    return files


def is_image_name(name: str) -> bool:
    return not name.startswith(".") and name[name.rfind(".") :].lower() in ENDINGS


def files_below(folder: Path) -> Iterator[Path]:
    """All files below a folder in natural order, none hidden. Links are followed, but never in a circle."""
    try:
        yield from _walk(folder, ())
    except OSError as error:
        raise RegardError(
            f"Cannot read the folder '{folder}'.", f"{error}", "Check the folder and its permissions."
        ) from None


def natural_order(name: str) -> tuple[list[Any], str]:
    """A key to sort names by: numbers in them count as numbers, so that 2 comes before 10."""
    words = re.split("([0-9]+)", name)
    # A number without its zeros is larger when it is longer: so none, however long, has to be computed.
    words[1::2] = [number.lstrip("0") for number in words[1::2]]
    return [(len(word), word) if at % 2 else word for at, word in enumerate(words)], name


# ---------------------------------------------------------------- opening


OPENING = threading.Lock()  # `catch_warnings` changes what all threads see
ONE_LARGE: AbstractContextManager[Any] = threading.Lock()  # of all processes that read the same images


def _content(source: Path | BinaryIO) -> bytes:
    try:
        if isinstance(source, Path):
            if source.exists() and not source.is_file() and not source.is_dir():
                raise BadImage("It is a pipe or a device, not a file.")
            with source.open("rb") as file:
                content = file.read(LARGEST + 1)
        else:
            content = source.read(LARGEST + 1)
    except FileNotFoundError:
        raise BadImage("It is missing.") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise BadImage(f"It cannot be read ({getattr(error, 'strerror', '') or error}).") from None
    if not content:
        raise BadImage("It is empty.")
    if len(content) > LARGEST:
        raise BadImage(f"It is larger than {LARGEST // 2**20} MB.")
    return content


def _opened(content: bytes) -> Image.Image:
    """The first frame, its header read. Pillow's warning of too many pixels counts as an error."""
    with OPENING, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(io.BytesIO(content), formats=FORMATS)


def _check_size(image: Image.Image, size: int) -> None:
    """What a header says the image is large, its file must be large enough for."""
    if math.prod(image.size) * len(image.getbands()) > most_unpacked(size, FREE):
        raise BadImage(
            f"It has {size:,} bytes, and says that it has {image.width:,} x {image.height:,} pixels: more than "
            f"{RATIO} times its size."
        )


def _upright(image: Image.Image) -> Image.Image:
    """Turned as the camera was held."""
    with suppress(Exception):  # damaged notes of the camera; the picture itself is whole
        ImageOps.exif_transpose(image, in_place=True)
    return image


def _is_turned(image: Image.Image) -> bool:
    """Whether the camera was held on its side."""
    with suppress(Exception):
        return int(image.getexif().get(ExifTags.Base.Orientation, 1)) in (5, 6, 7, 8)
    return False


def _walk(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    here = folder.resolve()
    if here in above:
        return
    for path in sorted(folder.iterdir(), key=lambda path: natural_order(path.name)):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk(path, (*above, here))
        elif path.is_file():
            yield path


# ---------------------------------------------------------------- colours and size


def _fitted(image: Image.Image, settings: ImageSettings | Form) -> NDArray[np.uint8]:
    fitted = FITS[settings.fit](_coloured(image, settings.colour), (settings.width, settings.height))
    return np.array(fitted, np.uint8).reshape(settings.height, settings.width, settings.channels)


def _coloured(image: Image.Image, colour: bool) -> Image.Image:
    """As RGB or grey, 8 bits per channel, white where it was transparent."""
    # Two modes that Pillow converts to one other only.
    if image.mode in ("LAB", "La"):
        image = image.convert({"LAB": "RGB", "La": "LA"}[image.mode])
    wanted = "RGB" if colour else "L"
    if not image.has_transparency_data:
        return image if image.mode == wanted else image.convert(wanted)
    opaque = Image.new(wanted, image.size)
    for top in range(0, image.height, ROWS):  # some rows at a time: a large image is never in memory five times
        part = image.crop((0, top, image.width, min(top + ROWS, image.height))).convert("RGBA")
        part = Image.alpha_composite(Image.new("RGBA", part.size, "white"), part)
        opaque.paste(part.convert(wanted), (0, top))
    return opaque


def _whites(image: Image.Image) -> tuple[float, ...]:
    """What may be white in an image of more than 8 bits, as opened; the first that no pixel is above counts.

    Up to 16 bits, the number of bits tells it: a dark image stays dark. 32 bits and floats are often but a wider form
    of something else, and only the pixels tell of what.
    """
    if image.mode == "F":
        return 1.0, 255.0, 65535.0
    # Pillow opens 16 bits as 32 in some forms, but 32 bits in a TIFF only.
    bits = image.tag_v2.get(BITSPERSAMPLE, (16,))[0] if isinstance(image, TiffImageFile) else 16
    return (255.0, 65535.0) if bits > 16 else (2.0**bits - 1,)


def _eight_bits(image: Image.Image, whites: tuple[float, ...]) -> Image.Image:
    """Greys of more bits, or floats, as 0 … 255: from black to white, or, beyond all of these, from their own range."""
    values_HW = np.array(image, np.float32)
    values_HW[~np.isfinite(values_HW)] = 0
    low, high = float(values_HW.min()), float(values_HW.max())
    white = next((white for white in whites if high <= white), None) if low >= 0 else None
    if white is None:
        values_HW -= low
        white = (high - low) or 1.0
    values_HW *= 255 / white
    return Image.fromarray(np.rint(values_HW, out=values_HW).astype(np.uint8))


def _crop(image: Image.Image, size: Size) -> Image.Image:
    return _scaled(image, size, _middle(image.size, size))


def _middle(own: Size, size: Size) -> Rectangle:
    """The largest middle part of the right shape, of whole pixels."""
    scale = max(size[0] / own[0], size[1] / own[1])
    width, height = (min(side, max(1, round(wanted / scale))) for side, wanted in zip(own, size, strict=True))
    left, top = (own[0] - width) // 2, (own[1] - height) // 2
    return left, top, left + width, top + height


def _stretch(image: Image.Image, size: Size) -> Image.Image:
    return _scaled(image, size, (0, 0, *image.size))


def _pad(image: Image.Image, size: Size) -> Image.Image:
    left, top, right, bottom = _inside(image.size, size)
    canvas = Image.new(image.mode, size)
    canvas.paste(_stretch(image, (right - left, bottom - top)), (left, top))
    return canvas


def _inside(own: Size, size: Size) -> Rectangle:
    """Where the whole image lies when it fits inside."""
    scale = min(size[0] / own[0], size[1] / own[1])
    width, height = (max(1, round(side * scale)) for side in own)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return left, top, left + width, top + height


def _scaled(image: Image.Image, size: Size, box: Rectangle) -> Image.Image:
    """A part of an image brought to size, without jagged edges; unchanged if it has that size."""
    if (box[2] - box[0], box[3] - box[1]) == size:
        return image.crop(box)
    return image.resize(size, Image.Resampling.BICUBIC, box)


FITS = {"crop": _crop, "stretch": _stretch, "pad": _pad}


class Placement(NamedTuple):
    """Where the pixels of an image are when it is brought to size: x · scale + shift, for either side."""

    scale: tuple[float, float]
    shift: tuple[float, float]


def placement(own: Size, settings: ImageSettings | Form) -> Placement:
    """Of an image of this width and height."""
    size = settings.width, settings.height
    part, target = (0, 0, *own), (0, 0, *size)
    if settings.fit == "crop":
        part = _middle(own, size)
    elif settings.fit == "pad":
        target = _inside(own, size)
    scale = ((target[2] - target[0]) / (part[2] - part[0]), (target[3] - target[1]) / (part[3] - part[1]))
    return Placement(scale, (target[0] - part[0] * scale[0], target[1] - part[1] * scale[1]))
