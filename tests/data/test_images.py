"""One image: every kind of pixel, every way to bring it to size, and every way a file can be bad."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.data import images
from regard.data.images import ENDINGS, BadImage, fit_pixels, image_files, natural_order, read_image
from regard.errors import RegardError
from regard.settings import ImageSettings


def settings(size: int | list[int] = 8, colour: bool = True, fit: str = "crop") -> ImageSettings:
    return ImageSettings(size=size, colour=colour, fit=fit)


def noise(*shape: int, dtype=np.uint8, top: int = 256) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, top, shape).astype(dtype)


def encoded(image: Image.Image, form: str = "PNG", **options) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, form, **options)
    file.seek(0)
    return file


def reason_of(source: Path | io.BytesIO | bytes) -> str:
    with pytest.raises(BadImage) as caught:
        read_image(io.BytesIO(source) if isinstance(source, bytes) else source, settings())
    assert caught.value.reason.endswith(".")
    return caught.value.reason


# --- Pixels of every kind --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM"])
@pytest.mark.parametrize("fit", ["crop", "stretch", "pad"])
def test_an_image_of_the_right_size_keeps_its_pixels(form, fit):
    pixels = noise(8, 8, 3)
    assert np.array_equal(read_image(encoded(Image.fromarray(pixels), form), settings(fit=fit)), pixels)


@pytest.mark.parametrize("form", ["JPEG", "WEBP", "GIF"])
def test_lossy_forms_are_what_pillow_decodes(form):
    file = encoded(Image.fromarray(noise(8, 8, 3)), form)
    expected = np.asarray(Image.open(io.BytesIO(file.getvalue())).convert("RGB"))
    assert np.array_equal(read_image(file, settings()), expected)


def test_a_file_and_a_stream_give_the_same(tmp_path):
    image = Image.fromarray(noise(20, 30, 3))
    image.save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png", settings()), read_image(encoded(image), settings()))


def test_grey_becomes_colour_and_colour_grey():
    grey = noise(8, 8)
    assert np.array_equal(read_image(encoded(Image.fromarray(grey)), settings()), np.stack([grey] * 3, -1))
    assert np.array_equal(read_image(encoded(Image.fromarray(grey)), settings(colour=False))[:, :, 0], grey)
    red = Image.new("RGB", (8, 8), (255, 0, 0))
    assert (read_image(encoded(red), settings(colour=False)) == 76).all()  # 0.299 · 255


def test_one_bit_is_black_and_white():
    bits = noise(8, 8, top=2)
    pixels = read_image(encoded(Image.fromarray(bits * 255).convert("1")), settings(colour=False))
    assert np.array_equal(pixels[:, :, 0], bits * 255)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_white_and_what_is_opaque_unchanged(mode):
    channels = len(mode)
    pixels = noise(8, 8, channels)
    pixels[:4, :, -1], pixels[4:, :, -1] = 0, 255
    read = read_image(encoded(Image.fromarray(pixels, mode)), settings())
    assert (read[:4] == 255).all()
    colours = pixels[4:, :, :-1]
    assert np.array_equal(read[4:], np.broadcast_to(colours, (4, 8, 3)))


def test_half_transparent_black_is_grey():
    assert (np.abs(read_image(encoded(Image.new("RGBA", (8, 8), (0, 0, 0, 128))), settings()) - 127.0) <= 1).all()


@pytest.mark.parametrize("form", ["PNG", "GIF"])
def test_the_transparent_colour_of_a_palette_is_white(form):
    image = Image.new("P", (8, 8), 0)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.paste(1, (0, 0, 8, 4))
    read = read_image(encoded(image, form, transparency=0), settings())
    assert (read[:4] == (200, 100, 50)).all()
    assert (read[4:] == 255).all()


def test_a_palette_without_transparency_gives_its_colours():
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    assert (read_image(encoded(image), settings()) == (200, 100, 50)).all()


def test_cmyk_becomes_rgb():
    cyan = Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    assert (np.abs(read_image(encoded(cyan, "TIFF"), settings()) - np.array([0.0, 255, 255])) <= 2).all()
    grey = read_image(encoded(cyan, "JPEG"), settings(colour=False))
    assert (np.abs(grey - 178.0) <= 3).all()  # (0.587 + 0.114) · 255


def test_lab_becomes_rgb_and_grey():
    lab = np.stack([noise(8, 8, top=100) + 80, noise(8, 9, top=40)[:, :8] + 108, noise(8, 10, top=40)[:, :8] + 108], -1)
    light, a, b = np.moveaxis(lab.astype(float), -1, 0) - np.array([0, 128, 128])[:, None, None]
    y = (light / 2.55 + 16) / 116
    xyz = np.stack([y + a / 500, y, y - b / 200], -1) ** 3 * (0.9642, 1, 0.8249)  # as seen in light of D50
    to_rgb = [[3.13386, -1.61687, -0.49061], [-0.97877, 1.91614, 0.03345], [0.07195, -0.22899, 1.40524]]
    expected = 255 * (1.055 * (xyz @ np.transpose(to_rgb)) ** (1 / 2.4) - 0.055)
    image = Image.merge("LAB", [Image.fromarray(band) for band in np.moveaxis(lab, -1, 0).astype(np.uint8)])
    file = encoded(image, "TIFF")
    off = np.abs(read_image(io.BytesIO(file.getvalue()), settings()) - expected)
    assert off.max() <= 4 and off.mean() <= 0.5
    grey = read_image(file, settings(colour=False))[:, :, 0]
    assert np.abs(grey - expected @ (0.299, 0.587, 0.114)).max() <= 2


def test_greys_that_are_stored_with_their_transparency_are_read():
    pixels = np.zeros((8, 8, 2), np.uint8)
    pixels[:4], pixels[4:] = (50, 100), (90, 255)  # half of them: 50 of 100, on white
    file = tiff(pixels, (8, 8), extra=1)
    assert Image.open(io.BytesIO(file.getvalue())).mode == "La"
    read = read_image(file, settings(colour=False))
    assert (np.abs(read[:4] - (50.0 + 155)) <= 1).all() and (read[4:] == 90).all()


GREY_MODES = ("1", "L", "P", "I", "F", "I;16", "I;16B", "I;16L", "I;16N")
OTHER_MODES = ("LA", "La", "PA", "RGB", "YCbCr", "HSV", "LAB", "RGBA", "RGBa", "RGBX", "CMYK")


@pytest.mark.parametrize("mode", GREY_MODES + OTHER_MODES)
@pytest.mark.parametrize("colour", [True, False])
def test_an_image_of_any_mode_is_taken(monkeypatch, mode, colour):
    monkeypatch.setattr(images, "_opened", lambda content: Image.new(mode, (8, 8)))
    assert read_image(io.BytesIO(b"any"), settings(colour=colour)).shape == (8, 8, 3 if colour else 1)


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_16_bits_are_scaled_not_clipped(form):
    eight = noise(8, 8)
    image = Image.fromarray(eight.astype(np.uint16) * 257)
    assert image.mode == "I;16"
    assert np.array_equal(read_image(encoded(image, form), settings(colour=False))[:, :, 0], eight)


def tiff(pixels: np.ndarray | bytes, bits: tuple[int, ...], **tags: int) -> io.BytesIO:
    """A plain TIFF of 8 x 8 greys, with tags that Pillow reads but does not write."""
    raw = pixels if isinstance(pixels, bytes) else pixels.tobytes()
    numbers = {256: 8, 257: 8, 258: bits, 259: 1, 262: 1, 273: 0, 277: len(bits), 278: 8, 279: len(raw)}
    numbers |= {{"extra": 338, "format": 339}[name]: value for name, value in tags.items()}
    numbers[273] = 8 + 2 + 12 * len(numbers) + 4  # where the pixels start
    content = struct.pack("<2sHIH", b"II", 42, 8, len(numbers))
    for tag, value in sorted(numbers.items()):
        values = value if isinstance(value, tuple) else (value,)
        content += struct.pack("<HHI", tag, 3, len(values)) + struct.pack(f"<{len(values)}H", *values).ljust(4, b"\0")
    return io.BytesIO(content + bytes(4) + raw)


@pytest.mark.parametrize("factor", [1, 257])
def test_32_bits_that_hold_8_or_16_are_as_those(factor):
    eight = noise(8, 8)
    eight[0, 0] = 255
    for kind in (1, 2):  # without and with a sign
        file = tiff(eight.astype("<i4") * factor, (32,), format=kind)
        assert Image.open(io.BytesIO(file.getvalue())).mode == "I"
        assert np.array_equal(read_image(file, settings(colour=False))[:, :, 0], eight)
    turned = encoded(Image.fromarray(eight.astype(np.int32) * factor), "TIFF", tiffinfo={0x0112: 3})
    assert np.array_equal(read_image(turned, settings(colour=False))[:, :, 0], eight[::-1, ::-1])


def test_a_dark_image_of_16_bits_stays_dark():
    dark = noise(8, 8).astype("<u2")
    image = Image.fromarray(dark)
    files = [encoded(image, form) for form in ("PNG", "TIFF", "PPM")] + [tiff(dark, (16,), format=2)]
    modes = {Image.open(io.BytesIO(file.getvalue())).mode for file in files}
    assert modes == {"I", "I;16"}
    for file in files:
        assert read_image(file, settings()).max() <= 1


def test_12_bits_are_brought_to_8():
    twelve = noise(8, 8, dtype=int, top=4096)
    raw = b"".join(bytes((a >> 4, (a & 15) << 4 | b >> 8, b & 255)) for a, b in twelve.reshape(-1, 2).tolist())
    read = read_image(tiff(raw, (12,)), settings(colour=False))[:, :, 0]
    assert np.array_equal(read, np.rint(twelve * (255 / 4095)))


def test_32_bit_numbers_beyond_16_bits_are_scaled_by_their_own_range():
    image = Image.fromarray(np.linspace(-1_000_000, 3_000_000, 64, dtype=np.int32).reshape(8, 8))
    read = read_image(encoded(image, "TIFF"), settings(colour=False)).ravel()
    assert read[0] == 0 and read[-1] == 255
    assert (np.diff(read.astype(int)) >= 4).all()


@pytest.mark.parametrize("top", [1.0, 255.0, 65535.0])
def test_floats_are_scaled_from_the_usual_range_that_holds_them(top):
    eight = noise(8, 8)
    eight[0, 0] = 255
    image = Image.fromarray((eight / 255 * top).astype(np.float32))
    assert image.mode == "F"
    assert np.array_equal(read_image(encoded(image, "TIFF"), settings(colour=False))[:, :, 0], eight)


def test_floats_that_are_not_numbers_are_black():
    values = np.full((8, 8), 0.5, np.float32)
    values[0, 0], values[0, 1] = np.nan, np.inf
    read = read_image(encoded(Image.fromarray(values), "TIFF"), settings(colour=False))[:, :, 0]
    assert read[0, 0] == read[0, 1] == 0
    assert read[1, 1] == 128


def test_the_first_frame_counts():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    file = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (read_image(file, settings()) == (255, 0, 0)).all()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF"])
def test_the_image_is_turned_as_the_camera_was_held(form):
    image = Image.new("RGB", (16, 8), "black")
    image.paste((255, 255, 255), (0, 0, 8, 8))  # white on the left as stored
    exif = Image.Exif()
    exif[0x0112] = 6  # the top of the picture is at the right: to be turned a quarter clockwise
    read = read_image(encoded(image, form, exif=exif), settings([16, 8]))
    assert read[:7].min() > 240 and read[9:].max() < 15


# --- Size ------------------------------------------------------------------------------------------------


def half_white(width: int, height: int, box: tuple[int, int, int, int]) -> io.BytesIO:
    image = Image.new("L", (width, height))
    image.paste(255, box)
    return encoded(image)


def test_crop_keeps_the_middle():
    wide = half_white(40, 10, (15, 0, 25, 10))
    assert (read_image(wide, settings(10, colour=False)) == 255).all()
    tall = half_white(10, 41, (0, 15, 10, 25))
    assert (read_image(tall, settings(10, colour=False)) == 255).all()


def test_crop_covers_the_size_whole():
    white = half_white(7, 13, (0, 0, 7, 13))
    assert (read_image(white, settings([32, 20], colour=False)) == 255).all()


def test_crop_without_scaling_is_a_cut_of_the_pixels():
    pixels = noise(8, 11, 3)
    assert np.array_equal(read_image(encoded(Image.fromarray(pixels)), settings(8)), pixels[:, 1:9])


def test_stretch_keeps_all_of_it():
    halves = half_white(40, 10, (0, 0, 20, 10))
    read = read_image(halves, settings([12, 8], colour=False, fit="stretch"))[:, :, 0]
    assert read.shape == (12, 8)
    assert read[:, :3].min() > 240 and read[:, 5:].max() < 15


def test_pad_puts_black_around():
    white = half_white(40, 20, (0, 0, 40, 20))
    read = read_image(white, settings(16, fit="pad"))
    assert (read[4:12] == 255).all()
    assert (read[:4] == 0).all() and (read[12:] == 0).all()


@pytest.mark.parametrize("fit", ["crop", "stretch", "pad"])
@pytest.mark.parametrize("size", [(1, 1), (1, 999), (999, 1), (3, 500), (31, 33)])
def test_every_shape_can_be_brought_to_size(fit, size):
    image = Image.fromarray(noise(*size, 3))
    assert read_image(encoded(image), settings([6, 9], fit=fit)).shape == (6, 9, 3)


def test_shrinking_averages_instead_of_picking():
    stripes = np.zeros((64, 64), np.uint8)
    stripes[:, ::2] = 255
    read = read_image(encoded(Image.fromarray(stripes)), settings(8, colour=False))
    assert (np.abs(read - 127.5) < 6).all()


def test_a_large_jpeg_is_as_a_large_png():
    gradient = np.add.outer(np.arange(640), np.arange(960)) * 255 // 1600
    image = Image.fromarray(np.stack([gradient] * 3, -1).astype(np.uint8))
    jpeg = read_image(encoded(image, "JPEG", quality=95), settings(16)).astype(int)
    assert np.abs(jpeg - read_image(encoded(image), settings(16))).max() <= 3


def test_pixels_are_fitted_as_files_are():
    pixels = noise(20, 12)
    expected = read_image(encoded(Image.fromarray(pixels)), settings(8))
    assert np.array_equal(fit_pixels(pixels, settings(8)), expected)
    assert np.array_equal(fit_pixels(pixels[:, :, None], settings(8)), expected)


# --- Bad images ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM"])
def test_a_file_cut_short_is_bad(form):
    whole = encoded(Image.fromarray(noise(64, 64, 3)), form).getvalue()
    assert reason_of(whole[: len(whole) * 2 // 3]) == "It is damaged or cut short."


def test_text_is_not_an_image_whatever_its_name(tmp_path):
    (tmp_path / "a.png").write_text("not an image")
    assert "not an image of a known form" in reason_of(tmp_path / "a.png")


def test_forms_that_are_not_listed_are_refused():
    assert "not an image of a known form" in reason_of(encoded(Image.new("RGB", (8, 8)), "ICO"))


def test_an_empty_file_a_missing_file_and_a_folder_are_bad(tmp_path):
    (tmp_path / "a.png").touch()
    assert reason_of(tmp_path / "a.png") == "It is empty."
    assert reason_of(tmp_path / "b.png") == "It is missing."
    assert reason_of(tmp_path).startswith("It cannot be read")
    assert reason_of(tmp_path / "nul\0.png").startswith("It cannot be read")


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@pytest.mark.parametrize("side", [10_000, 20_000])  # above Pillow's warning, and above its error
def test_too_many_pixels_are_refused_from_the_header_alone(side):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reason_of(bomb) == "It has more than 89 million pixels."


def test_no_garbage_raises_anything_but_bad_image():
    whole = bytearray(encoded(Image.fromarray(noise(32, 32, 3)), "PNG").getvalue())
    random = np.random.default_rng(3)
    bad = 0
    for _ in range(200):
        broken = bytearray(whole)
        for at in random.integers(0, len(whole), 3):
            broken[at] = random.integers(256)
        try:
            assert read_image(io.BytesIO(bytes(broken)), settings()).shape == (8, 8, 3)
        except BadImage:
            bad += 1
    assert bad > 100


# --- Files -----------------------------------------------------------------------------------------------


def test_files_are_as_given_and_folders_are_searched_in_natural_order(tmp_path):
    for name in ("b/10.png", "b/9.JPG", "b/c/1.webp", "b/.hidden.png", "b/notes.txt", "odd.name", ".git/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "loop").symlink_to(tmp_path / "b")
    found = image_files([tmp_path / "odd.name", tmp_path])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [
        "odd.name",
        "b/9.JPG",
        "b/10.png",
        "b/c/1.webp",
    ]


def test_a_missing_path_and_a_folder_without_images_are_errors(tmp_path):
    with pytest.raises(RegardError, match=r"nowhere\.png' is missing"):
        image_files([tmp_path / "nowhere.png"])
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RegardError, match="has no images"):
        image_files([tmp_path])


def test_numbers_in_names_count_as_numbers():
    names = ["a10", "a2", "a", "b1", "a02x", "a2x", "10", "9", "", "9" * 5000]
    assert sorted(names, key=natural_order) == ["", "9", "10", "9" * 5000, "a", "a2", "a02x", "a2x", "a10", "b1"]


def test_all_endings_are_small_and_start_with_a_dot():
    assert {".png", ".jpg", ".jpeg"} < ENDINGS
    assert all(ending == ending.lower() and os.path.splitext("a" + ending)[1] == ending for ending in ENDINGS)
