"""What MkDocs does beyond its configuration: pages kept elsewhere, the reference, formulas as MathML.

All pages are Markdown that a code host shows as well, so links and formulas are written for it: a link may lead to any
file of the repository, and formulas stand between dollars. The site has a copy of every file that a page links to.
"""

from __future__ import annotations

import ast
import html
import os.path
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "website")]

from docstrings import PACKAGES, exports  # noqa: E402

ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "experiments/README.md": "experiments.md",
}
"""Pages that stand outside of ``docs`` in the repository, and where the site has them."""

_LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)#\s]+)")
_FENCE = re.compile(r"^(```\w+) excerpt$", re.MULTILINE)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_COMMANDS = ((r"\\arg(?=\\)", r"\\operatorname{arg}"), (r"\\[bB]igg?[lrm]?(?![A-Za-z])|\\left\.|\\textstyle", ""))
"""Commands without a form in MathML, and what stands for them."""
_NAMES = re.compile(r"<!-- names: shortlist\.([\w.]+) -->")


def place(path: str) -> str:
    """Where the site has a file of the repository; examples are pages with their code."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{path}.md" if path.startswith("examples/") and path.endswith((".py", ".yaml")) else path


def linked(text: str, source: str) -> set[str]:
    """The files of the repository that a page at ``source`` links to."""
    return {os.path.normpath(os.path.join(os.path.dirname(source), target)) for target in _LINK.findall(text)}


def relinked(text: str, source: str) -> str:
    """The page with links that lead to where the site has their files."""
    here = os.path.dirname(place(source)) or "."

    def there(match: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(os.path.dirname(source), match[1]))
        return os.path.relpath(place(path), here)

    return _LINK.sub(there, text)


def example_page(path: str) -> str:
    """A page that shows a file of the examples."""
    text, language = (ROOT / path).read_text(encoding="utf-8"), Path(path).suffix[1:].replace("py", "python")
    about = ast.get_docstring(ast.parse(text)) if language == "python" else None
    return f"# {path}\n\n{about or ''}\n\n```{language}\n{text}```\n"


def names_table(package: str) -> str:
    """Every public name of a package: a table with the first sentence of each, and then their documentation."""
    full = [f"shortlist.{package}.{name}" for name in exports(package)]
    index = "".join(f"- [`{each.rpartition('.')[2]}`][{each}]\n" for each in full)
    return f'<div class="names" markdown>\n\n{index}\n</div>\n\n' + "".join(f"::: {each}\n\n" for each in full)


def mathml(content: str) -> str:
    """The page with every formula as MathML, which browsers show without a script."""

    def formula(match: re.Match[str]) -> str:
        source = html.unescape(match[3]).strip()
        for command, known in _COMMANDS:
            source = re.sub(command, known, source)
        shown = convert(source, display="block" if match[2] == "[" else "inline")
        if "\\" in shown:
            raise PluginError(f"A formula has a command without a form in MathML: {source}")
        return shown

    return _FORMULA.sub(formula, content)


def sources(files: Files) -> dict[str, str]:
    """The text of all pages, by their place in the repository; then of those that lie elsewhere."""
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    return texts | {path: (ROOT / path).read_text(encoding="utf-8") for path in ELSEWHERE}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside of ``docs``."""
    texts = sources(files)
    for path in ELSEWHERE:
        files.append(File.generated(config, place(path), content=texts[path]))
    for path in sorted(set().union(*(linked(text, source) for source, text in texts.items()))):
        if path.startswith("docs/") or path in ELSEWHERE:
            continue
        if not (ROOT / path).is_file():
            raise PluginError(f"A page links to {path}, which is not a file of the repository.")
        if place(path) != path:
            files.append(File.generated(config, place(path), content=example_page(path)))
        else:
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to the files of the site, and put the reference of a package where its page asks for it."""
    uri = page.file.src_uri
    source = next((path for path, place in ELSEWHERE.items() if place == uri), f"docs/{uri}")
    if not uri.startswith("examples/"):
        markdown = relinked(markdown, source)
    markdown = _FENCE.sub(r"\1", markdown)
    return _NAMES.sub(lambda match: names_table(match[1]), markdown)


def on_page_content(content: str, *, page: Page, **_: Any) -> str:
    """Formulas as MathML."""
    return mathml(content)


def on_nav(nav: Navigation, *, config: MkDocsConfig, files: Files) -> Navigation:
    """Fail if a package of the reference has no page."""
    missing = [name for name in PACKAGES if files.get_file_from_path(f"api/{name}.md") is None]
    if missing:
        raise PluginError(f"The reference has no page for {', '.join(missing)}.")
    return nav
