"""Places in object stores: their names, what lies below them, how one folder names another."""

from __future__ import annotations

from pathlib import Path

import pytest
from object_store import write_object

from seqpack_cli.corpus.sources import find_sources
from seqpack_cli.errors import OptionError
from seqpack_cli.files.objects import Url
from seqpack_cli.files.places import find_place, is_shared, parse_place, spell_place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3://bucket/a/b", Url("s3://bucket/a/b")),
        ("s3://bucket/a/b//", Url("s3://bucket/a/b")),
        ("s3://bucket", Url("s3://bucket")),
        ("gs://bucket/a b?c#d%20", Url("gs://bucket/a b?c#d%20")),
        ("memory://x/y", Url("memory://x/y")),
        ("file:///data/x", Path("/data/x")),
        ("FILE://localhost/data/x", Path("/data/x")),
        ("S3://Bucket/Key", Url("s3://Bucket/Key")),
        ("folder/name", Path("folder/name")),
        ("C:/name", Path("C:/name")),
        ("folder/s3:/bucket", Path("folder/s3:/bucket")),
        ("-", Path("-")),
        (Url("s3://x"), Url("s3://x")),
    ],
)
def test_parse_place_tells_urls_from_paths(text: str | Path | Url, place: Path | Url) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "text",
    [
        Path("s3://x"),  # Path made it s3:/x
        *("s3://", "s3:///", "s3:///x", "s3://bucket//x", "s3://bucket/../x", "s3://bucket/./x"),
        *("simplecache::s3://y", "s3:/bucket/x", "S3:bucket", "file:/data/x", "file://data/x"),
        *("http://host/x", "https://host/x", Path("s3://x"), "a\0b"),
    ],
)
def test_parse_place_refuses_what_is_no_place(text: str | Path) -> None:
    with pytest.raises(OptionError):
        parse_place(text)


def test_url_has_the_manners_of_a_path() -> None:
    url = Url("s3://bucket/tokens") / "part-00000.bin"
    assert str(url) == "s3://bucket/tokens/part-00000.bin"
    assert (url.name, url.stem, url.suffix) == ("part-00000.bin", "part-00000", ".bin")
    assert url.parent == Url("s3://bucket/tokens")
    assert url.with_name("x") == Url("s3://bucket/tokens/x")
    assert (url.protocol, url.key) == ("s3", "bucket/tokens/part-00000.bin")
    assert Url("s3://bucket").parent == Url("s3://bucket")
    assert url.resolve() == url
    assert is_shared(url) and is_shared(Path("/x")) and is_shared("corpus/")
    assert not is_shared(Url("memory://x")) and not is_shared("memory://x/*.txt")


def test_url_lists_what_lies_right_below_it(tmp_path: Path) -> None:
    folder = Url(f"memory://{tmp_path.name}/folder")
    assert not folder.exists()
    assert list(folder.iterdir()) == []
    write_object(folder / "a.bin", b"abc")
    write_object(folder / "below" / "b.bin", b"abcdef")
    assert folder.is_dir()
    assert sorted(folder.iterdir()) == [folder / "a.bin", folder / "below"]
    assert folder.list_files()["a.bin"]["size"] == 3
    assert (folder / "a.bin").exists()
    assert not (folder / "a.bin").is_dir()
    assert list((folder / "a.bin").iterdir()) == []


def test_a_mark_of_a_folder_is_not_in_it(tmp_path: Path) -> None:
    folder = Url(f"memory://{tmp_path.name}/folder")
    write_object(folder / "a.bin", b"abc")
    system, key = folder.open_file_system()
    entries = [*system.ls(key), {"name": f"/{key}/", "size": 0, "type": "directory"}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(system, "ls", lambda *_, **__: entries)
        assert [url.name for url in folder.iterdir()] == ["a.bin"]


@pytest.mark.parametrize(
    ("place", "folder", "spelled"),
    [
        ("s3://bucket/store", "s3://bucket/shards", "../store"),
        ("s3://bucket/a/store", "s3://bucket/a/b/shards", "../../store"),
        ("s3://other/store", "s3://bucket/shards", "s3://other/store"),
        ("s3://bucket/store", "gs://bucket/shards", "s3://bucket/store"),
        ("s3://bucket/store", "/shards", "s3://bucket/store"),
        ("/data/store", "s3://bucket/shards", "file:///data/store"),
        ("/data/store", "/data/x/shards", "../../store"),
    ],
)
def test_folders_name_each_other_both_ways(place: str, folder: str, spelled: str) -> None:
    there, here = parse_place(place), parse_place(folder)
    assert spell_place(there, here) == spelled
    assert find_place(here, spelled) == there


def test_a_folder_moved_with_its_neighbour_still_finds_it() -> None:
    assert find_place(Url("gs://new/x/shards"), "../store") == Url("gs://new/x/store")
    assert find_place(Url("gs://new/shards"), "../../../store") == Url("gs://new/store")


def test_a_stranger_can_not_send_us_anywhere() -> None:
    with pytest.raises(OptionError):
        find_place(Path("/shards"), "http://169.254.169.254/latest")


def test_protocols_that_are_no_store_of_ours_are_not_followed() -> None:
    with pytest.raises(OptionError, match="expected a path, s3:// or gs://"):
        find_place(Path("/shards"), "ftps://host/x")
    assert find_place(Url("memory://a/b"), "memory://c/d") == Url("memory://c/d")


@pytest.mark.parametrize("protocol", ["http", "https", "ftp"])
def test_web_addresses_are_refused_as_inputs_too(protocol: str) -> None:
    with pytest.raises(OptionError) as caught:
        find_sources([f"{protocol}://host/a.txt"])
    assert caught.value.message == f"{protocol}://host/a.txt: web addresses are not supported"
