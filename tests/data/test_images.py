"""Image files and arrays of images: decoding, sizes, damaged files, and rows that are read when they are asked for."""

import os
import pickle
import struct
import zlib

import numpy as np
import PIL
import pytest
import torch
from PIL import Image

from shortlist.data import Dataset
from shortlist.data.images import ImageArray, ImageFiles, PathList
from shortlist.data.summary.duplicates import find_duplicates

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def solid(colour, height=4, width=6):
    return np.broadcast_to(np.array(COLOURS[colour], dtype=np.uint8), (height, width, 3)).copy()


def save(path, pixels, **options):
    Image.fromarray(pixels).save(path, **options)
    return path


def read(path, **options):
    """One image as (H, W, 3)."""
    return ImageFiles([path], **options).batch(torch.tensor([0]))[0].permute(1, 2, 0).numpy()


def test_a_batch_holds_the_pixels_of_its_rows_in_their_order(tmp_path, rng):
    pixels = rng.integers(0, 256, (3, 5, 7, 3), dtype=np.uint8)
    files = ImageFiles([save(tmp_path / f"{i}.png", image) for i, image in enumerate(pixels)])
    batch = files.batch(torch.tensor([2, 0, 2]))
    assert batch.dtype == torch.uint8
    assert batch.is_contiguous()
    assert np.array_equal(batch.permute(0, 2, 3, 1).numpy(), pixels[[2, 0, 2]])
    assert files.kind == "images"


def test_taking_rows_keeps_size_and_composes(tmp_path):
    paths = [save(tmp_path / f"{i}.png", solid(colour)) for i, colour in enumerate(COLOURS)]
    part = ImageFiles(paths, size=2).take(torch.tensor([2, 1])).take(torch.tensor([1]))
    assert len(part) == 1
    assert part.path(0) == paths[1]
    assert part.batch(torch.tensor([0]))[0, :, 0, 0].tolist() == [0, 255, 0]
    assert part.batch(torch.tensor([0])).shape == (1, 3, 2, 2)
    with pytest.raises(IndexError, match=r"`row` must lie in \[0, 0\]; got 1"):
        part.path(1)


def test_no_rows_give_an_empty_batch_and_read_nothing():
    nothing = torch.tensor([], dtype=torch.int64)
    assert ImageFiles(["absent.jpg"], size=(5, 7)).batch(nothing).shape == (0, 3, 5, 7)
    assert ImageFiles(["absent.jpg"]).batch(nothing).shape == (0, 3, 0, 0)
    assert len(ImageFiles([])) == 0
    assert ImageFiles([]).sizes().shape == (0,)


def test_paths_survive_odd_names_and_mixed_folders(tmp_path):
    paths = ["a b/été “1”.jpg", "a b/ü.png", "x.jpg", os.path.join(str(tmp_path), "it's.jpg"), "a b/ü.png"]
    files = ImageFiles(paths)
    assert [str(files.path(row)) for row in range(5)] == [os.path.normpath(path) for path in paths]
    undecodable = os.fsdecode(b"folder/\xff.jpg")
    assert PathList.of([undecodable])[0] == undecodable
    assert [len(PathList([])), len(PathList([("empty", []), ("full", ["1.jpg"])]))] == [0, 1]


def test_many_paths_are_kept_in_few_bytes():
    paths = PathList((f"images/{folder}", [f"{i:040d}.jpg" for i in range(300)]) for folder in range(20))
    assert len(paths) == 6000
    assert paths[5999].replace(os.sep, "/") == f"images/19/{299:040d}.jpg"
    assert len(pickle.dumps(paths)) < 6000 * 60


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "RGBA", "LA", "YCbCr"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    path = tmp_path / ("image.tif" if mode in ("CMYK", "YCbCr") else "image.png")
    Image.fromarray(np.full((3, 3, 3), 255, dtype=np.uint8)).convert(mode).save(path)
    if mode == "YCbCr" and int(PIL.__version__.split(".")[0]) < 13:
        pytest.skip("this Pillow cannot read the file that it wrote")
    assert read(path).tolist() == np.full((3, 3, 3), 255).tolist()


def test_a_palette_gives_its_colours(tmp_path):
    path = tmp_path / "palette.gif"
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putdata([1, 0])
    image.save(path)
    assert read(path).tolist() == [[[40, 50, 60], [10, 20, 30]]]


def test_what_is_transparent_becomes_white(tmp_path):
    path = save(tmp_path / "alpha.png", np.array([[[9, 9, 9, 0], [9, 9, 9, 255]]], dtype=np.uint8))
    assert read(path).tolist() == [[[255, 255, 255], [9, 9, 9]]]
    grey = Image.fromarray(np.array([[7, 80]], dtype=np.uint8))
    grey.save(tmp_path / "key.png", transparency=7)
    assert read(tmp_path / "key.png").tolist() == [[[255] * 3, [80] * 3]]


def test_sixteen_bits_keep_their_upper_eight(tmp_path):
    values = np.array([[0, 255, 256, 65535]], dtype=np.uint16)
    for path in (tmp_path / "deep.png", tmp_path / "deep.tif"):
        save(path, values)
        assert read(path)[0, :, 1].tolist() == [0, 0, 1, 255]


def test_floating_and_wider_pixels_are_refused(tmp_path):
    save(tmp_path / "float.tif", np.ones((2, 2), dtype=np.float32))
    with pytest.raises(ValueError, match=r"float\.tif` cannot be read as an image: pixels must be integers .* not"):
        read(tmp_path / "float.tif")
    save(tmp_path / "wide.tif", np.full((2, 2), 70000, dtype=np.int32))
    with pytest.raises(ValueError, match=r"wide\.tif` .* up to 16 bits\.$"):
        read(tmp_path / "wide.tif")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_stand_as_their_exif_orientation_says(tmp_path, rng, orientation):
    upright = rng.integers(0, 256, (2, 3, 3), dtype=np.uint8)
    # What the camera stored, by the definition of the tag: where row 0 and column 0 of the stored image belong.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: upright.transpose(1, 0, 2)[::-1],
        7: upright.transpose(1, 0, 2)[::-1, ::-1],
        8: upright.transpose(1, 0, 2)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "turned.png", np.ascontiguousarray(stored), exif=exif)
    assert np.array_equal(read(path), upright)


def test_broken_exif_around_good_pixels_does_no_harm(tmp_path):
    path = save(tmp_path / "odd.jpg", solid("red"), exif=b"Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\xff\xff\x01")
    assert abs(read(path).astype(int) - solid("red")).max() < 4


def test_a_size_resizes_and_one_number_takes_the_central_square(tmp_path):
    stripes = np.concatenate([solid("red", 8, 4), solid("green", 8, 8), solid("blue", 8, 4)], axis=1)
    path = save(tmp_path / "stripes.png", stripes)
    assert np.array_equal(read(path, size=8), solid("green", 8, 8))
    shrunk = np.asarray(Image.fromarray(stripes).resize((8, 4), Image.Resampling.BICUBIC))
    assert np.array_equal(read(path, size=4), shrunk[:, 2:6])
    tall = save(tmp_path / "tall.png", np.ascontiguousarray(stripes.transpose(1, 0, 2)))
    assert np.array_equal(read(tall, size=4), shrunk[:, 2:6].transpose(1, 0, 2))
    whole = read(path, size=(2, 4))
    assert whole.shape == (2, 4, 3)
    assert whole[0].argmax(axis=1).tolist() == [0, 1, 1, 2]
    assert np.array_equal(read(path, size=(8, 16)), stripes)


def test_a_long_and_narrow_image_is_cut_before_it_is_enlarged(tmp_path):
    path = save(tmp_path / "long.png", np.full((1, 300_000, 3), 77, dtype=np.uint8))
    assert read(path, size=64).tolist() == np.full((64, 64, 3), 77).tolist()


@pytest.mark.parametrize("size", [0, -3, True, (4,), (4, 0), (4, 5, 6), 2.5, "big"])
def test_a_senseless_size_is_refused(size):
    with pytest.raises(ValueError, match="`size` must be an integer from 1, or"):
        ImageFiles([], size=size)


def test_images_of_two_sizes_in_a_batch_are_named(tmp_path):
    small = save(tmp_path / "small.png", solid("red", 4, 6))
    large = save(tmp_path / "large.png", solid("red", 5, 6))
    files = ImageFiles([small, large])
    with pytest.raises(ValueError, match=r"small\.png` and `.*large\.png` have 4 x 6 and 5 x 6 pixels; pass `size`"):
        files.batch(torch.tensor([0, 1]))
    assert files.batch(torch.tensor([1])).shape == (1, 3, 5, 6)


@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "tif", "webp"])
def test_a_truncated_image_is_named(tmp_path, rng, ending):
    path = save(tmp_path / f"cut.{ending}", rng.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    whole = path.read_bytes()
    for share in (0.02, 0.1, 0.6):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match=rf"cut\.{ending}` (is not an image|cannot be read as an image: ).*\.$"):
            read(path)


@pytest.mark.parametrize(
    "content", [b"", b"no image", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"II*\x00" * 5]
)
def test_what_is_no_image_is_named(tmp_path, content):
    path = tmp_path / "odd.jpg"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"odd\.jpg` (is not an image|cannot be read as an image).*\.$"):
        read(path)


def test_postscript_is_never_run(tmp_path):
    path = tmp_path / "picture.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    with pytest.raises(ValueError, match=r"picture\.jpg` is not an image that can be read \(JPEG, PNG"):
        read(path)


def test_a_missing_file_is_named_when_it_is_read():
    files = ImageFiles(["nowhere/absent.jpg"], size=8)
    for reading in (files.batch, files.fingerprints, lambda _: files.sizes()):
        with pytest.raises(ValueError, match=r"nowhere.absent\.jpg` cannot be read.*: No such file"):
            reading(torch.tensor([0]))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "2.png")
    files = ImageFiles([str(tmp_path / "2.png")], size=8)
    for reading in (files.batch, files.fingerprints):
        with pytest.raises(ValueError, match=r"2\.png` must be a file to be read as an image\.$"):
            reading(torch.tensor([0]))


def png_of_size(width, height):
    """A PNG whose header promises many pixels and whose data hold none."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_000, 50_000])
def test_a_decompression_bomb_is_refused(tmp_path, side):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_of_size(side, side))
    with pytest.raises(ValueError, match=r"bomb\.png` has too many pixels: at most \d+ are read unless .*\.$"):
        read(path, size=8)


def test_fingerprints_and_sizes_are_those_of_the_files(tmp_path):
    paths = [save(tmp_path / f"{i}.png", solid(colour)) for i, colour in enumerate(["red", "blue", "red"])]
    files = ImageFiles(paths)
    prints = files.fingerprints(torch.arange(3))
    assert prints[0] == prints[2] != prints[1]
    assert {len(print_) for print_ in prints} == {16}
    assert files.sizes().tolist() == [path.stat().st_size for path in paths]
    assert [rows.tolist() for rows in find_duplicates(files)] == [[0, 2]]


@pytest.mark.parametrize("channels", [(), (1,), (3,)])
def test_an_array_gives_channels_first(rng, channels):
    pixels = rng.integers(0, 256, (6, 4, 5, *channels), dtype=np.uint8)
    images = ImageArray(pixels)
    batch = images.batch(torch.tensor([5, 0]))
    assert batch.shape == (2, *images.shape) == (2, *(channels or (1,)), 4, 5)
    assert np.array_equal(batch.permute(0, 2, 3, 1).numpy().reshape(2, 4, 5, *channels), pixels[[5, 0]])
    assert len(set(images.fingerprints(torch.tensor([0, 1, 0])))) == 2
    assert images.batch(torch.tensor([], dtype=torch.int64)).shape == (0, *images.shape)


def test_arrays_follow_each_other_row_by_row(rng):
    pixels = rng.integers(0, 256, (7, 2, 3, 3), dtype=np.uint8)
    images = ImageArray([pixels[:0], pixels[:4], pixels[4:4], torch.from_numpy(pixels[4:])])
    rows = torch.tensor([6, 3, 4, 0, 3])
    assert len(images) == 7
    assert np.array_equal(images.batch(rows).permute(0, 2, 3, 1).numpy(), pixels[rows.numpy()])
    part = images.take(torch.tensor([5, 1])).take(torch.tensor([1, 0]))
    assert np.array_equal(part.batch(torch.tensor([1])).permute(0, 2, 3, 1).numpy(), pixels[[5]])


def test_a_memory_mapped_array_is_neither_changed_nor_read_at_once(tmp_path):
    np.save(tmp_path / "pixels.npy", np.zeros((3, 2, 2, 3), dtype=np.uint8))
    array = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    data = Dataset(ImageArray(array), torch.tensor([0, 0, 0]), ("only",))
    assert isinstance(data.inputs.pixels.parts[0], np.memmap)
    data.batch([1]).inputs.fill_(9)
    assert int(array.max()) == 0
    assert data[2].input.shape == (3, 2, 2)


def test_arrays_that_are_no_images_are_refused():
    with pytest.raises(TypeError, match=r"`array` must be uint8; got float32\."):
        ImageArray(np.zeros((2, 3, 3), dtype=np.float32))
    with pytest.raises(ValueError, match=r"`array` must have shape .*; got \(2, 3, 4, 5\)\."):
        ImageArray(np.zeros((2, 3, 4, 5), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"images of one shape; got \(3, 4\) and \(4, 3\)\."):
        ImageArray([np.zeros((2, 3, 4), dtype=np.uint8), np.zeros((2, 4, 3), dtype=np.uint8)])
    with pytest.raises(ValueError, match="got an empty list"):
        ImageArray([])


@pytest.fixture
def rng():
    return np.random.default_rng(0)
