"""State: continuing, rewinding and batching give what a fresh run gives, on the CPU bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import saragossa
from saragossa import _core
from saragossa.engine.batch import ROWS
from saragossa.engine.loading import load
from saragossa.errors import ContextLengthError, ParameterError, UsageError, WeightsError

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints"
PROMPT = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(39)]


@pytest.fixture(scope="module")
def llm() -> saragossa.LLM:
    return saragossa.LLM(GOLDEN / "qwen3-q4g64", device="cpu", exact=True)


@pytest.fixture(scope="module")
def gemma() -> saragossa.LLM:
    return saragossa.LLM(GOLDEN / "gemma3_text-q4g64", device="cpu", exact=True)


@pytest.fixture(scope="module")
def scalar() -> saragossa.LLM:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SARAGOSSA_ISA", "scalar")
        return saragossa.LLM(GOLDEN / "qwen3-q4g64", device="cpu", exact=True)


@pytest.fixture(scope="module")
def request_cache(
    llm: saragossa.LLM, gemma: saragossa.LLM, scalar: saragossa.LLM
) -> dict[str, saragossa.LLM]:
    return {"llm": llm, "gemma": gemma, "scalar": scalar}


def last_logits(core: _core.Session, bounds: list[int]) -> np.ndarray:
    """Back to the first bound, then the prompt in pieces up to the last, then the rest."""
    core.rewind(0, bounds[0])
    for start, stop in pairwise(bounds):
        core.prefill(0, PROMPT[start:stop], False)
    return core.logits(0, PROMPT[bounds[-1] :])[-1]


@pytest.mark.parametrize("name", ["llm", "gemma", "scalar"])
@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 39), max_size=4), rewind=st.integers(0, 38))
def test_continue_equals_fresh(
    name: str, cuts: list[int], rewind: int, request_cache: dict[str, saragossa.LLM]
) -> None:
    model = request_cache[name]
    core = _core.Session(model.loaded.model, 1, model.context)
    fresh = last_logits(core, [0])
    again = last_logits(core, sorted({rewind, *[c for c in cuts if c > rewind], 39}))
    assert np.array_equal(again, fresh)


@pytest.mark.parametrize("name", ["llm", "gemma"])
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.integers(1, ROWS), min_size=39, max_size=39), rewind=st.integers(0, 38))
def test_short_pieces_equal_single_tokens_bit_for_bit(
    name: str, steps: list[int], rewind: int, request_cache: dict[str, saragossa.LLM]
) -> None:
    """As many rows as are decoded together: none of them changes another's sums."""
    model = request_cache[name]
    core = _core.Session(model.loaded.model, 1, model.context)
    alone = last_logits(core, list(range(40)))
    ends = [end for end in accumulate(steps, initial=rewind) if end < 39]
    assert np.array_equal(last_logits(core, [*ends, 39]), alone)


def test_batch_gives_each_prompt_what_it_gets_alone(llm: saragossa.LLM) -> None:
    prompts = [PROMPT[:n] for n in (3, 17, 40, 8, 25, 31, 5, 12, 9, 20)]  # more than one group
    alone = [llm.generate(p, max_tokens=12, ignore_eos=True).token_ids for p in prompts]
    together = llm.generate(prompts, max_tokens=12, ignore_eos=True)
    assert [c.token_ids for c in together] == alone


def test_rows_that_end_early_leave_the_others_alone(llm: saragossa.LLM) -> None:
    small = saragossa.LLM(GOLDEN / "qwen3-q4g64", device="cpu", exact=True, context=45)
    prompts = [PROMPT, PROMPT[:30], PROMPT[:36], PROMPT + PROMPT[1:5]]
    alone = [llm.generate(p, max_tokens=12, ignore_eos=True).token_ids for p in prompts]
    together = [c.token_ids for c in small.generate(prompts, max_tokens=12, ignore_eos=True)]
    assert [len(ids) for ids in together] == [5, 12, 9, 1]  # the context ends them
    assert together == [ids[: len(mine)] for ids, mine in zip(alone, together, strict=True)]


def test_seed_repeats_and_matters(llm: saragossa.LLM) -> None:
    texts = [
        tuple(llm.generate(PROMPT, max_tokens=24, temperature=1.0, seed=seed, ignore_eos=True).token_ids)
        for seed in (1, 1, 2, 2, 3, 3)
    ]
    assert texts[0::2] == texts[1::2]
    assert len(set(texts)) > 1


def test_penalties_do_not_charge_the_prompt(llm: saragossa.LLM) -> None:
    logits = _core.Session(llm.loaded.model, 1, llm.context).logits(0, PROMPT)[-1]
    told, other = PROMPT[5], next(i for i in range(4, 277) if i not in PROMPT)

    def first(lead: float, **options: float) -> int:
        """The token drawn where `told`, which the prompt holds, leads by so much."""
        even = float(logits[told] - logits[other])
        bias = {told: 50.0 + lead, other: 50.0 + even}
        return llm.generate(PROMPT, max_tokens=1, logit_bias=bias, ignore_eos=True, **options).token_ids[0]

    assert first(1.0) == told
    assert first(1.0 - 2.0) == other  # what a charge of 2 would do
    assert first(1.0, presence_penalty=2.0) == told
    assert first(1.0, frequency_penalty=2.0) == told


def test_frequency_penalty_changes_the_output(llm: saragossa.LLM) -> None:
    favourite = {50: 100.0}
    plain = llm.generate(PROMPT, max_tokens=6, logit_bias=favourite)
    assert plain.token_ids == [50] * 6
    near = {50: 99.0, 51: 98.9}
    logits = llm.generate(PROMPT, max_tokens=6, logit_bias=near, frequency_penalty=2.0, ignore_eos=True)
    assert set(logits.token_ids) == {50, 51}


def test_logprobs_are_of_the_model(llm: saragossa.LLM) -> None:
    logits = _core.Session(llm.loaded.model, 1, llm.context).logits(0, PROMPT)[-1].astype(np.float64)
    want = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    done = llm.generate(PROMPT, max_tokens=1, top_logprobs=3, temperature=0.0)
    assert done.logprobs is not None
    first = done.logprobs[0]
    best = np.argsort(-want, kind="stable")[:3]
    assert [token for token, _ in first.top] == best.tolist()
    assert first.logprob == pytest.approx(want[first.token_id], abs=1e-4)


def test_mask_allows_only_what_it_says(llm: saragossa.LLM) -> None:
    core = _core.Session(llm.loaded.model, 1, llm.context)
    vocab = llm.spec.decoder.vocab
    words = [0] * ((vocab + 31) // 32)
    words[77 // 32] |= 1 << (77 % 32)
    core.set_mask(0, words)
    core.prefill(0, PROMPT, True)
    assert core.drawn(0)[0] == 77
    core.set_mask(0, [])
    core.step([0])


def test_context_is_a_bound(llm: saragossa.LLM) -> None:
    small = saragossa.LLM(GOLDEN / "qwen3-q4g64", device="cpu", context=10)
    assert len(small.generate(PROMPT[:8], max_tokens=50, ignore_eos=True).token_ids) == 2
    with pytest.raises(ContextLengthError, match=r"11 tokens.*10"):
        small.generate(PROMPT[:11])
    with pytest.raises(ParameterError, match="context"):
        saragossa.LLM(GOLDEN / "qwen3-q4g64", device="cpu", context=0)


def test_the_cores_own_bound_is_the_same_error(llm: saragossa.LLM) -> None:
    """Whoever drives the core's session, with several rows or past what Python counts."""
    core = _core.Session(llm.loaded.model, 1, 10)
    with pytest.raises(ContextLengthError, match="11 tokens do not fit the context of 10") as error:
        core.prefill(0, PROMPT[:11], False)
    assert (error.value.prompt_tokens, error.value.context) == (None, None)
    assert error.value.cure
    core.prefill(0, PROMPT[:10], True)
    with pytest.raises(ContextLengthError):
        core.step([0])


@pytest.mark.parametrize("bad", [-1, 277, 2**31 - 1])
def test_token_id_out_of_range_is_named(llm: saragossa.LLM, bad: int) -> None:
    with pytest.raises(UsageError, match=rf"token id {bad}.*277"):
        llm.generate([5, bad, 6])
    assert llm.generate(PROMPT, max_tokens=1).token_ids  # and the next request works


def test_empty_prompt_is_refused(llm: saragossa.LLM) -> None:
    with pytest.raises(ParameterError, match="empty"):
        llm.generate([])


def test_nan_weights_end_the_request(tmp_path: Path) -> None:
    folder = tmp_path / "nan"
    shutil.copytree(GOLDEN / "qwen3", folder)
    from saragossa.weights.safetensors import SafetensorsIndex

    entry = SafetensorsIndex.open(folder)["model.norm.weight"]
    with Path(entry.file).open("r+b") as file:
        file.seek(entry.offset)
        file.write(b"\xff" * entry.nbytes)
    with pytest.raises(saragossa.SaragossaError, match="not finite"):
        saragossa.LLM(folder, device="cpu").generate(PROMPT, max_tokens=3)


def test_closed_llm_says_so() -> None:
    with saragossa.LLM(GOLDEN / "qwen3", device="cpu") as llm:
        llm.generate(PROMPT, max_tokens=1)
    with pytest.raises(UsageError, match="closed"):
        llm.generate(PROMPT, max_tokens=1)


def test_blocks_come_back_when_a_session_goes(llm: saragossa.LLM) -> None:
    before = llm.loaded.model.free_blocks
    session = llm.session()
    session.prefill(PROMPT * 10)
    assert llm.loaded.model.free_blocks == before - 2
    session.rewind(3)
    assert llm.loaded.model.free_blocks == before - 1
    del session
    assert llm.loaded.model.free_blocks == before


def test_metal_is_a_clear_error_here() -> None:
    if _core.metal_available():
        pytest.skip("this machine has Metal")
    with pytest.raises(UsageError, match="metal"):
        saragossa.LLM(GOLDEN / "qwen3", device="metal")


def test_truncated_weights_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(GOLDEN / "qwen3", folder)
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])
    with pytest.raises(WeightsError, match=r"model\.safetensors"):
        load(folder, device="cpu")


def test_ctrl_c_ends_a_long_prefill_and_the_session_stands_where_it_stood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SARAGOSSA_ISA", "scalar")
    monkeypatch.setenv("SARAGOSSA_PREFILL_CHUNK", "4000")
    slow = saragossa.LLM(GOLDEN / "llama-q8g32", device="cpu", threads=1)
    session = slow.session()
    session.prefill(PROMPT)
    want = slow.generate(PROMPT, max_tokens=3, ignore_eos=True).token_ids

    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            session.prefill(PROMPT * 50)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert session.length == len(PROMPT)
    session.rewind(0)
    session.prefill(PROMPT)
    assert [session.step() for _ in range(3)] == want


def test_threads_share_a_model_with_a_session_each(llm: saragossa.LLM) -> None:
    want = llm.generate(PROMPT, max_tokens=4, ignore_eos=True).token_ids
    failures: list[object] = []

    def work() -> None:
        for _ in range(10):
            session = llm.session()
            session.prefill(PROMPT * 8)
            session.rewind(0)
            session.prefill(PROMPT)
            got = [session.step() for _ in range(4)]
            if got != want:
                failures.append(got)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    assert not failures


@pytest.mark.parametrize("bad", [5.9, "5", True, None])
def test_an_id_that_is_no_whole_number_is_refused(llm: saragossa.LLM, bad: object) -> None:
    with pytest.raises(UsageError, match=r"whole number|a prompt is"):
        llm.generate([5, bad, 6])  # type: ignore[list-item]


def test_a_bad_prompt_of_a_batch_is_found_before_anything_runs(llm: saragossa.LLM) -> None:
    with pytest.raises(UsageError, match="token id 999"):
        llm.generate([*[PROMPT] * 9, [5, 999]], max_tokens=1)


def test_numpy_ids_are_ids(llm: saragossa.LLM) -> None:
    assert (
        llm.generate(list(np.array(PROMPT)), max_tokens=2).token_ids
        == llm.generate(PROMPT, max_tokens=2).token_ids
    )


def test_a_tiny_temperature_is_greedy(llm: saragossa.LLM) -> None:
    greedy = llm.generate(PROMPT, max_tokens=4, ignore_eos=True).token_ids
    assert llm.generate(PROMPT, max_tokens=4, temperature=1e-45, seed=1, ignore_eos=True).token_ids == greedy


def check_snapshots(model: _core.Model, context: int) -> None:
    """Restored rows go on as the first one did; blocks are shared until somebody writes to one."""
    core = _core.Session(model, 2, context)
    core.configure(0)
    core.prefill(0, PROMPT[:20], True)
    core.step([0])  # the row runs on a device that may be a step ahead
    free = model.free_blocks
    kept = core.snapshot(0)
    assert model.free_blocks == free
    assert kept.tokens == [*PROMPT[:20], *kept.tokens[20:]]
    assert (kept.length, core.length(0)) == (21, 21)
    fresh = core.logits(0, PROMPT[21:])[-1]
    assert model.free_blocks == free - 1  # the block that it wrote to is its own now
    for row in (1, 0):
        core.restore(row, kept)
        assert core.length(row) == 21
        again = core.logits(row, PROMPT[21:])[-1]
        assert again.tobytes() == fresh.tobytes()
    with pytest.raises(UsageError, match="does not fit"):
        _core.Session(model, 1, 20).restore(0, kept)
    del core
    assert model.free_blocks == free  # one block is the snapshot's
    del kept
    assert model.free_blocks == free + 1


def test_snapshots(llm: saragossa.LLM) -> None:
    check_snapshots(llm.loaded.model, llm.context)


def test_a_snapshot_belongs_to_its_model(llm: saragossa.LLM, gemma: saragossa.LLM) -> None:
    core = _core.Session(llm.loaded.model, 1, llm.context)
    core.prefill(0, PROMPT[:5], False)
    with pytest.raises(UsageError, match="another model"):
        _core.Session(gemma.loaded.model, 1, gemma.context).restore(0, core.snapshot(0))


FORK = """
import os, sys, threading, warnings
import saragossa
warnings.simplefilter("ignore")
llm = saragossa.LLM(sys.argv[1], device="cpu", exact=True)
want = llm.generate([2, 5, 9], max_tokens=3).token_ids
stop = threading.Event()
def busy():
    while not stop.is_set():
        llm.generate([2] * 200, max_tokens=1)
thread = threading.Thread(target=busy)
thread.start()
refused = 0
for _ in range(30):
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if llm.generate([2, 5, 9], max_tokens=3).token_ids == want else 9)
        except saragossa.errors.UsageError as error:
            os._exit(1 if "fork" in str(error) else 9)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1), code
    refused += code
stop.set()
thread.join()
assert refused
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_a_thread_generates_is_told() -> None:
    run = [sys.executable, "-c", FORK, str(GOLDEN / "qwen3-q4g64")]
    subprocess.run(run, check=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
