"""Uploads that are not what they say: one sentence and a status of 4xx, and no more memory than the limits allow."""

import base64
import io
import struct
import tracemalloc
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from tests.serve.service.conftest import sentence

_ALL = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")


def image(kind: str, size: tuple[int, int] = (9, 7)) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def bomb(width: int = 50_000, height: int = 50_000) -> bytes:
    """A PNG that says it has billions of pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


def corpus() -> Iterator[tuple[str, bytes]]:
    """Files that must be refused."""
    yield from (("empty", b""), ("zeros", b"\0" * 4096), ("text", b"not an image"), ("bomb", bomb()))
    yield "tall", bomb(1, 1 << 30)
    yield "pdf", b"%PDF-1.4\n%%EOF"
    yield "eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (w) file\n"
    yield "svg", b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    yield "zip", b"PK\x03\x04" + b"\0" * 100
    yield "pickle", b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94"
    for kind in _ALL:
        content = image(kind)
        for share in (0.1, 0.3, 0.5):
            yield f"{kind} cut to {share}", content[: int(share * len(content))]


def changed() -> Iterator[bytes]:
    """Images with changed bytes, which may or may not be readable."""
    draw = np.random.default_rng(1)
    for kind in _ALL:
        content = np.frombuffer(image(kind), dtype=np.uint8)
        for _ in range(12):
            copy = content.copy()
            places = draw.integers(0, len(copy), draw.integers(1, 12))
            copy[places] = draw.integers(0, 256, len(places), dtype=np.uint8)
            yield copy.tobytes()


def send(asked, content: bytes):
    return asked.client.post("/predict", files={"image": ("x", content)}, data={"request": '{"model": "photos-model"}'})


@pytest.mark.parametrize(("name", "content"), list(corpus()))
def test_a_file_that_is_no_whole_image_is_refused(asked, name, content):
    found = send(asked, content)
    if found.status_code == 200:  # Some decoders fill what is missing.
        assert "cut" in name
        return
    assert "image 0" in sentence(found, 422)
    coded = {"model": "photos-model", "images": [base64.b64encode(content).decode()]}
    assert sentence(asked.client.post("/predict", json=coded), 422) == found.json()["error"]


def test_changed_bytes_are_answered_or_refused(asked):
    for content in changed():
        found = send(asked, content)
        assert found.status_code == 200 or sentence(found, 422)


def test_a_bomb_takes_no_memory(asked):
    send(asked, bomb())
    tracemalloc.start()
    for _ in range(4):
        sentence(send(asked, bomb()), 422)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("request_field", ["[", "[]", "{" * 5000, '{"texts": ["a"]}', '{"x": 1}'])
def test_a_form_whose_request_is_not_one_is_refused(asked, request_field):
    sentence(asked.client.post("/predict", files={"image": ("x", image("PNG"))}, data={"request": request_field}), 422)


def test_forms_without_an_image_with_too_many_or_damaged_are_refused(asked):
    many = [("image", ("x", image("PNG"))) for _ in range(9)]
    assert "at most 8 rows" in sentence(asked.client.post("/predict", files=many), 413)
    too_many = [("image", ("x", b"")) for _ in range(70)]
    sentence(asked.client.post("/predict", files=too_many), 400)
    sentence(asked.client.post("/predict", files={"other": ("x", b"1")}), 422)
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for body in (b"", b"--x\r\n", b"--y--", b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--\r\n"):
        found = asked.client.post("/predict", content=body, headers=headers)
        assert found.status_code in (400, 422)
        sentence(found, found.status_code)
    sentence(asked.client.post("/predict", content=b"x", headers={"content-type": "multipart/form-data"}), 400)


def test_an_upload_beyond_the_bytes_of_a_request_is_refused(asked):
    assert "at most 65536 bytes" in sentence(send(asked, b"\0" * (1 << 17)), 413)
