"""The Service Bus pairs page in Chromium, with a complete Airflow and both namespaces."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.system.demo.layout import PROJECT
from tests.system.pages.accessibility import (
    contrast_problems,
    keyboard_problems,
    motion_problems,
    naming_problems,
    structure_problems,
)
from tests.system.pages.browser import WIDTHS, Browser, open_browser
from tests.system.platform.leftovers import metric
from tests.system.platform.platform import Platform, platform

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.timeout(420)]

DAGS = PROJECT / "tests" / "system" / "pages" / "dags" / "pages.py"
BY_HAND = """# An Airflow DAG
from servicebus_pair.dags import by_hand_dag

by_hand_dag(dag_id="servicebus_pair_by_hand", servicebus_pair_conn_id="contoso_pair")
"""
SCREENSHOTS = PROJECT / ".screenshots"
DAG_IDS = ["pages_sends", "pages_recovery", "servicebus_pair_by_hand"]
NARROW = 320  # WCAG 2.2, 1.4.10: no scrolling in two dimensions at this width
# In the dialog, or in the browser's own controls, which follow the last one.
FOCUS_IN_DIALOG = "const at = document.activeElement; return at === document.body || at.closest('dialog') !== null"
# The server polls every 5 s and the page every 2.5 s, plus a margin.
REFRESH_SECONDS = 5.0 + 2.5 + 2.5
PAIR = "#pair-contoso_pair"
BACKLOG = f"{PAIR} [aria-labelledby=contoso_pair-backlog] .figures div:first-child dd"

SYPHON = f"{PAIR} [aria-labelledby=contoso_pair-syphon]"
MOVED = f"{SYPHON} .figures div:first-child dd"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("page")
    dags = root / "dags"
    dags.mkdir()
    shutil.copy(DAGS, dags)
    (dags / "by_hand.py").write_text(BY_HAND)
    with platform(root / "home", dags=dags, dag_ids=DAG_IDS) as started:
        yield started


@pytest.fixture(scope="module")
def browser(system: Platform) -> Iterator[Browser]:
    """A browser signed in as admin."""
    with open_browser(SCREENSHOTS) as opened:
        sign_in(opened, system, "admin", system.stack.airflow.password)
        yield opened


def sign_in(browser: Browser, system: Platform, user: str, password: str) -> None:
    browser.open(f"{system.stack.airflow.url}/")
    browser.type("input[name=username]", user)
    browser.type("input[name=password]", password)
    browser.click("button[type=submit]")
    browser.wait_until(lambda: "/auth/" not in browser.driver.current_url, what="signed in")


def send(system: Platform) -> None:
    assert system.wait_for_end(system.api.trigger("pages_sends", conf={})) == "success"


def backlog_messages(system: Platform) -> int:
    """Return the number of messages on the secondary."""
    return int(metric(system.stack.secondary, "messages"))


def row_text(browser: Browser, entity: str) -> str:
    return browser.text(f"{PAIR} tr[data-key={entity}]")


def announcements(browser: Browser) -> str:
    return str(browser.find("#announcements").get_attribute("textContent"))


def display_problems(browser: Browser) -> list[str]:
    """Return contrast and size problems in all widths and themes; leaves the page at desktop width, light."""
    found = []
    for width in (*WIDTHS.values(), NARROW):
        for dark in (True, False):
            browser.emulate(width=width, dark=dark)
            found += [f"{width} {'dark' if dark else 'light'}: {each}" for each in contrast_problems(browser)]
            found += [f"{width}: wider than the viewport"] if browser.overflows() else []
    browser.emulate(width=WIDTHS["desktop"], dark=False)
    return found


def fill_action(browser: Browser, action: str, reason: str) -> WebElement:
    """Open the dialog of an action and enter a reason; return its submit button."""
    browser.click(f"{PAIR} [data-action={action}]")
    browser.type("dialog textarea[name=reason]", reason)
    return browser.find("dialog button[type=submit]")


def test_outage_is_displayed_and_drained_from_the_page(system: Platform, browser: Browser):
    send(system)
    browser.open(f"{system.stack.airflow.url}/plugin/servicebus-pairs")
    browser.enter_frame("iframe")
    browser.wait_until(lambda: "healthy" in row_text(browser, "flights"), what="flights is healthy")
    browser.wait_until(lambda: "reachable" in browser.text(f"{PAIR} .namespace.good"), what="the primary is reachable")
    browser.leave_frame()
    browser.driver.save_screenshot(str(SCREENSHOTS / "in-airflow.png"))
    browser.console_messages()  # ignore messages of Airflow's own pages
    browser.open(f"{system.stack.airflow.url}/servicebus-pairs/")
    browser.wait_until(lambda: "Healthy" in browser.text(f"{PAIR} .verdict"), what="healthy verdict")
    browser.screenshot("healthy")

    system.stack.processes.kill(system.stack.primary.process)
    browser.wait_until(
        lambda: "unreachable" in browser.text(f"{PAIR} .namespace.bad"),
        what="the primary is unreachable",
        seconds=REFRESH_SECONDS,
    )
    send(system)
    sent_at = time.monotonic()
    browser.wait_until(
        lambda: "failed over" in row_text(browser, "flights"), what="flights is failed over", seconds=REFRESH_SECONDS
    )
    assert time.monotonic() - sent_at <= REFRESH_SECONDS
    browser.wait_until(lambda: browser.text(BACKLOG) == "160", what="160 messages in the backlog")
    browser.wait_until(lambda: "flights: failed over" in announcements(browser), what="it is announced")
    browser.screenshot("outage")
    assert display_problems(browser) == []

    system.stack.primary.start(system.stack.processes)
    fill_action(browser, "start_syphon", "The primary is back.").click()
    browser.wait_until(
        lambda: browser.driver.find_elements("css selector", f"{PAIR} progress"), what="a drain", seconds=60
    )
    browser.wait_until(lambda: 0 < int(browser.text(MOVED)) < 160, what="messages are moved", seconds=60)
    browser.screenshot("drain")
    assert display_problems(browser) == []
    fill_action(browser, "pause_syphon", "Let the consumers breathe.").click()
    browser.wait_until(lambda: "Let the consumers breathe." in browser.text(SYPHON), what="the pause is displayed")
    browser.wait_until(lambda: "deferred" in browser.text(SYPHON), what="the drain waits in the triggerer", seconds=60)
    left = backlog_messages(system)
    fill_action(browser, "resume_syphon", "They have.").click()
    assert backlog_messages(system) == left > 0
    browser.wait_until(lambda: "Healthy" in browser.text(f"{PAIR} .verdict"), what="healthy verdict again", seconds=120)
    browser.wait_until(lambda: "healthy" in row_text(browser, "flights"), what="flights is healthy again")
    log = browser.text(f"{PAIR} .action-log")
    assert "admin started the syphon: The primary is back. pages_recovery" in log
    assert "admin paused the syphon: Let the consumers breathe." in log
    browser.wait_until(lambda: "success" in browser.text(f"{PAIR} .action-log"), what="the run ends")
    browser.screenshot("recovered")
    assert display_problems(browser) == []
    assert browser.console_messages() == []


def test_page_is_accessible_by_screen_reader_and_keyboard(system: Platform, browser: Browser):
    browser.open(f"{system.stack.airflow.url}/servicebus-pairs/")
    browser.find(f"{PAIR} table")
    browser.click("#pause")  # updates would change the elements that are counted
    for summary in browser.driver.find_elements("css selector", f"{PAIR} summary"):
        summary.click()

    assert naming_problems(browser) + structure_problems(browser) == []
    assert keyboard_problems(browser) == []
    assert motion_problems(browser) == []


def test_dialog_traps_and_restores_keyboard_focus(system: Platform, browser: Browser):
    browser.open(f"{system.stack.airflow.url}/servicebus-pairs/")
    browser.driver.execute_script("arguments[0].focus()", browser.find(f"{PAIR} [data-action=fail_over]"))
    browser.press(Keys.ENTER)
    browser.find("dialog[open]")

    assert naming_problems(browser) == []
    assert contrast_problems(browser, selector="dialog") == []
    for _ in range(12):  # more than the number of its controls
        assert browser.driver.execute_script(FOCUS_IN_DIALOG)
        browser.press(Keys.TAB)
    browser.press(Keys.ESCAPE)
    assert browser.driver.switch_to.active_element.get_attribute("data-action") == "fail_over"


def test_run_link_opens_the_run_in_airflow(system: Platform, browser: Browser):
    browser.open(f"{system.stack.airflow.url}/plugin/servicebus-pairs")
    browser.enter_frame("iframe")
    browser.click(f"{PAIR} .action-log a")
    browser.leave_frame()

    browser.wait_until(lambda: "/dags/pages_recovery/runs/" in browser.driver.current_url, what="the run's own page")
    browser.console_messages()


def test_markup_in_user_text_is_displayed_as_text(system: Platform, browser: Browser):
    hostile = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
    browser.open(f"{system.stack.airflow.url}/servicebus-pairs/")
    submit = fill_action(browser, "fail_over", hostile)
    browser.type("dialog input[name=others]", "<b>gate</b>")
    submit.click()

    browser.wait_until(lambda: hostile in browser.text(f"{PAIR} .action-log"), what="the reason as text")
    browser.wait_until(lambda: "<b>gate</b>" in browser.text(f"{PAIR} .action-log"), what="the entity as text")
    browser.wait_until(
        lambda: "<b>gate</b>" in browser.text(f"{PAIR} [aria-labelledby=contoso_pair-entities] table"),
        what="the entity, failed over by hand",
        seconds=60,
    )
    assert browser.driver.title == "Service Bus pairs"
    assert browser.driver.find_elements("css selector", f"{PAIR} img, {PAIR} script, {PAIR} b") == []


def test_dialog_displays_errors_and_escape_closes_it(system: Platform, browser: Browser):
    browser.open(f"{system.stack.airflow.url}/servicebus-pairs/")
    fill_action(browser, "fail_over", "because").click()

    browser.wait_until(lambda: "entities" in browser.text("dialog [role=alert]"), what="the error")
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    browser.wait_until(
        lambda: not browser.driver.find_elements("css selector", "dialog[open]"), what="the dialog is gone"
    )


def test_viewer_has_read_only_access(system: Platform, tmp_path: Path):
    passwords = json.loads((system.stack.home.airflow / "passwords.json").read_text())
    with open_browser(tmp_path) as opened:
        sign_in(opened, system, "viewer", passwords["viewer"])
        opened.open(f"{system.stack.airflow.url}/servicebus-pairs/")
        opened.click(f"{PAIR} [data-action=fail_over]")

        opened.wait_until(lambda: "read-only access" in opened.text("dialog[open]"), what="the reason")
