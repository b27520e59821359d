"""Rendered prompts against transformers' (tests/golden/make_template_goldens.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saragossa.text.template import ChatTemplate

GOLDEN = Path(__file__).parents[2] / "golden"
DATA = json.loads((GOLDEN / "template_goldens.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def templates() -> dict[str, ChatTemplate]:
    return {
        name: ChatTemplate(
            (GOLDEN / "chat_templates" / f"{name}.jinja").read_text("utf-8"), special_tokens=special
        )
        for name, special in DATA["special_tokens"].items()
    }


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: f"{case['template']}-{case['name']}")
def test_prompt_equals_transformers(templates: dict[str, ChatTemplate], case: dict[str, Any]) -> None:
    prompt = templates[case["template"]].render(case["messages"], **case["options"])
    assert prompt == case["prompt"]
