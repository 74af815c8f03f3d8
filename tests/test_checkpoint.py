"""Files: exact round trips, hostile and damaged ones refused with a reason, nothing executed."""

import json
import pickle
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from tremble.records import CheckpointError
from tremble.training import checkpoint

TREE = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": (np.array(True), np.array(-3, np.int32))}


def test_round_trip_is_exact(tmp_path):
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {"tree": TREE}, {"step": 3})
    loaded = checkpoint.read(path).tree("tree", TREE)
    np.testing.assert_array_equal(loaded["a"], TREE["a"])
    assert loaded["b"][0].dtype == np.bool_ and loaded["b"][1] == -3
    assert checkpoint.read_meta(path) == {"step": 3}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.safetensors"], "no temporary files stay behind"


def test_equal_contents_are_equal_files(tmp_path):
    path = tmp_path / "x.safetensors"
    files = set()
    for _ in range(32):
        checkpoint.save(path, {"tree": TREE}, {"step": 3, "settings": {"gamma": 0.9, "seed": 0}})
        files.add(path.read_bytes())
    assert len(files) == 1


@pytest.mark.parametrize(("other", "hint"), [(2, "train the run again"), (99, "upgrade tremble")])
def test_other_formats_are_refused(tmp_path, other, hint):
    path = tmp_path / "x.safetensors"
    save_file({"w": np.ones(3)}, path, metadata={"tremble": json.dumps({"format": other, "meta": {}})})
    with pytest.raises(
        CheckpointError, match=rf"x\.safetensors has format {other}, this version reads {checkpoint.FORMAT}: {hint}"
    ):
        checkpoint.read(path)


def test_groups_that_are_not_asked_for_are_ignored(tmp_path):
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {"tree": TREE, "priorities": {"sum": np.ones(4)}}, {})
    contents = checkpoint.read(path)
    assert set(contents.tree("tree", TREE)) == {"a", "b"}
    assert set(contents.group("priorities")) == {"sum"}


@pytest.mark.parametrize("cut", [0, 4, 20, -1])
def test_damaged_files_are_reported(tmp_path, cut):
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {"tree": TREE}, {})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=r"x\.safetensors is damaged"):
        checkpoint.read(path)


def test_another_file_in_place_of_a_block_is_reported(tmp_path):
    name = checkpoint.save_block(tmp_path, np.arange(5))
    checkpoint.save(tmp_path / "blocks" / f"{name}.safetensors", {"x": np.zeros(1)}, {})
    with pytest.raises(CheckpointError, match="it holds another block"):
        checkpoint.read_block(tmp_path, name)


def test_a_pickle_is_not_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    path = tmp_path / "x.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="damaged or not a tremble file"):
        checkpoint.read_meta(path)
    assert not (tmp_path / "owned").exists()


def test_a_header_that_claims_too_much_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    header = json.dumps({"tree/a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(CheckpointError):
        checkpoint.read(path)


def test_foreign_and_mismatched_files(tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    save_file({"w": np.ones(3)}, foreign)
    with pytest.raises(CheckpointError, match="not one of tremble's"):
        checkpoint.read_meta(foreign)
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {"tree": TREE}, {})
    with pytest.raises(CheckpointError, match="tree/a is float32"):
        checkpoint.read(path).tree("tree", {**TREE, "a": np.ones((3, 3), np.float32)})
    with pytest.raises(CheckpointError, match="has no tree/c"):
        checkpoint.read(path).tree("tree", {"c": np.ones(1)})


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {"tree": TREE}, {"step": 1})
    before = path.read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(CheckpointError, match=r"No space left.*untouched"):
        checkpoint.save(path, {"tree": TREE}, {"step": 2})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]
