"""Files chosen by --include and --exclude, below folders, globs and URLs."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from object_store import write_object

from seqpack_cli.corpus.find_files import find_sources
from seqpack_cli.corpus.options import FileOptions
from seqpack_cli.corpus.sources import FileChoice
from seqpack_cli.errors import OptionError
from seqpack_cli.files.objects import Url

NAMES = (
    "a.txt",
    "stray.csv",
    "note.log",
    "en/b.txt",
    "en/c.csv",
    "en/drafts/d.txt",
    "en/drafts/old/e.txt",
    "drafts/f.txt",
    "drafts.txt",
    "x.zip",
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "data"


@pytest.fixture
def url(tmp_path: Path) -> Url:
    for name in NAMES:
        write_object(Url(f"memory://{tmp_path.name}/data/{name}"), name.encode())
    return Url(f"memory://{tmp_path.name}/data")


def find(root: object, *inputs: str, **patterns: list[str]) -> tuple[list[str], dict[str, int]]:
    """Find the files of inputs below a folder or URL, and count what was skipped."""
    names = [f"{root}{name}" for name in inputs]
    sources, skipped = find_sources(names, patterns=FileOptions(**patterns))
    return [source.path.removeprefix(f"{root}/") for source in sources], skipped.count()


@pytest.mark.parametrize(
    ("patterns", "found", "skipped"),
    [
        # Without a slash: names at any depth.
        (
            {"exclude": ["*.csv", "drafts"]},
            ["a.txt", "drafts.txt", "en/b.txt"],
            {"unknown_suffix": 2, "excluded": 4},
        ),
        ({"include": ["drafts/"]}, ["drafts/f.txt", "en/drafts/d.txt", "en/drafts/old/e.txt"], {}),
        # With one: paths below the folder; * does not cross a slash, ** does.
        ({"include": ["drafts/**"]}, ["drafts/f.txt"], {}),
        ({"include": ["/*.txt"]}, ["a.txt", "drafts.txt"], {}),
        ({"include": ["en/*.txt"]}, ["en/b.txt"], {}),
        (
            {"include": ["en/**/*.txt"], "exclude": ["**/old/**"]},
            ["en/b.txt", "en/drafts/d.txt"],
            {},
        ),
        ({"include": ["en"], "exclude": ["*.csv", "old"]}, ["en/b.txt", "en/drafts/d.txt"], {}),
        # A file that matches is text where its suffix says nothing, one below a match is not.
        ({"include": ["*.log", "[ab].txt"]}, ["a.txt", "en/b.txt", "note.log"], {}),
    ],
)
def test_patterns_choose_the_same_files_of_a_folder_and_of_a_url(
    corpus: Path,
    url: Url,
    patterns: dict[str, list[str]],
    found: list[str],
    skipped: dict[str, int],
) -> None:
    here = find(corpus, "", **patterns)
    assert here[0] == found
    assert not skipped or here[1] == skipped
    assert find(url, "", **patterns) == here


def test_patterns_choose_among_the_matches_of_a_glob(corpus: Path, url: Url) -> None:
    for root in (corpus, url):  # below the folder before the first wildcard
        found, _ = find(root, "/e*/**/*.txt", include=["en/**"], exclude=["en/drafts/*.txt"])
        assert found == ["en/b.txt", "en/drafts/old/e.txt"]


def test_file_that_is_named_is_always_read(corpus: Path) -> None:
    found, skipped = find(corpus, "", "/en/c.csv", exclude=["*.csv", "en"], include=["a*", "*.csv"])
    assert found == ["a.txt", "en/c.csv"]
    assert skipped == {"not_included": 4, "excluded": 2}
    found, skipped = find(corpus, "", "/stray.csv", exclude=["*.csv"])
    assert found[-1] == "stray.csv"
    assert skipped["excluded"] == 1  # en/c.csv only


def test_refused_suffix_that_is_excluded_does_not_stop_the_run(corpus: Path) -> None:
    with pytest.raises(OptionError, match=r"x\.zip: \.zip files are not supported"):
        find(corpus, "/*", include=["*.txt", "x*"])
    assert "x.zip" not in find(corpus, "/*", exclude=["*.zip"])[0]


def test_folder_of_which_nothing_is_read_is_not_listed(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    scandir = os.scandir

    def record(path: str) -> object:
        listed.append(os.path.relpath(path, corpus))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", record)
    find(corpus, "", exclude=["en/**"])
    assert listed == [".", "drafts"]
    listed.clear()
    find(corpus, "", include=["en/drafts/*.txt"])
    assert listed == [".", "en", "en/drafts"]


def test_no_link_leads_back_to_what_is_excluded(corpus: Path) -> None:
    (corpus / "latest").symlink_to("en/drafts/old")
    (corpus / "new.txt").symlink_to("en/b.txt")
    (corpus / "gone.txt").symlink_to("nowhere")
    found, skipped = find(corpus, "", exclude=["en/drafts", "en/*.txt", "gone*", "*.csv"])
    assert found == ["a.txt", "drafts.txt", "drafts/f.txt"]
    assert skipped == {"unknown_suffix": 2, "excluded": 7}


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_pattern_that_matches_nothing_is_an_error(corpus: Path, option: str) -> None:
    with pytest.raises(OptionError) as caught:
        find(corpus, "", **{option: ["*.txt", "draft/**"]})
    assert caught.value.message == f"--{option} 'draft/**': matches no file of {corpus}"
    assert caught.value.hint == (
        "write a file name, such as '*.csv', or a path below the folder, such as 'drafts/**'"
    )
    with pytest.raises(OptionError) as caught:
        find(corpus, "/a.txt", **{option: ["*.txt"]})
    assert caught.value.message == (
        f"--{option} '*.txt': no input is a folder or a glob, and a file that is named is always "
        "read"
    )
    with pytest.raises(OptionError, match=r"leave out --.*: hidden files are skipped anyway"):
        find(corpus, "", **{option: ["*.txt", ".git/"]})
    with pytest.raises(OptionError, match=f"--{option} './': expected a pattern like"):
        FileOptions(**{option: ["./"]})


def test_pattern_that_could_match_in_a_skipped_folder_is_no_error(corpus: Path) -> None:
    found, _ = find(corpus, "/en", exclude=["drafts", "drafts/x.txt"])
    assert found == ["en/b.txt", "en/c.csv"]


def test_patterns_that_leave_nothing_are_an_error(corpus: Path) -> None:
    with pytest.raises(OptionError) as caught:
        find(corpus, "/drafts", exclude=["*"])
    assert caught.value.message == (
        f"{corpus}/drafts: no file left to read (skipped 1 file or folder that matches --exclude: "
        f"{corpus}/drafts/f.txt)"
    )
    assert caught.value.hint == "change --include or --exclude"


# A slow oracle


def matches(pattern: str, path: str) -> bool:
    """Match a path, or a folder above it, by the rules that the help states."""
    is_folder_pattern, names = pattern.endswith("/"), path.split("/")
    parts = [part for part in pattern.split("/") if part]
    if "/" not in pattern.rstrip("/"):
        parts = ["**", *parts]
    ends = range(len(names)) if is_folder_pattern else range(1, len(names) + 1)
    return any(match_parts(parts, names[:end], is_folder_pattern) for end in ends)


def match_parts(parts: list[str], names: list[str], takes_none: bool) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        if not parts[1:]:
            return takes_none or bool(names)
        rest = match_parts(parts[1:], names, takes_none)
        return rest or (bool(names) and match_parts(parts, names[1:], takes_none))
    return (
        bool(names)
        and fnmatchcase(names[0], parts[0])
        and match_parts(parts[1:], names[1:], takes_none)
    )


paths = st.lists(st.sampled_from(["a", "b", "ab", ".a"]), min_size=1, max_size=4).map("/".join)
patterns = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "", "/"]),
    st.lists(
        st.sampled_from(["a", "b", "*", "a*", "[!a]*", "**", "**"]), min_size=1, max_size=4
    ).map("/".join),
    st.sampled_from(["", "", "/"]),
)
lists = st.lists(patterns, max_size=2)


@given(lists, lists, st.lists(paths, min_size=1, max_size=12, unique=True))
def test_a_walk_reads_what_the_oracle_matches(
    include: list[str], exclude: list[str], found: list[str]
) -> None:
    choice = FileChoice(FileOptions(include, exclude))
    choice.begin("data")
    for path in found:
        expected = not any(matches(pattern, path) for pattern in exclude)
        if include:
            expected &= any(matches(pattern, path) for pattern in include)
        assert (choice.judge_path(path)[0] == "") == expected
    if all(any(matches(pattern, path) for path in found) for pattern in (*include, *exclude)):
        choice.check_used()
