"""Verification on the Metal device: up to eight rows draw what single steps draw, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import saragossa.errors
from e2e.test_block_drafter import PLACES, reference, states_of, write
from e2e.test_family_goldens import FAMILIES, golden
from e2e.test_goldens import GOLDEN
from metal.emulator import Emulator
from metal.models import GREEDY, NAME, PROMPT, SAMPLED, fault, loaded, session
from saragossa import _core
from saragossa.engine.loading import load

pytestmark = pytest.mark.usefixtures("unchecked")
LONG = (PROMPT * 7)[:253]  # keys of a second split of decode attention are a few tokens away


def family(name: str, *, exact: bool) -> _core.Session:
    """With its MTP head."""
    model = load(FAMILIES / name, device="metal", exact=exact, mtp=True)
    return _core.Session(model.model, 1, model.context)


def plain(core: _core.Session, prompt: list[int], options: dict[str, object], count: int) -> list[object]:
    core.rewind(0, 0)
    core.configure(0, **{**options, "top_logprobs": 3})
    core.prefill(0, prompt, True)
    out: list[object] = [core.drawn(0)]
    while len(out) < count:
        core.step([0])
        out.append(core.drawn(0))
    return out


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "default"])
@pytest.mark.parametrize("name", [NAME, "gemma3_text-q4g64", "llama-q8g32"])
@pytest.mark.parametrize("prompt", [PROMPT, LONG], ids=["short", "split"])
def test_drafts_give_what_plain_steps_give(name: str, exact: bool, prompt: list[int]) -> None:
    check_drafts(session(name, exact=exact), prompt)


def test_a_cache_of_u8() -> None:
    model = load(GOLDEN / NAME, device="metal", kv="u8")
    check_drafts(_core.Session(model.model, 1, model.context), LONG)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "default"])
@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_recurrent_states_and_experts_go_back(name: str, exact: bool) -> None:
    check_drafts(family(name, exact=exact), PROMPT)


def check_drafts(core: _core.Session, prompt: list[int]) -> None:
    for options in (GREEDY, SAMPLED):
        want = plain(core, prompt, options, 19)
        truth = [token for token, _ in want]  # type: ignore[misc]
        out = plain(core, prompt, options, 1)
        for drafts, right in ((7, 7), (4, 2), (0, 0), (5, 0), (3, 3)):
            guess = truth[len(out) : len(out) + drafts]
            guess[right:] = [(token + 1) % 277 for token in guess[right:]]
            got = core.verify(0, guess)
            assert len(got) == right + 1
            out += got
            if right == 2:  # a plain step between, whose successor runs ahead
                core.step([0])
                out.append(core.drawn(0))
        assert out == want


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_the_mtp_head(name: str) -> None:
    z = golden(name)
    prompt = z["prompt"].tolist()
    core = family(name, exact=True)
    for at in (0, 6, len(prompt) - 2):
        core.rewind(0, 0)
        core.configure(0, bias=[(prompt[at + 1], 100.0)])
        core.prefill(0, prompt[: at + 1], True)
        assert np.abs(core.mtp_logits(0, [])[0] - z["mtp_logits"][at]).max() < 1e-4
    want = [token for token, _ in plain(core, prompt, {}, 9)]  # type: ignore[misc]
    out = [token for token, _ in plain(core, prompt, {}, 1)]  # type: ignore[misc]
    assert core.draft_by_mtp(0, 3) == z["mtp_drafts"].tolist()
    while len(out) < 9:
        out += [token for token, _ in core.verify(0, core.draft_by_mtp(0, 3))]
        core.step([0])  # its state is the head's, too
        out.append(core.drawn(0)[0])
    assert out[:9] == want


def test_the_block_drafter(tmp_path: Path) -> None:
    weights = write(tmp_path / "drafter", "qwen3")
    model = load(PLACES["qwen3"], device="metal", exact=True, block_drafter=tmp_path / "drafter")
    core = _core.Session(model.model, 1, model.context)
    truth = [token for token, _ in plain(core, PROMPT, {}, 4)]  # type: ignore[misc]
    plain(core, PROMPT, {}, 1)
    assert len(core.verify(0, [*truth[1:3], 9, 9])) == 3
    states = states_of("qwen3", [*PROMPT, *truth[:3]], weights["taps"])
    want = reference(weights, "qwen3", states, truth[3], model.spec.decoder.norm_eps)
    assert np.abs(core.block_logits(0, 5) - want).max() < 1e-4
    assert core.draft_by_block(0, 5) == want.argmax(-1).tolist()


def test_a_draft_model_on_the_same_device() -> None:
    model = loaded(NAME)
    core = _core.Session(model.model, 1, model.context)
    for options in (GREEDY, SAMPLED):
        want = [token for token, _ in plain(core, PROMPT, options, 12)]  # type: ignore[misc]
        drafter = _core.ModelDrafter(model.model, model.context)
        out = [token for token, _ in plain(core, PROMPT, options, 1)]  # type: ignore[misc]
        while len(out) < 12:
            drafts = drafter.propose(core, 0, 4)
            got = [token for token, _ in core.verify(0, drafts)]
            assert got[:-1] == drafts  # the target itself is always right
            out += got
        assert out[:12] == want


def test_a_fault_leaves_the_row_as_it_was(emulator: Emulator) -> None:
    core = session(NAME)
    want = [token for token, _ in plain(core, PROMPT, SAMPLED, 8)]  # type: ignore[misc]
    plain(core, PROMPT, SAMPLED, 1)
    with fault(emulator, 0), pytest.raises(saragossa.errors.DeviceError):
        core.verify(0, want[1:5])
    assert core.length(0) == len(PROMPT)
    assert [token for token, _ in core.verify(0, want[1:5])] == want[1:6]
