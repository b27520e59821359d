"""Where a model folder keeps its chat templates."""

from __future__ import annotations

from pathlib import Path

from saragossa.errors import TokenizerError
from saragossa.files import read_optional_object, read_text
from saragossa.text.special_tokens import CONFIG_FILE

MAX_TEMPLATES = 64
MAX_TEMPLATE_BYTES = 1 << 20


def read_templates(folder: Path) -> tuple[dict[str, str], str]:
    """Templates by name, and the path they came from; see `ChatTemplate.from_dir` for the order."""
    files: dict[str, Path] = {}
    if (single := folder / "chat_template.jinja").is_file():
        files["default"] = single
    extra = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    if len(extra) > MAX_TEMPLATES:
        raise TokenizerError(f"{folder} has {len(extra)} chat templates, at most {MAX_TEMPLATES}")
    files |= {file.stem: file for file in extra}
    if files:
        templates = {
            name: read_text(file, MAX_TEMPLATE_BYTES, TokenizerError) for name, file in files.items()
        }
        return templates, str(next(iter(files.values())))
    for name in ("chat_template.json", CONFIG_FILE):
        file = folder / name
        value = read_optional_object(file, error=TokenizerError).get("chat_template")
        if value is not None:
            return _named(value, str(file)), str(file)
    return {}, str(folder)


def _named(value: object, source: str) -> dict[str, str]:
    """`chat_template`: a string, or a list of {name, template}."""
    if isinstance(value, str):
        return {"default": value}
    entries = [(name, text) for name, text in value.items()] if isinstance(value, dict) else []
    if isinstance(value, list):
        entries = [(e.get("name"), e.get("template")) for e in value if isinstance(e, dict)]
    if not entries or (isinstance(value, list) and len(entries) != len(value)):
        raise TokenizerError(f"{source}: chat_template must be a string or a list of {{name, template}}")
    if len(entries) > MAX_TEMPLATES:
        raise TokenizerError(f"{source}: chat_template lists {len(entries)}, at most {MAX_TEMPLATES}")
    templates: dict[str, str] = {}
    for name, text in entries:
        if not isinstance(name, str) or not isinstance(text, str):
            raise TokenizerError(f"{source}: chat_template has an entry without name and template")
        templates[name] = text
    return templates
