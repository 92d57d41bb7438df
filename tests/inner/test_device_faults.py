"""A device that refuses a batch, fails for good, or warns: what the run says, and where it ends."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from shard_reference import make_shards, make_store, make_texts
from torch import nn
from torch.overrides import TorchFunctionMode

from seqpack_cli import Executor, PackOptions, pack
from seqpack_cli.errors import MachineError
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.limits import LIMITS
from seqpack_cli.verification import levels, stream_levels, verify_run
from seqpack_cli.verification.device import Sender, is_out_of_memory, steady_arithmetic
from seqpack_cli.verification.integers import shard_roundtrip
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.models import every_batch
from seqpack_cli.verification.models.layout_speed import MEASURED_LAYOUTS
from seqpack_cli.verification.models.model import Model
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import Report

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = [9, 8, 7, 6, 5, 4, 3, 2]  # batches of 2 rows, each with other sizes
# the texts of torch
SEPARATE = (
    "RNN module weights are not part of single contiguous chunk of memory. This means they need to "
    "be compacted at every call, possibly greatly increasing memory usage. To compact weights "
    "again call flatten_parameters()."
)
REFUSALS = [
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a "
    "non-contiguous input.",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph.",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb)`",
]
REASON = "CUDA error: an illegal memory access was encountered"
FAULT = (
    f"{REASON}\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
NAME = "shard-00000.safetensors"


class FailingLSTM(nn.LSTM):
    """Calls a function with its inputs before it computes."""

    before: Callable[[Any], None]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        FailingLSTM.before(args[0])
        return super().forward(*args, **kwargs)


def run_before(monkeypatch: pytest.MonkeyPatch, before: Callable[[Any], None]) -> None:
    """Let every model of verify call a function with its inputs."""
    whole = Verification.build_model

    def build(self: Verification, **options: Any) -> Model:
        model = whole(self, **options)
        model.recurrent.__class__ = FailingLSTM
        return model

    FailingLSTM.before = staticmethod(before)
    monkeypatch.setattr(Verification, "build_model", build)


def fail_at(num_tokens: int, text: str) -> Callable[[Any], None]:
    """Return a function that raises for a packed batch of so many tokens."""

    def fail(inputs: Any) -> None:
        if len(getattr(inputs, "data", inputs)) == num_tokens:
            raise RuntimeError(text)

    return fail


def refuse(*args: object, **options: object) -> Any:
    """Refuse to compute anything."""
    raise RuntimeError(REFUSALS[0])


class Late(TorchFunctionMode):
    """Fails where the host waits for results, as a GPU reports the faults of earlier kernels."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.cpu:
            raise RuntimeError(FAULT)
        return function(*args, **(kwargs or {}))


def verify(path: Path, level: str = "run", **options: Any) -> Report:
    return verify_run.verify(path, VerifyOptions(level=level, hidden_size=8, **options))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("faults"), LENGTHS, batch_size=2)


@contextmanager
def fails(message: str, hint: str) -> Iterator[None]:
    with pytest.raises(MachineError) as caught:
        yield
    assert caught.value.message == message
    assert caught.value.exit_code == 5
    assert hint in str(caught.value.hint)


# Warnings


@pytest.mark.parametrize("bidirectional", [False, True])
def test_weights_that_lie_apart_are_no_warning(
    shards: Path, monkeypatch: pytest.MonkeyPatch, bidirectional: bool
) -> None:
    warned: list[Any] = []

    def warn(inputs: Any) -> None:
        warned.append(inputs)
        warnings.warn(SEPARATE, stacklevel=2)

    run_before(monkeypatch, warn)
    report = verify(shards, "backward", bidirectional=bidirectional, sample=1)
    assert report.findings == []
    assert warned


def test_other_warnings_stay_as_they_are(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_before(monkeypatch, lambda _: warnings.warn("another warning", stacklevel=2))
    with pytest.raises(UserWarning, match="another warning"):
        verify(shards)


def test_weights_of_a_users_model_that_lie_apart_stay_a_warning() -> None:
    with (
        steady_arithmetic(torch.device("cpu"), hidden_size=None),
        pytest.raises(UserWarning, match="single contiguous chunk"),  # pytest makes them errors
    ):
        warnings.warn(SEPARATE, stacklevel=2)


# Batches that cuDNN refuses


@pytest.mark.parametrize("text", REFUSALS)
def test_refused_batch_is_found_and_the_others_are_computed(
    shards: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    run_before(monkeypatch, fail_at(13, text))
    report = verify(shards)
    assert [str(finding) for finding in report.findings] == [f"run: {NAME}: batch 1: {text}"]
    assert report.levels[2].num_batches == 3
    assert report.levels[2].num_tokens == sum(LENGTHS) - 13


@pytest.mark.parametrize("level", ["forward", "backward"])
def test_refused_batch_is_found_in_the_levels_that_compare(
    shards: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    run_before(monkeypatch, fail_at(13, REFUSALS[0]))
    report = verify(shards, level, every_batch=False)
    assert [str(finding) for finding in report.findings] == [
        f"forward: {NAME}: batch 1: {REFUSALS[0]}"
    ]
    (forward,) = [each for each in report.levels if each.level == "forward"]
    assert (forward.num_batches, forward.num_tokens) == (3, sum(LENGTHS) - 13)


def test_refused_batches_are_in_no_note(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_batch, "MAX_ROWS", 1)
    options: dict[str, Any] = {"level": "forward", "every_batch": True, "max_batch_tokens": 2}
    report = verify(shards, **options)
    assert any("in groups" in note for note in report.notes)
    assert report.levels[-1].num_cut_batches == 4
    run_before(monkeypatch, refuse)
    report = verify(shards, **options)
    assert not any("in groups" in note for note in report.notes)
    report = verify(shards, **options | {"every_batch": False})
    assert report.levels[-1].num_cut_batches == 0


def test_level_whose_batches_were_all_refused_has_no_other_finding(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_before(monkeypatch, refuse)
    found = verify(shards, "forward", every_batch=False).findings
    assert [(finding.batch, finding.what) for finding in found] == [
        (index, REFUSALS[0]) for index in range(4)
    ]


def test_refused_run_of_streams_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_shards(tmp_path, [9, 8, 7], layout="streams", batch_size=2, max_tokens=4)

    def fail(inputs: Any) -> None:
        if torch.is_tensor(inputs):
            raise RuntimeError(REFUSALS[0])

    run_before(monkeypatch, fail)
    report = verify(path, "forward", every_batch=False)
    assert {finding.what for finding in report.findings} == {REFUSALS[0]}
    assert not any("carried the state" in note for note in report.notes)


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    """Return shards of 22 batches, of which runs of 16 are stepped through."""
    options = {"layout": "streams", "batch_size": 2, "max_tokens": 16, "shard_bytes": 1200}
    return make_shards(tmp_path, [100] * 7, **options)


def test_refused_runs_of_streams_are_not_counted(
    streams: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (note,) = verify(streams, "forward", every_batch=False).notes
    assert note.startswith("forward: carried the state through 7 runs of batches")
    whole, numbers = stream_levels.check_streams, itertools.count()

    def check(*args: Any, **options: Any) -> Any:
        return refuse() if next(numbers) == 0 else whole(*args, **options)

    monkeypatch.setattr(stream_levels, "check_streams", check)
    report = verify(streams, "forward", every_batch=False)
    assert [str(finding) for finding in report.findings] == [
        f"forward: {NAME}: batch 0: {REFUSALS[0]}"
    ]
    assert report.notes[0].startswith("forward: carried the state through 6 runs of batches")


def test_fault_of_a_run_of_streams_names_all_its_batches(
    streams: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> Any:
        raise RuntimeError(FAULT)

    monkeypatch.setattr(stream_levels, "check_streams", fail)
    last = "shard-00002.safetensors: batch 15"
    with fails(f"{NAME}: batch 0 to {last}: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(streams, "forward", every_batch=False)


def test_self_test_of_streams_goes_on_when_a_run_is_refused(
    streams: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_calls, refused = 0, 0
    whole = stream_levels.check_streams

    def check(*args: Any, **options: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        return refuse() if num_calls == refused else whole(*args, **options)

    monkeypatch.setattr(stream_levels, "check_streams", check)
    assert verify(streams, "forward", every_batch=False).findings == []
    num_calls, refused = 0, num_calls + 1
    report = verify(streams, "forward", every_batch=False, self_test=True)
    (finding,) = report.findings
    assert (finding.level, finding.what) == ("forward", REFUSALS[0])
    controls = {each.name: each.caught for each in report.controls}
    # the only run of the smallest shard was refused once
    assert (controls["reset ignored"], controls["state not carried"]) == (None, True)


def test_refused_batch_is_left_out_of_the_speeds(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_before(monkeypatch, fail_at(13, REFUSALS[0]))
    report = verify(shards, "structure", compare=True)
    assert [str(finding) for finding in report.findings] == [
        f"compare: {NAME}: batch 1: {REFUSALS[0]}"
    ]
    assert [each.layout for each in report.layout_speeds] == ["packed", "padded", "dense"]


def test_batch_that_is_refused_later_is_found_once_and_left_out_of_the_speeds(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_calls = 0

    def fail(inputs: Any) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls > len(MEASURED_LAYOUTS) * 2:  # forward and training, of the first round
            refuse()

    run_before(monkeypatch, fail)
    report = verify(shards, "structure", compare=True, sample=1)
    assert len(report.findings) == 1
    assert report.layout_speeds == []


def test_self_test_goes_on_with_another_batch_when_one_is_refused(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_calls, refused = 0, 0

    def count(_: Any) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls == refused:
            raise RuntimeError(REFUSALS[0])

    run_before(monkeypatch, count)
    assert verify(shards, "forward", every_batch=False).findings == []
    num_calls, refused = 0, num_calls + 1
    report = verify(shards, "forward", every_batch=False, self_test=True)
    (finding,) = report.findings
    assert (finding.level, finding.what) == ("forward", REFUSALS[0])
    (control,) = [each for each in report.controls if each.name == "hidden state not trimmed"]
    assert control.caught


def test_device_that_refuses_a_batch_and_then_fails_ends_the_run(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(device: torch.device) -> None:
        raise RuntimeError(FAULT)

    run_before(monkeypatch, fail_at(13, REFUSALS[1]))
    monkeypatch.setattr(every_batch, "synchronize", fail)
    with fails(f"{NAME}: batches 0 to 1: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(shards)
    monkeypatch.setattr(levels, "synchronize", fail)
    with fails(f"{NAME}: batch 1: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(shards, "forward", every_batch=False)


# Devices that can compute nothing, or nothing any more


def test_device_that_computes_nothing_is_named_at_once(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = "CUDA error: no kernel image is available for execution on the device"

    class NoKernels(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if str((kwargs or {}).get("device")) == "cuda":
                raise RuntimeError(f"{what}\nCUDA kernel errors might be reported later.")
            return function(*args, **(kwargs or {}))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with NoKernels(), fails(f"--device cuda: {what}", ""):
        verify(shards, device="cuda")


def test_fault_names_all_batches_since_the_device_was_waited_for(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_before(monkeypatch, fail_at(5, FAULT))
    with fails(f"{NAME}: batches 0 to 3: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(shards)
    monkeypatch.setattr(LIMITS, "runs_per_fetch", 2)
    with fails(f"{NAME}: batches 2 to 3: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(shards)
    monkeypatch.setattr(LIMITS, "runs_per_fetch", 1)
    with fails(f"{NAME}: batch 3: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(shards)


def test_fault_of_batches_in_several_shards_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_shards(tmp_path, LENGTHS, batch_size=2, shard_bytes=1)
    run_before(monkeypatch, fail_at(9, FAULT))
    place = "shard-00000.safetensors: batch 0 to shard-00002.safetensors: batch 2"
    with fails(f"{place}: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(path)


def test_fault_that_shows_late_is_named(shards: Path) -> None:
    with Late(), fails(f"{NAME}: batches 0 to 3: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(shards)


def test_fault_names_the_split_and_the_side_of_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [make_store(tmp_path / side, make_texts(range(1, 40))) for side in ("one", "two")]
    options = PackOptions(batch_size=64, split="train=0.5,test=rest")
    pack(stores[0], tmp_path / "out", options, decoder=stores[1], executor=Executor(num_workers=1))
    computed: list[Any] = []

    def fail(inputs: Any) -> None:
        computed.append(inputs)
        if len(computed) == 4:
            raise RuntimeError(FAULT)

    run_before(monkeypatch, fail)
    place = "test: decoder: shard-00000.safetensors: batch 0"
    with fails(f"{place}: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(tmp_path / "out")


def test_fault_of_the_roundtrip_names_the_batches(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError(FAULT)

    monkeypatch.setattr(Sender, "send", fail)
    with fails(f"{NAME}: batches 0 to 3: {REASON}", "CUDA_LAUNCH_BLOCKING=1"):
        verify(shards, "roundtrip")


def test_readers_end_with_a_roundtrip_that_fails(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_in_threads(function: Any, items: Any, *, num_threads: int) -> Any:
        return map_ahead(function, items, num_threads=num_threads + 1)  # as for a GPU

    monkeypatch.setattr(shard_roundtrip, "map_ahead", read_in_threads)
    num_threads = threading.active_count()
    assert verify(shards, "roundtrip").findings == []
    monkeypatch.setattr(shard_roundtrip, "has_right_ids", refuse)
    with pytest.raises(MachineError) as caught:
        verify(shards, "roundtrip")
    assert caught.value.__traceback__ is not None
    assert threading.active_count() == num_threads  # though the error is kept


def test_other_errors_stay_as_they_are(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_before(monkeypatch, fail_at(13, "a bug of ours"))
    with pytest.raises(RuntimeError, match="a bug of ours"):
        verify(shards)


# Memory


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB.",
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    ],
)
def test_words_for_memory_end_the_run(
    shards: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    assert is_out_of_memory(RuntimeError(text))
    run_before(monkeypatch, fail_at(13, text))
    reason = f"{text} (usually the GPU is out of memory)" if "INITIALIZED" in text else text
    with fails(f"{NAME}: batch 1: {reason}", "--max-batch-tokens"):
        verify(shards)


@pytest.mark.parametrize("text", [*REFUSALS, FAULT, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"])
def test_other_words_are_not_taken_for_memory(text: str) -> None:
    assert not is_out_of_memory(RuntimeError(text))


# Streams


def test_all_shards_are_sent_on_one_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Sender] = []

    class CountedSender(Sender):
        def __init__(self, device: torch.device) -> None:
            super().__init__(device)
            made.append(self)

    monkeypatch.setattr(shard_roundtrip, "Sender", CountedSender)
    path = make_shards(tmp_path, LENGTHS, batch_size=2, shard_bytes=1, has_columns=True)
    report = verify(path, "roundtrip")
    assert report.findings == []
    assert report.num_shards == 4
    assert len(made) == 1
