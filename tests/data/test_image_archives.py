"""Archives of images: as the folders in them, read in one go, and leading nowhere."""

from __future__ import annotations

import gzip
import io
import tarfile

import numpy as np
import pytest

from image_sources import error_of_reading, listing, mnist, png, tar, tree
from regard.data import image_archives
from regard.data.image_sources import images_for, open_source
from regard.data.images import BadImage
from regard.errors import RegardError
from regard.settings import ImageData


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_an_archive_is_as_the_folder_in_it(tmp_path, ending):
    names = ("train/cat/1.png", "train/dog/2.png", "test/cat/3.png", "test/dog/.4.png", "readme.txt")
    folder = tree(tmp_path / "folder", *names)
    members = {f"./top/{name}": (folder / name).read_bytes() for name in names}
    archive = tar(tmp_path / f"a.tar{ending}", members, "w:" + ending[1:])
    inside = [(name.removeprefix("top/"), label, split) for name, label, split in listing(archive)]
    assert inside == listing(folder)
    _, images = images_for([open_source(archive, ImageData())], "train")
    assert {content for _, content in images} == {members[f"./top/{name}"] for name in names[:3]}


@pytest.mark.parametrize("top", ["", "top/", "a/b/"])
@pytest.mark.parametrize(
    "names",
    [
        ("circle/1.png", "circle/more/2.png", "square/3.png", "stray.png"),
        ("train/circle/1.png", "train/square/2.png", "test/circle/3.png", "valid/stray.png", "stray.png"),
        ("kinds/circle/1.png", "kinds/square/2.png", "stray.png"),
    ],
)
def test_an_image_beside_the_classes_is_left_out_of_an_archive_as_of_a_folder(tmp_path, names, top):
    folder = tree(tmp_path / "folder", *names)
    archive = tar(tmp_path / "a.tar", {f"{top}{name}": (folder / name).read_bytes() for name in names})
    left_out = []
    for place in (folder, archive):
        _, images = images_for([open_source(place, ImageData())], "train")
        left_out.append({entry.name.removeprefix(top) for entry, content in images if isinstance(content, BadImage)})
    assert left_out[0] == left_out[1] == {name for name in names if "stray" in name}
    inside = [(name.removeprefix(top), label, split) for name, label, split in listing(archive)]
    assert inside == listing(folder)
    assert {label for name, label, _ in inside if "stray" not in name} == {"circle", "square"}


@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_may_hold_idx_files_labels_first_or_last(tmp_path, packed):
    files = {f"m/{name}{'.gz' * packed}": gzip.compress(file) if packed else file for name, file in mnist().items()}
    forth = tar(tmp_path / "forth.tar", files)
    back = tar(tmp_path / "back.tgz", dict(reversed(files.items())), "w:gz")
    assert listing(forth) == listing(back)
    assert [(label, split) for _, label, split in listing(forth)] == [
        ("0", "test"),
        ("1", "test"),
        ("0", "train"),
        ("1", "train"),
        ("2", "train"),
    ]


def test_names_in_an_archive_lead_nowhere(tmp_path):
    path = tmp_path / "inside" / "a.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as archive:
        for name in ("../../evil.png", "/abs/1.png", "line\nend\x1b[1m/2.png"):
            info = tarfile.TarInfo(name)
            info.size = len(png())
            archive.addfile(info, io.BytesIO(png()))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            link = tarfile.TarInfo("cat/link.png")
            link.type, link.linkname = kind, "/etc/passwd"
            archive.addfile(link)
    before = sorted(tmp_path.rglob("*"))
    assert listing(path) == [("abs/1.png", "abs", "train"), ("line�end�[1m/2.png", "line�end�[1m", "train")]
    assert sorted(tmp_path.rglob("*")) == before


def test_names_of_idx_files_in_an_archive_are_shown_without_what_cannot_be_printed(tmp_path):
    archive = tar(tmp_path / "a.tar", {"a\n\x1b[1m/x-images-idx3-ubyte": b"none"})
    assert "'a��[1m/x-images-idx3-ubyte' is not an idx file" in error_of_reading(archive).what


def test_the_same_name_twice_in_an_archive_is_two_images(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for colour in (1, 2):
            info = tarfile.TarInfo("cat/1.png")
            info.size = len(png(colour))
            archive.addfile(info, io.BytesIO(png(colour)))
    _, images = images_for([open_source(path, ImageData())], "train")
    assert [content for _, content in images] == [png(1), png(2)]


def test_too_large_a_file_in_an_archive_is_skipped(tmp_path, monkeypatch):
    path = tar(tmp_path / "a.tar", {"cat/1.png": png(), "cat/2.png": bytes(5000)})
    monkeypatch.setattr(image_archives, "LARGEST", 4999)
    _, images = images_for([open_source(path, ImageData())], "train")
    first, second = [content for _, content in images]
    assert first == png()
    assert isinstance(second, BadImage) and "larger than" in second.reason


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_an_archive_cut_short_is_an_error(tmp_path, mode, share):
    noise = np.random.default_rng(1).bytes(3000)
    path = tar(tmp_path / "a.tar", {f"cat/{n}.png": noise for n in range(9)}, mode)
    whole = path.read_bytes()
    used = len(whole) if mode != "w" else 9 * (512 + 3072)
    path.write_bytes(whole[: int(used * share)])
    assert str(path) in error_of_reading(path).what


def test_an_archive_damaged_in_the_middle_does_not_just_end_there(tmp_path):
    path = tar(tmp_path / "a.tar", {f"cat/{n}.png": bytes(512) for n in range(9)})
    raw = bytearray(path.read_bytes())
    raw[4096:4608] = bytes(range(256)) * 2  # the header of the fifth
    path.write_bytes(bytes(raw))
    assert "Cannot read" in error_of_reading(path).what


# --- Reading headers here, and leaving the unusual to tarfile -------------------------------------------------


def usual_header() -> bytes:
    info = tarfile.TarInfo("cat/1.png")
    info.size, info.mode, info.mtime, info.uname = 911, 0o644, 1_700_000_000, "someone"
    return info.tobuf(tarfile.GNU_FORMAT)


def test_a_header_read_here_is_what_tarfile_reads_or_is_left_to_it():
    random = np.random.default_rng(5)
    assert image_archives.plain_file(usual_header()) == ("cat/1.png", 911)
    assert image_archives.plain_file(usual_header()[:511]) is None
    read = 0
    for _ in range(4000):
        header = bytearray(usual_header())
        for at in random.integers(0, 512, random.integers(1, 4)):
            header[at] = random.integers(0, 256)
        if random.random() < 0.7:  # the checksum is right all the same
            header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:]))
        if (found := image_archives.plain_file(bytes(header))) is not None:
            by_tarfile = tarfile.TarInfo.frombuf(bytes(header), "utf-8", "surrogateescape")
            assert found == (by_tarfile.name, by_tarfile.size) and by_tarfile.isreg()
            read += 1
    assert read > 100


def contents_by_tarfile(path):
    try:
        with tarfile.open(path, "r|", tarinfo=image_archives.StrictHeader) as archive:
            return [archive.extractfile(member).read() for member in archive if member.isreg()]
    except tarfile.TarError:
        return "an error"


def contents_of(path):
    try:
        return [content for _, content in images_for([image_archives.Archive(path)], "train")[1]]
    except RegardError:
        return "an error"


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_all_forms_are_read_as_tarfile_reads_them_whole_or_cut(tmp_path, form):
    path = tmp_path / "a.tar"
    names = ["cat/1.png", "cat/" + 50 * "x" + "/" + 90 * "y" + ".png", "cat/ü.png", "./dog//3.png", "dog/", "dog/4.png"]
    with tarfile.open(path, "w", format=form) as archive:
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            info.size = 0 if name.endswith("/") else 300 * number
            archive.addfile(info, io.BytesIO(bytes([number]) * info.size))
    whole = path.read_bytes()
    assert contents_of(path) == contents_by_tarfile(path) == [bytes([n]) * (300 * n) for n in (0, 1, 2, 3, 5)]
    used = len(whole.rstrip(b"\0"))
    for length in [*range(100, used, 100), *range(512, used, 512)]:
        path.write_bytes(whole[:length])
        assert contents_of(path) == contents_by_tarfile(path), length


def test_notes_that_hold_for_all_files_hold_for_usual_headers_too(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT, pax_headers={"path": "dog/7.png"}) as archive:
        for name in ("cat/1.png", "cat/2.png"):
            archive.addfile(tarfile.TarInfo(name))
    assert [name for name, _, _ in listing(tmp_path / "a.tar")] == ["dog/7.png"] * 2


@pytest.mark.parametrize(("kept", "passes"), [(2**20, 1), (350, 2), (0, 2)])
def test_an_archive_is_read_once_as_far_as_its_images_can_be_kept(tmp_path, monkeypatch, kept, passes):
    files = {f"cat/{number}.png": bytes([number]) * 100 for number in range(9)}
    path = tar(tmp_path / "a.tar.gz", files, "w:gz")
    reads, members = [], image_archives.members
    monkeypatch.setattr(image_archives, "members", lambda path: reads.append(path) or members(path))
    monkeypatch.setattr(image_archives, "KEPT", kept)
    assert contents_of(path) == list(files.values())
    assert len(reads) == passes


def test_the_images_of_an_archive_can_be_read_again(tmp_path):
    source = image_archives.Archive(tar(tmp_path / "a.tar", {f"cat/{n}.png": png(n) for n in range(3)}))
    assert list(source.contents()) == list(source.contents()) == [png(n) for n in range(3)]
