"""The page of the pairs in a real Chromium, with a whole Airflow and both namespaces running (issue 7)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.system.demo.layout import PROJECT
from tests.system.pages.audit import drawn, heard, in_motion, keyboard, laid_out
from tests.system.pages.browser import SIZES, Browser, browser
from tests.system.whole.platform import Platform, platform
from tests.system.whole.traces import metric

if TYPE_CHECKING:
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.timeout(420)]

DAGS = PROJECT / "tests" / "system" / "pages" / "dags" / "pages.py"
BY_HAND = PROJECT / "dags" / "servicebus_pair_by_hand.py"
PICTURES = PROJECT / ".screenshots"
WANTED = ["pages_sends", "pages_recovery", "servicebus_pair_by_hand"]
NARROW = 320  # WCAG 2.2, 1.4.10: no scrolling in two dimensions at this width
# In the dialog, or in the browser's own controls, which come after the last one.
WITHIN = "const at = document.activeElement; return at === document.body || at.closest('dialog') !== null"
# The server looks every 5 s and the page asks every 2.5 s; the rest is for both of them to do it.
ONE_REFRESH = 5.0 + 2.5 + 2.5
PAIR = "#pair-contoso_pair"
BACKLOG = f"{PAIR} [aria-labelledby=contoso_pair-backlog] .figures div:first-child dd"

SYPHON = f"{PAIR} [aria-labelledby=contoso_pair-syphon]"
MOVED = f"{SYPHON} .figures div:first-child dd"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A whole Airflow with two namespaces."""
    root = tmp_path_factory.mktemp("page")
    dags = root / "dags"
    dags.mkdir()
    for file in (DAGS, BY_HAND):
        shutil.copy(file, dags)
    with platform(root / "home", dags=dags, wanted=WANTED) as started:
        yield started


@pytest.fixture(scope="module")
def looking(whole: Platform) -> Iterator[Browser]:
    """A browser whose user has signed in as admin by the form."""
    with browser(PICTURES) as opened:
        airflow = whole.stack.airflow
        opened.open(f"{airflow.url}/")
        opened.type("input[name=username]", "admin")
        opened.type("input[name=password]", airflow.password)
        opened.click("button[type=submit]")
        opened.until(lambda: "/auth/" not in opened.driver.current_url, what="signed in")
        yield opened


def send(whole: Platform) -> None:
    assert whole.wait_for_end(whole.api.trigger("pages_sends", conf={})) == "success"


def whole_backlog(whole: Platform) -> int:
    """How many messages the secondary holds."""
    return int(metric(whole.stack.secondary, "messages"))


def row(looking: Browser, entity: str) -> str:
    """What the page says of an entity."""
    return looking.text(f"{PAIR} tr[data-key={entity}]")


def heard_news(looking: Browser) -> str:
    """What a screen reader is told without being asked."""
    return str(looking.find("#announce").get_attribute("textContent"))


def looks_wrong(looking: Browser) -> list[str]:
    """What cannot be read or hit, on a desk and on a phone, light and dark; leaves the page as on a light desk."""
    found = []
    for width in (*SIZES.values(), NARROW):
        for dark in (True, False):
            looking.shape(width=width, dark=dark)
            found += [f"{width} {'dark' if dark else 'light'}: {each}" for each in drawn(looking)]
            found += [f"{width}: it is wider than the window"] if looking.overflows() else []
    looking.shape(width=SIZES["desk"], dark=False)
    return found


def answer(looking: Browser, action: str, reason: str) -> WebElement:
    """Press the button of an action, and give a reason in the dialog; return it, to be sent."""
    looking.click(f"{PAIR} [data-action={action}]")
    looking.type("dialog textarea[name=reason]", reason)
    return looking.find("dialog button[type=submit]")


def test_an_outage_is_seen_and_drained_from_the_page(whole: Platform, looking: Browser):
    send(whole)
    looking.open(f"{whole.stack.airflow.url}/plugin/servicebus-pairs")
    looking.enter_frame("iframe")
    looking.until(lambda: "healthy" in row(looking, "flights"), what="flights is healthy")
    looking.until(lambda: "reachable" in looking.text(f"{PAIR} .end.good"), what="the primary is reachable")
    looking.leave_frame()
    looking.driver.save_screenshot(str(PICTURES / "in-airflow.png"))
    looking.logged()  # Airflow's own pages may complain
    looking.open(f"{whole.stack.airflow.url}/servicebus-pairs/")
    looking.until(lambda: "All is well" in looking.text(f"{PAIR} .verdict"), what="all is well")
    looking.picture("healthy")

    whole.stack.processes.kill(whole.stack.primary.process)
    looking.until(
        lambda: "not reachable" in looking.text(f"{PAIR} .end.bad"), what="the primary is gone", seconds=ONE_REFRESH
    )
    send(whole)
    ended = time.monotonic()
    looking.until(lambda: "failed over" in row(looking, "flights"), what="flights turns", seconds=ONE_REFRESH)
    assert time.monotonic() - ended <= ONE_REFRESH
    looking.until(lambda: looking.text(BACKLOG) == "160", what="160 messages in the backlog")
    looking.until(lambda: "flights: failed over" in heard_news(looking), what="it is announced")
    looking.picture("outage")
    assert looks_wrong(looking) == []

    whole.stack.primary.start(whole.stack.processes)
    answer(looking, "start_syphon", "The primary is back.").click()
    looking.until(lambda: looking.driver.find_elements("css selector", f"{PAIR} progress"), what="a drain", seconds=60)
    looking.until(lambda: 0 < int(looking.text(MOVED)) < 160, what="messages are moved", seconds=60)
    looking.picture("drain")
    assert looks_wrong(looking) == []
    answer(looking, "pause_syphon", "Let the consumers breathe.").click()
    looking.until(lambda: "Let the consumers breathe." in looking.text(SYPHON), what="it says that it is paused")
    looking.until(lambda: "deferred" in looking.text(SYPHON), what="the drain waits in the triggerer", seconds=60)
    left = whole_backlog(whole)
    answer(looking, "resume_syphon", "They have.").click()
    assert whole_backlog(whole) == left > 0
    looking.until(lambda: "All is well" in looking.text(f"{PAIR} .verdict"), what="all is well again", seconds=120)
    looking.until(lambda: "healthy" in row(looking, "flights"), what="flights is healthy again")
    deeds = looking.text(f"{PAIR} .deeds")
    assert "admin started the syphon: The primary is back. pages_recovery" in deeds
    assert "admin paused the syphon: Let the consumers breathe." in deeds
    looking.until(lambda: "success" in looking.text(f"{PAIR} .deeds"), what="the run ends")
    looking.picture("recovered")
    assert looks_wrong(looking) == []
    assert looking.logged() == []


def test_the_page_can_be_heard_and_used_with_the_keys_alone(whole: Platform, looking: Browser):
    looking.open(f"{whole.stack.airflow.url}/servicebus-pairs/")
    looking.find(f"{PAIR} table")
    looking.click("#hold")  # so that what is counted stays
    for summary in looking.driver.find_elements("css selector", f"{PAIR} summary"):
        summary.click()

    assert heard(looking) + laid_out(looking) == []
    assert keyboard(looking) == []
    assert in_motion(looking) == []


def test_a_dialog_is_entered_named_and_left_by_keys_and_gives_the_focus_back(whole: Platform, looking: Browser):
    from selenium.webdriver.common.keys import Keys

    looking.open(f"{whole.stack.airflow.url}/servicebus-pairs/")
    looking.driver.execute_script("arguments[0].focus()", looking.find(f"{PAIR} [data-action=fail_over]"))
    looking.press(Keys.ENTER)
    looking.find("dialog[open]")

    assert heard(looking) == []
    assert drawn(looking, selector="dialog") == []
    for _ in range(12):  # more often than it has controls
        assert looking.driver.execute_script(WITHIN)
        looking.press(Keys.TAB)
    looking.press(Keys.ESCAPE)
    assert looking.driver.switch_to.active_element.get_attribute("data-action") == "fail_over"


def test_a_link_leads_from_the_frame_to_the_run_in_airflow(whole: Platform, looking: Browser):
    looking.open(f"{whole.stack.airflow.url}/plugin/servicebus-pairs")
    looking.enter_frame("iframe")
    looking.click(f"{PAIR} .deeds a")
    looking.leave_frame()

    looking.until(lambda: "/dags/pages_recovery/runs/" in looking.driver.current_url, what="the run's own page")
    looking.logged()


def test_markup_in_what_people_and_services_write_is_shown_and_not_run(whole: Platform, looking: Browser):
    hostile = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
    looking.open(f"{whole.stack.airflow.url}/servicebus-pairs/")
    submit = answer(looking, "fail_over", hostile)
    looking.type("dialog input[name=others]", "<b>gate</b>")
    submit.click()

    looking.until(lambda: hostile in looking.text(f"{PAIR} .deeds"), what="the reason, as it was written")
    looking.until(lambda: "<b>gate</b>" in looking.text(f"{PAIR} .deeds"), what="the entity, as it was written")
    looking.until(
        lambda: "<b>gate</b>" in looking.text(f"{PAIR} [aria-labelledby=contoso_pair-entities] table"),
        what="the entity, failed over by hand",
        seconds=60,
    )
    assert looking.driver.title == "Service Bus pairs"
    assert looking.driver.find_elements("css selector", f"{PAIR} img, {PAIR} script, {PAIR} b") == []


def test_a_dialog_says_what_is_wrong_and_escape_leaves_it(whole: Platform, looking: Browser):
    from selenium.webdriver.common.keys import Keys

    looking.open(f"{whole.stack.airflow.url}/servicebus-pairs/")
    answer(looking, "fail_over", "because").click()

    looking.until(lambda: "entities" in looking.text("dialog [role=alert]"), what="what is wrong")
    looking.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    looking.until(lambda: not looking.driver.find_elements("css selector", "dialog[open]"), what="the dialog is gone")


def test_a_viewer_reads_and_is_told_that_looking_is_all(whole: Platform, tmp_path: Path):
    import json

    passwords = json.loads((whole.stack.home.airflow / "passwords.json").read_text())
    with browser(tmp_path) as opened:
        opened.open(f"{whole.stack.airflow.url}/")
        opened.type("input[name=username]", "viewer")
        opened.type("input[name=password]", passwords["viewer"])
        opened.click("button[type=submit]")
        opened.until(lambda: "/auth/" not in opened.driver.current_url, what="signed in")
        opened.open(f"{whole.stack.airflow.url}/servicebus-pairs/")
        opened.click(f"{PAIR} [data-action=fail_over]")

        opened.until(lambda: "you may look, not act" in opened.text("dialog[open]"), what="why not")
