"""The runner of the documentation sees every block, and what it runs can fail."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.docs.snippets import Block, Command, blocks, commands
from tests.docs.test_snippets import is_kept_from_running, not_called, run
from tests.scene.warm import WarmPython

PAGE = """# Title

```python
first = 1
```

1. In a list

   ```python
   second = first + 1
   ```

````text
```python
not a block of its own
```
````

```console
$ make demo
$ txsaga tx list --state 'in doubt'
one  two
$ txsaga tx show 7  # exits 3
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_are_found_in_order_with_their_line(page: Path) -> None:
    assert [(block.info, block.line) for block in blocks(page)] == [
        ("python", 4),
        ("python", 10),
        ("text", 14),
        ("console", 20),
    ]


def test_blocks_of_a_page_share_their_names(page: Path, python: WarmPython) -> None:
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.info == "python":
            run(block, names, python)
    assert names["second"] == 2


def test_only_our_own_command_is_called(page: Path) -> None:
    console = list(blocks(page))[-1]
    assert list(commands(console)) == [
        Command(words=("tx", "list", "--state", "in doubt"), status=0),
        Command(words=("tx", "show", "7"), status=3),
    ]


SCRIPT = """
```python
# greet.py
import os, sys
sys.exit(int(os.environ["CODE"]) + int(os.environ.get("MORE", 0)))
```

```console
$ export CODE=4
$ python greet.py  # exits 4
$ MORE=2 python greet.py  # exits 6
```
"""


def test_a_named_block_is_saved_and_called_with_what_was_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: WarmPython
) -> None:
    page = tmp_path / "script.md"
    page.write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODE", "0")
    for block in blocks(page):
        run(block, {}, python)
    assert (tmp_path / "greet.py").exists()


def test_an_unexpected_exit_code_fails_the_page(
    page: Path, monkeypatch: pytest.MonkeyPatch, python: WarmPython
) -> None:
    monkeypatch.chdir(page.parent)
    Path("greet.py").write_text("raise SystemExit(4)")
    wrong = Block(page=page, line=1, info="console", body="$ python greet.py\n")
    with pytest.raises(AssertionError, match="greet"):
        run(wrong, {}, python)


def test_a_saved_file_that_is_never_called_is_found(page: Path) -> None:
    page.write_text(SCRIPT.replace("$ python", "$ cat").replace("MORE=2 python", "MORE=2 cat"))
    assert not_called(list(blocks(page))) == {"greet.py"}
    page.write_text(SCRIPT)
    assert not not_called(list(blocks(page)))


def test_a_failing_block_names_its_line(page: Path, python: WarmPython) -> None:
    broken = Block(page=page, line=4, info="python", body="raise ValueError('here')\n")
    with pytest.raises(ValueError, match="here") as caught:
        run(broken, {}, python)
    assert caught.traceback[-1].lineno == 3  # counted from zero


@pytest.mark.parametrize("info", ["python no-run", "py", "python3", "pycon", "{code-block} python"])
def test_a_block_that_would_be_passed_over_is_refused(page: Path, info: str) -> None:
    assert is_kept_from_running(Block(page=page, line=1, info=info, body=""))


@pytest.mark.parametrize("info", ["python", "console", "text", "", "toml"])
def test_a_block_that_runs_or_is_no_code_is_fine(page: Path, info: str) -> None:
    assert not is_kept_from_running(Block(page=page, line=1, info=info, body=""))


def test_a_variable_takes_what_a_command_prints(
    page: Path, python: WarmPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOWN", "")
    block = Block(page=page, line=1, info="console", body="$ export SHOWN=$(txsaga --version)\n")
    assert list(commands(block)) == [Command(words=("--version",), status=0, captured="SHOWN")]
    run(block, {}, python)
    assert os.environ["SHOWN"].startswith("txsaga ")


def test_python_changes_no_environment_of_the_shell(
    page: Path, python: WarmPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SET", "by the shell")
    block = Block(page=page, line=1, info="python", body='import os; os.environ["SET"] = "by Python"')
    with pytest.raises(AssertionError, match="a shell does not see"):
        run(block, {}, python)
