"""``docs/rules.md``: its examples are valid, and its actions, defaults and limits are the code's."""

import json
import re

from pydantic import TypeAdapter

from listwright.ranking.rules.schema import (
    MOST_CAPS,
    MOST_RULES,
    MOST_RULES_OF_FILE,
    MOST_VALUES_OF_ALL,
    CapRule,
    DiversifyRule,
    Rule,
)
from listwright.service.rules import MOST_BYTES, parse
from support.pages.figure_blocks import ROOT, excerpt, page
from support.service.asgi import serving

PAGE = page("docs/rules.md")


def test_the_demo_answers_its_request():
    (body,) = re.findall(r"-d '(.*?)'\n```", PAGE, flags=re.DOTALL)
    (answer,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
    with serving(ROOT / "models" / "demo" / "1") as client:
        found = client.post("/rerank", json=json.loads(body)).json()
    assert excerpt(found, json.loads(answer)) == json.loads(answer)


def test_its_file_is_one():
    (file,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert parse(file.encode()).keys() == {"shop", "books"}


def test_its_actions_and_defaults_are_the_codes():
    table = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]+) \|", PAGE, flags=re.MULTILINE)
    actions = {action for names, _ in table[1:] for action in re.findall(r"`(\w+)`", names)}  # behind the header
    schema = TypeAdapter(Rule).json_schema()
    assert actions == schema["discriminator"]["mapping"].keys()
    fields = dict(table)
    assert f"`first` ({CapRule.model_fields['first'].default})" in fields["`cap`"]
    for name in ("weight", "first"):
        assert f"`{name}` ({DiversifyRule.model_fields[name].default})" in fields["`diversify`"]


def test_its_limits_are_the_codes():
    assert f"at most {MOST_RULES} rules, a file {MOST_RULES_OF_FILE:,} a model and {MOST_BYTES // 2**20} MiB" in PAGE
    assert f"at most {MOST_CAPS} caps and {MOST_VALUES_OF_ALL:,} values" in PAGE
