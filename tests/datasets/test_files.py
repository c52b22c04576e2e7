from __future__ import annotations

import dataclasses
import hashlib
import io
import urllib.request
from email.message import Message
from pathlib import Path

import numpy as np
import pytest

from edgewise.datasets import files
from edgewise.datasets.files import (
    ChecksumError,
    DataUnavailableError,
    RemoteFile,
    atomic_file,
    cache_folder,
    derived,
    derived_path,
    find,
    open_verified,
    read_verified,
)

CONTENT = b"nodes and edges"
FILE = RemoteFile(
    "made/up.bin", hashlib.sha256(CONTENT).hexdigest(), "https://example.org/up.bin", "example.org"
)


def put(root: Path, content: bytes = CONTENT) -> Path:
    path = root / FILE.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> list[str]:
    asked: list[str] = []

    def answer(url: str) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(content)

    monkeypatch.setattr(files, "_open_url", answer)
    return asked


def everything_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_data_folder_comes_before_cache(folder, cache):
    in_cache = put(cache)
    assert find(FILE) == in_cache
    assert find(FILE) != put(folder)
    assert find(FILE) == folder / FILE.path
    assert read_verified(FILE) == CONTENT


@pytest.mark.parametrize("place", ["folder", "cache"])
def test_altered_file_is_refused_wherever_it_lies(place, folder, cache):
    path = put(folder if place == "folder" else cache, CONTENT + b"!")
    with pytest.raises(ChecksumError, match="not the published file") as caught:
        read_verified(FILE)
    assert str(path) in str(caught.value)
    assert "example.org" in str(caught.value)


def test_handle_starts_at_the_beginning_and_other_checksums_work(folder):
    put(folder)
    other = dataclasses.replace(FILE, digest=hashlib.sha1(CONTENT).hexdigest(), algorithm="sha1")
    with open_verified(other) as handle:
        assert handle.read() == CONTENT


def test_download_goes_to_the_cache_once(monkeypatch, folder, cache):
    asked = serve(monkeypatch, CONTENT)
    assert read_verified(FILE) == CONTENT
    assert read_verified(FILE) == CONTENT
    assert asked == [FILE.url]
    assert everything_below(cache) == [cache / FILE.path]
    assert everything_below(folder) == []


@pytest.mark.parametrize(
    ("content", "limit", "message"),
    [(CONTENT[:-1], 100, "Nothing was kept"), (CONTENT, len(CONTENT) - 1, "larger than")],
)
def test_wrong_download_leaves_nothing(monkeypatch, cache, content, limit, message):
    serve(monkeypatch, content)
    with pytest.raises(ChecksumError, match=message):
        read_verified(dataclasses.replace(FILE, max_bytes=limit))
    assert everything_below(cache) == []


def test_interrupted_download_leaves_nothing(monkeypatch, cache):
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise ConnectionResetError("cable pulled")
            return super().read(4)

    monkeypatch.setattr(files, "_open_url", lambda url: Breaking(CONTENT))
    with pytest.raises(DataUnavailableError, match="cable pulled"):
        read_verified(FILE)
    assert everything_below(cache) == []


def test_unavailable_names_file_places_and_remedy(cache, offline):
    with pytest.raises(DataUnavailableError, match="no network") as caught:
        read_verified(FILE)
    for part in (FILE.path, "EDGEWISE_DATA (not set)", str(cache / FILE.path), "example.org"):
        assert part in str(caught.value)


def test_file_without_address_is_not_downloaded(folder):
    with pytest.raises(DataUnavailableError, match="no address") as caught:
        read_verified(dataclasses.replace(FILE, url=None))
    assert str(folder) in str(caught.value)


def test_only_https(cache):
    with pytest.raises(DataUnavailableError, match="not an HTTPS address"):
        read_verified(dataclasses.replace(FILE, url="http://example.org/up.bin"))


def test_redirects_stay_https():
    handler = files._HttpsOnly()
    request = urllib.request.Request("https://example.org/a")

    def follow(url: str) -> urllib.request.Request | None:
        return handler.redirect_request(request, io.BytesIO(), 302, "Found", Message(), url)

    followed = follow("https://example.org/b")
    assert followed is not None
    assert followed.full_url == "https://example.org/b"
    with pytest.raises(OSError, match="not HTTPS"):
        follow("http://example.org/b")


def test_atomic_file_keeps_the_old_content_when_writing_fails(tmp_path):
    target = tmp_path / "kept.bin"
    target.write_bytes(b"old")

    def write_half() -> None:
        with atomic_file(target) as handle:
            handle.write(b"ne")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half"):
        write_half()
    assert target.read_bytes() == b"old"
    assert everything_below(tmp_path) == [target]


def test_cache_folder_follows_the_platform(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_folder() == Path.home() / ".cache" / "edgewise"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "edgewise"


def test_derived_is_built_once(cache):
    built = []

    def build() -> dict[str, np.ndarray]:
        built.append(1)
        return {"values": np.arange(3.0), "words": np.array(["a", "bc"])}

    first, second = derived("made-up", build), derived("made-up", build)
    assert len(built) == 1
    for arrays in (first, second):
        np.testing.assert_array_equal(arrays["values"], [0.0, 1.0, 2.0])
        assert arrays["words"].tolist() == ["a", "bc"]


@pytest.mark.parametrize("damage", ["cut", "pickled", "noise", "empty", "flipped"])
def test_damaged_derived_file_is_rebuilt_never_unpickled(cache, damage):
    path = derived_path("made-up")
    path.parent.mkdir(parents=True)
    if damage == "pickled":
        np.savez(path, values=np.array([{"an": "object"}], dtype=object))
    else:
        np.savez_compressed(path, values=np.arange(100.0))
        whole = path.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
        damaged = {"cut": whole[:-30], "noise": b"noise", "empty": b"", "flipped": flipped}
        path.write_bytes(damaged[damage])
    for _ in range(2):
        assert derived("made-up", lambda: {"values": np.ones(2)})["values"].tolist() == [1.0, 1.0]
    with np.load(path, allow_pickle=False) as stored:
        assert stored["values"].tolist() == [1.0, 1.0]


def test_derived_works_without_a_writable_cache(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert derived("made-up", lambda: {"values": np.ones(2)})["values"].tolist() == [1.0, 1.0]
