"""Cut sources into parts where records begin, at any size."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from reference import SLOW_READERS
from seqpack_cli.corpus.UNKNOWN_documents import iter_documents
from strategies import jsonl_files, line_files, paragraph_files

from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.parts import plan_parts
from seqpack_cli.corpus.sources import Source, SourceRange

FILES = {"line": line_files(), "paragraph": paragraph_files(), "jsonl": jsonl_files()}


def make_sources(folder: Path, contents: list[bytes], kind: str = "line") -> list[Source]:
    sources = []
    for number, data in enumerate(contents):
        path = folder / f"{number}.txt"
        path.write_bytes(data)
        file_format = "jsonl" if kind == "jsonl" else "text"
        document = "line" if kind == "jsonl" else kind
        sources.append(Source(str(path), file_format, document, len(data)))
    return sources


def spans(parts: list[list[SourceRange]]) -> list[list[tuple[int, int, int]]]:
    return [[(r.source_index, r.start, r.end) for r in ranges] for ranges in parts]


def read_texts(parts: list[list[SourceRange]]) -> list[str]:
    return [
        text
        for ranges in parts
        for source_range in ranges
        for block in iter_documents(source_range, DocumentOptions(), lambda _: None)
        for text in block.texts
    ]


@pytest.mark.parametrize("kind", ["line", "paragraph", "jsonl"])
def test_every_part_bytes_gives_the_same_documents(tmp_path: Path, kind: str) -> None:
    @settings(max_examples=25)
    @given(first=FILES[kind], second=FILES[kind])
    def check(first: bytes, second: bytes) -> None:
        sources = make_sources(tmp_path, [first, b"", second], kind)
        expected = SLOW_READERS[kind](first) + SLOW_READERS[kind](second)
        for part_bytes in range(1, len(first) + len(second) + 2):
            parts = plan_parts(sources, part_bytes=part_bytes)
            assert read_texts(parts) == expected
            for index, source in enumerate(sources):
                ranges = [r for ranges in parts for r in ranges if r.source_index == index]
                ends = [0, *(r.end for r in ranges)]
                assert [r.start for r in ranges] == ends[:-1]
                assert ends[-1] == source.num_bytes

    check()


def test_every_part_bytes_gives_the_same_documents_of_sample_letters(sample_data: Path) -> None:
    path = sample_data / "letters" / "first.txt"
    source = Source(str(path), "text", "paragraph", path.stat().st_size)
    expected = SLOW_READERS["paragraph"](path.read_bytes())
    assert len(expected) > 3
    for part_bytes in range(1, source.num_bytes, 97):
        assert read_texts(plan_parts([source], part_bytes=part_bytes)) == expected


def test_parts_are_cut_at_record_ends(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, [b"aaaa\nbb\n\ncccccc\ndd"])
    assert spans(plan_parts(sources, part_bytes=1)) == [
        [(0, 0, 5)],
        [(0, 5, 8)],
        [(0, 8, 9)],
        [(0, 9, 16)],
        [(0, 16, 18)],
    ]
    assert spans(plan_parts(sources, part_bytes=8)) == [[(0, 0, 8)], [(0, 8, 16)], [(0, 16, 18)]]
    assert spans(plan_parts(sources, part_bytes=18)) == [[(0, 0, 18)]]


def test_paragraphs_are_cut_after_a_blank_line(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, [b"a\nb\n\n\nc\n \nd\n"], "paragraph")
    assert spans(plan_parts(sources, part_bytes=1)) == [
        [(0, 0, 5)],
        [(0, 5, 10)],
        [(0, 10, 12)],
    ]


def test_small_files_share_a_part(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, [b"aa\n", b"bb\n", b"", b"cc\n", b"dd\n"])
    assert spans(plan_parts(sources, part_bytes=6)) == [
        [(0, 0, 3), (1, 0, 3)],
        [(2, 0, 0), (3, 0, 3), (4, 0, 3)],
    ]


def test_first_range_of_a_file_fills_the_part_before(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, [b"aa\n", b"b\n" * 9])
    assert spans(plan_parts(sources, part_bytes=7)) == [
        [(0, 0, 3), (1, 0, 4)],
        [(1, 4, 12)],
        [(1, 12, 18)],
    ]


def test_file_documents_are_never_cut_and_open_a_part_where_they_do_not_fit(
    tmp_path: Path,
) -> None:
    sources = make_sources(tmp_path, [b"aa\naa\n", b"b\n" * 9, b"cc", b"dd"], "file")
    assert spans(plan_parts(sources, part_bytes=8)) == [
        [(0, 0, 6)],
        [(1, 0, 18)],
        [(2, 0, 2), (3, 0, 2)],
    ]


def test_line_longer_than_a_part_stays_whole(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, [b"x" * 1000 + b"\ny\n"])
    assert spans(plan_parts(sources, part_bytes=10)) == [[(0, 0, 1001)], [(0, 1001, 1003)]]


def test_plan_of_empty_files_is_one_part(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, [b"", b""])
    assert spans(plan_parts(sources, part_bytes=10)) == [[(0, 0, 0), (1, 0, 0)]]
