"""Verification: whatever the drafts are, tokens and log probabilities are plain decoding's, bit for bit."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import saragossa
from saragossa import _core
from saragossa.engine.loading import Loaded, load
from saragossa.errors import SaragossaError, UsageError
from saragossa.weights.bind import bind
from saragossa.weights.safetensors import SafetensorsIndex

GOLDEN = Path(__file__).parents[1] / "golden"
PLACES = {name: GOLDEN / "checkpoints" / name for name in ("llama-q4g64", "qwen3-q4g64", "gemma3_text-q4g64")}
PLACES |= {
    n: GOLDEN / "families" / n for n in ("qwen3_5", "qwen3_5_moe", "qwen3_moe-q4g32", "gemma4-e2b-q4g32")
}
PROMPT = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(39)]
COUNT = 40
GREEDY: dict[str, Any] = {"top_logprobs": 2}
SAMPLED: dict[str, Any] = {
    "temperature": 1.1,
    "top_k": 60,
    "top_p": 0.95,
    "seed": 11,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.4,
    "frequency_penalty": 0.3,
    "bias": [(17, 1.5), (200, -3.0)],
    "top_logprobs": 3,
}
NOISY: dict[str, Any] = {"temperature": 1.7, "seed": 5}
Token = tuple[int, list[tuple[int, float]]]


def model(name: str, exact: bool, kv: str | None = None) -> Loaded:
    return load(PLACES[name], device="cpu", exact=exact, kv=kv, mtp=name in ("qwen3_5", "qwen3_5_moe"))


def begin(core: _core.Session, options: dict[str, Any], prompt: list[int] = PROMPT) -> Token:
    core.rewind(0, 0)
    core.configure(0, **options)
    core.prefill(0, prompt, True)
    return core.drawn(0)


def plain(core: _core.Session, options: dict[str, Any], count: int = COUNT) -> list[Token]:
    out = [begin(core, options)]
    while len(out) < count:
        core.step([0])
        out.append(core.drawn(0))
    return out


def some_drafts(rng: random.Random, truth: list[int], at: int) -> list[int]:
    """What follows token `at`, right up to a random place."""
    drafts = truth[at + 1 : at + 1 + rng.randint(0, 7)]
    if drafts and rng.random() < 0.7:
        wrong = rng.randrange(len(drafts))
        drafts[wrong] = (drafts[wrong] + rng.randint(1, 200)) % 277
    return drafts


@pytest.mark.parametrize("kind", ["exact", "default", "u8"])
@pytest.mark.parametrize("name", list(PLACES))
def test_any_drafts_give_what_plain_steps_give(name: str, kind: str) -> None:
    """Right, wrong and half right ones, with plain steps, partial keeps and snapshots between them."""
    loaded = model(name, kind == "exact", "u8" if kind == "u8" else None)
    core = _core.Session(loaded.model, 1, 512)
    for options in (GREEDY, SAMPLED, NOISY):
        want = plain(core, options, COUNT + 8)
        truth = [token for token, _ in want]
        rng = random.Random(7)
        out = [begin(core, options)]
        accepted = 0
        while len(out) < COUNT:
            drafts = some_drafts(rng, truth, len(out) - 1)
            got = core.verify(0, drafts)
            right = next((i for i, d in enumerate(drafts) if d != truth[len(out) + i]), len(drafts))
            assert len(got) == right + 1
            accepted += right
            kept = rng.randint(1, len(got)) if rng.random() < 0.3 else len(got)
            if kept < len(got):
                core.keep(0, kept)
            out += got[:kept]
            assert core.drawn(0) == out[-1]
            if rng.random() < 0.2:
                core.step([0])
                out.append(core.drawn(0))
            assert core.verify(0, []) == want[len(out) : len(out) + 1]  # a verification of nothing is a step
            out.append(core.drawn(0))
        assert out[:COUNT] == want[:COUNT], options
        assert accepted > COUNT // 4


def test_states_behind_a_refused_draft_are_those_of_plain_steps() -> None:
    """Logits of what is appended: the recurrent states, too, went back."""
    core = _core.Session(model("qwen3_5", True).model, 2, 512)
    want = [token for token, _ in plain(core, GREEDY, 12)]
    begin(core, GREEDY)
    core.verify(0, [*want[1:4], 5, 6, 7])
    assert core.verify(0, [9] * 7)[0][0] == want[5]
    core.rewind(1, 0)
    core.prefill(1, PROMPT, False)
    for token in want[:5]:  # as rows of one
        core.logits(1, [token])
    tail = [want[5], 33, 44]
    got, fresh = (np.concatenate([core.logits(row, [t]) for t in tail]) for row in (0, 1))
    assert got.tobytes() == fresh.tobytes()


def test_snapshots_forks_and_rewinds_between_verifications() -> None:
    loaded = model("qwen3_5_moe", True)
    core = _core.Session(loaded.model, 2, 512)
    want = [token for token, _ in plain(core, NOISY, 30)]
    begin(core, NOISY)
    core.mark(0)
    core.verify(0, [*want[1:5], 0])
    held = core.snapshot(0)  # keeps all that was verified
    assert (held.length, held.tokens[-5:]) == (len(PROMPT) + 5, want[:5])
    assert [t for t, _ in core.verify(0, want[6:9])] == want[6:10]
    core.rewind(0, len(PROMPT))
    core.configure(0, **NOISY)
    core.restore(1, held)
    core.configure(1, **NOISY)
    fresh = [core.logits(row, [7])[-1] for row in (0, 1)]
    other = _core.Session(loaded.model, 1, 512)
    for row, tokens in ((0, PROMPT), (1, [*PROMPT, *want[:5]])):
        other.rewind(0, 0)
        other.prefill(0, PROMPT, False)
        for token in tokens[len(PROMPT) :]:
            other.logits(0, [token])
        assert fresh[row].tobytes() == other.logits(0, [7])[-1].tobytes()


def test_a_mask_stands_for_one_draw() -> None:
    core = _core.Session(model("llama-q4g64", True).model, 1, 512)
    want = plain(core, GREEDY, 8)
    begin(core, GREEDY)
    mask = [0xFFFFFFFF] * 9
    mask[want[1][0] // 32] &= ~(1 << want[1][0] % 32)
    core.set_mask(0, mask)
    got = core.verify(0, [t for t, _ in want[1:6]])
    assert len(got) == 1
    assert got[0][0] != want[1][0]
    core.set_mask(0, [])
    begin(core, GREEDY)
    assert core.verify(0, [t for t, _ in want[1:6]]) == want[1:7]


def test_misuse_and_the_edge_of_the_context() -> None:
    core = _core.Session(model("qwen3_5", True).model, 1, len(PROMPT) + 4)
    with pytest.raises(UsageError, match="no drawn token"):
        core.verify(0, [1])
    begin(core, GREEDY)
    with pytest.raises(UsageError, match="8 drafts, 7 are"):
        core.verify(0, [1] * 8)
    with pytest.raises(UsageError, match=r"token id 277 is out of range"):
        core.verify(0, [277])
    with pytest.raises(UsageError, match="no 1 verified"):
        core.keep(0, 1)
    core.verify(0, [1, 2, 3, 4])  # one place too few: it is a plain step
    assert core.length(0) == len(PROMPT)
    with pytest.raises(UsageError, match="no 2 verified"):
        core.keep(0, 2)
    core.keep(0, 1)
    assert core.length(0) == len(PROMPT) + 1
    assert core.draft_by_mtp(0, 7) != []
    assert len(core.draft_by_mtp(0, 7)) == 2  # as many as could be verified


def test_where_states_are_few_fewer_drafts_are_verified() -> None:
    full = model("qwen3_5", True)
    small = small_model(full, "qwen3_5", 2, slots=4)
    core = _core.Session(small, 1, 512)
    want = [t for t, _ in plain(_core.Session(full.model, 1, 512), GREEDY, 8)]
    begin(core, GREEDY)
    assert [t for t, _ in core.verify(0, want[1:8])] == want[1:2]
    assert [t for t, _ in core.verify(0, want[2:4])] == want[2:5]
    assert small.free_slots == 0  # three states, and the one in front of them, until it is kept
    core.keep(0, 3)
    assert small.free_slots == 3


def small_model(full: Loaded, name: str, blocks: int, **more: int) -> _core.Model:
    tensors = bind(full.spec, SafetensorsIndex.open(PLACES[name]))
    return _core.Model(full.device, full.spec.decoder, tensors, blocks=blocks, kv_dtype="f32", **more)


def test_where_blocks_are_few_drafts_end_and_steps_go_on() -> None:
    """At the end of the only block there is no place for drafts, and still one for a step."""
    prompt = [2 + i % 200 for i in range(250)]
    full = model("qwen3_5", True)
    core = _core.Session(full.model, 1, 512)
    want = [begin(core, GREEDY, prompt)]
    for _ in range(6):
        core.step([0])
        want.append(core.drawn(0))
    tokens = [t for t, _ in want]

    target = _core.Session(small_model(full, "qwen3_5", 1), 1, 512)
    begin(target, GREEDY, prompt)
    assert len(target.draft_by_mtp(0, 5)) == 5
    for at in range(1, 7):
        assert target.draft_by_mtp(0, 7) == []
        target.step([0])
        assert target.drawn(0) == want[at]
    with pytest.raises(SaragossaError, match="full"):
        target.step([0])

    begin(core, GREEDY, prompt)
    drafter = _core.ModelDrafter(small_model(full, "qwen3_5", 1), 512)
    assert drafter.propose(core, 0, 7) == tokens[1:7]
    core.step([0])
    assert drafter.propose(core, 0, 7) == tokens[2:7]


def test_a_draft_model_of_no_numbers_drafts_nothing(tmp_path: Path) -> None:
    place = PLACES["llama-q4g64"]
    broken = tmp_path / "broken"
    shutil.copytree(place, broken)
    file = broken / "model.safetensors"
    data = bytearray(file.read_bytes())
    head = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + head])["model.norm.weight"]
    begins, ends = (8 + head + at for at in entry["data_offsets"])
    data[begins:ends] = b"\xff" * (ends - begins)  # NaN in every float format
    file.write_bytes(data)
    options: dict[str, Any] = {"max_tokens": 20, "ignore_eos": True}
    with saragossa.LLM(place, device="cpu", draft_model=broken) as llm:
        drafted = llm.generate(PROMPT, **options)
        assert drafted.token_ids == llm.generate(PROMPT, speculate="off", **options).token_ids


def test_logits_of_drafts_end_with_the_context() -> None:
    core = _core.Session(model("qwen3_5", True).model, 1, 256)
    begin(core, GREEDY, [2 + i % 200 for i in range(250)])
    assert core.mtp_logits(0, [5] * 5).shape[0] == 6
    with pytest.raises(SaragossaError, match="257 tokens do not fit the context of 256"):
        core.mtp_logits(0, [5] * 6)


def test_the_head_keeps_up_with_verifications_of_other_drafts() -> None:
    """States that wait for its keys are made use of on the way; what it drafts then is what it would have."""
    core = _core.Session(model("qwen3_5", True).model, 2, 1024)
    tokens = [begin(core, GREEDY)[0]]
    waiting = []
    while len(tokens) < 600:
        tokens += [t for t, _ in core.verify(0, [])]
        core.keep(0, 1)
        waiting.append(core.waiting_states(0))
    assert 250 < max(waiting) <= 264
    core.configure(1, **GREEDY)
    core.prefill(1, [*PROMPT, *tokens[:-1]], True)
    assert core.drawn(0) == core.drawn(1)
    kept, fresh = (core.mtp_logits(row, [9, 8]) for row in (0, 1))
    assert np.abs(kept - fresh).max() < 1e-4 * np.abs(fresh).max()


# --- the library --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llms() -> dict[str, saragossa.LLM]:
    place = PLACES["qwen3_5"]
    return {
        "off": saragossa.LLM(place, device="cpu", exact=True),
        "mtp": saragossa.LLM(place, device="cpu", exact=True, speculate="mtp", draft_tokens=7),
        "draft": saragossa.LLM(place, device="cpu", exact=True, draft_model=place),
        "lookup": saragossa.LLM(place, device="cpu", exact=True, speculate="lookup"),
    }


@pytest.mark.parametrize("method", ["mtp", "draft", "lookup"])
@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 1.3, "seed": 4, "top_logprobs": 1}, {"repetition_penalty": 1.3}],
    ids=["greedy", "sampled", "penalised"],
)
def test_generations_are_the_same(
    llms: dict[str, saragossa.LLM], method: str, options: dict[str, Any]
) -> None:
    a, b = (llms[m].generate(PROMPT, max_tokens=60, ignore_eos=True, **options) for m in ("off", method))
    assert (a.token_ids, a.text, a.logprobs, a.finish_reason) == (
        b.token_ids,
        b.text,
        b.logprobs,
        b.finish_reason,
    )


def test_a_stop_in_the_middle_of_a_verification(llms: dict[str, saragossa.LLM]) -> None:
    """The session then holds what a plain one holds, and goes on from there."""
    sessions = []
    tokens = llms["off"].generate(PROMPT, max_tokens=40, ignore_eos=True).token_ids
    for method in ("off", "draft"):
        llm = llms[method]
        session = llm.session()
        session.configure(saragossa.GenerationOptions())
        session.prefill(PROMPT)
        for at in range(17):
            assert session.step() == tokens[at]
            assert session.length == len(PROMPT) + at
        session.prefill([9, 8, 7])
        sessions.append((session.length, [session.step() for _ in range(9)], session.length))
    assert sessions[0] == sessions[1]


def test_a_draft_model_equal_to_the_target_is_always_right(llms: dict[str, saragossa.LLM]) -> None:
    for options in ({}, {"temperature": 1.5, "seed": 9, "presence_penalty": 1.0, "logit_bias": {7: 2.0}}):
        session = llms["draft"].session()
        list(llms["draft"].stream(PROMPT, session=session, max_tokens=50, ignore_eos=True, **options))
        assert session.stats.drafted >= 20
        assert session.stats.accepted == session.stats.drafted


def test_lookup_finds_what_stood_before() -> None:
    core = _core.Session(model("qwen3-q4g64", True).model, 1, 512)
    for prompt, forced, want in (
        ([2, 10, 11, 12, 13, 14, 20, 10, 11], 12, [13, 14, 20, 10, 11]),
        ([2, 30, 31, 40, 30, 31, 50, 9, 30], 31, [50, 9, 30, 31, 50]),  # the latest of equal matches
        ([2, 60, 30, 31, 40, 70, 30, 31, 50, 9, 60, 30], 31, [40, 70, 30, 31, 50]),  # the longest
        ([2, 5, 6, 5, 6, 5], 6, [5, 6, 5, 6, 5]),  # a cycle goes on
        ([2, 5, 6, 7], 8, []),
    ):
        begin(core, {"bias": [(forced, 100.0)]}, prompt)
        assert _core.LookupDrafter().propose(core, 0, 5) == want, prompt


def test_what_is_refused(tmp_path: Path) -> None:
    place = PLACES["qwen3_5"]
    for arguments, message in (
        ({"speculate": "medusa"}, "found 'medusa', accepted is off, mtp, draft, lookup"),
        ({"speculate": "draft"}, "no draft model is named"),
        ({"speculate": "mtp", "draft_model": place}, "a draft model is named, but speculate is 'mtp'"),
        ({"speculate": "lookup", "draft_tokens": 8}, "draft_tokens: found 8"),
        ({"draft_model": tmp_path / "none"}, "no such folder"),
    ):
        with pytest.raises(SaragossaError, match=message):
            saragossa.LLM(place, device="cpu", **arguments)
    with pytest.raises(SaragossaError, match="qwen3 model has no MTP head"):
        saragossa.LLM(PLACES["qwen3-q4g64"], device="cpu", speculate="mtp")
    with pytest.raises(SaragossaError, match=r"MTP head was asked for, but its weights are absent"):
        saragossa.LLM(GOLDEN / "families" / "qwen3_5_text", device="cpu", speculate="mtp")
    with saragossa.LLM(place, device="cpu") as llm:
        for method in ("mtp", "draft"):
            with pytest.raises(SaragossaError, match="was loaded"):
                llm.generate(PROMPT, max_tokens=3, speculate=method)
        assert llm.generate(PROMPT, max_tokens=3, speculate="lookup").token_ids


def test_a_draft_model_with_another_vocabulary(tmp_path: Path) -> None:
    place = PLACES["llama-q4g64"]
    other = tmp_path / "other"
    other.mkdir()
    for file in place.iterdir():
        text = file.read_bytes()
        (other / file.name).write_bytes(text)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(
        SaragossaError, match=r"a draft model with another vocabulary .* 2 differ, such as 'a'"
    ):
        saragossa.LLM(place, device="cpu", draft_model=other)


# --- distribution -------------------------------------------------------------------------------------------


def test_sampled_tokens_follow_the_same_distribution() -> None:
    """Chi-square of pairs of tokens behind a prompt, with drafts and without, over seeds of their own."""
    core = _core.Session(model("qwen3-q4g64", False).model, 1, 512)
    options = {"temperature": 1.0, "top_k": 4}
    runs = 1500

    def counts(seeds: range, drafts: list[int] | None) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        for seed in seeds:
            core.rewind(0, len(PROMPT) - 1)
            core.configure(0, **options, seed=seed)
            core.prefill(0, PROMPT[-1:], True)
            if drafts is None:
                core.step([0])
                first = core.drawn(0)[0]
                core.step([0])
                pair = (first, core.drawn(0)[0])
            else:
                got = [token for token, _ in core.verify(0, drafts)]
                if len(got) == 1:
                    core.step([0])
                    got.append(core.drawn(0)[0])
                pair = (got[0], got[1])
            found[pair] = found.get(pair, 0) + 1
        return found

    core.prefill(0, PROMPT[:-1], False)
    without = counts(range(runs), None)
    likely = max(without, key=lambda pair: without[pair])
    drafted = counts(range(10_000, 10_000 + runs), [likely[0], likely[1]])
    cells = [
        pair for pair in without.keys() | drafted.keys() if without.get(pair, 0) + drafted.get(pair, 0) >= 16
    ]
    assert len(cells) >= 8
    chi = sum(
        (without.get(c, 0) - drafted.get(c, 0)) ** 2 / (without.get(c, 0) + drafted.get(c, 0)) for c in cells
    )
    freedom = len(cells) - 1
    assert chi < freedom + 4 * (2 * freedom) ** 0.5  # one of some thousands of correct runs
    assert chi > 0  # other seeds: not the same runs
