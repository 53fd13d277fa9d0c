"""Files that are missing are fetched, checked, and left out if they are wrong. A local server stands for the network."""

import dataclasses
import functools
import gzip
import hashlib
import http.server
import threading
import zipfile

import numpy as np
import pytest

from sswim.datasets import SERIES, images, load_images, load_series, load_shd, shd


@pytest.fixture
def server(tmp_path):
    """A folder, and the address at which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_address[1]}/"
        running.shutdown()


@pytest.fixture
def online(tmp_path, monkeypatch):
    """An empty data folder, and leave to fetch."""
    monkeypatch.delenv("SSWIM_OFFLINE")
    monkeypatch.setenv("SSWIM_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def idx(array):
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype("u1").tobytes())


def test_images(server, online, monkeypatch):
    folder, address = server
    arrays = [np.arange(3 * 4 * 4).reshape(3, 4, 4), np.arange(3), np.arange(2 * 4 * 4).reshape(2, 4, 4), np.arange(2)]
    for name, array in zip(images.FILES, arrays, strict=True):
        (folder / name).write_bytes(idx(array))
    monkeypatch.setitem(images.SETS, "mnist", address)
    monkeypatch.setitem(images.SUMS, "mnist", tuple(md5(folder / name) for name in images.FILES))
    for found, array in zip(load_images("mnist"), arrays, strict=True):
        np.testing.assert_array_equal(found, array)
    assert sorted(p.name for p in (online / "mnist").iterdir()) == sorted(images.FILES)
    for name in images.FILES:
        (folder / name).unlink()
    load_images("mnist")  # they are there now


def test_a_wrong_sum_leaves_nothing_behind(server, online, monkeypatch):
    folder, address = server
    (folder / "solar_AL.txt.gz").write_bytes(gzip.compress(b"1,2\n3,4\n"))
    right = md5(folder / "solar_AL.txt.gz")
    wrong = dataclasses.replace(SERIES["solar"], url=address + "solar_AL.txt.gz", md5="0" * 32)
    monkeypatch.setitem(SERIES, "solar", wrong)
    with pytest.raises(
        FileNotFoundError, match=r"solar: no file .* \(http.* could not be downloaded: .*hash.*\)\. Get solar_AL"
    ):
        load_series("solar")
    assert not list(online.iterdir())
    monkeypatch.setitem(SERIES, "solar", dataclasses.replace(wrong, md5=right))
    assert load_series("solar").to_numpy().tolist() == [[1, 2], [3, 4]]


def test_a_zip_file_is_unpacked(server, online, monkeypatch):
    h5py = pytest.importorskip("h5py")
    folder, address = server
    for name in ("shd_train.h5", "shd_test.h5"):
        with h5py.File(folder / name, "w") as file:
            for key, dtype, value in (("times", "float16", 0.25), ("units", "uint16", 30)):
                spikes = file.create_dataset(f"spikes/{key}", (1,), h5py.vlen_dtype(np.dtype(dtype)))
                spikes[0] = np.array([value], dtype)
            file["labels"] = np.array([7])
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.write(folder / name, name)
        monkeypatch.setitem(shd.SUMS, name, md5(folder / f"{name}.zip"))
    monkeypatch.setattr(shd, "SOURCE", address)
    events, labels, _, _ = load_shd()
    assert labels.tolist() == [7] and events[0][0].tolist() == [0.25] and events[0][1].tolist() == [3]
    assert sorted(p.name for p in online.iterdir()) == ["shd_test.h5", "shd_train.h5"]


def test_without_a_network_the_error_says_what_to_do(online, monkeypatch):
    monkeypatch.setitem(images.SETS, "mnist", "http://127.0.0.1:9/")
    with pytest.raises(FileNotFoundError, match=r"missing in .*could not be downloaded.*Get them from http.*SSWIM_DATA"):
        load_images("mnist")
    monkeypatch.setenv("SSWIM_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match=r"electricity: no file .*downloads are switched off by SSWIM_OFFLINE"):
        load_series("electricity")
