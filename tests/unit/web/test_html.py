import html

from hypothesis import given
from hypothesis import strategies as st

from exporter.web.html import escape


@given(st.text(st.sampled_from("&<>\"';#xa\u2028é")))
def test_text_is_escaped_as_the_module_html_does(words: str) -> None:
    assert escape(words) == html.escape(words)
    assert html.unescape(escape(words)) == words
