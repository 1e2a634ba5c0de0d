"""What a page for people has in it, as a browser would take it."""

from html.parser import HTMLParser

VOID = {"meta", "wbr"}
"""Elements without an end."""
KNOWN = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "a", "span", "small", "bdi", "wbr", "footer"),
    *("table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "div", "ul", "li", "meter"),
}
"""All elements that pages are made of."""


class Outline(HTMLParser):
    """Tags, links, cells and text of a page. Fails where elements are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str | None] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        """Text of the cells of all tables."""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value for name, value in attrs if name == "href"]
        if tag == "tr":
            self.rows.append([])
        if tag in {"th", "td"}:
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            return
        self.words.append(data.strip())
        if self.open and {"td", "th"} & set(self.open):
            cell = self.rows[-1][-1]
            # A line of less weight is a line of its own.
            self.rows[-1][-1] = f"{cell} {data}" if cell and self.open[-1] == "small" else cell + data

    def row(self, first: str) -> list[str]:
        """Return the cells of the one row whose first cell begins like this, without the non-breaking of spaces."""
        (found,) = [row for row in self.rows if row[0].split(" ")[0] == first]
        return [cell.replace("\u00a0", " ").strip() for cell in found]

    @property
    def said(self) -> str:
        return " ".join(filter(None, self.words)).replace("\u00a0", " ")
