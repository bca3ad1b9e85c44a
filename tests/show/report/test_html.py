"""The file: data that cannot run, a policy by hashes, nothing from outside."""

import io
import re
from base64 import b64encode
from hashlib import sha256

from lostflops.core.results import Page, Result
from lostflops.show.report.html import write_page

PAYLOAD = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def written(page: Page) -> str:
    stream = io.StringIO()
    write_page(page, stream)
    return stream.getvalue()


def test_no_text_of_a_page_becomes_markup() -> None:
    calm = written(Page("calm", (Result("a", "A", "calm"),), {}))
    hostile = written(Page(PAYLOAD, (Result("a", PAYLOAD, PAYLOAD, notes=(PAYLOAD,)),), {PAYLOAD: PAYLOAD}))
    assert "<script>alert" not in hostile
    assert "<img" not in hostile
    assert hostile.count("<script") == calm.count("<script")


def test_the_policy_allows_what_is_in_the_file_and_nothing_else() -> None:
    text = written(Page("p", (), {}))
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    for kind, held in (("script", script), ("style", style)):
        digest = b64encode(sha256(held.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert not re.search(r"""(?:src|href)=["']?https?:""", text)
