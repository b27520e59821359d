"""The head for multi-token prediction. Whatever it says the text is right: its drafts are held to others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import saragossa
import tiny_checkpoints as tiny
from e2e.test_family_goldens import FAMILIES, MANIFEST, floats, fused, golden
from golden.mtp_reference import MtpReference
from saragossa import _core
from saragossa.engine.loading import Loaded, load
from saragossa.engine.speculation import SpeculationStats
from saragossa.errors import UsageError

NAMES = [n for n, entry in MANIFEST["checkpoints"].items() if entry.get("mtp") and "form" not in entry]
EXACT = 1e-4


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def loaded(name: str) -> Loaded:
    return load(FAMILIES / name, device="cpu", exact=True, mtp=True)


def fresh(loaded: Loaded, prompt: list[int], forced: int | None = None, chunk: int = 512) -> _core.Session:
    """A session that holds the prompt; `forced` is the token that it draws."""
    core = _core.Session(loaded.model, 1, loaded.context)
    core.configure(0, bias=[] if forced is None else [(forced, 100.0)])
    for at in range(0, len(prompt), chunk):
        core.prefill(0, prompt[at : at + chunk], at + chunk >= len(prompt))
    return core


def test_logits_equal_the_golden_at_every_depth(name: str, loaded: Loaded) -> None:
    z = golden(name)
    prompt = z["prompt"].tolist()
    for at in (0, 1, 2, 11, 25, len(prompt) - 2):
        core = fresh(loaded, prompt[: at + 1], prompt[at + 1], chunk=5)
        assert np.abs(core.mtp_logits(0, [])[0] - z["mtp_logits"][at]).max() < EXACT, at
    core = fresh(loaded, prompt)
    assert core.draft_by_mtp(0, len(z["mtp_drafts"])) == z["mtp_drafts"].tolist()
    assert core.draft_by_mtp(0, 2) == z["mtp_drafts"].tolist()[:2]  # asked again


def test_logits_of_further_drafts_equal_the_reference(name: str, loaded: Loaded) -> None:
    """The head's own state takes the place of the model's."""
    z = golden(name)
    reference = reference_of(name)
    prompt, first, given = z["prompt"].tolist(), int(z["greedy"][0]), [5, 250, 9, 9]
    got = fresh(loaded, prompt).mtp_logits(0, given)
    states, tokens = np.asarray(z["mtp_states"], np.float64), [*prompt[1:], first]
    for depth in range(len(given) + 1):
        last = reference.hidden(states, tokens)[-1]
        assert np.abs(got[depth] - reference.logits(last)).max() < EXACT, depth
        states, tokens = np.concatenate([states, last[None]]), [*tokens, *given[depth : depth + 1]]


def reference_of(name: str) -> MtpReference:
    folder = FAMILIES / MANIFEST["checkpoints"][name]["golden"]
    return MtpReference(
        fused(floats(FAMILIES / name)), json.loads((folder / "config.json").read_text())["text_config"]
    )


def test_the_head_follows_its_row(loaded: Loaded, name: str) -> None:
    """Behind verifications, steps, rewinds, snapshots it drafts as behind a prompt of the same tokens."""
    prompt = golden(name)["prompt"].tolist()
    core = fresh(loaded, prompt)
    drawn = [core.drawn(0)[0]]

    def check(what: str) -> None:
        tokens = [*prompt, *drawn]
        again = fresh(loaded, tokens[:-1], tokens[-1])
        got, want = (c.mtp_logits(0, [3, 4]) for c in (core, again))
        assert np.abs(got - want).max() < EXACT, what

    def run(drafts: list[int]) -> None:
        drawn.extend(token for token, _ in core.verify(0, drafts))

    check("prompt")
    plain = fresh(loaded, prompt)
    truth = [plain.drawn(0)[0]]
    for _ in range(12):
        plain.step([0])
        truth.append(plain.drawn(0)[0])

    core = fresh(loaded, prompt)
    run([*truth[1:4], 7, 7])
    check("a verification that was half right")
    for _ in range(3):
        core.step([0])
        drawn.append(core.drawn(0)[0])
    check("plain steps")
    run(core.draft_by_mtp(0, 3))
    check("drafts of its own")
    core.mark(0)
    at = core.length(0)
    run([1])
    run([2])
    core.rewind(0, at)
    del drawn[at - len(prompt) :]
    core.configure(0, bias=[(77, 100.0)])
    core.prefill(0, [8, 9], True)
    drawn += [8, 9, core.drawn(0)[0]]
    check("a rewind to a mark, and another prompt")
    held = core.snapshot(0)
    other = _core.Session(loaded.model, 2, loaded.context)
    for row, forced in ((0, 12), (1, 13)):  # two forks: neither writes into the other's
        other.restore(row, held)
        other.configure(row, bias=[(forced, 100.0)])
        other.prefill(row, [20 + row], True)
        other.draft_by_mtp(row, 3)
    for row, forced in ((0, 12), (1, 13)):
        tokens = [*prompt, *drawn[:-1], 20 + row]
        want = fresh(loaded, tokens, forced).mtp_logits(0, [3, 4])
        assert np.abs(other.mtp_logits(row, [3, 4]) - want).max() < EXACT, row


def test_forks_at_the_edge_of_a_block() -> None:
    """The pair of the last token needs the next one, so it goes into a block that both forks share."""
    loaded = load(FAMILIES / "qwen3_5", device="cpu", exact=True, mtp=True)
    prompt = [4 + (7 * i * i + 5) % 250 for i in range(256)]
    held = fresh(loaded, prompt).snapshot(0)
    core = _core.Session(loaded.model, 2, loaded.context)
    for row in (0, 1):
        core.restore(row, held)
        core.configure(row, bias=[(12, 100.0)])
        core.prefill(row, [20 + 100 * row], True)
    for row in (0, 1):
        want = fresh(loaded, [*prompt, 20 + 100 * row], 12).mtp_logits(0, [3])
        assert np.abs(core.mtp_logits(row, [3]) - want).max() < EXACT, row


def test_many_plain_steps_are_caught_up() -> None:
    loaded = load(FAMILIES / "qwen3_5", device="cpu", exact=True, mtp=True)
    core = fresh(loaded, [2, 9, 40, 7])
    tokens = [2, 9, 40, 7, core.drawn(0)[0]]
    for _ in range(600):
        core.step([0])
        tokens.append(core.drawn(0)[0])
    want = fresh(loaded, tokens[:-1], tokens[-1]).mtp_logits(0, [6])
    assert np.abs(core.mtp_logits(0, [6]) - want).max() < EXACT


def test_the_head_changes_nothing_of_the_model(name: str) -> None:
    """Logits and draws with the head loaded are those without it, bit for bit."""
    for exact in (True, False):
        cores = [
            _core.Session(load(FAMILIES / name, device="cpu", exact=exact, mtp=mtp).model, 1, 512)
            for mtp in (False, True)
        ]
        prompt = golden(name)["prompt"].tolist()
        drawn = []
        for core in cores:
            core.configure(0, temperature=1.0, seed=3, top_logprobs=5)
            core.prefill(0, prompt[:30], False)
            core.prefill(0, prompt[30:], True)
            drawn.append([core.drawn(0)])
            for _ in range(5):
                core.step([0])
                drawn[-1].append(core.drawn(0))
        assert drawn[0] == drawn[1]
        with pytest.raises(UsageError, match="without an MTP head"):
            cores[0].draft_by_mtp(0, 2)


# --- planted heads ------------------------------------------------------------------------------------------


def planted(folder: Path, side: int) -> Path:
    """A model that walks a cycle: no layer adds anything, and the head's row of a token's successor is the
    token's own embedding. Its MTP head passes one half of its input on, side 0: the next token, whose
    successor it then predicts; side 1: the state, whose successor is the token that it was told."""
    source = FAMILIES / "qwen3_5"
    tensors = floats(source)
    hidden = tensors["mtp.norm.weight"].size
    for key, value in tensors.items():
        if key.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")) or key in (
            "model.norm.weight",
            "mtp.norm.weight",
            "mtp.pre_fc_norm_embedding.weight",
            "mtp.pre_fc_norm_hidden.weight",
        ):
            tensors[key] = np.zeros_like(value)
    embed = tensors["model.embed_tokens.weight"]
    successor = (np.arange(len(embed)) * 7 + 3) % len(embed)
    head = np.zeros_like(embed)
    head[successor] = embed / np.linalg.norm(embed, axis=1, keepdims=True)
    tensors["lm_head.weight"] = head
    tensors["mtp.fc.weight"] = np.zeros((hidden, 2 * hidden), np.float32)
    tensors["mtp.fc.weight"][:, side * hidden : (side + 1) * hidden] = np.eye(hidden)
    stored = {
        key.replace("model.", "model.language_model.", 1): ("F32", value.shape, value.astype("<f4").tobytes())
        for key, value in tensors.items()
        if "visual" not in key
    }
    tiny.write_model(folder, json.loads((source / "config.json").read_text()), stored)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((source / file).read_bytes())
    return folder


@pytest.mark.parametrize("options", [{}, {"temperature": 0.02, "seed": 1}], ids=["greedy", "sampled"])
def test_a_planted_head_is_accepted_where_it_must_be(tmp_path: Path, options: dict[str, Any]) -> None:
    walk = [5]
    while len(walk) < 80:
        walk.append((walk[-1] * 7 + 3) % 277)
    stats: list[SpeculationStats] = []
    for side in (0, 1):
        llm = saragossa.LLM(planted(tmp_path / str(side), side), device="cpu", exact=True, speculate="mtp")
        session = llm.session()
        chunks = llm.stream(walk[:20], session=session, max_tokens=60, ignore_eos=True, **options)
        assert [chunk.token_id for chunk in chunks] == walk[20:]
        stats.append(session.stats)
    right, wrong = stats
    assert right.accepted == right.drafted > 30
    assert wrong.accepted == 0 < wrong.drafted  # a head that is always wrong costs time alone
